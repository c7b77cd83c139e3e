//! Differences between the rows of this node and those of others, by the digests in heartbeats, and when to repair
//! them.
//!
//! Digests also differ while changes are on their way, so a difference is acted on when it has lasted for some
//! heartbeats. Of a node that has just been heard for the first time, or again, it is acted on at once.

use std::collections::BTreeMap;

use crate::seam::{Output, Time};

/// Three heartbeats in a row differ.
const LASTING_MS: u64 = 2000;
/// Repairs begin up to this much later, so that nodes do not all ask the same one at once.
const JITTER_MS: u64 = 1000;
/// The pause after the first repair from a node, and twice as long after each one that left a difference: that node
/// may have rows that this version does not understand, or hear nothing of this one.
const PAUSE_MS: u64 = 5000;
const DOUBLINGS_MAX: u32 = 6;

/// A node's rows, compared with this node's.
#[derive(Debug, Default)]
struct Compared {
    /// For each kind: since when it differs, by the steady clock.
    since_ms: Vec<Option<u64>>,
    /// When the next repair from this node may begin.
    due_ms: u64,
    /// Repairs since the rows were equal.
    repairs: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Differences {
    /// The digests of this node.
    own: Vec<u64>,
    nodes: BTreeMap<u8, Compared>,
    /// The node from which rows are being fetched.
    repairing: Option<u8>,
}

impl Differences {
    /// Takes the digests of this node's rows.
    pub(crate) fn set_own(&mut self, digests: &[u64]) {
        self.own.clear();
        self.own.extend_from_slice(digests);
    }

    pub(crate) fn own(&self) -> &[u64] {
        &self.own
    }

    /// Compares the digests of a node's heartbeat. Kinds that only one of both knows are left out.
    pub(crate) fn compare(&mut self, now: Time, node: u8, theirs: &[u64]) {
        let now_ms = now.steady_ms;
        let is_new = !self.nodes.contains_key(&node);
        let compared = self.nodes.entry(node).or_default();
        let begin_ms = if is_new { now_ms.saturating_sub(LASTING_MS) } else { now_ms };
        compared.since_ms.resize(self.own.len().min(theirs.len()), None);
        let both = self.own.iter().zip(theirs);
        for (since_ms, (own, theirs)) in compared.since_ms.iter_mut().zip(both) {
            *since_ms = (own != theirs).then(|| since_ms.unwrap_or(begin_ms));
        }
        if compared.since_ms.iter().all(Option::is_none) {
            (compared.repairs, compared.due_ms) = (0, 0);
        }
    }

    /// Forgets nodes that are not heard any more.
    pub(crate) fn retain(&mut self, is_heard: impl Fn(u8) -> bool) {
        self.nodes.retain(|node, _| is_heard(*node));
    }

    /// Begins a repair, if rows of a node have differed for long enough and none is under way: from the node that was
    /// asked least.
    pub(crate) fn begin(&mut self, now: Time, out: &mut Vec<Output>) {
        let now_ms = now.steady_ms;
        if self.repairing.is_some() {
            return;
        }
        let due = self.nodes.iter_mut().filter(|(_, it)| it.lasts(now_ms) && now_ms >= it.due_ms);
        let Some((node, compared)) = due.min_by_key(|(_, it)| it.repairs) else { return };
        if compared.due_ms == 0 {
            compared.due_ms = now_ms + now.unix_ms.wrapping_mul(u64::from(*node) | 1) % JITTER_MS;
            return;
        }
        self.repairing = Some(*node);
        out.push(Output::Repair { node: *node, kinds: compared.kinds() });
    }

    /// Notes that the repair has ended, successfully or not.
    pub(crate) fn repaired(&mut self, now: Time) {
        let Some(node) = self.repairing.take() else { return };
        if let Some(compared) = self.nodes.get_mut(&node) {
            compared.due_ms = now.steady_ms + (PAUSE_MS << compared.repairs.min(DOUBLINGS_MAX));
            compared.repairs += 1;
        }
    }

    pub(crate) fn kinds(&self, node: u8) -> Vec<u8> {
        self.nodes.get(&node).map(Compared::kinds).unwrap_or_default()
    }

    /// Returns for how many milliseconds rows of a node have differed.
    pub(crate) fn lasting_ms(&self, now: Time, node: u8) -> u64 {
        let since_ms = self.nodes.get(&node).into_iter().flat_map(|it| &it.since_ms).flatten();
        since_ms.min().map_or(0, |since_ms| now.steady_ms.saturating_sub(*since_ms))
    }
}

impl Compared {
    fn lasts(&self, now_ms: u64) -> bool {
        self.since_ms.iter().flatten().any(|since_ms| now_ms >= since_ms + LASTING_MS)
    }

    fn kinds(&self) -> Vec<u8> {
        let kinds = (0..).zip(&self.since_ms);
        kinds.filter(|(_, since_ms)| since_ms.is_some()).map(|(kind, _)| kind).collect()
    }
}
