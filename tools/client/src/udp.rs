//! The client side of BEP 15: a connect request first, and retransmission of unanswered requests.

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use types::{Announce, InfoHash};

use crate::codec::compact_peers;
use crate::codec::udp::{self as codec, AnnounceRequest, Reply, decode_reply};
use crate::response::TRUNCATED_PEERS;
use crate::stream::{Deadline, unreachable};
use crate::{AnnounceResponse, FailureKind, ScrapeStats, SessionConfig, TrackerError, Url, random};

/// A UDP session with a tracker.
pub(crate) struct Udp {
    socket: UdpSocket,
    address: SocketAddr,
    /// The URL's path and query for BEP 41; empty if the URL has none.
    url: Vec<u8>,
    timeout: Duration,
    /// Timeout before the first retransmission; doubles each time.
    initial_timeout: Duration,
    key: u32,
    connection: Option<Connection>,
    buffer: Box<[u8]>,
    /// Datagrams sent, for all requests together.
    pub(crate) sent: u32,
}

/// A connection id and when it was received.
#[derive(Clone, Copy)]
struct Connection {
    id: u64,
    since: Instant,
}

/// The longest time that a client may use a connection id (BEP 15).
const CONNECTION_ID_LIFETIME: Duration = Duration::from_secs(60);
/// Initial retransmission timeout of BEP 15.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(15);
/// The timeout doubles at most this many times.
const BACKOFF_MAX: u32 = 8;
/// Longer than any datagram.
const DATAGRAM_MAX: usize = 65536;

