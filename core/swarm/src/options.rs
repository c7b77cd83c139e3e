//! Options of a store.

/// Options of a [`crate::Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Parts with a lock of their own, rounded up to a power of two. Use several for each
    /// announcing thread.
    pub shards: usize,
    /// Secret key of the hash that places torrents and peers, so that collisions cannot be
    /// provoked.
    pub hash_key: [u8; 16],
    /// Seconds that a peer is kept after its last announce, at most
    /// [`types::limits::PEER_LIFETIME_S_MAX`].
    pub peer_lifetime_s: u32,
    /// The same for WebTorrent peers, which announce more often.
    pub web_lifetime_s: u32,
    /// True if peer ids are kept (BEP 3 dict model). Takes tens of bytes for each peer.
    pub keep_peer_ids: bool,
    /// Bytes the store may take. Near the budget peers of the largest networks are removed, then
    /// those idle for longest; at the budget nothing new is stored.
    pub memory_budget: Option<u64>,
}

impl Options {
    /// Returns options of a store without peer ids and budget, whose peers all have one lifetime.
    pub fn new(shards: usize, hash_key: [u8; 16], lifetime_s: u32) -> Self {
        Self {
            shards,
            hash_key,
            peer_lifetime_s: lifetime_s,
            web_lifetime_s: lifetime_s,
            keep_peer_ids: false,
            memory_budget: None,
        }
    }
}
