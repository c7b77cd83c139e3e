//! The journal of swarms: which peers survive which end of the process.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use crate::api::{Caller, start_in};
use crate::clients::{Udp, announce_target, has, http, http_announce, http_complete};
use crate::process::{Directory, Signal, Tracker, is_alive, run, stderr, stdout, tidegate};

/// The port of a client that stops.
const STOPPED: u16 = 1005;

/// The directory of records and journal, which several trackers use one after the other.
struct State(Directory);

impl State {
    fn new() -> Self {
        Self(Directory::new())
    }

    fn config(&self, more: &str) -> String {
        format!("[state]\ndir = {:?}\n{more}", self.0.path("state"))
    }

    /// Serves with this directory and `more` in `[state]`.
    fn start(&self, more: &str) -> Tracker {
        start_in(Directory::new(), &self.config(more)).0
    }

    fn journal(&self) -> PathBuf {
        self.0.path("state/swarms")
    }

    /// The files of the journal, the oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.journal()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|it| it == "tgj")).collect();
        files.sort();
        files
    }
}

/// Clients come, over all protocols and families; one of them stops, and one completes its download.
fn fill(tracker: &Tracker) {
    Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    http_announce(tracker.http4(), 0xaa, 1002);
    Udp::connect(tracker.udp6()).announce(0xaa, 1003);
    http_announce(tracker.http6(), 0xaa, 1004);
    for torrent in [0xaa, 0xbb] {
        http_announce(tracker.http4(), torrent, STOPPED);
        http(tracker.http4(), &(announce_target(torrent, STOPPED) + "&event=stopped"));
    }
    http_announce(tracker.http4(), 0xcc, 1);
    http_complete(tracker.http4(), 0xcc, 1);
}

/// Returns whether all clients of [`fill`] that stayed are there, and no others.
fn is_restored(tracker: &Tracker) -> bool {
    let udp = Udp::connect(tracker.udp4());
    [0xaa, 0xbb, 0xcc].map(|torrent| udp.scrape(torrent)) == [[0, 0, 4], [0, 0, 0], [1, 1, 0]]
}

/// Waits until the journal contains all that has happened until now.
fn wait_until_written(tracker: &Tracker) {
    let since = Instant::now();
    tracker.wait_until("written", |it| {
        let passed_s = since.elapsed().as_secs_f64();
        it.metric("tidegate_journal_bytes_total{kind=\"changes\"}") > 0.0
            && it.metric("tidegate_journal_lag_seconds") < passed_s
    });
}

/// Returns what the API says of the journal.
fn journal(tracker: &Tracker) -> Value {
    Caller::of(tracker).expect(200, "GET /stats", None)["swarms"].clone()
}

fn stop(mut tracker: Tracker) {
    tracker.stop();
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
}

#[test]
fn peers_survive_an_upgrade_and_a_kill_after_it() {
    let state = State::new();
    let tracker = state.start("");
    fill(&tracker);
    tracker.upgrade();
    assert!(is_restored(&tracker), "{}", tracker.log());
    // The old process has released the journal when it ended.
    tracker.wait_until("writing", |it| journal(it)["journal"] == "writing");
    http_announce(tracker.http4(), 0xdd, 1);
    wait_until_written(&tracker);
    let pid = tracker.pid();
    tracker.signal(Signal::SIGKILL);
    tracker.wait_until("its end", |_| !is_alive(pid));
    drop(tracker);
    let tracker = state.start("");
    assert!(is_restored(&tracker), "{}", tracker.log());
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xdd), [0, 0, 1]);
    tracker.wait_for_log("restored swarms from the journal expired=0 peers=6 seconds=");
    assert_eq!(tracker.metric("tidegate_journal_restored_peers"), 6.0);
}

#[test]
fn leaves_nothing_on_the_disk_if_turned_off() {
    let state = State::new();
    let tracker = state.start("swarms = false\n");
    fill(&tracker);
    let (_, page) = tracker.admin("/metrics");
    assert!(!page.contains("tidegate_journal_"), "{page}");
    let off = json!({ "journal": "off", "round_age_s": null, "disk_bytes": 0, "restored": 0 });
    assert_eq!(journal(&tracker), off);
    stop(tracker);
    assert!(!state.journal().exists());
    let tracker = state.start("");
    assert_eq!(Udp::connect(tracker.udp4()).scrape(0xaa), [0; 3]);
}

