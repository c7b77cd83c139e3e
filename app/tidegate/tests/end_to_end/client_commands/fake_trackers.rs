//! Servers that behave as a test needs: trackers, and anything else that may be at a tracker's URL.

use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;

pub(crate) use harness::http::{read_head, serve as tcp};

/// Answers each request with `answer`, and closes the connection if `closes`.
pub(super) fn answers(answer: impl Into<Vec<u8>>, closes: bool) -> SocketAddr {
    let answer = answer.into();
    tcp(move |mut stream| {
        while request(&mut stream).is_some() {
            if stream.write_all(&answer).is_err() || closes {
                break;
            }
        }
    })
}

/// Reads the next request and returns its target, or nothing at the end.
pub(crate) fn request(stream: &mut TcpStream) -> Option<String> {
    let head = read_head(stream)?;
    Some(head.split(' ').nth(1).unwrap().to_owned())
}

/// Reads a request for a WebSocket and accepts it. Returns false if none comes.
pub(super) fn accept_websocket(stream: &mut TcpStream) -> bool {
    let Some(head) = read_head(stream) else { return false };
    let key = head.split("Sec-WebSocket-Key: ").nth(1).unwrap();
    let mut out = Vec::new();
    wire::ws::switching_protocols(&mut out, key.as_bytes()[..24].try_into().unwrap());
    stream.write_all(&out).is_ok()
}

/// Returns an HTTP response with this body.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Sends back what `handle` returns for each datagram, until the test's process ends.
pub(super) fn udp(mut treat: impl FnMut(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok((len, client)) = socket.recv_from(&mut room) {
            for answer in treat(&room[..len]) {
                let _ = socket.send_to(&answer, client);
            }
        }
    });
    address
}

/// Returns a UDP reply: action, the transaction id of `request`, and `rest`.
pub(super) fn reply(request: &[u8], action: u32, rest: &[u8]) -> Vec<u8> {
    [&action.to_be_bytes(), &request[12..16], rest].concat()
}
