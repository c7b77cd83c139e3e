//! Peers that another node has and this one lacks, by the totals in heartbeats.
//!
//! The log may have lost its beginning or its end before this node read it, and merging may have had no memory. Digests
//! would tell exactly, but never be equal: nodes know a peer's last announce up to a period of refreshes, so one that
//! vanishes expires at different times.

use crate::seam::Time;

/// A node lacks peers if another one has more by a twentieth and by [`LEAST`]: more than expire at different times.
const SHARE: u64 = 20;
const LEAST: u64 = 20;
/// A difference lasts for this long before the other node is asked: changes are on their way for less.
const LASTING_MS: u64 = 20_000;
/// The pause after the first request, and twice as long after each one that changed nothing.
const PAUSE_MS: u64 = 60_000;
const DOUBLINGS_MAX: u32 = 5;

/// Peers that this node lacks, by the numbers of other nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lacks {
    since_ms: Option<u64>,
    /// When another node may be asked again.
    due_ms: u64,
    requests: u32,
}

impl Lacks {
    /// Compares this node's total with those of others: the node and its total. Returns the node to ask for all of its
    /// peers, if it is time.
    pub(crate) fn compare(
        &mut self,
        now: Time,
        own: u64,
        others: impl Iterator<Item = (u8, u64)>,
    ) -> Option<u8> {
        let most = others.max_by_key(|(_, peers)| *peers);
        let Some((node, _)) = most.filter(|(_, peers)| *peers > own + own / SHARE + LEAST) else {
            *self = Self::default();
            return None;
        };
        let since_ms = *self.since_ms.get_or_insert(now.steady_ms);
        if now.steady_ms < self.due_ms.max(since_ms + LASTING_MS) {
            return None;
        }
        self.due_ms = now.steady_ms + (PAUSE_MS << self.requests.min(DOUBLINGS_MAX));
        self.requests += 1;
        Some(node)
    }
}
