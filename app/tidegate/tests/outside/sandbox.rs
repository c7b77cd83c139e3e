//! What a process that serves can still do, and what it cannot.

use std::fs;

use crate::process::{Directory, Tracker};
use crate::talk::{Udp, has, http_announce};

fn denied(list: &std::path::Path) -> String {
    format!("[access]\nmode = \"deny\"\ndeny = \"{}\"\n", list.display())
}

#[test]
fn it_serves_and_reloads_but_opens_nothing_elsewhere() {
    let elsewhere = Directory::new();
    let outside = elsewhere.write("deny.txt", &"bb".repeat(20));
    let directory = Directory::new();
    let inside = directory.write("deny.txt", "");
    let tracker = Tracker::start(directory, &denied(&inside));
    assert_eq!((tracker.status("Seccomp"), tracker.status("NoNewPrivs")), ("2".into(), "1".into()));
    tracker.wait_for_log("sandbox: files: ");
    Udp::connect(tracker.udp4()).announce(0xaa, 1001);
    // What it reads about itself, it still reads.
    assert!(tracker.metric("process_open_fds") > 5.0);
    assert!(tracker.metric("process_resident_memory_bytes") > 100_000.0);
    // Its files are followed, and read again.
    tracker.directory.write("deny.txt", &"aa".repeat(20));
    tracker.wait_until("followed", |it| has(&http_announce(it.http4(), 0xaa, 1), "deny list"));
    tracker.configure(&(denied(&inside) + "[tracker]\ninterval_s = 77\n"));
    tracker.reload();
    tracker.wait_until("reloaded", |it| has(&http_announce(it.http4(), 0xbb, 1), "intervali77e"));
    // Somebody else's are not, and what was in force stays.
    tracker.configure(&denied(&outside));
    tracker.reload();
    if tracker.log().contains("files: not restricted") {
        tracker.wait_until("read", |it| has(&http_announce(it.http4(), 0xbb, 1), "deny list"));
        return;
    }
    let said = format!("the sandbox does not allow reading {}", outside.display());
    tracker.wait_for_log(&said);
    assert!(has(&http_announce(tracker.http4(), 0xbb, 1), "intervali77e"));
    assert!(has(&http_announce(tracker.http4(), 0xaa, 1), "deny list"));
    // A new process has the sandbox that the new configuration needs.
    tracker.upgrade();
    assert!(has(&http_announce(tracker.http4(), 0xbb, 1), "deny list"));
    assert_eq!(tracker.status("Seccomp"), "2");
}

#[test]
fn it_can_be_left_out() {
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
fn a_file_behind_a_link_is_followed_where_it_is() {
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
fn certificates_need_a_sandbox_that_was_made_for_them() {
    let tracker = Tracker::start(Directory::new(), "");
    let cache = tracker.directory.path("cache");
    tracker.configure(&format!(
        "[tls]\nlisten = [\"127.0.0.1:0\"]\n[tls.acme]\ndomains = [\"t.example\"]\nterms_of_service_agreed = true\n\
         directory = \"https://127.0.0.1:1/\"\ncache = {cache:?}\n"
    ));
    tracker.reload();
    if tracker.log().contains("files: not restricted") {
        tracker.wait_until("reloaded", |it| it.metric("tidegate_reloads_total") == 1.0);
        return;
    }
    let said = "reload failed: the sandbox does not allow writing to ";
    tracker.wait_for_log(said);
    // A new process has one, keeps trying in it, and serves.
    tracker.upgrade();
    let said = "reason=\"cannot reach https://127.0.0.1:1/";
    tracker.wait_for_log(said);
    assert!(cache.join("127.0.0.1_1_").is_dir());
    assert!(tracker.metric("tidegate_acme_attempts_total{result=\"unreachable\"}") >= 1.0);
    Udp::connect(tracker.udp4()).announce(0xaa, 1001);
}
