#!/usr/bin/env python3
"""Compares tidegate as the tracker of a UNIT3D site with UNIT3D-Announce, beside a real MariaDB.

Usage: unit3d.py --bench TIDEGATE_BENCH --tidegate TIDEGATE --rival UNIT3D_ANNOUNCE [--rounds N] [--seconds N] [--ddl FILE]

Both trackers serve the same users and torrents of the same tables in turn, and write to them. A third one is tidegate
with the users' keys in a file: it counts nothing for a site. The tracker runs on the
first core; the load and the database run on the second one. Each round prints a line of JSON for each tracker; the
last lines have the medians of announces per CPU-second of the tracker, and the ratios of tidegate to UNIT3D-Announce with
the range of the pairs.
`written` are the rows of `history` when the load ends, `at_end` those when the tracker has stopped.
The rival is built from its public repository; its queries are checked against the tables when it is built.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

USERS = 200
TORRENTS = 10_000
PEERS = 100_000
API_KEY = "0123456789abcdef0123456789abcdef"


def wait_for(port, seconds=30):
    """Waits until a port accepts connections."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def on_core(core, command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *command], **options)


class Database:
    """A MariaDB server with files of its own."""

    def __init__(self, folder, core):
        self.data = os.path.join(folder, "data")
        install = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
        install += ["--skip-test-db", "--user=root", f"--datadir={self.data}"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.port = unused_port()
        server = shutil.which("mariadbd") or "/usr/sbin/mariadbd"
        command = [server, "--no-defaults", "--user=root", f"--datadir={self.data}", f"--port={self.port}"]
        command += ["--bind-address=127.0.0.1", f"--socket={folder}/socket", "--innodb-buffer-pool-size=512M"]
        self.process = on_core(core, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.port)

    def run(self, sql, database=""):
        client = ["mariadb", "-h127.0.0.1", f"-P{self.port}", "-uroot", "-N", "-B"]
        client += [database] if database else []
        return subprocess.run(client, input=sql, text=True, check=True, capture_output=True).stdout

    def fill(self, ddl, hashes):
        """Makes the tables anew, with users and torrents. Returns nothing."""
        self.run("DROP DATABASE IF EXISTS unit3d; CREATE DATABASE unit3d;")
        with open(ddl, encoding="utf-8") as file:
            self.run(file.read(), "unit3d")
        users = ",".join(f"({n},'u{n}','{n:032}',1)" for n in range(1, USERS + 1))
        torrents = ",".join(f"({n},'t{n}',UNHEX('{info_hash}'),1)" for n, info_hash in enumerate(hashes, 1))
        self.run(
            "INSERT INTO `groups` (id, slug) VALUES (1, 'user');"
            f"INSERT INTO users (id, username, passkey, group_id) VALUES {users};"
            f"INSERT INTO torrents (id, name, info_hash, status) VALUES {torrents};",
            "unit3d",
        )

    def history(self):
        """Returns the rows of the table `history`."""
        return int(self.run("SELECT COUNT(*) FROM history", "unit3d"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def tidegate(options, folder, database):
    """Starts tidegate. Returns the process and its port."""
    port, calls = unused_port(), unused_port()
    with open(f"{folder}/key", "w", encoding="utf-8") as file:
        file.write(API_KEY)
    with open(f"{folder}/tidegate.toml", "w", encoding="utf-8") as file:
        file.write(
            f'[udp]\nlisten = []\n[http]\nlisten = ["127.0.0.1:{port}"]\nworkers = 1\n[admin]\nlisten = []\n'
            f'[access]\nprivate = true\n[state]\ndir = "{folder}/state"\n[log]\nlevel = "warn"\n[site]\nkind = "unit3d"\n'
            f'database = "mysql://root@127.0.0.1:{database.port}/unit3d"\nlisten = "127.0.0.1:{calls}"\n'
            f'tracker_key = "{folder}/key"\nclients_per_torrent = 100\n'
            # The rival of these measurements has no limits of lists: both hand out all peers.
            'seed_lists = ""\nleech_lists = ""\n'
        )
    command = [options.tidegate, "serve", "--config", f"{folder}/tidegate.toml"]
    environment = dict(os.environ, TIDEGATE_UNSTABLE_KEYS="1")
    process = on_core(options.core, command, env=environment, stdout=subprocess.DEVNULL)
    return process, port


def keys_only(options, folder, _database):
    """Starts tidegate without a site. Returns the process and its port."""
    port = unused_port()
    with open(f"{folder}/keys", "w", encoding="utf-8") as file:
        file.writelines(f"{key}\n" for key in passkeys())
    with open(f"{folder}/tidegate.toml", "w", encoding="utf-8") as file:
        file.write(
            f'[udp]\nlisten = []\n[http]\nlisten = ["127.0.0.1:{port}"]\nworkers = 1\n[admin]\nlisten = []\n'
            f'[access]\nprivate = true\nkeys = "{folder}/keys"\n[state]\ndir = "{folder}/state"\n[log]\nlevel = "warn"\n'
        )
    command = [options.tidegate, "serve", "--config", f"{folder}/tidegate.toml"]
    return on_core(options.core, command, stdout=subprocess.DEVNULL), port


def passkeys():
    return [f"{n:032}" for n in range(1, USERS + 1)]


def rival(options, folder, database):
    """Starts UNIT3D-Announce. Returns the process and its port."""
    port = unused_port()
    variables = {
        "DATABASE_URL": f"mysql://root@127.0.0.1:{database.port}/unit3d",
        "FLUSH_INTERVAL": "3", "NUMWANT_DEFAULT": "25", "NUMWANT_MAX": "50", "ANNOUNCE_MIN": "1800",
        "ANNOUNCE_MAX": "3600", "UPLOAD_FACTOR": "100", "DOWNLOAD_FACTOR": "100", "PEER_EXPIRY_INTERVAL": "1800",
        "ACTIVE_PEER_TTL": "7200", "INACTIVE_PEER_TTL": "1814400", "MAX_PEERS_PER_TORRENT_PER_USER": "100",
        "APIKEY": API_KEY, "LISTENING_IP_ADDRESS": "127.0.0.1", "LISTENING_PORT": str(port),
        "IS_CONNECTIVITY_CHECK_ENABLED": "false", "CONNECTIVITY_CHECK_INTERVAL": "1800",
        "IS_ANNOUNCE_LOGGING_ENABLED": "false",
    }
    with open(f"{folder}/.env", "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in variables.items())
    log = open(f"{folder}/log", "w", encoding="utf-8")
    process = on_core(options.core, [os.path.abspath(options.rival)], cwd=folder, stdout=log, stderr=log)
    return process, port


def measure(options, name, start, database, keys):
    """Runs one tracker under load. Returns its figures."""
    with tempfile.TemporaryDirectory() as folder:
        process, port = start(options, folder, database)
        try:
            wait_for(port)
            time.sleep(1)
            load = [options.bench, "load", "http", f"http://127.0.0.1:{port}/announce/{{key}}", "--keys", keys]
            load += ["--torrents", str(TORRENTS), "--peers", str(PEERS), "--spread", "uniform"]
            load += ["--seconds", str(options.seconds), "--warm-up", "4", "--pid", str(process.pid)]
            done = subprocess.run(
                ["taskset", "-c", str(options.load_core), *load], check=True, capture_output=True, text=True
            )
            figures = json.loads(done.stdout)
            written = database.history()
        finally:
            process.send_signal(signal.SIGTERM)
            # UNIT3D-Announce writes a few thousand rows every 3 s, and the rest at its end.
            process.wait(600)
    figures = {"tracker": name, "written": written, "at_end": database.history(), "load": figures}
    print(json.dumps(figures), flush=True)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tidegate", required=True)
    parser.add_argument("--rival", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--ddl", default="edge/site/tests/site/unit3d.sql")
    options = parser.parse_args()
    trackers = {"UNIT3D-Announce": rival, "tidegate": tidegate, "tidegate, keys only": keys_only}
    per_cpu_s = {name: [] for name in trackers}
    with tempfile.TemporaryDirectory() as folder:
        hashes, keys = f"{folder}/hashes", f"{folder}/keys"
        write = [options.bench, "load", "http", "http://127.0.0.1:1/announce", "--torrents", str(TORRENTS)]
        subprocess.run([*write, "--write-hashes", hashes], check=True, stdout=subprocess.DEVNULL)
        with open(keys, "w", encoding="utf-8") as file:
            file.writelines(f"{key}\n" for key in passkeys())
        with open(hashes, encoding="utf-8") as file:
            info_hashes = file.read().split()
        database = Database(folder, options.load_core)
        try:
            for _ in range(options.rounds):
                for name, start in trackers.items():
                    database.fill(options.ddl, info_hashes)
                    figures = measure(options, name, start, database, keys)
                    responses = figures["load"]["responses"]
                    if responses["error"] > responses["announce"] / 1000:
                        raise SystemExit(f"{name} refused {responses['error']} of {responses['announce']} announces")
                    per_cpu_s[name].append(figures["load"]["tracker"]["responses_per_cpu_s"])
        finally:
            database.stop()
    theirs = per_cpu_s.pop("UNIT3D-Announce")
    print(json.dumps({"tracker": "UNIT3D-Announce", "per_cpu_s": round(statistics.median(theirs))}))
    for name, ours in per_cpu_s.items():
        pairs = sorted(a / b for a, b in zip(ours, theirs))
        median = statistics.median(ours)
        ratio = median / statistics.median(theirs)
        figures = {"per_cpu_s": round(median), "ratio": round(ratio, 3), "pairs": [round(pairs[0], 3), round(pairs[-1], 3)]}
        print(json.dumps({"tracker": name, **figures}))


if __name__ == "__main__":
    main()
