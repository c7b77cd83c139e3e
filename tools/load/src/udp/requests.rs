//! Creates requests by the configured mix, batched by length.

use client::codec::udp as codec;
use types::{Event, InfoHash};

use super::batch::Batch;
use super::pending::{PendingRequest, PendingRequests};
use crate::mix::{Mix, RequestKind, SCRAPE_TORRENTS};
use crate::population::{Population, TorrentPeer};
use crate::random::Random;
use crate::url::TrackerUrl;

/// Creates requests.
pub(super) struct Requests {
    mix: Mix,
    /// Announces carry its path and query (BEP 41).
    url: TrackerUrl,
    pub(super) population: Population,
    pub(super) random: Random,
    hashes: Vec<InfoHash>,
    pub(super) batches: [Batch; 3],
}

/// The connection id and the peers of a socket.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) connection_id: u64,
    /// The first peer of the socket and their number.
    pub(super) peers: (u32, u32),
}

impl Requests {
    pub(super) fn new(options: &super::UdpOptions, population: Population, random: Random) -> Self {
        Self {
            mix: options.mix,
            url: options.url.clone(),
            population,
            random,
            hashes: Vec::new(),
            batches: Default::default(),
        }
    }

    /// Adds a request by the mix, for a free slot. Returns whether it makes a peer leave.
    pub(super) fn add(
        &mut self,
        pending: &mut PendingRequests,
        slot: u32,
        due_ns: u64,
        sender: Sender,
    ) -> bool {
        match self.mix.draw(&mut self.random) {
            RequestKind::Connect => self.add_connect(pending, slot, due_ns),
            RequestKind::Announce => return self.add_announce(pending, slot, due_ns, sender),
            RequestKind::Scrape => self.add_scrape(pending, slot, due_ns, sender),
        }
        false
    }

    pub(super) fn add_connect(&mut self, pending: &mut PendingRequests, slot: u32, due_ns: u64) {
        let id = pending
            .insert(slot, PendingRequest { kind: RequestKind::Connect, peer: NO_PEER, due_ns });
        let [batch, ..] = &mut self.batches;
        batch.add(|out| codec::connect(out, id));
    }

    fn add_announce(
        &mut self,
        pending: &mut PendingRequests,
        slot: u32,
        due_ns: u64,
        sender: Sender,
    ) -> bool {
        let place = self.place(sender);
        let (announce, peer) = self.population.announce(place, &mut self.random);
        let id = pending.insert(slot, PendingRequest { kind: RequestKind::Announce, peer, due_ns });
        let [_, batch, _] = &mut self.batches;
        let url_data = url_data(self.url.target(self.population.number(place)));
        batch.add(|out| codec::announce(out, sender.connection_id, id, &announce, url_data));
        announce.event == Event::Stopped
    }

    fn add_scrape(
        &mut self,
        pending: &mut PendingRequests,
        slot: u32,
        due_ns: u64,
        sender: Sender,
    ) {
        let id = pending
            .insert(slot, PendingRequest { kind: RequestKind::Scrape, peer: NO_PEER, due_ns });
        self.hashes.clear();
        for _ in 0..SCRAPE_TORRENTS {
            let place = self.place(sender);
            let torrent = self.population.torrent(place);
            self.hashes.push(self.population.workload().info_hash(torrent));
        }
        let [_, _, batch] = &mut self.batches;
        let hashes = &self.hashes;
        batch.add(|out| codec::scrape(out, sender.connection_id, id, hashes));
    }

    fn place(&mut self, sender: Sender) -> u32 {
        sender.peers.0 + self.random.below(sender.peers.1.max(1) as usize) as u32
    }
}

/// Returns the BEP 41 URL data for this path and query; empty for the defaults.
pub(super) fn url_data(target: &str) -> &[u8] {
    if matches!(target, "/" | "/announce") { b"" } else { target.as_bytes() }
}

const NO_PEER: TorrentPeer = TorrentPeer { torrent: 0, port: 0 };
