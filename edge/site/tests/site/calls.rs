//! The calls of UNIT3D, as its PHP makes them.

use std::io::{Read, Write};
use std::net::TcpStream;

use harness::http;
use tidegate_site::SiteKind;
use types::Event;

use crate::fixture::{Client, Database, KEY, Site, UNIT3D, text};

impl Site {
    /// Makes a call with a JSON body, and returns the status and body of the answer.
    pub(crate) fn call(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let headers = "User-Agent: GuzzleHttp/7\r\nContent-Type: application/json\r\nAccept: application/json\r\n";
        let request = format!("{method} /announce/{path}");
        let response = http::request(self.calls, &request, headers, body.as_bytes()).unwrap();
        (response.status, response.text())
    }

    pub(crate) fn put(&self, path: &str, body: &str) -> u16 {
        self.call("PUT", &format!("{KEY}/{path}"), body).0
    }

    fn delete(&self, path: &str, body: &str) -> u16 {
        self.call("DELETE", &format!("{KEY}/{path}"), body).0
    }

    pub(crate) fn show(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.call("GET", &format!("{KEY}/{path}"), "");
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn text(&self, client: &Client) -> &'static str {
        text(&self.announce(client)).0
    }
}

fn torrent(hash: &str, status: u8) -> String {
    format!(
        r#"{{"id":21,"status":{status},"info_hash":"{hash}","is_deleted":false,"seeders":0,"leechers":0,
        "times_completed":4,"download_factor":0,"upload_factor":200}}"#
    )
}

fn user(passkey: &str, new_passkey: &str, can_download: bool) -> String {
    format!(
        r#"{{"id":9,"group_id":1,"passkey":"{passkey}","new_passkey":{new_passkey},"can_download":{can_download},
        "is_donor":false,"is_lifetime":false,"num_seeding":0,"num_leeching":0}}"#
    )
}

