//! Thread priorities. Linux only.

use std::collections::BTreeMap;
use std::fs;

use crate::api::{Caller, TOKEN};
use crate::clients::http;
use crate::process::{Directory, Tracker};

/// Returns the nice value of each thread by name (proc_pid_stat(5)).
fn threads(tracker: &Tracker) -> BTreeMap<String, i32> {
    let tasks = fs::read_dir(format!("/proc/{}/task", tracker.pid())).unwrap();
    // Threads that end meanwhile are left out.
    let stats = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("stat")).ok());
    let thread = |stat: String| {
        let (before, after) = stat.rsplit_once(") ").unwrap();
        let name = before.split_once('(').unwrap().1.to_owned();
        // Field 19; the first behind the name is field 3.
        (name, after.split(' ').nth(16).unwrap().parse().unwrap())
    };
    stats.map(thread).collect()
}

#[test]
fn lowers_the_priority_of_background_threads() {
    let state = Directory::new();
    let more = format!("[state]\ndir = {:?}\n", state.path("state"));
    let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN), ("TIDEGATE_HTTP__FULL_SCRAPE", "true")];
    let tracker = Tracker::start_with(Directory::new(), &more, &variables);
    // Lists of torrents start background threads.
    Caller::of(&tracker).expect(200, "GET /torrents", None);
    assert_eq!(http(tracker.http4(), "/scrape").0, 200);
    tracker.wait_until("all step back", |tracker| {
        let threads = threads(tracker);
        let main = threads["tidegate"];
        let behind = (main + 10).min(19);
        let is_behind = |name: &&str| threads.get(*name) == Some(&behind);
        let others = ["udp-0", "http-0", "admin", "records"];
        assert_eq!(others.map(|name| threads[name]), [main; 4]);
        ["tokio-rt-worker", "http-list", "sweep"].iter().all(is_behind)
    });
}
