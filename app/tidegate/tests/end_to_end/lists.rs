//! Lists at URLs: they are refreshed, whatever the server does, and their last good copy survives.

use std::net::SocketAddr;

use serde_json::Value;

use crate::api::{Caller, start_in};
use crate::clients::{Udp, has, http_announce, u32_at};
use crate::list_server::{ListServer, Reply, make_certificates};
use crate::process::{Directory, Tracker};
use crate::site;
use crate::udp::connect;

/// A list that denies one torrent.
fn denying(torrent: u8, tag: &'static str) -> Reply {
    Reply::List((format!("{torrent:02x}").repeat(20) + " # a note\n").into_bytes(), tag)
}

/// A server of lists, and the directories of certificates and state.
struct Scene {
    kept: Directory,
    server: ListServer,
}

impl Scene {
    fn new(reply: Reply) -> Self {
        let kept = Directory::new();
        make_certificates(&kept);
        let server = ListServer::start(&kept, SocketAddr::from(([127, 0, 0, 1], 0)), reply);
        Self { kept, server }
    }

    /// A tracker with these lines in `[access]`.
    fn start(&self, access: &str) -> (Tracker, Caller) {
        start_in(Directory::new(), &self.config(access))
    }

    fn config(&self, access: &str) -> String {
        let (ca, state) = (self.kept.path("ca.pem"), self.kept.path("state"));
        format!(
            "[access]\nurls_ca = {ca:?}\nlists_timeout_s = 2\n{access}\n[state]\ndir = {state:?}\n"
        )
    }

    fn deny(&self) -> String {
        format!("deny = \"{}\"", self.server.url("deny.txt"))
    }
}

fn is_denied(tracker: &Tracker, torrent: u8) -> bool {
    has(
        &http_announce(tracker.http4(), torrent, 1001),
        b"this torrent is on the tracker's deny list",
    )
}

/// Returns the state of the only list.
fn list(api: &Caller) -> Value {
    api.expect(200, "GET /lists", None)["lists"][0].clone()
}

fn health(api: &Caller) -> String {
    api.expect(200, "GET /status", None)["health"].to_string()
}

#[test]
fn lists_at_urls_are_refreshed() {
    let scene = Scene::new(denying(0xdd, "one"));
    let (tracker, api) = scene.start(&scene.deny());
    tracker.wait_until("fetched", |it| is_denied(it, 0xdd));
    assert!(!is_denied(&tracker, 0xee));
    let entries = &list(&api);
    assert_eq!((&entries["key"], &entries["entries"]), (&"access.deny".into(), &1.into()));
    assert_eq!(entries["copy_in_use"], false);
    // Another version, on SIGHUP.
    scene.server.reply(denying(0xee, "two"));
    tracker.reload();
    tracker.wait_until("refreshed", |it| is_denied(it, 0xee));
    assert!(!is_denied(&tracker, 0xdd));
    // The same version is not sent again.
    scene.server.reply(denying(0xee, "two"));
    tracker.reload();
    let has_asked = |what: &str| scene.server.requests().iter().any(|it| it.contains(what));
    tracker.wait_until("asked", |_| has_asked("if-none-match: \"two\""));
    tracker.wait_until("confirmed", |_| list(&api)["age_s"].as_u64().unwrap() <= 1);
    assert!(is_denied(&tracker, 0xee) && list(&api)["error"].is_null());
    // A redirect to the same port is followed, one to another is not.
    scene.server.reply(Reply::Redirect("https://127.0.0.1:9/else".into()));
    tracker.reload();
    tracker.wait_until("refused", |_| {
        list(&api)["error"].to_string().contains("same scheme and port")
    });
    assert_eq!(tracker.metric("tidegate_reload_failures_total"), 0.0);
    let name = "tidegate_list_failures_total";
    assert!(tracker.sum(name, &[("key", "access.deny")]) >= 1.0);
}

#[test]
fn a_bad_response_leaves_the_list_in_use() {
    let scene = Scene::new(denying(0xdd, "one"));
    let (tracker, api) = scene.start(&scene.deny());
    tracker.wait_until("fetched", |it| is_denied(it, 0xdd));
    let listed = |text: &str| Reply::List(text.as_bytes().to_vec(), "bad");
    for (reply, expected, is_content) in [
        (Reply::Status(404), "expected status 200, found 404", false),
        (
            listed("\n<!DOCTYPE html><html>Sign in</html>"),
            "expected a list of torrents, found a web page",
            true,
        ),
        (listed(""), "found an empty response", true),
        (listed("nonsense\n"), "line 1: expected 40 or 64 hex digits", true),
        (Reply::Announced(600 << 20), "expected at most 536870912 bytes", false),
        (Reply::Truncated, "the response is not complete", false),
        (Reply::Drip, "no complete response within 2 s", false),
    ] {
        scene.server.reply(reply.clone());
        tracker.reload();
        tracker.wait_until(expected, |_| list(&api)["error"].to_string().contains(expected));
        assert!(is_denied(&tracker, 0xdd), "{reply:?}");
        assert_eq!(health(&api).contains("stays in force"), is_content, "{reply:?}");
    }
    assert!(list(&api)["remedy"].as_str().unwrap().contains("reaches it"));
    // It is over as soon as the list is good again.
    scene.server.reply(denying(0xee, "two"));
    tracker.reload();
    tracker.wait_until("refreshed", |it| is_denied(it, 0xee));
    assert!(list(&api)["error"].is_null());
}

