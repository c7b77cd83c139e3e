//! Gazelle's tables and calls.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use harness::{PATIENCE, http};
use tidegate_site::{SiteConfig, SiteKind, SiteUrl};
use types::Event;

use crate::fixture::{Client, Database, GAZELLE, KEY, REPORTS, Site, text};

impl Site {
    fn update(&self, query: &str) -> (u16, String) {
        let response = http::get(self.calls, &format!("/{KEY}/update?{query}")).unwrap();
        (response.status, response.text())
    }

    pub(crate) fn success(&self, query: &str) {
        assert_eq!(self.update(query), (200, "success".to_owned()), "{query}");
    }
}

#[test]
fn a_day_leaves_the_rows_of_ocelot() {
    let database = Database::start(GAZELLE);
    let site = Site::start(database.config(SiteKind::Gazelle));
    let status = site.wait_ready();
    assert_eq!((status.users, status.torrents), (3, 3), "users that are not enabled are no users");
    let at = |client: Client, expected: &str| assert_eq!(text(&site.announce(&client)).0, expected);
    let start = Client { event: Event::Started, ..Client::new(1, 1, 1) };
    at(start, "");
    // Clients report the last bytes before the announce of the completion, or with it.
    let half = Client { uploaded: 500, downloaded: 3_000, left: 40, at_s: 100, ..start };
    at(Client { event: Event::None, ..half }, "");
    site.wait_written();
    let tokens = "SELECT UserID, TorrentID, Expired, Downloaded FROM users_freeleeches";
    assert_eq!(database.rows(tokens), ["1 11 0 3000"]);
    let done = Client { uploaded: 600, downloaded: 3_000, left: 0, at_s: 200, ..start };
    at(Client { event: Event::Completed, ..done }, "");
    // The token is used up: the next download counts.
    at(Client { event: Event::None, downloaded: 3_050, at_s: 300, ..done }, "");
    // A user whose address is protected, free and neutral torrents.
    for hash in [2, 3] {
        at(Client::new(2, hash, 2), "");
        at(Client { uploaded: 100, downloaded: 100, at_s: 50, ..Client::new(2, hash, 2) }, "");
    }
    at(Client::new(3, 1, 3), "Access denied, leeching forbidden");
    at(Client { left: 0, ..Client::new(3, 2, 3) }, "");
    at(Client { event: Event::Stopped, left: 0, ..Client::new(3, 2, 3) }, "");
    at(Client::new(1, 77, 1), "Unregistered torrent");
    site.wait_written();
    let users = database.rows("SELECT ID, Uploaded, Downloaded FROM users_main ORDER BY ID");
    assert_eq!(users, ["1 600 50", "2 100 0", "3 0 0", "4 0 0"]);
    let torrents = "SELECT ID, Seeders, Leechers, Snatched, balance FROM torrents ORDER BY ID";
    assert_eq!(database.rows(torrents), ["11 1 0 6 -2450", "12 0 1 0 0", "13 0 1 0 0"]);
    let seeded = "SELECT ID FROM torrents WHERE last_action > '2001-01-01' AND ID <> 12";
    assert_eq!(database.rows(seeded), ["11"]);
    let peers = "SELECT uid, fid, active, uploaded, downloaded, remaining, announced, timespent, ip, useragent
                 FROM xbt_files_users ORDER BY uid, fid";
    let expected = [
        "1 11 1 600 3050 0 4 300 10.0.0.1 tester/1.0",
        "2 12 1 100 100 100 2 50  tester/1.0",
        "2 13 1 100 100 100 2 50  tester/1.0",
        "3 11 1 0 0 100 1 0 10.0.0.3 tester/1.0",
        "3 12 0 0 0 0 2 0 10.0.0.3 tester/1.0",
    ];
    assert_eq!(database.rows(peers), expected);
    assert_eq!(database.rows("SELECT uid, fid, IP FROM xbt_snatched"), ["1 11 10.0.0.1"]);
    assert_eq!(database.rows(tokens), ["1 11 1 3000"]);
    site.stop();
}

