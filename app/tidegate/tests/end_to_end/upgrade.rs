//! Upgrades by SIGUSR2: a new process takes over the sockets.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use harness::http::Connection;

use crate::clients::{Udp, announce_target, http_announce, try_http, u32_at};
use crate::process::{Directory, Signal, Tracker, is_alive, is_listening, link_binary};

mod networks;

/// Counts of all clients together.
#[derive(Default)]
struct Seen {
    stop: AtomicBool,
    answered: [AtomicUsize; 3],
    failed: [AtomicUsize; 3],
}

impl Seen {
    fn count(&self, protocol: usize, is_good: bool) {
        let count = if is_good { &self.answered } else { &self.failed };
        count[protocol].fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self) -> [usize; 3] {
        self.answered.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Announces repeatedly with a connection id of the first process.
    fn ask_udp(&self, tracker: SocketAddr) {
        let udp = Udp::connect(tracker);
        while !self.stop.load(Ordering::Relaxed) {
            let reply = udp.try_announce(0xaa, 1001);
            self.count(0, reply.is_ok_and(|reply| u32_at(&reply, 0) == 1));
        }
    }

    /// Announces repeatedly, over a new connection each time.
    fn ask_http(&self, tracker: SocketAddr) {
        let target = announce_target(0xaa, 1002);
        while !self.stop.load(Ordering::Relaxed) {
            let answer = try_http(tracker, &target);
            self.count(1, answer.is_ok_and(|(status, _)| status == 200));
        }
    }

    /// Announces repeatedly, over one connection until a response says that it is the last.
    fn ask_kept_alive(&self, tracker: SocketAddr) {
        let target = announce_target(0xaa, 1003);
        let request = format!("GET {target} HTTP/1.1\r\nHost: tracker.test\r\n\r\n");
        let mut kept: Option<Connection> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let connection = kept.take().map_or_else(|| Connection::open(tracker), Ok);
            let answer = connection.and_then(|mut connection| {
                connection.send(&request)?;
                let response = connection.receive()?;
                kept = (!response.closes()).then_some(connection);
                Ok(response.status)
            });
            self.count(2, answer.is_ok_and(|status| status == 200));
        }
    }
}

/// Stops the clients, even if the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn upgrades_without_losing_requests_or_peers() {
    let mut tracker = Tracker::start(Directory::new(), "");
    let seen = Seen::default();
    let first = tracker.pid();
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&seen.stop);
        let v4 = (tracker.udp4(), tracker.http4());
        let v6 = (tracker.udp6(), tracker.http6());
        for (udp, http) in [v4, v6, v4, v6] {
            let seen = &seen;
            scope.spawn(move || seen.ask_udp(udp));
            scope.spawn(move || seen.ask_http(http));
            scope.spawn(move || seen.ask_kept_alive(http));
        }
        let more_was_answered = |by: usize| {
            let before = seen.answered();
            tracker.wait_until("answers", |_| {
                seen.answered().iter().zip(before).all(|(now, before)| *now >= before + by)
            });
        };
        more_was_answered(50);
        for _ in 0..3 {
            tracker.upgrade();
            more_was_answered(50);
        }
    });
    let failed = seen.failed.each_ref().map(|count| count.load(Ordering::Relaxed));
    let [udp, http, kept_alive] = seen.answered();
    eprintln!(
        "three upgrades under load: {udp} UDP, {http} HTTP and {kept_alive} kept-alive announces \
         answered, failed: {failed:?}"
    );
    assert_eq!(failed, [0; 3], "{}", tracker.log());
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
    assert_ne!(tracker.pid(), first);
    // The last process stops on SIGTERM.
    tracker.stop();
    let last = tracker.pid();
    tracker.wait_until("the end", |_| !is_alive(last));
}

#[test]
fn reads_the_new_configuration_at_an_upgrade() {
    let tracker = Tracker::start(Directory::new(), "");
    let udp = Udp::connect(tracker.udp4());
    // More workers share the inherited sockets; a socket without a listener is closed.
    tracker.configure("[tracker]\ninterval_s = 1234\n");
    let path = tracker.directory.path("tidegate.toml");
    let text = fs::read_to_string(&path).unwrap();
    let v6 = ", \"[::1]:0\"]\nworkers = 2\nreceive";
    assert!(text.contains(v6));
    let left = format!("no longer has sockets=\"UDP {} (`udp`)", tracker.udp6());
    fs::write(&path, text.replace(v6, "]\nworkers = 3\nreceive")).unwrap();
    tracker.upgrade();
    assert_eq!(u32_at(&udp.announce(0xaa, 1001), 8), 1234);
    tracker.wait_for_log(&left);
    tracker.wait_for_log("listener=\"udp\" sockets=2 workers=3");
    http_announce(tracker.http6(), 0xaa, 1002);
}

#[test]
fn keeps_serving_if_the_new_process_cannot_start() {
    let (tracker, link) = Tracker::start_by_link(Directory::new());
    let (udp, first) = (Udp::connect(tracker.udp4()), tracker.pid());
    let serves_on = |reason: &str| {
        let message = format!("upgrade failed; this process continues to serve reason=\"{reason}");
        tracker.wait_for_log(&message);
        udp.announce(0xaa, 1001);
        http_announce(tracker.http6(), 0xaa, 1002);
        assert_eq!(tracker.pid(), first);
    };
    tracker.configure("[tracker]\ninterval_s = \"no\"\n");
    tracker.signal(Signal::SIGUSR2);
    serves_on("the new process ended before it served");
    tracker.wait_for_log("tracker.interval_s: expected an integer from 1 to 86400, found \"no\"");
    tracker.configure("");
    fs::remove_file(&link).unwrap();
    tracker.signal(Signal::SIGUSR2);
    serves_on(&format!("cannot start {}: No such file", link.display()));
    // The failed attempts leave nothing behind.
    link_binary(&link);
    tracker.upgrade();
    udp.announce(0xaa, 1001);
}

#[test]
fn stops_the_new_process_with_the_old_one() {
    let directory = Directory::new();
    let list = directory.path("deny.txt");
    fs::write(&list, "").unwrap();
    let more = format!("[access]\nmode = \"deny\"\ndeny = \"{}\"\n", list.display());
    let mut tracker = Tracker::start(directory, &more);
    // The new process waits for the list, a fifo that is not yet written to.
    fs::remove_file(&list).unwrap();
    assert!(Command::new("mkfifo").arg(&list).status().unwrap().success());
    tracker.signal(Signal::SIGUSR2);
    tracker.wait_until("begun", |it| it.log().contains("upgrade: started"));
    tracker.signal(Signal::SIGUSR2);
    tracker.wait_until("once only", |it| it.log().contains("an upgrade is already in progress"));
    tracker.stop();
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
    fs::write(&list, "").unwrap();
    tracker.wait_for_log("tidegate: the old process cancelled the upgrade and continues to serve");
    tracker.wait_until("nothing listens", |it| !is_listening(it.http4()));
}