#[test]
fn calls_change_what_announces_get() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    let keys = site.tracker.passkeys().keys();
    // Torrents.
    let client = Client::new(1, 0x21, 1);
    assert_eq!(site.text(&client), "InfoHash not found.");
    let hash = "21".repeat(20);
    assert_eq!(site.put("torrents", &torrent(&hash, 0)), 200);
    assert_eq!(text(&site.announce(&client)), ("Torrent is pending moderation.", 30));
    assert_eq!(site.put("torrents", &torrent(&hash, 1)), 200);
    assert_eq!(site.text(&client), "");
    // Users and their keys.
    let passkey = "n".repeat(32);
    let added = Client::new(9, 0x21, 1);
    assert_eq!(text(&site.announce(&added)).1, 5_400);
    assert_eq!(site.put("users", &user(&passkey, "null", true)), 200);
    assert_eq!(site.text(&added), "");
    assert_eq!(site.tracker.passkeys().keys(), keys + 1);
    let other = format!("\"{}\"", "m".repeat(32));
    assert_eq!(site.put("users", &user(&passkey, &other, false)), 200);
    assert_eq!(site.tracker.passkeys().keys(), keys + 1, "the new key replaces the old one");
    assert_eq!(site.text(&added), "Your downloading privileges have been disabled.");
    assert_eq!(site.show("users/9")["passkey"], "m".repeat(32));
    assert_eq!(site.put("users", &user("short", "null", true)), 400);
    // Groups.
    let group = r#"{"id":1,"slug":"disabled","download_slots":null,"is_immune":false,"is_freeleech":false,
        "is_double_upload":false}"#;
    assert_eq!(site.put("groups", group), 200);
    assert_eq!(site.text(&client), "Your account is not enabled. (Current: disabled).");
    assert_eq!(site.delete("groups", r#"{"id":1}"#), 200);
    assert_eq!(site.text(&client), "Group not found.");
    assert_eq!(site.put("groups", &group.replace("disabled", "user")), 200);
    // Clients.
    assert_eq!(site.put("blacklisted-agents", r#"{"peer_id_prefix":"-TG1"}"#), 200);
    assert_eq!(site.text(&client), "Client is not acceptable. Please check our blacklist.");
    assert_eq!(site.delete("blacklisted-agents", r#"{"peer_id_prefix":"-TG1"}"#), 200);
    // The torrent with its peers.
    let seeder = Client { left: 0, uploaded: 5, ..Client::new(2, 0x21, 2) };
    assert_eq!(site.text(&Client { event: Event::Completed, left: 0, ..client }), "");
    assert_eq!(site.text(&seeder), "");
    let shown = site.show("torrents/21");
    assert_eq!(
        (&shown["seeders"], &shown["leechers"], &shown["times_completed"]),
        (&2.into(), &1.into(), &5.into())
    );
    assert_eq!((&shown["status"], &shown["download_factor"]), (&"Approved".into(), &0.into()));
    let peer = &shown["peers"]["2-2d5447313030302d202020202020202020202002"];
    assert_eq!((&peer["ip_address"], &peer["port"]), (&"10.0.0.2".into(), &6881.into()));
    assert_eq!((&peer["is_seeder"], &peer["uploaded"]), (&true.into(), &5.into()));
    assert_eq!(peer["updated_at"], site.epoch_s);
    let shown = site.show("users/2");
    assert_eq!((&shown["num_seeding"], &shown["num_leeching"]), (&1.into(), &0.into()));
    assert!(shown["receive_seed_list_rates"]["rates"].is_array());
    let stats = site.show("stats");
    assert!(stats["created_at"].is_f64() && stats["announce_responses_per_7200s"].is_f64());
    // Deletions.
    assert_eq!(site.delete("torrents", &format!(r#"{{"id":21,"info_hash":"{hash}"}}"#)), 200);
    assert_eq!(site.text(&client), "Torrent has been deleted.");
    assert_eq!(site.delete("torrents", r#"{"id":999}"#), 400);
    assert_eq!(site.delete("users", r#"{"id":9,"passkey":"x"}"#), 200);
    assert_eq!(site.tracker.passkeys().keys(), keys);
    site.stop();
}

#[test]
fn gifts_by_call_decide_what_is_credited() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    let client = Client::new(1, 1, 1);
    let mut moved = 0;
    let mut credited = || {
        site.announce(&Client { uploaded: moved, downloaded: moved, ..client });
        moved += 100;
        site.announce(&Client { uploaded: moved, downloaded: moved, ..client });
        site.wait_written();
        database.rows("SELECT uploaded, downloaded FROM users WHERE id = 1").remove(0)
    };
    assert_eq!(credited(), "100 100");
    let body = r#"{"user_id":1,"torrent_id":11}"#;
    for (path, expected) in [
        ("freeleech-tokens", ["200 100", "300 200"]),
        ("personal-freeleech", ["400 200", "500 300"]),
        ("featured-torrents", ["700 300", "800 400"]),
    ] {
        assert_eq!(site.put(path, body), 200, "{path}");
        assert_eq!(credited(), expected[0], "{path}");
        assert_eq!(site.delete(path, body), 200, "{path}");
        assert_eq!(credited(), expected[1], "{path}");
    }
    site.stop();
}

#[test]
fn calls_without_the_key_or_with_other_bodies_are_refused() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    let wrong = "x".repeat(32);
    assert_eq!(site.call("GET", &format!("{wrong}/stats"), "").0, 404);
    assert_eq!(site.call("PUT", &format!("{wrong}/users"), &user(&wrong, "null", true)).0, 404);
    for body in ["", "{", "[]", r#"{"id":-1}"#, r#"{"id":"1"}"#] {
        assert_eq!(site.put("torrents", body), 400, "{body}");
        assert_eq!(site.delete("users", body), 400, "{body}");
        assert_eq!(site.put("freeleech-tokens", body), 400, "{body}");
    }
    assert_eq!(site.put("torrents", &torrent("zz", 1)), 400);
    assert_eq!(site.put("torrents", &torrent(&"21".repeat(20), 9)), 400);
    let large = format!(r#"{{"peer_id_prefix":"{}"}}"#, "x".repeat(100_000));
    assert_eq!(site.put("blacklisted-agents", &large), 400);
    assert_eq!(site.call("GET", &format!("{KEY}/torrents/999"), "").0, 404);
    assert_eq!(site.call("GET", &format!("{KEY}/users/999"), "").0, 404);
    // Tables that were changed without a call are read again on request.
    database.run("UPDATE torrents SET status = 1 WHERE id = 14");
    let pending = Client::new(1, 4, 1);
    assert_eq!(site.text(&pending), "Torrent is pending moderation.");
    assert_eq!(site.call("POST", &format!("{KEY}/config/reload"), "").0, 200);
    let approved = || site.text(&pending).is_empty();
    harness::wait_until("the approved torrent", approved);
    site.stop();
}

/// Callers that send a call byte by byte take no place from others, and are ended.
#[test]
fn slow_callers_keep_no_other_out() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    let address = site.calls;
    let open = |text: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let head =
        format!("PUT /announce/{KEY}/users HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{{");
    // More than there are places for calls.
    let mut slow: Vec<_> = (0..100).map(|_| open(&head)).collect();
    slow.push(open("GET /announce/"));
    for _ in 0..3 {
        assert_eq!(site.call("GET", &format!("{KEY}/stats"), "").0, 200);
    }
    for mut stream in slow {
        stream.set_read_timeout(Some(harness::PATIENCE)).unwrap();
        let mut answer = Vec::new();
        // The end of the connection, with or without an answer.
        stream.read_to_end(&mut answer).unwrap();
        assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"),
            "{}",
            answer.escape_ascii()
        );
    }
    site.stop();
}
