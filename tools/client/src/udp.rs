//! BEP 15, as a client speaks it: a connection id first, and everything sent again that is not
//! answered.

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use types::{Announce, InfoHash, PackedV4, PackedV6, PeerKey};
use wire::udp::client::{self, AnnounceRequest, Reply, decode_reply};

use crate::session::Manner;
use crate::stream::{Deadline, unreachable};
use crate::{Announced, Fault, Figures, Kind, Url, random};

/// A socket, and the connection id that the tracker gave it.
pub(crate) struct Udp {
    socket: UdpSocket,
    address: SocketAddr,
    /// Path and query of the URL, unless it has none.
    url: Vec<u8>,
    timeout: Duration,
    /// What is waited for an answer at first; twice as long each time.
    first_wait: Duration,
    key: u32,
    connection: Option<Connection>,
    room: Box<[u8]>,
    /// Datagrams that were sent, for all requests together.
    pub(crate) sent: u32,
}

/// What the tracker knows us by.
#[derive(Clone, Copy)]
struct Connection {
    id: u64,
    since: Instant,
}

/// How long a client may use a connection id.
const LIFETIME: Duration = Duration::from_secs(60);
/// BEP 15's.
const FIRST_WAIT: Duration = Duration::from_secs(15);
/// So many times it is doubled.
const DOUBLINGS_MAX: u32 = 8;
/// No datagram is longer.
const DATAGRAM_MAX: usize = 65536;

