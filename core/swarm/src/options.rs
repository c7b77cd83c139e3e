//! How a store is set up.

/// How a [`crate::Store`] is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Parts with a lock of their own; rounded up to a power of two. Several for each thread that
    /// announces.
    pub shards: usize,
    /// Secret that decides where torrents and peers are put, so that nobody outside can aim.
    pub hash_key: [u8; 16],
    /// Seconds that a peer is kept after its last announce, at most
    /// [`types::limits::PEER_LIFETIME_S_MAX`].
    pub peer_lifetime_s: u32,
    /// The same for WebTorrent peers, which announce more often.
    pub web_lifetime_s: u32,
    /// Keep peer ids (BEP 3 dict model). Costs tens of bytes for each peer.
    pub keep_peer_ids: bool,
    /// Bytes the store may take. Near it the idlest peers go early, at it nothing new is stored.
    pub memory_budget: Option<u64>,
}
