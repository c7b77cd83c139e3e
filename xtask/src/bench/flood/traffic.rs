//! One who floods, and many who do not.

use std::io::{ErrorKind, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};

/// Bytes of an announce.
const ANNOUNCE: usize = 98;
/// Announces that leave with one system call, and pass the kernel in one piece as far as the
/// tracker's socket: one processor makes several times as many as another can serve.
const AT_ONCE: usize = 64;
/// How far the flood may fall behind its pace, and catch up.
const BEHIND_MAX: Duration = Duration::from_millis(20);

const CLIENTS: usize = 40;
/// Between two requests of all clients together.
const PAUSE: Duration = Duration::from_micros(500);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// An address that announces without end.
pub(super) struct Flood {
    socket: UdpSocket,
    packets: Vec<u8>,
    per_s: f64,
    start: Instant,
    /// Announces sent.
    pub(super) sent: u64,
    /// Those that the pace has taken into account, and not made up for.
    paced: f64,
}

impl Flood {
    pub(super) fn new(to: &str, per_s: f64) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.2.1:0")?;
        socket.connect(to)?;
        let id = connect(&socket)?;
        // Many torrents, so that the tracker's work is not the same over and over.
        let packets = (0..AT_ONCE).flat_map(|number| announce(id, 0, number as u8)).collect();
        Ok(Self { socket, packets, per_s, start: Instant::now(), sent: 0, paced: 0.0 })
    }

    /// Sends requests, if their time has come.
    pub(super) fn step(&mut self) -> Result<()> {
        let due = self.start.elapsed().as_secs_f64() * self.per_s;
        if due < self.paced {
            return Ok(());
        }
        self.paced = self.paced.max(due - BEHIND_MAX.as_secs_f64() * self.per_s) + AT_ONCE as f64;
        let size = ANNOUNCE as u16;
        let sent = sendmsg::<SockaddrIn>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(&self.packets)],
            &[ControlMessage::UdpGsoSegments(&size)],
            MsgFlags::empty(),
            None,
        );
        self.sent += (sent.context("cannot send")? / ANNOUNCE) as u64;
        Ok(())
    }
}

/// Clients at addresses of their own.
pub(super) struct Crowd {
    clients: Vec<(UdpSocket, u64)>,
    /// When each request was sent, and after what time it was answered.
    requests: Vec<(Instant, Option<Duration>)>,
    next: Instant,
}

impl Crowd {
    pub(super) fn new(to: &str) -> Result<Self> {
        let client = |number| {
            let socket = UdpSocket::bind(format!("127.0.1.{number}:0"))?;
            socket.connect(to)?;
            let id = connect(&socket)?;
            socket.set_nonblocking(true)?;
            Ok((socket, id))
        };
        let clients = (1..=CLIENTS).map(client).collect::<Result<_>>()?;
        Ok(Self { clients, requests: Vec::new(), next: Instant::now() })
    }

    /// Sends the requests whose time has come, and receives waiting answers.
    pub(super) fn step(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next += PAUSE;
        let number = self.requests.len();
        let (socket, id) = &self.clients[number % CLIENTS];
        socket.send(&announce(*id, number as u32, number as u8))?;
        self.requests.push((now, None));
        // The next one's turn comes soon: by then what came for this one has been looked at.
        self.listen((number + 1) % CLIENTS)
    }

    /// Waits for what is still to come.
    pub(super) fn finish(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.lost() > 0 {
            (0..CLIENTS).try_for_each(|client| self.listen(client))?;
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn listen(&mut self, client: usize) -> Result<()> {
        let mut buffer = [0; 2048];
        loop {
            match self.clients[client].0.recv(&mut buffer) {
                Ok(len) => self.note(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Only an answer to an announce counts.
    fn note(&mut self, reply: &[u8]) {
        let Some(([0, 0, 0, 1], rest)) = reply.split_first_chunk() else { return };
        let number = rest.first_chunk().map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes));
        if let Some((sent, answered)) = self.requests.get_mut(number as usize) {
            let after = sent.elapsed();
            if after < PATIENCE {
                answered.get_or_insert(after);
            }
        }
    }

    pub(super) fn asked(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn lost(&self) -> usize {
        self.requests.iter().filter(|(_, answered)| answered.is_none()).count()
    }

    /// The time within which that share of those that were answered was.
    pub(super) fn latency_ms(&self, share: f64) -> f64 {
        let mut answered: Vec<Duration> = self.requests.iter().filter_map(|it| it.1).collect();
        answered.sort();
        let at = (answered.len() as f64 * share) as usize;
        answered.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    }
}

/// A connection id (BEP 15).
fn connect(socket: &UdpSocket) -> Result<u64> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut packet = 0x417_2710_1980_u64.to_be_bytes().to_vec();
    packet.extend([0; 8]);
    socket.send(&packet)?;
    let mut reply = [0; 16];
    socket.recv(&mut reply).context("no connection id")?;
    let [.., a, b, c, d, e, f, g, h] = reply;
    Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// An announce of a leecher that wants no peers.
fn announce(id: u64, transaction: u32, torrent: u8) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend(1_u32.to_be_bytes());
    packet.extend(transaction.to_be_bytes());
    packet.extend([torrent; 20]);
    packet.extend(b"-XX0001-000000000000");
    packet.extend([0, 1, 0].map(u64::to_be_bytes).as_flattened());
    packet.extend([0_u32; 4].map(u32::to_be_bytes).as_flattened());
    packet.extend(6881_u16.to_be_bytes());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announce_has_its_size() {
        assert_eq!(announce(1, 2, 3).len(), ANNOUNCE);
    }

    #[test]
    fn what_is_not_answered_is_lost() {
        let mut crowd = Crowd { clients: Vec::new(), requests: Vec::new(), next: Instant::now() };
        crowd.requests = vec![(Instant::now(), None); 4];
        let reply = |action: u32, number: u32| [action, number].map(u32::to_be_bytes).concat();
        crowd.note(&reply(1, 2));
        crowd.note(&reply(1, 2));
        crowd.note(&reply(3, 1));
        crowd.note(&reply(1, 9));
        crowd.note(&[0, 0]);
        assert_eq!((crowd.asked(), crowd.lost()), (4, 3));
        assert!(crowd.latency_ms(0.5) < 1000.0);
    }
}
