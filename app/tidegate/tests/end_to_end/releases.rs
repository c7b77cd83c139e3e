//! State and configuration of released versions, read by this one. `testing/state` has an archive of each, and what the
//! released program itself showed of it: see `make.py` there.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use harness::Tracker;
use serde_json::Value;

use crate::api::{Caller, TOKEN};
use crate::clients::{Udp, has, http};
use crate::process::{Directory, tidegate_of_users};

/// Of Debian's package `libfaketime`.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// From the end of the released program to the start of this one by its clock. Ten minutes would age no peer.
const STOPPED_S: u64 = 60;
/// Figures of a process and of its files, and the time of a response. Counters begin anew. Their names stay.
const VOLATILE: [&str; 9] =
    ["uptime_s", "memory", "traffic", "process", "events", "records", "swarms", "from", "to"];
/// The longest that a torrent's age may have grown. It is a multiple of 1024 s.
const AGE_MAX_S: f64 = 2048.0;

/// A release: what its program showed of its state.
struct Release {
    folder: PathBuf,
    expected: Value,
}

impl Release {
    fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/state");
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let listings = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
        let release = |path: PathBuf| Self {
            folder: folder.clone(),
            expected: serde_json::from_slice(&fs::read(path).unwrap()).unwrap(),
        };
        listings.map(release).collect()
    }

    fn text(&self, name: &str) -> &str {
        self.expected[name].as_str().unwrap()
    }

    /// Unpacks the configuration and the state directory.
    fn unpack(&self) -> Directory {
        let directory = Directory::new();
        let archive = self.folder.join(format!("{}.tar.xz", self.text("version")));
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(archive).arg("-C").arg(directory.path(""));
        assert!(tar.status().unwrap().success(), "needs tar and xz");
        directory
    }

    /// Starts this program where the released one has stopped, with a clock that continues from there.
    fn start(&self, directory: &Directory) -> Tracker {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let since = now - self.expected["stopped"].as_u64().unwrap() - STOPPED_S;
        let mut command = tidegate_of_users(&[]);
        command.env("TIDEGATE_STATE__DIR", directory.path("state"));
        // One of the tokens in the listing.
        command.env("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN);
        // As users run it: keys that are constants now are ignored.
        command.env("TIDEGATE_UNSTABLE_KEYS", "0");
        command.env("LD_PRELOAD", FAKETIME).env("FAKETIME", format!("-{since}"));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
        let file = directory.path("tidegate.toml");
        let configuration = fs::read_to_string(&file).unwrap();
        Tracker::start(command, file.parent().unwrap(), &configuration).unwrap()
    }

    fn objects(&self, name: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.expected[name].as_object().unwrap().iter()
    }

    /// Compares all that the API and scrapes show. The token is one that the released program made.
    fn compare(&self, tracker: &Tracker) {
        let token = self.text("token").into();
        let api = Caller { address: tracker.admin_address().unwrap(), token };
        for (target, expected) in self.objects("responses") {
            if target == "settings" {
                let config = api.expect(200, "GET /config", None);
                let is_kept = |(name, value): (&String, &Value)| {
                    let settings = config["settings"].as_array().unwrap();
                    settings.iter().any(|it| it["name"] == **name && it["value"] == *value)
                };
                assert!(expected.as_object().unwrap().iter().all(is_kept), "{config}");
            } else {
                let found = api.expect(200, &format!("GET {target}"), None);
                assert_covers(target, expected, &found);
            }
        }
        let http_address = address(tracker, "http", 1);
        for (torrent, expected) in self.objects("scrapes") {
            let byte = u8::from_str_radix(&torrent[..2], 16).unwrap();
            let expected = expected.as_str().unwrap();
            let escaped = format!("%{byte:02x}").repeat(20);
            let (_, body) = http(http_address, &format!("/scrape?info_hash={escaped}"));
            let body = body.into_iter().map(char::from).collect::<String>();
            let body = body.replace(&char::from(byte).to_string().repeat(20), "HASH");
            // The downloads of a torrent without peers may be forgotten.
            let is_empty = expected.contains("completei0e") && expected.contains("incompletei0e");
            assert!(body == expected || is_empty, "{torrent}: {expected}, found {body}");
            let udp = Udp::connect(address(tracker, "udp", 1));
            let [seeders, downloads, leechers] = udp.scrape(byte);
            let counts =
                format!("completei{seeders}e10:downloadedi{downloads}e11:downloadersi{leechers}e");
            assert!(body.contains(&counts), "over UDP {counts}, over HTTP {body}");
        }
    }

    /// Announces with keys that the released program made, to its private torrents and to one that is frozen.
    fn announce(&self, tracker: &Tracker) {
        let private = address(tracker, "http", 2);
        let announce = |key: &str, byte: u8| {
            let hash = format!("%{byte:02x}").repeat(20);
            let target = format!(
                "/{key}/announce?info_hash={hash}&peer_id=-XX0001-000000000000&port=7007&left=1"
            );
            http(private, &target).1
        };
        for key in self.expected["user_keys"].as_array().unwrap() {
            let body = announce(key.as_str().unwrap(), 0xc0);
            assert!(has(&body, "5:peers") && !has(&body, "failure"), "{}", body.escape_ascii());
        }
        assert!(has(&announce("a-key-that-no-one-made", 0xc0), "failure"));
        let udp = Udp::connect(address(tracker, "udp", 1));
        for (torrent, is_served) in [(1, true), (6, false), (0xd0, false)] {
            // An error is 3.
            assert_eq!(udp.announce(torrent, 7008)[3] == 1, is_served, "{torrent:02x}");
        }
    }
}

