//! WebSockets of attackers and honest browsers, and an attack by messages that do not end.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use harness::http::Connection;

use super::{HELD, HELD_S, MEMORY_MIB, Outcome, Target, report_progress};
use crate::record::Figures;

const STUCK: usize = 2000;
/// Bytes of a message, and how many of them arrive.
const MESSAGE: usize = 128 * 1024;
const ARRIVES: usize = 127 * 1024;
/// How long stuck messages are watched.
const WATCHED: Duration = Duration::from_secs(60);

/// Opens WebSockets and sends most of a message over each.
pub(super) fn attack_buffers(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let (tracker, _api) = target.start(&[])?;
    let resident =
        || -> Result<f64> { Ok(tracker.usage()?.resident_bytes as f64 / f64::from(1 << 20)) };
    let before = resident()?;
    let mut most: f64 = 0.0;
    let mut sockets = Vec::new();
    for number in 0..STUCK {
        // The tracker may have closed it by now.
        sockets.extend(stuck(tracker.address).ok());
        if number % 100 == 0 {
            most = most.max(resident()? - before);
        }
    }
    let began = Instant::now();
    let opened = sockets.len();
    while !sockets.is_empty() && began.elapsed() < WATCHED {
        most = most.max(resident()? - before);
        sockets.retain_mut(is_open);
        std::thread::sleep(Duration::from_millis(250));
    }
    report_progress(&format!("{opened} stuck messages arrived, {} are left", sockets.len()));
    let held_s = began.elapsed().as_secs_f64();
    let figures = Figures::default()
        .with(HELD, sockets.len() as f64)
        .with(MEMORY_MIB, most)
        .with(HELD_S, held_s);
    let left = sockets.len();
    Ok(vec![(
        "stuck WebSocket messages",
        figures,
        format!("{most:.0} MiB, {left} left after {held_s:.0} s"),
    )])
}

/// A WebSocket.
pub(crate) struct WebSocket(pub(crate) Connection);

impl WebSocket {
    /// Opens one over a connection, with more lines in the head of the request.
    pub(crate) fn open(mut connection: Connection, more: &str) -> Result<Self> {
        connection.send(format!(
            "GET / HTTP/1.1\r\nHost: t\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
        ))?;
        let status = connection.receive_head()?.status;
        ensure!(status == 101, "status {status}");
        Ok(Self(connection))
    }

    /// Receives the next message.
    pub(super) fn message(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(message) = self.received() {
                return Ok(message);
            }
            ensure!(self.0.receive_more()?, "closed");
        }
    }

    /// Returns the next message that has been received as a whole.
    pub(super) fn received(&mut self) -> Option<Vec<u8>> {
        let (head, rest) = self.0.received.split_first_chunk::<2>()?;
        let (start, len) = match head[1] {
            126 => (4, u16::from_be_bytes(*rest.first_chunk()?).into()),
            127 => (10, usize::try_from(u64::from_be_bytes(*rest.first_chunk()?)).ok()?),
            len => (2, len.into()),
        };
        let message = self.0.received.get(start..start + len)?.to_vec();
        self.0.received.drain(..start + len);
        Some(message)
    }
}

/// Returns a text as a client's frame, masked by zeros.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81];
    match u16::try_from(text.len()) {
        Ok(len @ ..126) => frame.push(0x80 | len as u8),
        Ok(len) => {
            frame.push(0x80 | 126);
            frame.extend(len.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend((text.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// Returns a WebSocket that is stuck inside a message.
fn stuck(tracker: SocketAddr) -> Result<TcpStream> {
    let mut connection = WebSocket::open(Connection::open(tracker)?, "")?.0;
    let mut message = frame(&" ".repeat(MESSAGE));
    message.truncate(ARRIVES);
    connection.send(message)?;
    connection.stream.set_nonblocking(true)?;
    Ok(connection.stream)
}

/// Returns whether a socket that does not block is still open.
pub(crate) fn is_open(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 4096]) {
        Ok(len) => len > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_lengths_are_framed_and_read_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = WebSocket(Connection::new(stream));
        for len in [0, 125, 126, 65_535, 65_536] {
            let text = "x".repeat(len);
            let mut frame = frame(&text);
            // A server's frame has no mask.
            let head = frame.len() - len;
            frame.drain(head - 4..head);
            frame[1] &= 0x7f;
            for byte in frame {
                assert!(socket.received().is_none());
                socket.0.received.push(byte);
            }
            assert_eq!(socket.received().unwrap(), text.as_bytes());
        }
    }
}
