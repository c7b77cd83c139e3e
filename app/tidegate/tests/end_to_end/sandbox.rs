//! The sandbox: what a serving process can do, and what it cannot.

use std::collections::BTreeSet;
use std::fs;

use crate::clients::{Udp, has, http_announce};
use crate::process::{Directory, Tracker};

fn denied(list: &std::path::Path) -> String {
    format!("[access]\nmode = \"deny\"\ndeny = \"{}\"\n", list.display())
}

/// Checks that all threads are in the sandbox. One that was started before would not be.
fn assert_confined(tracker: &Tracker) {
    for (field, value) in [("Seccomp", "2"), ("NoNewPrivs", "1")] {
        assert_eq!(tracker.status_of_threads(field), BTreeSet::from([value.into()]), "{field}");
    }
}

#[test]
fn confines_file_access_while_serving_and_reloading() {
    let elsewhere = Directory::new();
    let outside = elsewhere.write("deny.txt", &"bb".repeat(20));
    let directory = Directory::new();
    let inside = directory.write("deny.txt", "");
    let tracker = Tracker::start(directory, &denied(&inside));
    assert_confined(&tracker);
    tracker.wait_for_log("sandbox: files: ");
    tracker.wait_for_log("; new sockets: none; system calls: ");
    Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    // It can still read its own state in /proc.
    assert!(tracker.metric("process_open_fds") > 5.0);
    assert!(tracker.metric("process_resident_memory_bytes") > 100_000.0);
    // Its files are followed and reread.
    tracker.directory.write("deny.txt", &"aa".repeat(20));
    tracker.wait_until("followed", |it| has(&http_announce(it.http4(), 0xaa, 1), "deny list"));
    tracker.configure(&(denied(&inside) + "[tracker]\ninterval_s = 77\n"));
    tracker.reload();
    tracker.wait_until("reloaded", |it| has(&http_announce(it.http4(), 0xbb, 1), "intervali77e"));
    // Files elsewhere cannot be read, and the old settings stay.
    tracker.configure(&denied(&outside));
    tracker.reload();
    if tracker.log().contains("files: not restricted") {
        tracker.wait_until("read", |it| has(&http_announce(it.http4(), 0xbb, 1), "deny list"));
        return;
    }
    tracker.wait_for_log(&format!("the sandbox does not allow reading {}", outside.display()));
    assert!(has(&http_announce(tracker.http4(), 0xbb, 1), "intervali77e"));
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "deny list"));
    // An upgrade builds the sandbox for the new configuration.
    tracker.upgrade();
    assert!(has(&http_announce(tracker.http4(), 0xbb, 1), "deny list"));
    assert_confined(&tracker);
}

#[test]
fn turns_the_sandbox_off() {
    let elsewhere = Directory::new();
    let outside = elsewhere.write("deny.txt", &"bb".repeat(20));
    let off = "[process]\nsandbox = \"off\"\n";
    let tracker = Tracker::start(Directory::new(), off);
    assert_eq!((tracker.status("Seccomp"), tracker.status("NoNewPrivs")), ("0".into(), "0".into()));
    tracker.configure(&(denied(&outside) + off));
    tracker.reload();
    tracker.wait_until("read", |it| has(&http_announce(it.http4(), 0xbb, 1), "deny list"));
}

#[test]
fn follows_symbolic_links_to_lists() {
    let elsewhere = Directory::new();
    let real = elsewhere.write("real.txt", "");
    let directory = Directory::new();
    let link = directory.path("deny.txt");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let tracker = Tracker::start(directory, &denied(&link));
    fs::write(&real, "aa".repeat(20)).unwrap();
    tracker.wait_until("followed", |it| has(&http_announce(it.http4(), 0xaa, 1), "deny list"));
}

#[test]
fn rejects_acme_settings_the_sandbox_was_not_built_for() {
    let tracker = Tracker::start(Directory::new(), "");
    let cache = tracker.directory.path("cache");
    tracker.configure(&format!(
        "[tls]\nlisten = [\"127.0.0.1:0\"]\n[tls.acme]\ndomains = [\"t.example\"]\n\
         directory = \"https://127.0.0.1:1/\"\ncache = {cache:?}\n"
    ));
    tracker.reload();
    if tracker.log().contains("files: not restricted") {
        tracker.wait_until("reloaded", |it| it.metric("tidegate_reloads_total") == 1.0);
        return;
    }
    tracker.wait_for_log("reload failed: the sandbox does not allow writing to ");
    // An upgrade builds that sandbox; the new process keeps trying, and serves.
    tracker.upgrade();
    tracker.wait_for_log("reason=\"cannot reach https://127.0.0.1:1/");
    assert!(cache.join("127.0.0.1_1_").is_dir());
    assert!(tracker.metric("tidegate_acme_attempts_total{result=\"unreachable\"}") >= 1.0);
    Udp::connect(tracker.udp4()).announce(0xaa, 1001);
}

/// Also if it stays root. Its launcher keeps them: the process that it starts has them until it serves.
#[test]
fn keeps_no_capabilities() {
    let tracker = Tracker::start(Directory::new(), "");
    let check = || {
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let none = BTreeSet::from(["0000000000000000".into()]);
            assert_eq!(tracker.status_of_threads(set), none, "{set}");
        }
        Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    };
    check();
    tracker.upgrade();
    check();
}

#[test]
fn reloads_no_list_that_it_could_replace_itself() {
    let state = Directory::new();
    let folder = state.path("state");
    let more = format!("[state]\ndir = {folder:?}\n");
    let tracker = Tracker::start(Directory::new(), &more);
    let list = folder.join("deny.txt");
    fs::write(&list, "aa".repeat(20)).unwrap();
    tracker.configure(&(more + &denied(&list)));
    tracker.reload();
    let message = format!(
        "reload failed: {}: a file that the configuration names must not be in {}",
        list.display(),
        folder.display()
    );
    tracker.wait_for_log(&message);
    assert!(!has(&http_announce(tracker.http4(), 0xaa, 1), "deny list"));
}