fn address(tracker: &Tracker, kind: &str, number: u8) -> SocketAddr {
    tracker.address(kind, IpAddr::V4(Ipv4Addr::new(127, 0, 0, number))).unwrap()
}

/// Panics unless `found` has everything of `expected`. Later versions may add fields and rows of history.
fn assert_covers(place: &str, expected: &Value, found: &Value) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (name, expected) in expected {
                let place = format!("{place}: {name}");
                let found = found.get(name).unwrap_or_else(|| panic!("no {place}"));
                if VOLATILE.contains(&name.as_str()) {
                    assert_has_names(&place, expected, found);
                } else if name == "age_s" {
                    let grown = found.as_f64().unwrap() - expected.as_f64().unwrap();
                    assert!(grown.abs() <= AGE_MAX_S, "{place}: {expected}, found {found}");
                } else if ["peers", "rows", "annotations"].contains(&name.as_str()) {
                    assert_has_all(&place, expected, found);
                } else {
                    assert_covers(&place, expected, found);
                }
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            assert_eq!(expected.len(), found.len(), "{place}");
            for (expected, found) in expected.iter().zip(found) {
                assert_covers(place, expected, found);
            }
        }
        _ => assert_eq!(expected, found, "{place}"),
    }
}

/// Panics unless `found` has all fields of `expected`, and theirs, with whatever values.
fn assert_has_names(place: &str, expected: &Value, found: &Value) {
    for (name, expected) in expected.as_object().into_iter().flatten() {
        let place = format!("{place}: {name}");
        assert_has_names(&place, expected, found.get(name).unwrap_or_else(|| panic!("no {place}")));
    }
}

/// Panics unless each peer is in `found` with its id and role, whatever the order, and each row and annotation as it is.
fn assert_has_all(place: &str, expected: &Value, found: &Value) {
    let (Value::Array(expected), Value::Array(found)) = (expected, found) else {
        return assert_covers(place, expected, found);
    };
    for one in expected {
        let is_same = |other: &&Value| {
            ["address", "id", "role"].iter().all(|it| one.get(it) == other.get(it))
        };
        // The last annotation is the start of the program that made the listing.
        let is_start = one["kind"] == "start";
        if one.is_array() || one.get("kind").is_some() {
            assert!(found.contains(one) || is_start, "{place} lacks {one}");
        } else {
            let other = found.iter().find(is_same);
            let other = other.unwrap_or_else(|| panic!("{place} lacks {one}"));
            let grown = other["age_s"].as_i64().unwrap() - one["age_s"].as_i64().unwrap();
            // Ages are multiples of 16 s.
            assert!((-16..=120).contains(&grown), "{place}: {one}, found {other}");
        }
    }
    assert!(found.len() >= expected.len(), "{place}");
}

#[test]
fn this_program_reads_the_state_of_each_release() {
    let releases = Release::all();
    assert!(!releases.is_empty());
    for release in releases {
        let directory = release.unpack();
        // The second start reads what the first has migrated.
        for _ in 0..2 {
            let tracker = release.start(&directory);
            release.compare(&tracker);
            let log = tracker.stderr();
            assert!(!log.contains("ERROR"), "{log}");
            assert!(log.contains("udp.pin_cores is no longer a setting"), "{log}");
            tracker.stop().unwrap();
        }
        release.announce(&release.start(&directory));
    }
}
