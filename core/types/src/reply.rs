//! Answers of store and tracker. Peers go piece by piece into the protocol's encoder, so no list
//! of peers is built in between.

use crate::{PackedV4, PackedV6, PeerId, PeerKey};

/// Counts of one address family, or of WebTorrent peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FamilyCounts {
    /// Peers that have the whole torrent.
    pub seeders: u32,
    /// Peers that lack a part of it, including partial seeds.
    pub leechers: u32,
}

/// Counts of one torrent. The answer to an announce counts the announcing peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SwarmCounts {
    /// IPv4 peers.
    pub v4: FamilyCounts,
    /// IPv6 peers.
    pub v6: FamilyCounts,
    /// WebTorrent peers of either address family.
    pub web: FamilyCounts,
    /// Leechers that are partial seeds (BEP 21).
    pub partial_seeds: u32,
    /// Completed downloads; a peer counts once.
    pub downloads: u32,
}

impl SwarmCounts {
    /// Returns BEP 3 `complete`.
    pub fn seeders(&self) -> u32 {
        self.v4.seeders.saturating_add(self.v6.seeders).saturating_add(self.web.seeders)
    }

    /// Returns BEP 3 `incomplete`.
    pub fn leechers(&self) -> u32 {
        self.v4.leechers.saturating_add(self.v6.leechers).saturating_add(self.web.leechers)
    }

    /// Returns BEP 21 `downloaders`: incomplete peers that still download.
    pub fn downloaders(&self) -> u32 {
        self.leechers().saturating_sub(self.partial_seeds)
    }
}

/// The head of the answer to an accepted announce. Exactly `v4` and `v6` peers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AnnounceSummary {
    /// The torrent's counts after this announce.
    pub counts: SwarmCounts,
    /// The number of v4 peers that follow.
    pub v4: u16,
    /// The number of v6 peers that follow.
    pub v6: u16,
}

/// The announce came too soon after the peer's last one, and was not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSoon {
    /// Seconds since the last one. Ages are kept in units of 16 s, so this may be up to 15 off.
    pub age_s: u32,
}

/// Receives the peers of answers to a batch of announces. Every method names the announce by its
/// `slot`: the caller's number for it, which passes through tracker and store unchanged.
///
/// [`StoreSink`] and the tracker's sink extend this trait with the start of an answer. After an
/// announce is accepted, exactly the `v4` and `v6` peers of its [`AnnounceSummary`] follow, in any
/// number of runs, v4 before v6.
pub trait PeerSink {
    /// Appends v4 peers to the answer.
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]);
    /// Appends v6 peers to the answer.
    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]);
    /// Appends one peer with its id. Called instead of the other two for an announce that wants ids
    /// (BEP 3 dict model).
    fn peer_with_id(&mut self, slot: u8, peer: PeerKey, id: PeerId);
}

/// Receives the store's answers to a batch of announces: one call of `accept` or `too_soon` for
/// each announce, then the peers of accepted ones.
pub trait StoreSink: PeerSink {
    /// The announce was done.
    fn accept(&mut self, slot: u8, summary: &AnnounceSummary);
    /// The announce was not done, because it came too soon.
    fn too_soon(&mut self, slot: u8, too_soon: TooSoon);
    /// The announce was counted as a download. Called before its `accept`.
    fn downloaded(&mut self, _slot: u8) {}
}
