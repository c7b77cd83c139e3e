//! Decisions on who is served, beside lists of hashes and keys: folders of torrents, tokens, networks; and the
//! addresses under which peers are given to others.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use geo::writer::{countries, systems};
use jwt::signer::Signer;
use net::process::own_addresses;
use serde_json::{Value, json};
use tracker::ExternalAddress;
use types::{InfoHash, Refusal, Scope};

use crate::admin_command::VARIABLE;
use crate::api::{Caller, TOKEN, start_in};
use crate::client_commands::fake_trackers::{ok, request, tcp};
use crate::clients::{Udp, announce_query, has, http, http_announce, u32_at};
use crate::process::{Directory, Tracker, stdout, tidegate};
use crate::site;
use crate::udp::connect;

const SERVED: &str = "10:incompletei";

/// A torrent file of version 1, and its hash.
fn torrent(name: &str) -> (String, InfoHash) {
    let text = format!(
        "d4:infod6:lengthi7e4:name{}:{name}12:piece lengthi16384e6:pieces20:{}ee",
        name.len(),
        "p".repeat(20)
    );
    let hash = client::Torrent::from_bytes(text.as_bytes()).unwrap().hashes[0];
    (text, hash)
}

fn announce(address: SocketAddr, hash: &InfoHash) -> Vec<u8> {
    let hash: String = hash.0.iter().map(|byte| format!("%{byte:02x}")).collect();
    let rest = announce_query(0xaa, 1001);
    let (_, rest) = rest.split_once('&').unwrap();
    let (status, body) = http(address, &format!("/announce?info_hash={hash}&{rest}"));
    assert_eq!(status, 200);
    body
}