#[test]
fn only_one_process_has_the_journal() {
    let state = State::new();
    let first = state.start("");
    fill(&first);
    let second = state.start("");
    second.wait_for_log("another process has the journal of swarms: give each tracker its own");
    second.wait_for_log("serving without the journal of swarms");
    assert_eq!(second.metric("tidegate_journal_failures_total{reason=\"locked\"}"), 1.0);
    assert_eq!(journal(&second)["journal"], "stopped");
    http_announce(second.http4(), 0xdd, 1);
    // When the first one has ended, the second one restores and continues its journal.
    stop(first);
    second.wait_until("restored", is_restored);
    second.wait_until("writing", |it| journal(it)["journal"] == "writing");
    stop(second);
    let third = state.start("");
    assert!(is_restored(&third), "{}", third.log());
    assert_eq!(Udp::connect(third.udp4()).scrape(0xdd), [0, 0, 1]);
}

#[test]
fn serves_without_a_journal_if_there_is_no_directory_for_it() {
    let state = State::new();
    stop(state.start("swarms = false\n"));
    fs::write(state.journal(), "a file").unwrap();
    let tracker = state.start("");
    tracker.wait_for_log("cannot open the journal of swarms");
    fill(&tracker);
    assert!(is_restored(&tracker));
    let failures = tracker.metric("tidegate_journal_failures_total{reason=\"io\"}");
    assert!(failures >= 1.0, "{failures}");
}

#[test]
fn shows_and_reloads_the_journal() {
    let state = State::new();
    let tracker = state.start("swarms_sync_s = 0\n");
    tracker.wait_until("writing", |it| journal(it)["journal"] == "writing");
    fill(&tracker);
    wait_until_written(&tracker);
    tracker.wait_until("counted", |it| it.metric("tidegate_journal_disk_bytes") > 64.0);
    assert_eq!(tracker.metric("tidegate_journal_segments"), 1.0);
    assert!(tracker.metric("tidegate_journal_round_age_seconds") < 600.0);
    assert_eq!(tracker.metric("tidegate_journal_missed_total"), 0.0);
    let stats = journal(&tracker);
    assert!(stats["disk_bytes"].as_u64().unwrap() > 64, "{stats}");
    // Nothing is forced to the disk between the ends of rounds, until the reload.
    let syncs = |it: &Tracker| it.metric("tidegate_journal_sync_seconds_count");
    let before = syncs(&tracker);
    tracker.configure(&state.config("swarms_sync_s = 1\nswarms_round_s = 60\n"));
    tracker.reload();
    tracker.wait_for_log("changed=\"state.swarms_round_s, state.swarms_sync_s\"");
    http_announce(tracker.http4(), 0xdd, 1);
    tracker.wait_until("synced", |it| syncs(it) > before);
}

#[test]
fn journal_command_lists_and_checks_files() {
    let state = State::new();
    let directory = state.0.path("state");
    let directory = directory.to_str().unwrap();
    let missing = run(&["journal", "check", directory]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("cannot read"), "{}", stderr(&missing));
    let unset = tidegate(&["journal", "show"]).env("TIDEGATE_STATE__DIR", "").output().unwrap();
    assert_eq!(unset.status.code(), Some(2));
    assert!(stderr(&unset).contains("state.dir is empty"), "{}", stderr(&unset));
    let tracker = state.start("");
    fill(&tracker);
    wait_until_written(&tracker);
    // The running tracker is not disturbed.
    let shown = run(&["journal", "show", directory]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let text = stdout(&shown);
    for expected in ["0000000000000001.tgj", "1 begins", "files: 1, ", "last complete round: none"]
    {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    stop(tracker);
    let checked = run(&["journal", "check", directory]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
    assert!(has(&checked.stdout, "no damage"), "{}", stdout(&checked));
    let first = state.segments().remove(0);
    let mut bytes = fs::read(&first).unwrap();
    bytes[70] ^= 1;
    fs::write(&first, &bytes).unwrap();
    let checked = run(&["journal", "check", directory]);
    assert_eq!(checked.status.code(), Some(1));
    let text = stdout(&checked);
    assert!(text.contains("damaged at byte 64") && text.contains("1 damaged place"), "{text}");
    // The configuration names the directory, too.
    let file = state.0.write("with.toml", &state.config(""));
    let checked = run(&["journal", "check", "--config", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
}
