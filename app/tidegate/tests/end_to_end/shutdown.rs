//! Shutdown: how long it takes, and what it does not wait for.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

use harness::wait_until;
use nix::libc;

use crate::clients::{announce_target, has};
use crate::process::{Directory, PATIENCE, Tracker, is_listening};

/// Returns a connection that has sent the first half of a request, and the other half.
fn half_a_request(tracker: &Tracker) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(tracker.http4()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The response to a request before it shows that the connection is served.
    stream.write_all(b"GET /none HTTP/1.1\r\n\r\nGET ").unwrap();
    assert!(stream.read(&mut [0; 1024]).unwrap() > 12);
    (stream, format!("{} HTTP/1.1\r\n\r\n", announce_target(0xaa, 1001)))
}

#[test]
fn answers_started_requests_before_it_stops() {
    let mut tracker = Tracker::start(Directory::new(), "[process]\nshutdown_timeout_s = 600\n");
    let (mut stream, rest) = half_a_request(&tracker);
    tracker.stop();
    tracker.wait_until("nothing listens", |it| !is_listening(it.http4()));
    stream.write_all(rest.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(has(&answer, "10:incompletei1e"), "{}", answer.escape_ascii());
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
}

#[test]
fn stops_after_the_shutdown_timeout() {
    let mut tracker = Tracker::start(Directory::new(), "[process]\nshutdown_timeout_s = 1\n");
    let (mut stream, _) = half_a_request(&tracker);
    tracker.stop();
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
    // The connection is closed without a response.
    let mut left = Vec::new();
    let _ = stream.read_to_end(&mut left);
    assert!(left.is_empty(), "{}", left.escape_ascii());
}

#[test]
fn stops_although_a_list_cannot_be_read_to_its_end() {
    let directory = Directory::new();
    let list = directory.write("deny.txt", "");
    let more = format!("[access]\nmode = \"deny\"\ndeny = \"{}\"\n", list.display());
    let mut tracker = Tracker::start(directory, &more);
    fs::remove_file(&list).unwrap();
    assert!(Command::new("mkfifo").arg(&list).status().unwrap().success());
    tracker.reload();
    // A fifo can be opened for writing once it is read. While it is open and empty, the read blocks.
    let mut writer = None;
    wait_until("the list is read", || {
        writer = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&list).ok();
        writer.is_some()
    });
    tracker.reload();
    tracker.stop();
    assert_eq!(tracker.wait_for_end().code(), Some(0), "{}", tracker.log());
}