#[test]
fn calls_are_those_of_ocelot() {
    let database = Database::start(GAZELLE);
    let site = Site::start(database.config(SiteKind::Gazelle));
    site.wait_ready();
    let get = |client: &Client| text(&site.announce(client)).0;
    let hash = "%21".repeat(20);
    let client = Client::new(1, 0x21, 1);
    assert_eq!(get(&client), "Unregistered torrent");
    site.success(&format!("action=add_torrent&id=30&info_hash={hash}&freetorrent=0"));
    assert_eq!(get(&client), "");
    site.success(&format!("action=update_torrent&info_hash={hash}&freetorrent=1"));
    site.success(&format!("action=update_torrents&info_hashes={hash}%02&freetorrent=2"));
    site.success(&format!("action=info_torrent&info_hash={hash}"));
    site.success(&format!("action=add_token&info_hash={hash}&userid=1"));
    site.success(&format!("action=remove_token&info_hash={hash}&userid=1"));
    let keys = site.tracker.passkeys().keys();
    let passkey = "n".repeat(32);
    let added = Client::new(40, 0x21, 4);
    site.success(&format!("action=add_user&passkey={passkey}&id=40&visible=1"));
    assert_eq!(get(&added), "");
    site.success(&format!("action=update_user&passkey={passkey}&can_leech=0"));
    assert_eq!(get(&added), "Access denied, leeching forbidden");
    let other = "m".repeat(32);
    site.success(&format!("action=change_passkey&oldpasskey={passkey}&newpasskey={other}"));
    assert_eq!(site.tracker.passkeys().keys(), keys + 1);
    let report = |query: &str| {
        let path = format!("/{REPORTS}/report?{query}");
        http::get(site.calls, &path).unwrap().text()
    };
    assert_eq!(
        report(&format!("get=user&key={}", "a".repeat(32))),
        "1 leeching\n0 seeding\nsuccess"
    );
    assert!(report("get=stats").contains("1 leechers tracked\n0 seeders tracked\nsuccess"));
    site.success(&format!("action=remove_users&passkeys={other}"));
    site.success(&format!("action=remove_user&passkey={}", "b".repeat(32)));
    assert_eq!(site.tracker.passkeys().keys(), keys - 1);
    site.success("action=edit_whitelist&old_peer_id=-TG1&new_peer_id=-XX");
    assert_eq!(get(&client), "Your client is not on the whitelist");
    site.success("action=add_whitelist&peer_id=-TG");
    site.success("action=remove_whitelist&peer_id=-XX");
    assert_eq!(get(&client), "");
    site.success(&format!("action=delete_torrent&info_hash={hash}&reason=1"));
    assert_eq!(get(&client), "Unregistered torrent: Trump");
    for (query, part) in [
        ("action=update_announce_interval&new_announce_interval=9", "tracker.interval_s"),
        ("action=nothing", "unknown action"),
        ("", "unknown action"),
        ("action=add_torrent&id=1&info_hash=short&freetorrent=0", "20 bytes"),
        ("action=update_user&passkey=x", "32 characters"),
    ] {
        let (status, body) = site.update(query);
        assert!(status == 400 && body.contains(part), "{query}: {status} {body}");
    }
    let wrong = format!("/{REPORTS}/update?action=add_user");
    assert_eq!(http::get(site.calls, &wrong).unwrap().status, 404);
    site.stop();
}

/// Starts a site that fails at first, and then answers each call. Returns where it is, and its calls.
fn answer_calls() -> (SocketAddr, Receiver<String>) {
    let (heard, calls) = channel();
    let has_failed = Arc::new(AtomicBool::new(false));
    let address = http::serve(move |mut stream| {
        let Some(head) = http::read_head(&mut stream) else { return };
        let is_served = has_failed.swap(true, Ordering::Relaxed);
        let status = if is_served { "200 OK" } else { "503 Service Unavailable" };
        let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes());
        let _ = heard.send(head.lines().next().unwrap_or_default().to_owned());
    });
    (address, calls)
}

#[test]
fn the_site_is_told_of_a_used_token_until_it_hears() {
    let database = Database::start(GAZELLE);
    let (address, calls) = answer_calls();
    let url = SiteUrl::parse(&format!("http://{address}/gazelle/"));
    let config = SiteConfig { url, ..database.config(SiteKind::Gazelle) };
    assert!(config.url.is_some());
    let site = Site::start(config);
    site.wait_ready();
    // The first user has a token for the first torrent, the second has none.
    for user in 1..=2 {
        let client = Client::new(user, 1, user as u8);
        site.announce(&Client { event: Event::Started, ..client });
        let done = Client { event: Event::Completed, left: 0, downloaded: 100, at_s: 9, ..client };
        site.announce(&done);
    }
    let expected = format!(
        "GET /gazelle/tools.php?key={KEY}&type=expiretoken&action=ocelot&tokens=1:11 HTTP/1.0"
    );
    for attempt in ["refused", "heard"] {
        assert_eq!(calls.recv_timeout(PATIENCE).unwrap(), expected, "{attempt}");
    }
    assert!(calls.recv_timeout(Duration::from_millis(1_500)).is_err(), "it was heard");
    site.wait_written();
    site.stop();
}