#[test]
fn the_last_good_copy_survives_the_process_and_the_server() {
    let scene = Scene::new(denying(0xdd, "one"));
    let (mut tracker, _) = scene.start(&scene.deny());
    tracker.wait_until("fetched", |it| is_denied(it, 0xdd));
    // Killed while the next version comes.
    scene.server.reply(Reply::Drip);
    tracker.reload();
    tracker.wait_until("asked", |_| !scene.server.requests().is_empty());
    tracker.kill();
    let config = scene.config(&scene.deny());
    let Scene { kept, server } = scene;
    let address = server.address;
    drop(server);
    let (tracker, api) = start_in(Directory::new(), &config);
    // At once: no client is served without it.
    assert!(is_denied(&tracker, 0xdd));
    tracker.wait_until("failed", |_| list(&api)["error"].is_string());
    assert_eq!(list(&api)["copy_in_use"], true);
    assert!(list(&api)["age_s"].is_u64() && !health(&api).contains("access.deny"));
    let server = ListServer::start(&kept, address, denying(0xee, "two"));
    tracker.reload();
    tracker.wait_until("refreshed", |it| is_denied(it, 0xee) && !is_denied(it, 0xdd));
    tracker.wait_until("confirmed", |_| list(&api)["copy_in_use"] == false);
    // Its copy goes when the list does.
    tracker.configure(&format!("[state]\ndir = {:?}\n", kept.path("state")));
    tracker.reload();
    let files = || std::fs::read_dir(kept.path("state/lists")).unwrap().count();
    tracker.wait_until("removed", |it| !is_denied(it, 0xee) && files() == 0);
    drop(server);
}

#[test]
fn a_pinned_digest_decides() {
    let scene = Scene::new(denying(0xdd, "one"));
    let pinned =
        |digest: &str| format!("deny = \"{}#sha256={digest}\"", scene.server.url("deny.txt"));
    let (tracker, api) = scene.start(&pinned(&"00".repeat(32)));
    tracker.wait_until("refused", |_| {
        list(&api)["error"].to_string().contains("expected SHA-256 0000")
    });
    assert!(!is_denied(&tracker, 0xdd) && health(&api).contains("could not be fetched yet"));
    let error = list(&api)["error"].as_str().unwrap().to_owned();
    let found = error.rsplit(' ').next().unwrap();
    tracker.configure(&scene.config(&pinned(found)));
    tracker.reload();
    tracker.wait_until("accepted", |it| is_denied(it, 0xdd));
    // Another list does not replace it, and is not used after a change of the digest either.
    scene.server.reply(denying(0xee, "two"));
    tracker.reload();
    tracker.wait_until("refused", |_| list(&api)["error"].is_string());
    assert!(is_denied(&tracker, 0xdd) && !is_denied(&tracker, 0xee));
}

/// Returns the response to a UDP announce: interval, and number of peers. A list may come between the two requests.
fn announced(tracker: &Tracker, client: u8, port: u16) -> Option<(u32, usize)> {
    let mut udp = Udp::unconnected(client, tracker.udp4());
    udp.socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    udp.socket.send(&connect(7)).unwrap();
    let connected = udp.receive().ok()?;
    udp.id = u64::from_be_bytes(connected[8..16].try_into().unwrap());
    let reply = udp.try_announce(0xaa, port).ok()?;
    Some((u32_at(&reply, 8), (reply.len() - 20) / 6))
}

#[test]
fn networks_of_lists_are_refused_quiet_or_get_less() {
    let [one, two] = [1, 2].map(site::client);
    let p2p = format!("# P2P\nBad, Inc. - one:{one}-{one}\n");
    let scene = Scene::new(Reply::List(p2p.into_bytes(), "one"));
    let url = scene.server.url("bad.p2p");
    let with = |end: &str| format!("networks_deny = [\"{url}{end}\"]");
    let (tracker, api) = scene.start(&with(""));
    tracker.wait_until("refused", |it| announced(it, 1, 1001).is_none());
    // Peers of another client.
    for port in 2001..2008 {
        assert!(announced(&tracker, 2, port).is_some());
    }
    assert_eq!(
        (&list(&api)["key"], &list(&api)["entries"]),
        (&"access.networks_deny".into(), &1.into())
    );
    tracker.configure(&scene.config(&with("=quiet")));
    tracker.reload();
    tracker.wait_until("quiet", |it| announced(it, 1, 1001) == Some((3600, 0)));
    tracker.configure(&scene.config(&with("=numwant:3")));
    tracker.reload();
    tracker.wait_until("less", |it| announced(it, 1, 1001).is_some_and(|(_, peers)| peers == 3));
    // The list moves on to the other client, and is empty at last.
    scene.server.reply(Reply::List(format!("{two}\n").into_bytes(), "two"));
    tracker.reload();
    tracker.wait_until("moved", |it| announced(it, 1, 1001).is_some_and(|(_, peers)| peers >= 7));
    assert_eq!(announced(&tracker, 2, 2001).map(|(_, peers)| peers), Some(3));
    scene.server.reply(Reply::List(b"# nothing\n".to_vec(), "three"));
    tracker.reload();
    tracker.wait_until("empty", |_| health(&api).contains("is empty: it decides nothing"));
}