/// A request that requires a connection id.
enum Request<'a> {
    Announce(&'a Announce),
    Scrape(&'a [InfoHash]),
}

impl Udp {
    pub(crate) fn open(
        url: &Url,
        address: SocketAddr,
        config: &SessionConfig,
    ) -> Result<Self, TrackerError> {
        let url = if url.target == "/" { Vec::new() } else { url.target.clone().into_bytes() };
        Ok(Self {
            socket: connected_socket(address).map_err(|error| unreachable(address, &error))?,
            address,
            url,
            timeout: config.timeout,
            initial_timeout: INITIAL_TIMEOUT,
            key: config.key,
            connection: None,
            buffer: vec![0; DATAGRAM_MAX].into(),
            sent: 0,
        })
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Requests a connection id unless there is a valid one, and returns it.
    pub(crate) fn connect(&mut self) -> Result<u64, TrackerError> {
        self.request(None, Deadline::after(self.timeout))?;
        self.connection.map(|it| it.id).ok_or_else(|| self.invalid_response("no connection id"))
    }

    /// Uses this connection id from now on.
    pub(crate) fn set_connection_id(&mut self, id: u64) {
        self.connection = Some(Connection { id, since: Instant::now() });
    }

    pub(crate) fn announce(
        &mut self,
        announce: &Announce,
    ) -> Result<AnnounceResponse, TrackerError> {
        let len =
            self.request(Some(&Request::Announce(announce)), Deadline::after(self.timeout))?;
        let datagram = self.buffer.get(..len).unwrap_or_default();
        match decode_reply(datagram) {
            Some((_, Reply::Announce { interval_s, leechers, seeders, peers })) => {
                let (peers, is_whole) = compact_peers(peers, self.address.is_ipv6());
                Ok(AnnounceResponse {
                    interval_s: Some(interval_s.into()),
                    seeders: Some(seeders.into()),
                    leechers: Some(leechers.into()),
                    peers,
                    violation: (!is_whole).then(|| TRUNCATED_PEERS.into()),
                    ..AnnounceResponse::default()
                })
            }
            _ => Err(self.invalid_response("a response that does not match the announce")),
        }
    }

    pub(crate) fn scrape(
        &mut self,
        hashes: &[InfoHash],
    ) -> Result<Vec<Option<ScrapeStats>>, TrackerError> {
        let mut all = Vec::new();
        // Some trackers answer fewer torrents than requested; request the rest again.
        while let Some(rest @ [_, ..]) = hashes.get(all.len()..) {
            let len = self.request(Some(&Request::Scrape(rest)), Deadline::after(self.timeout))?;
            let datagram = self.buffer.get(..len).unwrap_or_default();
            let Some((_, Reply::Scrape(figures))) = decode_reply(datagram) else {
                return Err(self.invalid_response("a response that does not match the scrape"));
            };
            let (torrents, _) = figures.as_chunks::<12>();
            if torrents.is_empty() {
                return Err(self.invalid_response("a scrape response without torrents"));
            }
            all.extend(torrents.iter().take(rest.len()).map(|it| Some(stats_of(it))));
        }
        Ok(all)
    }

    /// Requests a connection id if there is no valid one, then sends `request`, retransmitting until a
    /// response arrives. Returns the length of the response in `buffer`.
    fn request(
        &mut self,
        request: Option<&Request<'_>>,
        deadline: Deadline,
    ) -> Result<usize, TrackerError> {
        let (mut backoff, mut strays) = (0, 0_u32);
        loop {
            let usable = self.connection.filter(|it| it.since.elapsed() < CONNECTION_ID_LIFETIME);
            let transaction_id = u32::from_ne_bytes(random());
            let mut datagram = Vec::new();
            match (usable, request) {
                (None, _) => codec::connect(&mut datagram, transaction_id),
                (Some(_), None) => return Ok(0),
                (Some(Connection { id, .. }), Some(request)) => {
                    self.write(request, &mut datagram, id, transaction_id);
                }
            }
            self.socket.send(&datagram).map_err(|error| unreachable(self.address, &error))?;
            self.sent += 1;
            let attempt = Deadline::after(self.initial_timeout * (1 << backoff));
            let Some(len) = self.receive(transaction_id, attempt, deadline, &mut strays)? else {
                if deadline.remaining().is_none() {
                    return Err(self.silence(deadline, usable.is_some(), strays));
                }
                backoff = BACKOFF_MAX.min(backoff + 1);
                continue;
            };
            let datagram = self.buffer.get(..len).unwrap_or_default();
            match (decode_reply(datagram), usable) {
                (Some((_, Reply::Connect { connection_id })), None) => {
                    self.set_connection_id(connection_id);
                    backoff = 0;
                }
                (Some((_, Reply::Error(text))), _) => {
                    // Some trackers send a C string with its terminating NUL.
                    let text = String::from_utf8_lossy(text).trim_end_matches('\0').to_owned();
                    return Err(TrackerError::new(FailureKind::Refused, text));
                }
                (None, _) => {
                    let begin = datagram.get(..40).unwrap_or(datagram).escape_ascii();
                    return Err(self.invalid_response(&format!(
                        "\"{begin}\", which is not a BEP 15 response"
                    )));
                }
                (_, None) => {
                    return Err(self.invalid_response("a response other than a connection id"));
                }
                (_, Some(_)) => return Ok(len),
            }
        }
    }

    fn write(
        &self,
        request: &Request<'_>,
        out: &mut Vec<u8>,
        connection_id: u64,
        transaction_id: u32,
    ) {
        match request {
            Request::Announce(announce) => {
                let (key, url) = (self.key, self.url.as_slice());
                AnnounceRequest { connection_id, transaction_id, announce, key, url }.write(out);
            }
            Request::Scrape(hashes) => codec::scrape(out, connection_id, transaction_id, hashes),
        }
    }

    /// Waits for the response to a transaction. Returns its length, or `None` on timeout. Datagrams with
    /// other transaction ids are counted as strays.
    fn receive(
        &mut self,
        transaction_id: u32,
        attempt: Deadline,
        deadline: Deadline,
        strays: &mut u32,
    ) -> Result<Option<usize>, TrackerError> {
        loop {
            let (Some(left), Some(whole)) = (attempt.remaining(), deadline.remaining()) else {
                return Ok(None);
            };
            let timed = self.socket.set_read_timeout(Some(left.min(whole)));
            match timed.and_then(|()| self.socket.recv(&mut self.buffer)) {
                Ok(len) => {
                    let datagram = self.buffer.get(..len).unwrap_or_default();
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

    fn silence(&self, deadline: Deadline, is_connected: bool, strays: u32) -> TrackerError {
        let what = if is_connected { "no response" } else { "no connection id" };
        let address = self.address;
        if strays == 0 {
            return deadline.timed_out(&format!("{what} from {address}"));
        }
        let what =
            format!("{what} from {address}, but {strays} datagrams with unknown transaction ids");
        TrackerError { kind: FailureKind::InvalidResponse, ..deadline.timed_out(&what) }
    }

    fn invalid_response(&self, what: &str) -> TrackerError {
        TrackerError::new(FailureKind::InvalidResponse, format!("{} has sent {what}", self.address))
    }
}

/// Returns a socket that sends to an address and receives only from there. Sends nothing.
pub(crate) fn connected_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let own: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(address)?;
    Ok(socket)
}

fn stats_of(torrent: &[u8; 12]) -> ScrapeStats {
    let (numbers, _) = torrent.as_chunks::<4>();
    let mut numbers = numbers.iter().map(|it| u64::from(u32::from_be_bytes(*it)));
    let mut next = || numbers.next().unwrap_or_default();
    let (seeders, downloads, leechers) = (next(), next(), next());
    ScrapeStats { seeders, downloads: Some(downloads), leechers }
}
