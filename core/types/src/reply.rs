//! What the tracker gives back, pushed piece by piece into the protocol's encoder: no list of peers
//! is built in between.

use crate::{PackedV4, PackedV6, PeerId, PeerKey};

/// Peers of one address family, or of WebTorrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// Peers that have everything.
    pub seeders: u32,
    /// Peers that miss something, partial seeds included.
    pub leechers: u32,
}

/// The figures of one torrent. An announce's figures include the announcer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SwarmCounts {
    /// IPv4 peers.
    pub v4: FamilyCounts,
    /// IPv6 peers.
    pub v6: FamilyCounts,
    /// WebTorrent peers, of whatever family.
    pub web: FamilyCounts,
    /// Those of the leechers that are partial seeds (BEP 21).
    pub partial_seeds: u32,
    /// Downloads completed, one for each peer.
    pub downloads: u32,
}

impl SwarmCounts {
    /// BEP 3 `complete`.
    pub fn seeders(&self) -> u32 {
        self.v4.seeders.saturating_add(self.v6.seeders).saturating_add(self.web.seeders)
    }

    /// BEP 3 `incomplete`.
    pub fn leechers(&self) -> u32 {
        self.v4.leechers.saturating_add(self.v6.leechers).saturating_add(self.web.leechers)
    }

    /// BEP 21 `downloaders`: incomplete and still fetching.
    pub fn downloaders(&self) -> u32 {
        self.leechers().saturating_sub(self.partial_seeds)
    }
}

/// What an accepted announce is answered with: exactly so many peers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AnnounceSummary {
    /// The torrent after this announce.
    pub counts: SwarmCounts,
    /// v4 peers that follow.
    pub v4: u16,
    /// v6 peers that follow.
    pub v6: u16,
}

/// What becomes of an announce that comes too soon after its peer's last one: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon {
    /// Seconds since the last one, known to 16: it may be up to 15 more or less.
    pub age_s: u32,
}

/// Receives the peers of answers to a batch of announces. Every method names the announce by its
/// `slot`: the number that the caller gave it, and that goes through tracker and store with it.
///
/// [`StoreSink`] and the tracker's sink extend it by how an answer begins. An accepted announce is
/// then given exactly the `v4` and `v6` peers of its [`AnnounceSummary`], in any number of runs, v4
/// before v6.
pub trait PeerSink {
    /// Appends v4 peers to the answer.
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]);
    /// Appends v6 peers to the answer.
    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]);
    /// Appends one peer with its id. Replaces the other two for an announce that wants ids (BEP 3 dict
    /// model).
    fn peer_with_id(&mut self, slot: u8, peer: PeerKey, id: PeerId);
}

/// Receives the store's answers to a batch of announces: for each announce one call of `accept` or
/// `too_soon`, and peers after `accept`.
pub trait StoreSink: PeerSink {
    /// The announce was done.
    fn accept(&mut self, slot: u8, summary: &AnnounceSummary);
    /// The announce was not done, because it came too soon.
    fn too_soon(&mut self, slot: u8, too_soon: TooSoon);
    /// The announce was counted as a download. Called before its `accept`.
    fn downloaded(&mut self, _slot: u8) {}
}
