//! Faulty servers: the command ends soon, with one sentence and exit code 1.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::fake_trackers::{accept_websocket, answers, ok, reply, request, tcp, udp};
use super::{HASH, lines};
use crate::process::{run, stderr, stdout, unused_address};

/// A fault: the URL, the kind of the error, and a part of its sentence.
type Fault<'a> = (String, &'a str, &'a str);

/// Announces to all of these URLs at the same time, once for people and once for programs.
fn expect_all(faults: &[Fault<'_>]) {
    // A response in time comes at once; a longer timeout than necessary is a margin for a busy machine.
    let timeout_s = |kind: &str| if kind == "timeout" { "1" } else { "60" };
    expect_all_within(faults, timeout_s);
}

fn expect_all_within(faults: &[Fault<'_>], timeout_s: impl Fn(&str) -> &'static str) {
    thread::scope(|scope| {
        for (url, kind, why) in faults {
            let timeout_s = timeout_s(kind);
            scope.spawn(move || {
                let (found, sentence) = fault(url, timeout_s);
                assert_eq!(found, *kind, "{sentence}");
                assert!(sentence.contains(why), "{kind}: {sentence}");
            });
        }
    });
}

/// Announces there and returns the kind of the error and its sentence.
fn fault(url: &str, timeout_s: &str) -> (String, String) {
    let arguments = ["announce", url, HASH, "--timeout", timeout_s];
    let (plain, json) = thread::scope(|scope| {
        let plain = scope.spawn(|| run(&arguments));
        let json = run(&[arguments.as_slice(), &["--json"]].concat());
        (plain.join().unwrap(), json)
    });
    assert_eq!(plain.status.code(), Some(1), "{url}");
    assert!(plain.stdout.is_empty(), "{url}");
    let sentence = stderr(&plain);
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    let sentence = sentence.trim_end().strip_prefix("tidegate: ").unwrap().to_owned();
    assert!(sentence.starts_with(url), "{sentence}");
    assert_eq!(json.status.code(), Some(1), "{url}");
    let [line] = lines(&json).try_into().unwrap();
    (line["error"]["kind"].as_str().unwrap().to_owned(), sentence)
}

/// Returns a fault of an HTTP server that answers with `answer`, and then closes the connection.
fn http(answer: impl Into<Vec<u8>>, kind: &'static str, why: &'static str) -> Fault<'static> {
    (format!("http://{}/announce", answers(answer, true)), kind, why)
}

/// Returns a fault of a WebSocket server that sends these frames.
fn web(frames: impl Into<Vec<u8>>, kind: &'static str, why: &'static str) -> Fault<'static> {
    let frames = frames.into();
    let server = tcp(move |mut stream| {
        if accept_websocket(&mut stream) {
            let _ = stream.write_all(&frames);
            hang(&mut stream);
        }
    });
    (format!("ws://{server}/"), kind, why)
}

/// Keeps a connection open until the client closes it.
fn hang(stream: &mut TcpStream) {
    while stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {}
}

