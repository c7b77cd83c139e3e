#!/usr/bin/env python3
"""Counts how often BitTorrent clients return to a tracker that refuses their torrent.

Usage: refused.py [--minutes N] NAME=TIDEGATE[=QUIET] ...

Each NAME is a column: a program, and the refusals that are quiet there (`access.quiet`). Every client of every column
has a tracker of its own, whose deny list has the client's two torrents, one announced over HTTP and one over UDP. Prints
a table of announces an hour at the end, and the responses of the trackers.

Debian's packages: aria2, qbittorrent-nox, rtorrent, transmission-cli, python3-libtorrent. Run it in a network of its
own, so that no client reaches anything else: unshare --net sh -c "ip link set lo up; bench/clients/refused.py ..."
"""

import argparse
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PEER = os.path.join(os.path.dirname(__file__), "../../testing/clients/peer.py")
PIECE = 16384


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bencode(value):
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    return b"d" + b"".join(bencode(key) + bencode(value[key]) for key in sorted(value)) + b"e"


class Torrent:
    """A torrent without seeders."""

    def __init__(self, folder, name, announce):
        info = {"length": PIECE, "name": name, "piece length": PIECE, "pieces": hashlib.sha1(name.encode()).digest()}
        self.hash = hashlib.sha1(bencode(info)).hexdigest()
        self.file = os.path.join(folder, f"{name}.torrent")
        with open(self.file, "wb") as file:
            file.write(bencode({"announce": announce, "info": info}))


