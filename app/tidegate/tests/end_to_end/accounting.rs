//! Accounts of a private site through the feed: nothing is counted twice or lost by a kill, an upgrade or a restart.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::api::{Caller, start_in};
use crate::clients::{Udp, has, http, own_query};
use crate::process::{Directory, Tracker};

pub(crate) const MORE: &str =
    "requests_per_s = 0\n[access]\nprivate = true\n[site]\nkind = \"feed\"\nflush_s = 1\n";

/// Bytes that users uploaded and downloaded, by user and info hash.
pub(crate) type Ledger = BTreeMap<(u64, String), [u64; 2]>;

/// A site that keeps a table right from the feed.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) cursor: Option<String>,
    /// The last batch of each feed.
    sequences: BTreeMap<String, u64>,
    pub(crate) ledger: Ledger,
    /// Records of users, the last first.
    records: Vec<Value>,
}

/// Adds the records of a batch, or of a part of one.
pub(crate) fn add_records(ledger: &mut Ledger, batch: &Value) {
    for record in batch["records"].as_array().unwrap() {
        let user = record["user"].as_u64().unwrap();
        let torrent = record["info_hash"].as_str().unwrap().to_owned();
        let sums = ledger.entry((user, torrent)).or_default();
        sums[0] += record["uploaded"].as_u64().unwrap();
        sums[1] += record["downloaded"].as_u64().unwrap();
    }
}

pub(crate) struct Client {
    pub(crate) user: u64,
    key: String,
    torrent: u8,
    port: u16,
    counters: [u64; 2],
}

/// A private tracker with a feed, whose state is in the directory.
fn start(state: &Directory) -> (Tracker, Caller) {
    let more = format!("{MORE}[state]\ndir = {:?}\n", state.path("state"));
    start_in(Directory::new(), &more)
}

impl Reader {
    /// Adds a batch, unless it is there already.
    fn add(&mut self, batch: &Value) {
        let sequence = batch["sequence"].as_u64().unwrap();
        let last = self.sequences.entry(batch["feed"].as_str().unwrap().into()).or_default();
        if sequence <= *last {
            return;
        }
        *last = sequence;
        add_records(&mut self.ledger, batch);
        for record in batch["records"].as_array().unwrap() {
            self.records.insert(0, record.clone());
        }
    }

    /// Reads all batches that there are.
    pub(crate) fn read(&mut self, api: &Caller) {
        loop {
            let after = self.cursor.as_ref().map(|cursor| format!("&after={cursor}"));
            let request = format!("GET /accounting?limit=1{}", after.unwrap_or_default());
            let (status, _, body) = api.try_send(&request, "", None).unwrap();
            // Not open yet: the process that this one replaces has the spool.
            if status == 503 {
                return;
            }
            assert_eq!(status, 200, "{body}");
            let Some(line) = body.lines().next() else { return };
            let batch: Value = serde_json::from_str(line).unwrap();
            self.cursor = Some(batch["cursor"].as_str().unwrap().into());
            self.add(&batch);
        }
    }

    fn expect(&mut self, tracker: &Tracker, api: &Caller, expected: &Ledger) {
        tracker.wait_until("the feed has all", |_| {
            self.read(api);
            assert!(self.ledger.iter().all(|(key, sums)| {
                let most = expected.get(key).copied().unwrap_or_default();
                sums[0] <= most[0] && sums[1] <= most[1]
            }));
            self.ledger == *expected
        });
    }
}

impl Client {
    /// Announces over HTTP, with so much more transferred than the last time. Returns the response.
    pub(crate) fn announce(&mut self, address: SocketAddr, more: [u64; 2], rest: &str) -> Vec<u8> {
        self.counters = [self.counters[0] + more[0], self.counters[1] + more[1]];
        let [uploaded, downloaded] = self.counters;
        let report = format!("uploaded={uploaded}&downloaded={downloaded}{rest}");
        let query = own_query(self.torrent, self.port, &report);
        let (status, body) = http(address, &format!("/{}/announce?{query}", self.key));
        assert_eq!(status, 200);
        body
    }

    pub(crate) fn torrent(&self) -> String {
        format!("{:02x}", self.torrent).repeat(20)
    }
}