#[test]
fn reports_unreachable_silent_and_closed_servers() {
    let address = unused_address();
    let unreachable = format!("cannot reach {}", address.ip());
    let [silent, closed] = [tcp(|mut stream| hang(&mut stream)), tcp(drop)];
    let mut faults = vec![(format!("udp://{address}/"), "unreachable", &*unreachable)];
    for scheme in ["http", "https", "ws", "wss"] {
        let url = |server| format!("{scheme}://{server}/");
        faults.push((url(address), "unreachable", &*unreachable));
        faults.push((url(silent), "timeout", "within 1 s"));
        faults.push((url(closed), "connection_lost", ""));
    }
    expect_all(&faults);
    // The name cannot be resolved, whether or not a name server answers.
    let unknown =
        ("udp://tracker.invalid:1/".into(), "unreachable", "cannot resolve tracker.invalid");
    expect_all_within(&[unknown], |_| "1");
    let output = run(&["announce", &format!("udp://{address}"), HASH, "-6"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no address of that family"), "{}", stderr(&output));
}

/// More of them are tested with the decoder of responses.
#[test]
fn reports_malformed_http_responses() {
    let escaped = "d14:failure reason10:not\x1b[2Jyoue";
    let moved = "HTTP/1.1 301 Moved\r\nLocation: https://t/announce\r\nContent-Length: 0\r\n\r\n";
    expect_all(&[
        http(
            "SSH-2.0-OpenSSH\r\n",
            "invalid_response",
            "\"SSH-2.0-OpenSSH\\r\\n\", which is not an HTTP response",
        ),
        http(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nd8:in",
            "connection_lost",
            "after 5 bytes of its response",
        ),
        http(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "invalid_response",
            "malformed chunks",
        ),
        http(ok("<html>it works</html>"), "invalid_response", "it works</html>\": not bencoded"),
        http(ok(escaped), "refused", "refused: not\\u{1b}[2Jyou"),
        http(moved, "refused", "redirects to https://t/announce"),
    ]);
}

/// A server that sends `first`, and then `again` with pauses until the client has gone.
fn endless(first: &'static str, again: &'static str, pause: Duration) -> String {
    let server = tcp(move |mut stream| {
        if request(&mut stream).is_none() {
            return;
        }
        let mut message = stream.write_all(first.as_bytes());
        while message.is_ok() {
            message = stream.write_all(again.as_bytes());
            // The pace of a slow server.
            thread::sleep(pause);
        }
    });
    format!("{server}/announce")
}

#[test]
fn bounds_endless_responses() {
    let big = "x".repeat(10_000).leak();
    let chunk = format!("2710\r\n{big}\r\n").leak();
    let (none, slow) = (Duration::ZERO, Duration::from_millis(50));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    let invalid = "invalid_response";
    let headers = "headers of more than 16384 bytes";
    let body = "a body of more than";
    let late = "no complete response";
    let faults = [
        ("http", endless("HTTP/1.1 200 OK\r\nX: ", big, none), invalid, headers),
        ("ws", endless("HTTP/1.1 200 OK\r\nX: ", big, none), invalid, headers),
        ("http", endless("HTTP/1.1 200 OK\r\n\r\n", big, none), invalid, body),
        ("http", endless(chunked, chunk, none), invalid, body),
        ("http", endless(chunked, "1\r\nx\r\n", slow), "timeout", late),
        ("http", endless(interim, interim, slow), "timeout", late),
    ];
    expect_all(
        &faults.map(|(scheme, place, kind, why)| (format!("{scheme}://{place}"), kind, why)),
    );
}

#[test]
fn reports_malformed_websocket_messages() {
    let text = |body: &str| {
        let mut out = Vec::new();
        wire::ws::text(&mut out, body);
        out
    };
    let plain = answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", true);
    let mut closed = Vec::new();
    wire::ws::close(&mut closed, wire::ws::CloseCode::POLICY, "no");
    let other = r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","complete":1,"incomplete":1,"interval":9}"#;
    expect_all(&[
        (format!("ws://{plain}/"), "refused", "expected a WebSocket, found HTTP status 404"),
        web(closed, "connection_lost", "closed the WebSocket with code 1008"),
        web([0xff; 20], "invalid_response", "an invalid WebSocket frame: a reserved bit"),
        web(text("{}"), "invalid_response", "not a tracker message"),
        web(text(r#"{"failure reason":"not \"you\""}"#), "refused", "refused: not \"you\""),
        // A message about another torrent is not the response.
        web(text(other), "timeout", "no complete response"),
    ]);
}

#[test]
fn reports_malformed_datagrams() {
    let id = 7_u64.to_be_bytes();
    let is_connect = |request: &[u8]| request[8..12] == [0; 4];
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let short = udp(move |it| vec![reply(it, 0, &id[..7])]);
    let two_ids = udp(move |it| vec![reply(it, 0, &id)]);
    let refuses = udp(move |it| {
        vec![if is_connect(it) { reply(it, 0, &id) } else { reply(it, 3, b"not you\0") }]
    });
    let invalid = "invalid_response";
    let faults = [
        (silent, "timeout", "no connection id from 127.0.0.1"),
        (short, invalid, "which is not a BEP 15 response"),
        (two_ids, invalid, "a response that does not match the announce"),
        (refuses, "refused", "refused: not you"),
    ];
    expect_all(&faults.map(|(server, kind, why)| (format!("udp://{server}/"), kind, why)));
    // Datagrams that answer no request are counted until the timeout.
    let wrong = udp(|it| {
        let mut answer = reply(it, 0, &7_u64.to_be_bytes());
        answer[4] ^= 1;
        vec![answer; 3]
    });
    let why = "3 datagrams with unknown transaction ids";
    expect_all_within(&[(format!("udp://{wrong}/"), invalid, why)], |_| "2");
}

#[test]
fn reports_malformed_scrape_responses() {
    let html = answers(ok("<html>"), true);
    let page = answers(ok("d5:filesdee"), true);
    let no_url = "has no scrape URL: the path contains no /announce";
    for (url, why) in [
        (format!("http://{html}/announce"), "not bencoded"),
        (format!("http://{html}/tracker"), no_url),
        (format!("http://{page}/announce"), "not in the response"),
    ] {
        let output = run(&["scrape", &url, HASH, "--timeout", "1"]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        let text = stderr(&output) + &stdout(&output);
        assert!(text.contains(why), "{text}");
    }
}