class Tracker:
    """A tracker that refuses the torrents of one client."""

    def __init__(self, program, quiet, folder):
        self.port, self.admin = unused_port(), unused_port()
        urls = {"http": f"http://127.0.0.1:{self.port}/announce", "udp": f"udp://127.0.0.1:{self.port}/announce"}
        self.torrents = [Torrent(folder, f"{os.path.basename(folder)}-{protocol}", url) for protocol, url in urls.items()]
        deny = os.path.join(folder, "deny.txt")
        with open(deny, "w") as file:
            file.write("".join(f"{torrent.hash}\n" for torrent in self.torrents))
        configuration = os.path.join(folder, "tidegate.toml")
        listen = f'workers = 1\nlisten = ["127.0.0.1:{self.port}"]\n'
        with open(configuration, "w") as file:
            file.write(f'[state]\ndir = ""\n[udp]\n{listen}[http]\n{listen}[admin]\nlisten = ["127.0.0.1:{self.admin}"]\n')
            file.write(f'[access]\ndeny = "{deny}"\n')
            if quiet:
                file.write(f'quiet = ["{quiet}"]\n')
        log = open(os.path.join(folder, "tracker.log"), "w")
        self.process = subprocess.Popen([program, "--config", configuration], stdout=log, stderr=log)

    def announces(self, protocol):
        """Returns the announces by HTTP or UDP so far."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics").read().decode()
        lines = [line for line in page.splitlines() if line.startswith("tidegate_requests_total{")]
        labels = (f'protocol="{protocol}"', 'kind="announce"')
        return sum(int(re.split(r"\s", line)[1]) for line in lines if all(label in line for label in labels))


def libtorrent(folder, torrents):
    return [
        ["/usr/bin/python3", PEER, torrent.file, folder, f"127.0.0.1:{unused_port()}"] for torrent in torrents
    ]


def aria2(folder, torrents):
    # It has UDP trackers only with a DHT, which finds no node here.
    options = ["--enable-dht=true", f"--dht-file-path={folder}/dht.dat", f"--dht-listen-port={unused_port()}"]
    options += ["--bt-enable-lpd=false", "--enable-peer-exchange=false", "--bt-stop-timeout=0"]
    return [["aria2c", *options, f"--dir={folder}", *[torrent.file for torrent in torrents], "-j", "2", "--force-sequential"]]


def transmission(folder, torrents):
    return [
        ["transmission-cli", "-g", os.path.join(folder, f"config{number}"), "-w", folder, "-p", str(unused_port()), "-M",
         torrent.file]
        for number, torrent in enumerate(torrents)
    ]


def qbittorrent(folder, torrents):
    settings = os.path.join(folder, "qBittorrent/config")
    os.makedirs(settings)
    with open(os.path.join(settings, "qBittorrent.conf"), "w") as file:
        file.write(
            "[LegalNotice]\nAccepted=true\n[BitTorrent]\nSession\\DHTEnabled=false\nSession\\LSDEnabled=false\n"
            f"Session\\PeXEnabled=false\nSession\\Port={unused_port()}\nSession\\Preallocation=false\n"
            f"[Preferences]\nWebUI\\Enabled=false\nWebUI\\Port={unused_port()}\n"
        )
    files = [torrent.file for torrent in torrents]
    return [["qbittorrent-nox", f"--profile={folder}", f"--save-path={folder}", "--skip-dialog=true", *files]]


def rtorrent(folder, torrents):
    port, settings = unused_port(), os.path.join(folder, "rtorrent.rc")
    with open(settings, "w") as file:
        file.write(
            f"system.daemon.set = true\nsession.path.set = {folder}\ndirectory.default.set = {folder}\n"
            f"dht.mode.set = disable\nprotocol.pex.set = no\nnetwork.port_range.set = {port}-{port}\n"
            "network.port_random.set = no\n"
        )
        for number, torrent in enumerate(torrents):
            file.write(f'schedule2 = load{number}, 1, 0, ((load.start, "{torrent.file}"))\n')
    return [["rtorrent", "-n", "-o", f"import={settings}"]]


CLIENTS = {
    "libtorrent": libtorrent,
    "qBittorrent": qbittorrent,
    "rTorrent": rtorrent,
    "Transmission": transmission,
    "aria2": aria2,
}
VERSIONS = [
    ["/usr/bin/python3", "-c", "import libtorrent; print('libtorrent', libtorrent.__version__)"],
    ["qbittorrent-nox", "--version"],
    ["rtorrent", "-h"],
    ["transmission-cli", "--version"],
    ["aria2c", "--version"],
]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--minutes", type=int, default=60)
    arguments.add_argument("columns", nargs="+")
    arguments = arguments.parse_args()
    root = tempfile.mkdtemp(prefix="tidegate-refused-")
    trackers, processes = {}, []
    try:
        for column in arguments.columns:
            name, program, quiet = (column.split("=", 2) + [""])[:3]
            for client, commands in CLIENTS.items():
                folder = os.path.join(root, name, client)
                os.makedirs(folder)
                tracker = Tracker(program, quiet, folder)
                processes.append(tracker.process)
                trackers[name, client] = tracker
                time.sleep(1)
                environment = {**os.environ, "HOME": folder, "TERM": "dumb"}
                for command in commands(folder, tracker.torrents):
                    log = open(os.path.join(folder, "client.log"), "a")
                    options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
                    processes.append(subprocess.Popen(command, env=environment, cwd=folder, **options))
        for minute in range(arguments.minutes):
            time.sleep(60)
            counts = {key: [tracker.announces(it) for it in ("http", "udp")] for key, tracker in trackers.items()}
            print(f"after {minute + 1} min: {counts}", file=sys.stderr, flush=True)
        for command in VERSIONS:
            output = subprocess.run(command, capture_output=True, text=True)
            print((output.stdout + output.stderr).splitlines()[0])
        names = [column.split("=")[0] for column in arguments.columns]
        print("| client | " + " | ".join(f"{name}, {protocol}" for name in names for protocol in ("HTTP", "UDP")) + " |")
        print("|---|" + "--:|" * (2 * len(names)))
        for client in CLIENTS:
            cells = [counts[name, client] for name in names]
            hourly = [f"{count * 60 / arguments.minutes:.0f}" for pair in cells for count in pair]
            print(f"| {client} | " + " | ".join(hourly) + " |")
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        shutil.rmtree(root, ignore_errors=True)


main()
