#!/usr/bin/env python3
"""Runs tidegate with the swarms and the requests of the largest public trackers, on one machine.

Usage: largest.py --bench TIDEGATE_BENCH --tidegate TIDEGATE [--peers N] [--torrents N] [--rate N] [--seconds N]

A fifth of the peers have IPv6. Half of the requests are connects, five in a hundred are scrapes, and of the announces two
in a hundred stop and two complete a download. The tracker runs on the first core, with a journal; the load runs on the
second one. The tracker is filled first, then loaded for `--seconds`; each minute prints a line of JSON with its memory,
CPU time and journal. After that it is upgraded, stopped and killed, the upgrade under the same load. The last lines have
latencies, losses, and the peers that were there before and after each end.

Peers draw their torrents from `--torrents`. At the default numbers about a fifth of those have peers.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request

MIX = "50:45:5"
V6_PART = 5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Seconds without load before the tracker is stopped.
REST_S = 120


class Tracker:
    """A tracker with its state in a folder."""

    def __init__(self, options, folder):
        self.options, self.folder, self.port = options, folder, 7801
        self.configuration = folder / "tidegate.toml"
        self.configuration.write_text(
            f'[udp]\nlisten = ["127.0.0.1:{self.port}", "[::1]:{self.port}"]\nworkers = 1\n[http]\nlisten = []\n'
            f'[admin]\nlisten = ["127.0.0.1:{self.port + 2}"]\nrequests_per_s = 0\n'
            f'[state]\ndir = "{folder}/state"\nswarms_restore_wait_s = 600\n[log]\nlevel = "warn"\n',
            encoding="utf-8",
        )
        self.process = None

    def start(self):
        """Starts the tracker. Returns the seconds until it is ready, with the peers of before."""
        began = time.monotonic()
        command = ["taskset", "-c", str(self.options.core), self.options.tidegate, "serve", "--config", self.configuration]
        environment = dict(os.environ, TIDEGATE_UNSTABLE_KEYS="1")
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        while not self.is_ready():
            if self.process.poll() is not None:
                raise SystemExit("the tracker has ended")
            time.sleep(0.02)
        return time.monotonic() - began

    def is_ready(self):
        try:
            return self.stats()["ready"]
        except OSError:
            return False

    def stats(self):
        token = (self.folder / "state/first-token").read_text(encoding="utf-8").strip()
        url = f"http://127.0.0.1:{self.port + 2}/api/v1/stats"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def processes(self):
        """Returns its processes: the launcher, which is forked first, and the tracker; of both twice in an upgrade."""
        pids = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.configuration).encode() in words:
                pids.append(int(entry.name))
        return sorted(pids)

    def usage(self):
        """Returns the memory and the CPU time of its processes."""
        resident, cpu = 0, 0
        for pid in self.processes():
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
            except OSError:
                continue
            resident += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
            fields = stat.rpartition(")")[2].split()
            cpu += int(fields[11]) + int(fields[12])
        return {"resident_mib": round(resident / 1024), "cpu_s": cpu / TICKS_PER_S}

    def figures(self):
        """Returns the memory, CPU time, swarms and journal of all its processes."""
        stats = self.stats()
        peers = {family: sum(roles.values()) for family, roles in stats["peers"].items()}
        return {
            **self.usage(), "v4": peers["v4"], "v6": peers["v6"], "torrents": stats["torrents"], "swarm_bytes": stats["memory"]["used"],
            "journal_bytes": stats["swarms"]["disk_bytes"], "round_age_s": stats["swarms"]["round_age_s"],
        }

    def end(self, number):
        """Ends the tracker by a signal. Returns the seconds it took."""
        began = time.monotonic()
        for pid in self.processes():
            os.kill(pid, number)
        self.process.wait(300)
        while self.processes():
            time.sleep(0.01)
        return time.monotonic() - began

    def upgrade(self):
        """Has a new process take over. Returns the seconds until the old one has ended, and the most memory of both."""
        began, most = time.monotonic(), 0
        os.kill(self.process.pid, signal.SIGUSR2)
        while self.process.poll() is None:
            most = max(most, self.usage()["resident_mib"])
            time.sleep(0.1)
        return {"seconds": round(time.monotonic() - began, 2), "resident_mib_max": most}


def part_of(family, number):
    """Returns what a family has of a number of peers or requests."""
    v6 = number // V6_PART
    return v6 if family == "v6" else number - v6


class Load:
    """The load of both families, a process each."""

    def __init__(self, options, port, seconds, words=(), rate=None):
        self.runs = []
        for family, host in (("v4", "127.0.0.1"), ("v6", "[::1]")):
            command = ["taskset", "-c", str(options.load_core), options.bench, "load", "udp", f"udp://{host}:{port}"]
            command += ["--peers", str(part_of(family, options.peers)), "--torrents", str(options.torrents)]
            command += ["--seconds", str(seconds), *words]
            command += ["--rate", str(part_of(family, rate))] if rate else []
            self.runs.append((family, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))

    def is_running(self):
        for family, run in self.runs:
            if run.poll():
                raise SystemExit(f"the load of {family} has failed")
        return any(run.poll() is None for _, run in self.runs)

    def report(self):
        """Waits for its end. Returns what each family's clients saw."""
        reports = {}
        for family, run in self.runs:
            all_figures = json.loads(run.communicate()[0])
            names = ("responses", "responses_per_s", "sent", "lost", "late", "errors", "latency_us", "checks", "generator")
            reports[family] = {name: all_figures[name] for name in names}
        return reports


def show(what, **figures):
    print(json.dumps({"case": what, **figures}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tidegate", required=True)
    parser.add_argument("--peers", type=int, default=25_000_000)
    parser.add_argument("--torrents", type=int, default=38_000_000)
    parser.add_argument("--rate", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--fill", type=int, default=300, help="seconds of announces before the load")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    options = parser.parse_args()
    mix = ["--mix", MIX, "--warm-up", "5"]
    with tempfile.TemporaryDirectory() as folder:
        tracker = Tracker(options, pathlib.Path(folder))
        tracker.start()
        show("empty", **tracker.figures())
        Load(options, tracker.port, options.fill, ["--mix", "0:1:0", "--numwant", "0"]).report()
        show("filled", **tracker.figures())
        load = Load(options, tracker.port, options.seconds, [*mix, "--churn", "2", "--completes", "2"], options.rate)
        while load.is_running():
            time.sleep(min(60, options.seconds / 4))
            show("minute", **tracker.figures())
        show("load", **load.report())
        load = Load(options, tracker.port, 60, mix, options.rate)
        time.sleep(10)
        show("upgrade", **tracker.upgrade())
        show("load of the upgrade", **load.report())
        time.sleep(REST_S)
        for what, number in (("stopped", signal.SIGTERM), ("killed", signal.SIGKILL)):
            before = tracker.figures()
            ended = tracker.end(number)
            ready = tracker.start()
            after = tracker.figures()
            show(what, ended_s=round(ended, 2), ready_s=round(ready, 2), before=before, after=after)
        tracker.end(signal.SIGTERM)


if __name__ == "__main__":
    main()
