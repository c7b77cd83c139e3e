//! Runs the evenness test: requests one torrent's peers many times.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use client::codec::udp::{self as codec, Reply, decode_reply};
use types::{Announce, Event, NumWant};

use super::{UdpOptions, worker};
use crate::EvennessTest;
use crate::evenness::Tally;
use crate::population::peer_id;
use crate::random::Random;

/// Announces of the test.
const ANNOUNCES: usize = 2000;
/// Fewer announces give no result.
const ANNOUNCES_MIN: usize = 1000;
/// Time limit; distant trackers answer fewer announces.
const TIME: Duration = Duration::from_secs(3);
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Fills a separate torrent with four times as many peers as a response holds, and counts which of
/// them another peer
/// receives. Returns `None` if the tracker does not cooperate.
pub(super) fn sample(options: &UdpOptions) -> Option<EvennessTest> {
    let wanted = options.workload.want.unwrap_or(50).min(50);
    if wanted == 0 {
        return None;
    }
    let mut client = SampleClient::new(options, wanted)?;
    let workload = &options.workload;
    let torrent = workload.torrents;
    let mut ports = BTreeSet::new();
    while ports.len() < 4 * usize::from(wanted) {
        let port = workload.port(torrent, client.random.next());
        if ports.insert(port) {
            client.announce(port)?;
        }
    }
    // One more peer, which only requests.
    let own = (0..).map(|_| workload.port(torrent, client.random.next()));
    let own = own.take(1000).find(|port| !ports.contains(port))?;
    let mut tally = Tally::new(ports);
    let mut announces = 0;
    while announces < ANNOUNCES && client.begun.elapsed() < TIME {
        let peers = client.announce(own)?;
        let pick = client.random.below(peers.len().max(1));
        tally.add(&peers, pick);
        announces += 1;
    }
    tally.sample().filter(|_| announces >= ANNOUNCES_MIN)
}

/// A client with one outstanding request.
struct SampleClient {
    socket: UdpSocket,
    connection_id: u64,
    template: Announce,
    url_data: Vec<u8>,
    is_v6: bool,
    random: Random,
    begun: Instant,
}

impl SampleClient {
    fn new(options: &UdpOptions, wanted: u16) -> Option<Self> {
        let socket =
            worker::plain_socket(options.sources.first().copied(), options.url.address()).ok()?;
        socket.set_read_timeout(Some(RESPONSE_TIMEOUT)).ok()?;
        let mut random = Random::new(options.workload.seed ^ 0x7361_6d70_6c65);
        let template = Announce {
            info_hash: options.workload.info_hash(options.workload.torrents),
            peer_id: peer_id(random.next()),
            port: 0,
            event: Event::None,
            left: Some(1),
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Peers(wanted),
        };
        let mut client = Self {
            socket,
            connection_id: 0,
            template,
            url_data: super::requests::url_data(options.url.target(0)).into(),
            is_v6: options.url.address().is_ipv6(),
            random,
            begun: Instant::now(),
        };
        client.connection_id = client.ask(
            |out, id, _| codec::connect(out, id),
            |reply| match reply {
                Reply::Connect { connection_id } => Some(*connection_id),
                _ => None,
            },
        )?;
        Some(client)
    }

    /// Announces with this port and returns the ports of the received peers.
    fn announce(&mut self, port: u16) -> Option<Vec<u16>> {
        self.template.port = port;
        let len = if self.is_v6 { 18 } else { 6 };
        self.ask(
            |out, id, client| {
                let Self { connection_id, template, url_data, .. } = client;
                codec::announce(out, *connection_id, id, template, url_data);
            },
            |reply| match reply {
                Reply::Announce { peers, .. } => Some(
                    peers
                        .chunks_exact(len)
                        .filter_map(|peer| Some(u16::from_be_bytes(*peer.last_chunk()?)))
                        .collect(),
                ),
                _ => None,
            },
        )
    }

    /// Sends a request up to three times and waits for the response.
    fn ask<T>(
        &mut self,
        write: impl Fn(&mut Vec<u8>, u32, &Self),
        read: impl Fn(&Reply<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut buffer = [0; 4096];
        for _ in 0..3 {
            let id = self.random.next() as u32;
            let mut out = Vec::new();
            write(&mut out, id, self);
            self.socket.send(&out).ok()?;
            let sent = Instant::now();
            while sent.elapsed() < RESPONSE_TIMEOUT {
                let Ok(len) = self.socket.recv(&mut buffer) else { break };
                match decode_reply(buffer.get(..len)?) {
                    Some((found, reply)) if found == id => return read(&reply),
                    // A response to an earlier attempt.
                    _ => {}
                }
            }
        }
        None
    }
}