/// What is asked for with a connection id.
enum Call<'a> {
    Announce(&'a Announce),
    Scrape(&'a [InfoHash]),
}

impl Udp {
    pub(crate) fn open(url: &Url, address: SocketAddr, manner: &Manner) -> Result<Self, Fault> {
        let own: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(own).and_then(|socket| {
            socket.connect(address)?;
            Ok(socket)
        });
        let url = if url.target == "/" { Vec::new() } else { url.target.clone().into_bytes() };
        Ok(Self {
            socket: socket.map_err(|error| unreachable(address, &error))?,
            address,
            url,
            timeout: manner.timeout,
            first_wait: FIRST_WAIT,
            key: manner.key,
            connection: None,
            room: vec![0; DATAGRAM_MAX].into(),
            sent: 0,
        })
    }

    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Gets a connection id, unless there is a fresh one.
    pub(crate) fn connect(&mut self) -> Result<u64, Fault> {
        self.ask(None, Deadline::after(self.timeout))?;
        self.connection.map(|it| it.id).ok_or_else(|| self.garbled("no connection id"))
    }

    /// Takes this for the connection id.
    pub(crate) fn pretend(&mut self, id: u64) {
        self.connection = Some(Connection { id, since: Instant::now() });
    }

    /// Waits less, or longer, from now on.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(crate) fn announce(&mut self, announce: &Announce) -> Result<Announced, Fault> {
        let len = self.ask(Some(&Call::Announce(announce)), Deadline::after(self.timeout))?;
        let datagram = self.room.get(..len).unwrap_or_default();
        match decode_reply(datagram) {
            Some((_, Reply::Announce { interval_s, leechers, seeders, peers })) => {
                let (peers, is_whole) = self.peers(peers);
                Ok(Announced {
                    interval_s: Some(interval_s.into()),
                    seeders: Some(seeders.into()),
                    leechers: Some(leechers.into()),
                    peers,
                    departure: (!is_whole).then(|| "a list of peers that ends within one".into()),
                    ..Announced::default()
                })
            }
            _ => Err(self.garbled("something else than the answer to an announce")),
        }
    }

    pub(crate) fn scrape(&mut self, hashes: &[InfoHash]) -> Result<Vec<Option<Figures>>, Fault> {
        let mut all = Vec::new();
        // Some trackers answer less than they are asked, and are asked for the rest.
        while let Some(rest @ [_, ..]) = hashes.get(all.len()..) {
            let len = self.ask(Some(&Call::Scrape(rest)), Deadline::after(self.timeout))?;
            let datagram = self.room.get(..len).unwrap_or_default();
            let Some((_, Reply::Scrape(figures))) = decode_reply(datagram) else {
                return Err(self.garbled("something else than the answer to a scrape"));
            };
            let (torrents, _) = figures.as_chunks::<12>();
            if torrents.is_empty() {
                return Err(self.garbled("a scrape without figures"));
            }
            all.extend(torrents.iter().take(rest.len()).map(|it| Some(figures_of(it))));
        }
        Ok(all)
    }

    /// Peers of this socket's family, and whether they are all there is.
    fn peers(&self, bytes: &[u8]) -> (Vec<SocketAddr>, bool) {
        if self.address.is_ipv4() {
            let (peers, rest) = bytes.as_chunks::<{ PackedV4::WIRE_LEN }>();
            (peers.iter().map(|it| PeerKey::V4(*it).socket_addr()).collect(), rest.is_empty())
        } else {
            let (peers, rest) = bytes.as_chunks::<{ PackedV6::WIRE_LEN }>();
            (peers.iter().map(|it| PeerKey::V6(*it).socket_addr()).collect(), rest.is_empty())
        }
    }

    /// Asks for a connection id if there is none that may be used, and then `call`, until there is an
    /// answer; gives the length of the datagram in `room`.
    fn ask(&mut self, call: Option<&Call<'_>>, deadline: Deadline) -> Result<usize, Fault> {
        let (mut doublings, mut strays) = (0, 0_u32);
        loop {
            let usable = self.connection.filter(|it| it.since.elapsed() < LIFETIME);
            let transaction_id = u32::from_ne_bytes(random());
            let mut datagram = Vec::new();
            match (usable, call) {
                (None, _) => client::connect(&mut datagram, transaction_id),
                (Some(_), None) => return Ok(0),
                (Some(Connection { id, .. }), Some(call)) => {
                    self.write(call, &mut datagram, id, transaction_id);
                }
            }
            self.socket.send(&datagram).map_err(|error| unreachable(self.address, &error))?;
            self.sent += 1;
            let wait = Deadline::after(self.first_wait * (1 << doublings));
            let Some(len) = self.hear(transaction_id, wait, deadline, &mut strays)? else {
                if deadline.left().is_none() {
                    return Err(self.silence(deadline, usable.is_some(), strays));
                }
                doublings = DOUBLINGS_MAX.min(doublings + 1);
                continue;
            };
            let datagram = self.room.get(..len).unwrap_or_default();
            match (decode_reply(datagram), usable) {
                (Some((_, Reply::Connect { connection_id })), None) => {
                    self.pretend(connection_id);
                    doublings = 0;
                }
                (Some((_, Reply::Error(text))), _) => {
                    // Some send the end of a C string, too.
                    let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
                    return Err(Fault::new(Kind::Refused, text));
                }
                (None, _) => {
                    let begin = datagram.get(..40).unwrap_or(datagram).escape_ascii();
                    return Err(self.garbled(&format!("\"{begin}\", which says nothing")));
                }
                (_, None) => return Err(self.garbled("something else than a connection id")),
                (_, Some(_)) => return Ok(len),
            }
        }
    }

    fn write(&self, call: &Call<'_>, out: &mut Vec<u8>, connection_id: u64, transaction_id: u32) {
        match call {
            Call::Announce(announce) => {
                let (key, url) = (self.key, self.url.as_slice());
                AnnounceRequest { connection_id, transaction_id, announce, key, url }.write(out);
            }
            Call::Scrape(hashes) => client::scrape(out, connection_id, transaction_id, hashes),
        }
    }

    /// Waits for the answer to a transaction: its length, or nothing in the time there is. Others are
    /// strays.
    fn hear(
        &mut self,
        transaction_id: u32,
        wait: Deadline,
        deadline: Deadline,
        strays: &mut u32,
    ) -> Result<Option<usize>, Fault> {
        loop {
            let (Some(left), Some(whole)) = (wait.left(), deadline.left()) else { return Ok(None) };
            let timed = self.socket.set_read_timeout(Some(left.min(whole)));
            match timed.and_then(|()| self.socket.recv(&mut self.room)) {
                Ok(len) => {
                    let datagram = self.room.get(..len).unwrap_or_default();
                    match datagram.get(4..8) {
                        Some(id) if id == transaction_id.to_be_bytes() => return Ok(Some(len)),
                        _ => *strays = strays.saturating_add(1),
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => {}
                    _ => return Err(unreachable(self.address, &error)),
                },
            }
        }
    }

    fn silence(&self, deadline: Deadline, is_connected: bool, strays: u32) -> Fault {
        let what = if is_connected { "no answer" } else { "no connection id" };
        let address = self.address;
        if strays == 0 {
            return deadline.missed(&format!("{what} from {address}"));
        }
        let what = format!(
            "{what} from {address}, but {strays} datagrams that answer nothing we have asked"
        );
        Fault { kind: Kind::Garbled, ..deadline.missed(&what) }
    }

    fn garbled(&self, what: &str) -> Fault {
        Fault::new(Kind::Garbled, format!("{} has sent {what}", self.address))
    }
}

fn figures_of(torrent: &[u8; 12]) -> Figures {
    let (numbers, _) = torrent.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|it| u64::from(u32::from_be_bytes(*it)));
    let mut next = || numbers.next().unwrap_or_default();
    let (seeders, downloads, leechers) = (next(), next(), next());
    Figures { seeders, downloads: Some(downloads), leechers }
}
