"""Runs a libtorrent peer for the real-client tests: it seeds or fetches one torrent until it is killed.

    peer.py TORRENT FOLDER LISTEN

It seeds if FOLDER holds the data, and stores the data there if not. LISTEN is ADDRESS:PORT. Messages go to
standard output. A process has one session, because two in one process lose responses of UDP trackers.
"""

import sys

import libtorrent

torrent, folder, listen = sys.argv[1:]
settings = {
    "listen_interfaces": listen,
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "alert_mask": libtorrent.alert.category_t.tracker_notification
    | libtorrent.alert.category_t.error_notification
    | libtorrent.alert.category_t.status_notification,
}
if "webtorrent_stun_server" in libtorrent.default_settings():
    # libtorrent 2.1: its network has no way to a STUN server.
    settings["webtorrent_stun_server"] = ""
session = libtorrent.session(settings)
session.add_torrent({"ti": libtorrent.torrent_info(torrent), "save_path": folder})
while True:
    session.wait_for_alert(1000)
    for alert in session.pop_alerts():
        print(f"{alert.what()}: {alert.message()}", flush=True)