/// Creates a user, who has a client.
pub(crate) fn client(api: &Caller, torrent: u8, port: u16) -> Client {
    let key = api.expect(201, "POST /keys", Some(&json!({})));
    let user = key["id"].as_u64().unwrap();
    Client { user, key: key["key"].as_str().unwrap().into(), torrent, port, counters: [0, 0] }
}

#[test]
fn ledger_is_right_to_the_last_byte_through_kills_and_upgrades() {
    let state = Directory::new();
    let (mut tracker, mut api) = start(&state);
    let mut clients = [client(&api, 0xaa, 1001), client(&api, 0xbb, 1002)];
    let mut reader = Reader::default();
    let mut expected = Ledger::new();
    let mut round = |tracker: &Tracker, expected: &mut Ledger, number: u64| {
        for (client, bytes) in clients.iter_mut().zip([1_000, 7_000]) {
            let more = [bytes + number, 3 * number];
            let body = client.announce(tracker.http4(), more, "&left=1");
            assert!(has(&body, "8:interval"), "{}", body.escape_ascii());
            let sums = expected.entry((client.user, client.torrent())).or_default();
            // The first announce is worth nothing: the client may have counted before.
            if number > 0 {
                *sums = [sums[0] + more[0], sums[1] + more[1]];
            }
        }
    };
    round(&tracker, &mut expected, 0);
    for number in 1..=9 {
        round(&tracker, &mut expected, number);
        // The contents of a batch survive a kill; a new process continues the sessions.
        reader.expect(&tracker, &api, &expected);
        match number % 3 {
            0 => {
                tracker.kill();
                (tracker, api) = start(&state);
            }
            1 => {
                tracker.upgrade();
                api = Caller::of(&tracker);
            }
            _ => {}
        }
    }
    // At an upgrade, what no batch has yet is written before the old process ends.
    round(&tracker, &mut expected, 10);
    tracker.upgrade();
    round(&tracker, &mut expected, 11);
    reader.expect(&tracker, &Caller::of(&tracker), &expected);
}

#[test]
fn feed_has_cursors_scopes_and_confirmations() {
    let state = Directory::new();
    let (tracker, api) = start(&state);
    let mut client = client(&api, 0xaa, 1001);
    client.announce(tracker.http4(), [5, 5], "&event=started&left=1");
    client.announce(tracker.http4(), [100, 10], "&event=completed&left=0");
    let mut reader = Reader::default();
    let expected = Ledger::from([((client.user, client.torrent()), [100, 10])]);
    reader.expect(&tracker, &api, &expected);
    let record = reader.records.iter().find(|record| !record["completed"].is_null()).unwrap();
    let last = &record["clients"][0];
    assert_eq!(
        (&last["port"], &last["left"], &last["seeder"]),
        (&json!(1001), &json!(0), &json!(true))
    );
    assert_eq!((&last["ip"], &last["uploaded"]), (&json!("127.0.0.1"), &json!(105)));
    assert!(last["peer_id"].as_str().unwrap().starts_with("2d585830303031"), "{last}");
    // Another scope permits nothing here.
    let reading = api.limited(&["accounting:read"]);
    api.limited(&["keys:read"]).expect(403, "GET /accounting", None);
    assert_eq!(reading.try_send("GET /accounting", "", None).unwrap().0, 200);
    let cursor = reader.cursor.clone().unwrap();
    let confirmation = json!({ "cursor": cursor });
    reading.expect(403, "POST /accounting/confirm", Some(&confirmation));
    assert_eq!(api.ask("POST /accounting/confirm", Some(&confirmation)).0, 204);
    for bad in ["7", "0-7", "x-y"] {
        let problem = api.expect(400, &format!("GET /accounting?after={bad}"), None);
        assert!(problem["detail"].as_str().unwrap().starts_with("cursor: "), "{problem}");
    }
    // The status has it, too, and the metrics.
    let stats = api.expect(200, "GET /site", None);
    assert_eq!((&stats["kind"], &stats["announces"]), (&json!("feed"), &json!(2)));
    assert_eq!(api.expect(200, "GET /status", None)["site"], true);
    assert_eq!(tracker.metric("tidegate_site_announces_total"), 2.0);
}

