#!/usr/bin/env python3
"""Upgrades a running tracker from one program to another and back, under load, and prints what clients have noticed.

    testing/state/upgrade.py OLD NEW

It needs a released program, which the repository does not have: see bench/record for runs of it.
"""

import os
import re
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from make import CONFIGURATION, PUBLIC, Tracker, escaped, get, listing, make_records, make_swarms, wait


class Clients:
    """Announces without a pause, over UDP with one connection id, and over HTTP with a connection for each announce."""

    def __init__(self, tracker):
        text = tracker.output.read_text()
        host, port = re.search(r"udp +(127\.0\.0\.1):(\d+)", text).groups()
        self.udp, self.http = (host, int(port)), tracker.http
        self.counts = {"udp": [0, 0], "http": [0, 0]}
        self.is_over = False
        self.threads = [threading.Thread(target=run) for run in (self.ask_udp, self.ask_http)]
        for thread in self.threads:
            thread.start()

    def ask_udp(self):
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.settimeout(5)
        link.connect(self.udp)
        link.send(struct.pack(">QII", 0x41727101980, 0, 1))
        connection = link.recv(100)[8:16]
        body = bytes.fromhex(PUBLIC[0]) + b"-TG1000-000000000001" + struct.pack(">QQQIIIiH", 0, 1, 0, 0, 0, 1, 50, 7001)
        while not self.is_over:
            try:
                link.send(connection + struct.pack(">II", 1, 2) + body)
                is_good = link.recv(2000)[:8] == struct.pack(">II", 1, 2)
            except OSError:
                is_good = False
            self.counts["udp"][not is_good] += 1

    def ask_http(self):
        query = f"info_hash={escaped(PUBLIC[0])}&peer_id=-TG1000-000000000002&port=7002&left=1&compact=1"
        while not self.is_over:
            try:
                status, body = get(f"http://{self.http}/announce?{query}", {"X-Forwarded-For": "198.51.100.7"})
                is_good = status == 200 and b"failure" not in body
            except OSError:
                is_good = False
            self.counts["http"][not is_good] += 1

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def facts(tracker, token):
    """Returns what must not change: without ages and order, and without what the clients do."""
    responses, scrapes = listing(tracker, token)
    del scrapes[PUBLIC[0]]
    torrents = {target: response for target, response in responses.items() if target.startswith("/torrents/")}
    peers = {
        target: sorted([peer["address"], peer["role"]] for peer in torrent["peers"])
        for target, torrent in torrents.items()
    }
    keys = [[key["id"], key["key"], key["totals"]] for key in responses["/keys?limit=100"]["keys"]]
    others = [responses[target] for target in ("/bans", "/tokens", "/webhooks", "/lists/deny", "settings")]
    return {"scrapes": scrapes, "peers": peers, "keys": keys, "others": others}


def upgrade(tracker, link, program):
    """Replaces the program and sends SIGUSR2. Returns true if another process has taken over."""
    new = link.with_suffix(".new")
    new.symlink_to(program)
    new.rename(link)
    log = link.parent / "log"
    before = len(log.read_text())
    os.kill(tracker.pid, signal.SIGUSR2)
    wait(lambda: re.search(r"has taken over|upgrade failed", log.read_text()[before:]))
    news = log.read_text()[before:]
    taken = re.search(r"process (\d+) has taken over", news)
    if taken:
        tracker.pid = int(taken[1])
    return bool(taken), news


def covers(old, new):
    """Returns true if `new` has everything of `old`. Later versions may add fields."""
    if isinstance(old, dict):
        return all(name in new and covers(old[name], new[name]) for name in old)
    if isinstance(old, list):
        return len(old) == len(new) and all(map(covers, old, new))
    return old == new


def main():
    old, new = (str(Path(program).resolve()) for program in sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tidegate.toml").write_text(CONFIGURATION)
        link = folder / "tidegate"
        link.symlink_to(old)
        tracker = Tracker(str(link), folder)
        tracker.pid = tracker.process.pid
        keys, token = make_records(tracker)
        make_swarms(tracker, keys)
        before = facts(tracker, token)
        clients = Clients(tracker)
        for program, what in ((new, "to the new program"), (old, "back to the old one"), (new, "to the new one again")):
            time.sleep(2)
            taken, news = upgrade(tracker, link, program)
            time.sleep(2)
            after = facts(tracker, token)
            different = [part for part in before if not covers(before[part], after[part])]
            print(f"{what}: taken over: {taken}; different: {different}; answered, failed: {clients.counts}")
            why = [line for line in news.splitlines() if "ERROR" in line or "later version" in line]
            print("".join(f"    {line}\n" for line in why), end="")
        clients.stop()
        os.kill(tracker.pid, signal.SIGTERM)


main()
