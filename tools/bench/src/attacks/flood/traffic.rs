//! One address that floods, and many that do not.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ::load::Latencies;
use anyhow::{Context, Result};

use crate::datagrams::{ANNOUNCE, ANNOUNCED, announce, connect};

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
    pub(super) fn new(to: SocketAddr, per_s: f64) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.2.1:0")?;
        socket.connect(to)?;
        let id = connect(&socket)?;
        // Many torrents, so that the tracker's work is not the same over and over.
        let packets = (0..AT_ONCE).flat_map(|at| announce(id, 0, [at as u8; 20])).collect();
        Ok(Self { socket, packets, per_s, start: Instant::now(), sent: 0, paced: 0.0 })
    }

    /// Sends requests, if their time has come.
    pub(super) fn step(&mut self) -> Result<()> {
        let due = self.start.elapsed().as_secs_f64() * self.per_s;
        if due < self.paced {
            return Ok(());
        }
        self.paced = self.paced.max(due - BEHIND_MAX.as_secs_f64() * self.per_s) + AT_ONCE as f64;
        let sent = send_at_once(&self.socket, &self.packets);
        self.sent += (sent.context("cannot send")? / ANNOUNCE) as u64;
        Ok(())
    }

    /// Sends for some time.
    pub(super) fn run(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step()?;
        }
        Ok(())
    }
}

/// Sends several announces with one system call. Returns the number of sent bytes.
fn send_at_once(socket: &UdpSocket, packets: &[u8]) -> Result<usize> {
    use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
    let size = ANNOUNCE as u16;
    let segments = [ControlMessage::UdpGsoSegments(&size)];
    let packets = [std::io::IoSlice::new(packets)];
    let socket = std::os::fd::AsRawFd::as_raw_fd(socket);
    Ok(sendmsg::<SockaddrIn>(socket, &packets, &segments, MsgFlags::empty(), None)?)
}

/// Clients at addresses of their own.
pub(super) struct Crowd {
    clients: Vec<(UdpSocket, u64)>,
    /// When each request was sent, and whether it was answered.
    requests: Vec<(Instant, bool)>,
    pub(super) latencies: Latencies,
    next: Instant,
}

impl Crowd {
    pub(super) fn new(to: SocketAddr) -> Result<Self> {
        let client = |number| {
            let socket = UdpSocket::bind(format!("127.0.1.{number}:0"))?;
            socket.connect(to)?;
            let id = connect(&socket)?;
            socket.set_nonblocking(true)?;
            Ok((socket, id))
        };
        let clients = (1..=CLIENTS).map(client).collect::<Result<_>>()?;
        Ok(Self {
            clients,
            requests: Vec::new(),
            latencies: Latencies::default(),
            next: Instant::now(),
        })
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
        socket.send(&announce(*id, number as u32, [number as u8; 20]))?;
        self.requests.push((now, false));
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
        let Some((&ANNOUNCED, rest)) = reply.split_first_chunk() else { return };
        let number = rest.first_chunk().map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes));
        if let Some((sent, is_answered @ false)) = self.requests.get_mut(number as usize) {
            let after = sent.elapsed();
            if after < PATIENCE {
                *is_answered = true;
                self.latencies.record(after);
            }
        }
    }

    pub(super) fn asked(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn lost(&self) -> usize {
        self.requests.iter().filter(|(_, is_answered)| !is_answered).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_answered_is_lost() {
        let mut crowd = Crowd {
            clients: Vec::new(),
            requests: vec![(Instant::now(), false); 4],
            latencies: Latencies::default(),
            next: Instant::now(),
        };
        let reply = |action: u32, number: u32| [action, number].map(u32::to_be_bytes).concat();
        crowd.note(&reply(1, 2));
        crowd.note(&reply(1, 2));
        crowd.note(&reply(3, 1));
        crowd.note(&reply(1, 9));
        crowd.note(&[0, 0]);
        assert_eq!((crowd.asked(), crowd.lost()), (4, 3));
        assert!(crowd.latencies.max() < PATIENCE);
    }
}
