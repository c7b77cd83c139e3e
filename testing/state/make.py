#!/usr/bin/env python3
"""Makes the state of a released program, as test data for later ones.

    testing/state/make.py PROGRAM COMMIT

writes VERSION.tar.xz and VERSION.json beside this file. The archive has the configuration and the state directory of
a tracker that has served for a while and was stopped. The other file says of which program and when, and has what
that program itself showed of the state after a restart: responses of its API and its scrapes. The test
`releases` of the application reads both with the present program.

Needs Debian's packages libfaketime and xz-utils.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
BOOTSTRAP = "tg_0123456789abcdefghijABCDEFGHIJ01"

# Three of these keys are constants in later versions.
CONFIGURATION = """\
# Configuration of the tracker whose state this is.
[udp]
listen = ["127.0.0.1:0", "[::1]:0"]
receive_buffer_bytes = 4194304
pin_cores = false

[http]
listen = ["127.0.0.1:0"]
trusted_proxies = ["127.0.0.0/8"]

[tracker]
interval_s = 1800
peer_lifetime_s = 2700

[access]
mode = "deny"
private_and_open = true

[admin]
listen = ["127.0.0.1:0"]
requests_per_s = 0
webhook_ports = ["443"]

[[listener]]
protocol = "http"
listen = ["127.0.0.2:0"]
access.private = true
"""

# How long the tracker serves with a fast clock, and then with the true one.
HISTORY_S = 240
AGE_S = 75

PUBLIC = [f"{number:02x}" * 20 for number in range(1, 31)]
PRIVATE = [f"{number:02x}" * 20 for number in range(0xC0, 0xC5)]
READS = [
    "/keys?limit=100",
    "/bans",
    "/tokens",
    "/webhooks",
    "/lists/deny",
    "/stats",
    "/torrents?sort=downloads&limit=100",
    "/stats/history?span=1d",
]


class Tracker:
    """A running tracker."""

    def __init__(self, program, folder, clock=None):
        # Programs outside the state directory are the only ones that the sandbox permits.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
        environment |= {"TIDEGATE_STATE__DIR": str(folder / "state"), "TIDEGATE_BOOTSTRAP_TOKEN": BOOTSTRAP}
        if clock:
            environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME": clock}
            environment |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
        command = [program, "--config", str(folder / "tidegate.toml")]
        self.output = folder / "output"
        with open(self.output, "w") as output, open(folder / "log", "a") as log:
            self.process = subprocess.Popen(command, stdout=output, stderr=log, env=environment)
        wait(lambda: "admin" in self.output.read_text() or self.process.poll() is not None)
        text = self.output.read_text()
        assert self.process.poll() is None, (folder / "log").read_text()
        self.http = re.search(r"http +(?:http://)?(127\.0\.0\.1:\d+)", text)[1]
        self.private = re.search(r"http +(?:http://)?(127\.0\.0\.2:\d+)", text)[1]
        self.admin = re.search(r"admin +(?:http://)?(127\.0\.0\.1:\d+)", text)[1]
        wait(self.is_ready)

    def is_ready(self):
        try:
            return get(f"http://{self.admin}/health/ready")[0] == 200
        except OSError:
            return False

    def api(self, method, target, body=None, token=BOOTSTRAP):
        """Returns the response's JSON, or None if it has no body."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.admin}/api/v1{target}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {target}: {error.code} {error.read().decode()}")
        return json.loads(text) if text else None

    def announce(self, torrent, peer, left, event="", key="", **more):
        """Announces a peer, an address and a port."""
        address, port = peer
        host, path = (self.private, f"/{key}/announce") if key else (self.http, "/announce")
        query = {"peer_id": f"-TG1000-{port:012}", "port": port, "left": left, "compact": 1} | more
        if event:
            query["event"] = event
        target = f"http://{host}{path}?info_hash={escaped(torrent)}&{urllib.parse.urlencode(query)}"
        status, body = get(target, {} if key else {"X-Forwarded-For": address})
        assert status == 200 and b"failure" not in body, (torrent, peer, status, body)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def get(url, headers=None):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def wait(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def escaped(torrent):
    return re.sub("..", r"%\g<0>", torrent)


def peers_of(number):
    """Returns the peers of a torrent, of both families. Later torrents have more."""
    v4 = [(f"198.{18 + number % 2}.{number}.{at}", 6881 + at) for at in range(1, 2 + number)]
    v6 = [(f"2001:4860:{number:x}::{at:x}", 51413 + at) for at in range(1, 2 + number // 3)]
    return v4 + v6


def make_records(tracker):
    """Makes rows of each table, and returns the keys of users and a recorded token."""
    names = ["alice", "bob", "carol"]
    limits = [{}, {"torrents": 100, "peers_per_torrent": 5}, {"expires": 4_000_000_000, "announces_per_minute": 60}]
    keys = [tracker.api("POST", "/keys", {"name": name} | limit)["key"] for name, limit in zip(names, limits)]
    removed = tracker.api("POST", "/keys", {"name": "mallory"})
    tracker.api("DELETE", f"/keys/{removed['id']}")
    tracker.api("POST", "/bans", {"network": "203.0.113.0/24", "reason": "scraper"})
    tracker.api("POST", "/bans", {"network": "2001:db8:bad::/48", "reason": "flood", "expires": 4_000_000_000})
    for number in range(0xD0, 0xE0):
        tracker.api("PUT", f"/lists/deny/{f'{number:02x}' * 20}")
    tracker.api("POST", "/tokens", {"name": "panel", "scopes": ["stats:read", "keys:read"]})
    token = tracker.api("POST", "/tokens", {"name": "operator", "scopes": ["*"]})["secret"]
    tracker.api("POST", "/webhooks", {"url": "https://hooks.example/tidegate", "events": ["ban"]})
    tracker.api("PATCH", "/config", {"tracker.interval_s": 1801, "tracker.numwant_max": 150})
    return keys, token


def make_swarms(tracker, keys):
    for number, torrent in enumerate(PUBLIC):
        for at, peer in enumerate(peers_of(number)):
            tracker.announce(torrent, peer, left=at % 3, event="started")
        for peer in peers_of(number)[: number // 2]:
            tracker.announce(torrent, peer, left=0, event="completed")
    # All but one of a torrent's peers have left.
    for peer in peers_of(3)[1:]:
        tracker.announce(PUBLIC[3], peer, left=0, event="stopped")
    for at, key in enumerate(keys):
        for torrent in PRIVATE[: 3 + at]:
            peer = ("127.0.0.1", 40_000 + at)
            tracker.announce(torrent, peer, left=1000, event="started", key=key, uploaded=0, downloaded=0)
            tracker.announce(torrent, peer, left=0, event="completed", key=key, uploaded=2048 << at, downloaded=1000)


def listing(tracker, token):
    """Returns what the tracker shows of its state."""
    responses = {target: tracker.api("GET", target, token=token) for target in READS}
    # Later versions have other settings: only those that were changed are kept.
    settings = tracker.api("GET", "/config", token=token)["settings"]
    changed = ["tracker.interval_s", "tracker.numwant_max"]
    responses["settings"] = {it["name"]: it["value"] for it in settings if it["name"] in changed}
    for torrent in PUBLIC[2:30:9] + PRIVATE[:1]:
        target = f"/torrents/{torrent}?limit=1000"
        responses[target] = tracker.api("GET", target, token=token)
    scrapes = {}
    for torrent in PUBLIC:
        body = get(f"http://{tracker.http}/scrape?info_hash={escaped(torrent)}")[1]
        scrapes[torrent] = body.replace(bytes.fromhex(torrent), b"HASH").decode("ascii")
    return responses, scrapes


def main():
    program, commit = sys.argv[1:]
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tidegate.toml").write_text(CONFIGURATION)
        # A history: the clock runs sixty times as fast for four hours.
        tracker = Tracker(program, folder, clock="-5h x60")
        keys, token = make_records(tracker)
        make_swarms(tracker, keys)
        time.sleep(HISTORY_S)
        tracker.stop()
        tracker = Tracker(program, folder)
        make_swarms(tracker, keys)
        tracker.api("PUT", f"/torrents/{PUBLIC[5]}/freeze")
        time.sleep(AGE_S)
        # The journal's last files have changes, not only a walk.
        tracker.announce(PUBLIC[0], ("198.51.100.99", 9999), left=0, event="started")
        tracker.stop()
        archive = HERE / f"{version}.tar.xz"
        words = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "tidegate.toml", "state"]
        subprocess.run(["tar", "-C", name, "-cJf", archive, *words], check=True)
        stopped = int(time.time())
        tracker = Tracker(program, folder)
        responses, scrapes = listing(tracker, token)
        tracker.stop()
    about = {"version": version, "commit": commit, "made": time.strftime("%Y-%m-%d", time.gmtime(stopped))}
    expected = about | {
        "stopped": stopped,
        "token": token,
        "user_keys": keys,
        "scrapes": scrapes,
        "responses": responses,
    }
    text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False)
    (HERE / f"{version}.json").write_text(text.replace(',"/', ',\n"/').replace('},{', '},\n{') + "\n")


if __name__ == "__main__":
    main()
