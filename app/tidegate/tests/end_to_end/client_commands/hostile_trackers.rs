//! Faulty servers: the command ends soon, with one sentence and exit code 1.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::fake_trackers::{accept_websocket, answers, ok, reply, request, tcp, udp};
use super::{HASH, lines};
use crate::process::{run, stderr, unused_address};

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

fn hang(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.read(&mut [0; 4096]);
}

#[test]
fn reports_unreachable_trackers() {
    let address = unused_address();
    let why = format!("cannot reach {}", address.ip());
    let urls = ["udp", "http", "https", "ws", "wss"].map(|it| format!("{it}://{address}/"));
    expect_all(&urls.map(|url| (url, "unreachable", why.as_str())));
    // The name cannot be resolved, whether or not a name server answers.
    let unknown =
        ("udp://tracker.invalid:1/".into(), "unreachable", "cannot resolve tracker.invalid");
    expect_all_within(&[unknown], |_| "1");
    let output = run(&["announce", &format!("udp://{address}"), HASH, "-6"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no address of that family"), "{}", stderr(&output));
}

#[test]
fn reports_silent_and_closed_connections() {
    let silent = tcp(|mut stream| hang(&mut stream));
    let closed = tcp(drop);
    let urls = |server| ["http", "https", "ws", "wss"].map(|it| format!("{it}://{server}/"));
    expect_all(&urls(silent).map(|url| (url, "timeout", "within 1 s")));
    expect_all(&urls(closed).map(|url| (url, "connection_lost", "")));
}

/// Returns the URL of a server that answers with `answer`.
fn http(answer: impl Into<Vec<u8>>, closes: bool) -> String {
    format!("http://{}/announce", answers(answer, closes))
}

#[test]
fn reports_malformed_http_responses() {
    let faults = [
        (
            "SSH-2.0-OpenSSH\r\n".to_owned(),
            "invalid_response",
            "\"SSH-2.0-OpenSSH\\r\\n\", which is not an HTTP response",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Le".into(),
            "connection_lost",
            "after 27 bytes of its response",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nd8:in".into(),
            "connection_lost",
            "after 5 bytes of its response",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n".into(),
            "invalid_response",
            "not an HTTP response",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".into(),
            "invalid_response",
            "malformed chunks",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".into(),
            "invalid_response",
            "Content-Encoding gzip",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".into(),
            "invalid_response",
            "a body of 99999999999 bytes",
        ),
        (
            ok("<html>it works</html>"),
            "invalid_response",
            "\"<html>it works</html>\": not bencoded",
        ),
        (ok("de"), "invalid_response", "the expected keys are missing"),
        (ok("d14:failure reason10:not\x1b[2Jyoue"), "refused", "refused: not\\u{1b}[2Jyou"),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into(),
            "refused",
            "HTTP status 404",
        ),
        (
            "HTTP/1.1 400 Bad\r\nContent-Length: 25\r\n\r\nd14:failure reason4:nopee".into(),
            "refused",
            "HTTP status 400: nope",
        ),
        (
            "HTTP/1.1 301 Moved\r\nLocation: https://t/announce\r\nContent-Length: 0\r\n\r\n"
                .into(),
            "refused",
            "redirects to https://t/announce",
        ),
    ];
    expect_all(&faults.map(|(answer, kind, why)| (http(answer, true), kind, why)));
}

#[test]
fn times_out_on_incomplete_responses() {
    let answers = ["HTTP/1.1 200 OK\r\nX", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nd8:in"];
    expect_all(&answers.map(|it| (http(it, false), "timeout", "no complete response")));
}

/// A server that sends `first`, and then `again` with pauses until the client has gone.
fn endless(first: &'static str, again: &'static str, pause: Duration) -> SocketAddr {
    tcp(move |mut stream| {
        if request(&mut stream).is_none() {
            return;
        }
        let mut message = stream.write_all(first.as_bytes());
        while message.is_ok() {
            message = stream.write_all(again.as_bytes());
            // The pace of a slow server.
            thread::sleep(pause);
        }
    })
}

#[test]
fn bounds_endless_responses() {
    let big = "x".repeat(10_000).leak();
    let chunk = format!("2710\r\n{big}\r\n").leak();
    let (none, slow) = (Duration::ZERO, Duration::from_millis(50));
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    let faults = [
        (
            endless(ok, "X-Header: of many, none of which is the last\r\n", none),
            "invalid_response",
            "",
        ),
        (
            endless("HTTP/1.1 200 OK\r\nX: ", big, none),
            "invalid_response",
            "headers of more than 16384 bytes",
        ),
        (endless("HTTP/1.1 200 OK\r\n\r\n", big, none), "invalid_response", "a body of more than"),
        (endless(chunked, chunk, none), "invalid_response", "a body of more than"),
        (endless(ok, "X", slow), "timeout", "no complete response"),
        (endless(chunked, "1\r\nx\r\n", slow), "timeout", "no complete response"),
        (endless(interim, interim, slow), "timeout", "no complete response"),
    ];
    expect_all(&faults.map(|(server, kind, why)| (format!("http://{server}/announce"), kind, why)));
    let server = endless("HTTP/1.1 200 OK\r\nX: ", big, none);
    let why = "headers of more than 16384 bytes";
    expect_all(&[(format!("ws://{server}/"), "invalid_response", why)]);
}

#[test]
fn reports_missing_tls() {
    let server = answers("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", true);
    let urls = |server| ["https", "wss"].map(|scheme| format!("{scheme}://{server}/"));
    // The hello has no empty line, so that the server waits for more of it.
    expect_all(&urls(server).map(|url| (url, "timeout", "no TLS handshake")));
    let server = tcp(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    expect_all(&urls(server).map(|url| (url, "tls", "TLS with 127.0.0.1")));
}

/// Returns the URL of a WebSocket server that sends these frames.
fn web(frames: impl Into<Vec<u8>>) -> String {
    let frames = frames.into();
    let server = tcp(move |mut stream| {
        if accept_websocket(&mut stream) {
            let _ = stream.write_all(&frames);
            hang(&mut stream);
        }
    });
    format!("ws://{server}/")
}

fn text(body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    wire::ws::text(&mut out, body);
    out
}

#[test]
fn reports_malformed_websocket_messages() {
    let plain = answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", true);
    let other = "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n";
    let other = answers(other, true);
    expect_all(&[
        (format!("ws://{plain}/"), "refused", "expected a WebSocket, found HTTP status 404"),
        (format!("ws://{other}/"), "invalid_response", "which is not a WebSocket handshake"),
    ]);
    let mut closed = Vec::new();
    wire::ws::close(&mut closed, wire::ws::CloseCode::POLICY, "no");
    let faults = [
        (closed, "connection_lost", "closed the WebSocket with code 1008"),
        (vec![0x88, 0], "connection_lost", "closed the WebSocket with no code"),
        (vec![0xff; 20], "invalid_response", "an invalid WebSocket frame: a reserved bit"),
        (
            vec![0x81, 127, 0, 0, 0, 1, 0, 0, 0, 0],
            "invalid_response",
            "an invalid WebSocket frame: message too big",
        ),
        (text("<html>"), "invalid_response", "\"<html>\", which is not a tracker message"),
        (text("{}"), "invalid_response", "not a tracker message"),
        (text(r#"{"failure reason":"not \"you\""}"#), "refused", "refused: not \"you\""),
        (vec![0x81, 5, b'{'], "timeout", "no complete response"),
        // A message about another torrent is not the response.
        (
            text(
                r#"{"action":"announce","info_hash":"aaaaaaaaaaaaaaaaaaaa","complete":1,"incomplete":1,"interval":9}"#,
            ),
            "timeout",
            "no complete response",
        ),
    ];
    expect_all(&faults.map(|(frames, kind, why)| (web(frames), kind, why)));
}

#[test]
fn reports_malformed_datagrams() {
    let id = 7_u64.to_be_bytes();
    let is_connect = |request: &[u8]| request[8..12] == [0; 4];
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let deaf = udp(move |it| if is_connect(it) { vec![reply(it, 0, &id)] } else { vec![] });
    let short = udp(move |it| vec![reply(it, 0, &id[..7])]);
    let no_id = udp(move |it| vec![reply(it, 2, &[0; 12])]);
    let two_ids = udp(move |it| vec![reply(it, 0, &id)]);
    let refuses = udp(move |it| {
        vec![if is_connect(it) { reply(it, 0, &id) } else { reply(it, 3, b"not you\0") }]
    });
    let invalid = "invalid_response";
    let faults = [
        (silent, "timeout", "no connection id from 127.0.0.1"),
        (deaf, "timeout", "no response from 127.0.0.1"),
        (short, invalid, "which is not a BEP 15 response"),
        (no_id, invalid, "a response other than a connection id"),
        (two_ids, invalid, "a response that does not match the announce"),
        (refuses, "refused", "refused: not you"),
    ];
    expect_all(&faults.map(|(server, kind, why)| (format!("udp://{server}/"), kind, why)));
    let (_, sentence) = fault(&format!("udp://{refuses}/"), "60");
    assert!(sentence.ends_with("not you"), "{sentence}");
}

/// Datagrams that answer no request are counted until the timeout.
#[test]
fn reports_unknown_transaction_ids() {
    let wrong = udp(|it| {
        let mut answer = reply(it, 0, &7_u64.to_be_bytes());
        answer[4] ^= 1;
        vec![answer; 3]
    });
    let garbage = |answer: &'static [u8]| udp(move |_| vec![answer.into()]);
    let faults = [
        (wrong, "3 datagrams with unknown transaction ids"),
        (garbage(&[0; 7]), "unknown transaction ids"),
        (garbage(b"HTTP/1.1 400 Bad Request"), "unknown transaction ids"),
        (garbage(b""), "unknown transaction ids"),
    ];
    let faults = faults.map(|(server, why)| (format!("udp://{server}/"), "invalid_response", why));
    expect_all_within(&faults, |_| "2");
}

#[test]
fn reports_malformed_scrape_responses() {
    let id = 7_u64.to_be_bytes();
    let empty = udp(move |it| {
        vec![if it[8..12] == [0; 4] { reply(it, 0, &id) } else { reply(it, 2, &[0; 11]) }]
    });
    let html = answers(ok("<html>"), true);
    let page = answers(ok("d5:filesdee"), true);
    for (url, why, is_fault) in [
        (format!("udp://{empty}/"), "a scrape response without torrents", true),
        (format!("http://{html}/announce"), "not bencoded", true),
        (
            format!("http://{html}/tracker"),
            "has no scrape URL: the path contains no /announce",
            true,
        ),
        (format!("http://{page}/announce"), "not in the response", false),
    ] {
        let output = run(&["scrape", &url, HASH, "--timeout", "1"]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        let text = if is_fault { stderr(&output) } else { crate::process::stdout(&output) };
        assert!(text.contains(why), "{text}");
    }
}