#[test]
fn a_folder_of_torrents_is_the_allow_list_and_names_them() {
    let directory = Directory::new();
    fs::create_dir(directory.path("torrents")).unwrap();
    let (text, debian) = torrent("debian-13.iso");
    directory.write("torrents/a.torrent", &text);
    let more = format!(
        "[access]\nmode = \"allow\"\nallow_torrents = \"{}\"\n",
        directory.path("torrents").display()
    );
    let (tracker, caller) = start_in(directory, &more);
    let (whole, ubuntu) = torrent("Ubuntu 26.04");
    assert!(has(&announce(tracker.http4(), &debian), SERVED));
    assert!(has(&announce(tracker.http4(), &ubuntu), Refusal::NotAllowed.text()));
    // A file that is being written.
    tracker.directory.write("torrents/b.torrent", &whole[..40]);
    tracker.directory.write("torrents/b.torrent", &whole);
    let entries = "tidegate_access_list_entries{list=\"torrents\"}";
    tracker.wait_until("followed", |it| it.metric(entries) == 2.0);
    assert!(has(&announce(tracker.http4(), &ubuntu), SERVED));
    assert_eq!(tracker.metric("tidegate_torrent_names"), 2.0);
    let found = |query: &str| {
        let page = caller.expect(200, &format!("GET /torrents?{query}"), None);
        let rows = page["torrents"].as_array().unwrap().clone();
        let row = |row: Value| format!("{} {}", row["name"].as_str().unwrap_or("-"), row["size"]);
        (page["total"].clone(), rows.into_iter().map(row).collect::<Vec<_>>())
    };
    let both = vec!["debian-13.iso 7".to_owned(), "Ubuntu 26.04 7".to_owned()];
    let (total, mut rows) = found("sort=info_hash");
    rows.sort_by_key(|row| row.to_lowercase());
    assert_eq!((total, rows), (json!(2), both));
    assert_eq!(found("name=UBUNTU"), (json!(1), vec!["Ubuntu 26.04 7".into()]));
    assert_eq!(found("name=fedora"), (json!(0), vec![]));
    caller.expect(400, "GET /torrents?name=", None);
    let one = caller.expect(200, &format!("GET /torrents/{debian}"), None);
    assert_eq!((&one["name"], &one["size"]), (&json!("debian-13.iso"), &json!(7)));
    fs::remove_file(tracker.directory.path("torrents/a.torrent")).unwrap();
    tracker.wait_until("followed", |it| it.metric(entries) == 1.0);
    assert!(has(&announce(tracker.http4(), &debian), Refusal::NotAllowed.text()));
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The claims of a token for a torrent of one byte.
fn claims(torrent: u8, valid_s: i64) -> Value {
    let exp = now_s().saturating_add_signed(valid_s);
    json!({ "iss": "issuer", "aud": "tracker", "exp": exp, "infohash": InfoHash([torrent; 20]).to_string() })
}

/// A tracker that asks for tokens of `signer`.
fn with_tokens(signer: &Signer) -> Tracker {
    let directory = Directory::new();
    let keys = directory.write("keys.json", &signer.key_set());
    let more = format!(
        "[access]\njwt = true\njwt_keys = \"{}\"\njwt_issuer = \"issuer\"\njwt_audience = \"tracker\"\n",
        keys.display()
    );
    Tracker::start(directory, &more)
}

/// Announces with a token over UDP and HTTP, which must agree. Returns the refusal's text, or nothing.
fn verdict(tracker: &Tracker, torrent: u8, token: Option<&str>) -> Option<String> {
    let query = token.map(|token| format!("?jwt={token}")).unwrap_or_default();
    let mut texts = Vec::new();
    for (udp, address) in [(tracker.udp4(), tracker.http4()), (tracker.udp6(), tracker.http6())] {
        let reply = Udp::connect(udp).announce_at(torrent, 1001, &format!("/announce{query}"));
        let text = String::from_utf8_lossy(reply.get(8..).unwrap_or_default()).into_owned();
        texts.push((u32_at(&reply, 0) == 3).then_some(text));
        let token = token.map(|token| format!("jwt={token}&")).unwrap_or_default();
        let target = format!("/announce?{token}{}", announce_query(torrent, 1001));
        let body = http(address, &target).1;
        let all = Refusal::ALL.iter().map(|refusal| refusal.text());
        texts.push(all.into_iter().find(|text| has(&body, text)).map(String::from));
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    texts.remove(0)
}

#[test]
fn tokens_permit_their_torrent() {
    let [signer, other] = ["one", "two"].map(|id| Signer::new("ES256", id).unwrap());
    let tracker = with_tokens(&signer);
    let is = |torrent, token: Option<&str>, refusal: Option<Refusal>| {
        let found = verdict(&tracker, torrent, token);
        assert_eq!(found, refusal.map(|it| it.text().into()), "{torrent} {token:?}");
    };
    let good = signer.sign(&claims(0xaa, 600));
    is(0xaa, Some(&good), None);
    is(0xaa, Some(&good), None);
    is(0xbb, Some(&good), Some(Refusal::TokenOtherTorrent));
    is(0xaa, None, Some(Refusal::TokenMissing));
    is(0xaa, Some(""), Some(Refusal::TokenInvalid));
    is(0xaa, Some("a.b.c"), Some(Refusal::TokenInvalid));
    is(0xaa, Some(&other.sign(&claims(0xaa, 600))), Some(Refusal::TokenInvalid));
    is(0xaa, Some(&signer.sign(&claims(0xaa, -600))), Some(Refusal::TokenExpired));
    let bytes = json!({ "exp": now_s() + 600, "infohash": "%aa".repeat(20), "iss": "issuer", "aud": ["tracker"] });
    is(0xaa, Some(&signer.sign(&bytes)), None);
    // Verified once, although all workers have seen it.
    assert_eq!(tracker.metric("tidegate_jwt_verifications_total{result=\"valid\"}"), 2.0);
    assert_eq!(tracker.metric("tidegate_jwt_remembered"), 2.0);
    // Scrapes need no token. Peers leave with theirs only.
    let udp = Udp::connect(tracker.udp4());
    let present = udp.scrape(0xaa)[2];
    assert!(present > 0);
    let stop = |token: &str| {
        let query = announce_query(0xaa, 1001);
        let body = http(tracker.http4(), &format!("/announce?{token}{query}&event=stopped")).1;
        let reply = udp.announce_event_at(0xaa, 1001, 3, &format!("/announce?{token}"));
        (body, reply)
    };
    let foreign = format!("jwt={}&", signer.sign(&claims(0xbb, 600)));
    for (token, refusal) in [("", Refusal::TokenMissing), (&foreign, Refusal::TokenOtherTorrent)] {
        let (body, reply) = stop(token);
        assert!(has(&body, refusal.text()) && has(&reply, refusal.text()), "{token}");
        assert_eq!(udp.scrape(0xaa)[2], present);
    }
    let (body, reply) = stop(&format!("jwt={good}&"));
    assert!(has(&body, SERVED) && u32_at(&reply, 0) == 1);
    assert!(udp.scrape(0xaa)[2] < present);
    // Another set of keys, in force when the file has been read.
    tracker.directory.write("keys.json", &other.key_set());
    tracker.wait_until("followed", |it| it.metric("tidegate_jwt_remembered") == 0.0);
    is(0xaa, Some(&good), Some(Refusal::TokenInvalid));
    is(0xaa, Some(&other.sign(&claims(0xaa, 600))), None);
    // A damaged file changes nothing.
    tracker.directory.write("keys.json", "{\"keys\":[]}");
    tracker.wait_until("noticed", |it| it.metric("tidegate_reload_failures_total") == 1.0);
    is(0xaa, Some(&other.sign(&claims(0xaa, 601))), None);
}

#[test]
fn keys_of_tokens_come_from_a_url() {
    let [one, two] = ["one", "two"].map(|id| Signer::new("RS256", id).unwrap());
    let body = Arc::new(Mutex::new(String::new()));
    let served = Arc::clone(&body);
    let address = tcp(move |mut stream| {
        request(&mut stream);
        let body = served.lock().unwrap().clone();
        let broken = "HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n".into();
        let _ = stream.write_all(if body.is_empty() { broken } else { ok(&body) }.as_bytes());
    });
    let config = |refresh_s: u32| {
        format!(
            "[access]\njwt = true\njwt_keys = \"http://{address}/keys.json\"\n\
             jwt_refresh_s = {refresh_s}\n"
        )
    };
    let tracker = Tracker::start(Directory::new(), &config(10));
    let announce = |signer: &Signer| {
        let token = signer.sign(&claims(0xaa, 600));
        let target = format!("/announce?jwt={token}&{}", announce_query(0xaa, 1001));
        http(tracker.http4(), &target).1
    };
    tracker.wait_until("tried", |it| it.metric("tidegate_jwt_key_failures_total") >= 1.0);
    assert!(has(&announce(&one), Refusal::TokenUnverified.text()));
    tracker.wait_for_log("expected status 200, found 500");
    *body.lock().unwrap() = one.key_set();
    // Asked for again at once.
    tracker.configure(&config(11));
    tracker.reload();
    tracker.wait_until("fetched", |_| has(&announce(&one), SERVED));
    *body.lock().unwrap() = two.key_set();
    tracker.configure(&config(10));
    tracker.reload();
    tracker.wait_until("fetched again", |_| has(&announce(&two), SERVED));
    assert!(has(&announce(&one), Refusal::TokenInvalid.text()));
}

#[test]
fn peers_beside_the_tracker_are_given_under_its_address() {
    let beside = site::client(1);
    let more = format!(
        "[tracker]\nexternal_address = [\"198.51.100.7\"]\nexternal_address_for = [\"{beside}\"]\n"
    );
    let tracker = Tracker::start(Directory::new(), &more);
    // UDP clients bind to the address; HTTP ones come from wherever the system lets them.
    let reply = Udp::connect_as(1, tracker.udp4()).announce(0xaa, 1001);
    assert_eq!(u32_at(&reply, 0), 1);
    let reply = Udp::connect_as(2, tracker.udp4()).announce(0xaa, 1002);
    let given = [198, 51, 100, 7, 0x03, 0xe9];
    assert!(reply[20..].chunks(6).any(|peer| peer == given), "{}", reply.escape_ascii());
    let own: Vec<u8> = [&beside.octets()[..], &[0x03, 0xe9]].concat();
    assert!(!reply[20..].chunks(6).any(|peer| peer == own));
    // The same over HTTP, for the peer itself, too: it learns how others see it.
    let body = http_announce(tracker.http4(), 0xaa, 1003);
    assert!(has(&body, [b"6", &given[..]].concat()) || has(&body, given));
    // An IPv6 peer has no address that replaces its own.
    let reply = Udp::connect(tracker.udp6()).announce(0xaa, 1004);
    assert_eq!(u32_at(&reply, 0), 1);
    // Live.
    tracker.configure("");
    tracker.reload();
    tracker.wait_until("reloaded", |it| {
        let reply = Udp::connect_as(1, it.udp4()).announce(0xbb, 1001);
        assert_eq!(u32_at(&reply, 0), 1);
        let reply = Udp::connect_as(2, it.udp4()).announce(0xbb, 1002);
        reply[20..].chunks(6).any(|peer| peer == own)
    });
}

#[test]
fn peers_on_the_machine_are_given_under_its_own_address() {
    let of_machine = ExternalAddress::of_machine(&own_addresses());
    let own = match of_machine.and_then(|it| it.addresses().next()) {
        Some(IpAddr::V4(own)) => own,
        _ => Ipv4Addr::LOCALHOST,
    };
    let given = [&own.octets()[..], &1001_u16.to_be_bytes()].concat();
    let local = [127, 0, 0, 1, 0x03, 0xe9];
    let second = |tracker: &Tracker| {
        http_announce(tracker.http4(), 0xaa, 1001);
        http_announce(tracker.http4(), 0xaa, 1002)
    };
    let says = |caller: &Caller| {
        let health = caller.expect(200, "GET /status", None)["health"].to_string();
        health.contains("Peers on this machine are given to others by the address ")
    };
    // Listeners on loopback serve only clients that reach each other there.
    let (tracker, caller) = start_in(Directory::new(), "");
    assert!(has(&second(&tracker), local) && !says(&caller));
    // One at all addresses serves others, too: then none of them gets a loopback address.
    let more = "[[listener]]\nprotocol = \"udp\"\nlisten = [\"0.0.0.0:0\"]\n";
    let (tracker, caller) = start_in(Directory::new(), more);
    let body = second(&tracker);
    assert!(has(&body, &given), "{}", body.escape_ascii());
    assert!(own.is_loopback() || !has(&body, local), "{}", body.escape_ascii());
    assert_eq!(says(&caller), !own.is_loopback() && Scope::of_v4(own) != Scope::Public);
}

/// Returns true if the tracker answers a connect of `client`, which is 1 or 2.
fn answers(tracker: &Tracker, client: u8) -> bool {
    let udp = Udp::unconnected(client, tracker.udp4());
    udp.socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    udp.socket.send(&connect(7)).unwrap();
    udp.receive().is_ok()
}

#[test]
fn systems_are_refused_by_their_networks() {
    let directory = Directory::new();
    let [one, two] = [1, 2].map(|client| format!("{}/32", site::client(client)));
    let file = systems(&[(&one, 64500, "One"), (&two, 64501, "Two")]);
    fs::write(directory.path("asn.mmdb"), file).unwrap();
    let asn = directory.path("asn.mmdb");
    let config = |rule: &str| format!("[geo]\nasn = \"{}\"\n[access]\n{rule}\n", asn.display());
    let tracker = Tracker::start(directory, &config("networks_deny = [\"AS64500\"]"));
    tracker.wait_until("refused", |it| !answers(it, 1));
    assert!(answers(&tracker, 2));
    assert_eq!(tracker.metric("tidegate_refused_network_ranges"), 1.0);
    tracker.configure(&config("networks_allow = [\"AS64500\", \"192.0.2.0/24\"]"));
    tracker.reload();
    tracker.wait_until("allowed", |it| answers(it, 1) && !answers(it, 2));
    // A new version of the file is enough.
    let file = systems(&[(&two, 64500, "Two moved here")]);
    let new = asn.with_extension("new");
    fs::write(&new, file).unwrap();
    fs::rename(&new, &asn).unwrap();
    tracker.wait_until("followed", |it| answers(it, 2) && !answers(it, 1));
    assert_eq!(tracker.metric("tidegate_bans"), 0.0);
}

#[test]
fn peers_are_counted_by_system_and_country() {
    let directory = Directory::new();
    let network = format!("{}/32", IpAddr::from(site::client(1)));
    fs::write(directory.path("asn.mmdb"), systems(&[(&network, 64500, "Example")])).unwrap();
    fs::write(directory.path("country.mmdb"), countries(&[(&network, "DE")])).unwrap();
    let more = format!(
        "[geo]\nasn = \"{}\"\ncountry = \"{}\"\ninterval_s = 1\n",
        directory.path("asn.mmdb").display(),
        directory.path("country.mmdb").display()
    );
    let (tracker, caller) = start_in(directory, &more);
    Udp::connect_as(1, tracker.udp4()).announce(0xaa, 1001);
    Udp::connect_as(1, tracker.udp4()).announce(0xbb, 1001);
    Udp::connect_as(2, tracker.udp4()).announce(0xaa, 1002);
    let series = "tidegate_peers_by_system{asn=\"64500\"}";
    tracker.wait_until("counted", |it| it.admin("/metrics").1.contains(&format!("{series} 2")));
    let stats = caller.expect(200, "GET /stats/networks?limit=1", None);
    assert_eq!(stats["systems"], json!([{ "asn": 64500, "name": "Example", "peers": 2 }]));
    assert_eq!(stats["countries"], json!([{ "country": "DE", "peers": 2 }]));
    assert_eq!((&stats["systems_unknown"], &stats["peers"]), (&json!(1), &json!(3)));
    assert_eq!(stats["files"][0]["type"], "GeoLite2-ASN");
    assert!(stats["age_s"].as_f64().unwrap() >= 0.0 && stats["problems"] == json!([]));
    let mut command = tidegate(&["admin", "networks", "--url"]);
    command.arg(format!("http://{}", tracker.admin_address())).env(VARIABLE, TOKEN);
    let expected = "peers  system  name\n    2   64500  Example\n\npeers  country\n    2  DE\n";
    assert_eq!(stdout(&command.output().unwrap()), expected);
    fs::write(tracker.directory.path("country.mmdb"), "damaged").unwrap();
    tracker.wait_until("noticed", |_| {
        let problems = caller.expect(200, "GET /stats/networks", None)["problems"].clone();
        problems[0].as_str().is_some_and(|text| text.starts_with("geo.country: "))
    });
}