/// A client announces both hashes of a hybrid torrent, with the same counters. One torrent is in the folder when the
/// tracker starts, another comes later.
#[test]
fn hybrid_torrents_are_counted_once() {
    let directory = Directory::new();
    let folder = directory.path("torrents");
    std::fs::create_dir(&folder).unwrap();
    let add = |name: char| {
        let info = format!(
            "d9:file treed1:ad0:d6:lengthi7eeee6:lengthi7e12:meta versioni2e4:name1:{name}\
             12:piece lengthi16384e6:pieces20:xxxxxxxxxxxxxxxxxxxxe"
        );
        let file = directory.write(&format!("torrents/{name}.torrent"), &format!("d4:info{info}e"));
        let hashes = client::Torrent::read(file.to_str().unwrap()).unwrap().hashes;
        <[types::InfoHash; 2]>::try_from(hashes).unwrap()
    };
    let first = add('a');
    let access = format!("private = true\nmode = \"allow\"\nallow_torrents = {folder:?}");
    let more = MORE.replace("private = true", &access);
    let state = directory.path("state");
    let (tracker, api) = start_in(Directory::new(), &format!("{more}[state]\ndir = {state:?}\n"));
    let client = client(&api, 0, 1001);
    let announce = |hashes: [types::InfoHash; 2], uploaded: u64| {
        for hash in hashes {
            let hash: String = hash.0.iter().map(|byte| format!("%{byte:02x}")).collect();
            let rest = format!("peer_id=-XX0001-000000001001&port=1001&uploaded={uploaded}");
            let rest = format!("{rest}&downloaded=0&left=1&compact=1");
            let target = format!("/{}/announce?info_hash={hash}&{rest}", client.key);
            let (_, body) = http(tracker.http4(), &target);
            assert!(has(&body, "8:complete"), "{}", body.escape_ascii());
        }
    };
    [0, 1_000, 3_000].into_iter().for_each(|uploaded| announce(first, uploaded));
    let second = add('b');
    tracker.wait_for_log("counting both hashes of hybrid torrents as one torrents=2");
    [0, 500].into_iter().for_each(|uploaded| announce(second, uploaded));
    let of = |hashes: [types::InfoHash; 2]| (client.user, hashes[0].to_string());
    let expected = Ledger::from([(of(first), [3_000, 0]), (of(second), [500, 0])]);
    Reader::default().expect(&tracker, &api, &expected);
}

/// The key itself changes: the old one is unknown at once, and totals go on.
#[test]
fn a_key_is_replaced_without_losing_totals() {
    let state = Directory::new();
    let (tracker, api) = start(&state);
    let mut client = client(&api, 0xaa, 1001);
    client.announce(tracker.http4(), [0, 0], "&event=started&left=1");
    client.announce(tracker.http4(), [1000, 10], "&left=1");
    let one = format!("/keys/{}", client.user);
    tracker.wait_until("counted", |_| {
        api.expect(200, &format!("GET {one}"), None)["totals"]["uploaded"] == 1000
    });
    let changed = api.expect(200, &format!("GET /keys?changed_since={}", 1), None);
    assert_eq!(changed["keys"][0]["id"], client.user);
    let later = api.expect(200, "GET /keys?changed_since=253402300799", None);
    assert_eq!(later["total"], 0);
    let new = "new-key-0123456789";
    let row = api.expect(200, &format!("PATCH {one}"), Some(&json!({ "key": new })));
    assert_eq!((&row["key"], &row["totals"]["uploaded"]), (&json!(new), &json!(1000)));
    let unknown = client.announce(tracker.http4(), [0, 0], "&left=1");
    assert!(has(&unknown, "unknown key"), "{}", unknown.escape_ascii());
    client.key = new.into();
    // The ledger knows the client by its user: what it transferred meanwhile is counted.
    client.announce(tracker.http4(), [500, 5], "&left=1");
    let expected = Ledger::from([((client.user, client.torrent()), [1500, 15])]);
    Reader::default().expect(&tracker, &api, &expected);
    let udp = Udp::connect(tracker.udp4());
    assert!(has(&udp.announce_at(0xaa, 1001, &format!("/announce/{new}")), "\0\0\0\x01"));
    let other = api.expect(201, "POST /keys", Some(&json!({})));
    let taken = json!({ "key": other["key"] });
    api.expect(409, &format!("PATCH {one}"), Some(&taken));
    api.expect(400, &format!("PATCH {one}"), Some(&json!({ "key": "short" })));
}
