//! Connection ids (BEP 15): proof that a client receives packets at the address it sends from.
//!
//! An id is SipHash-2-4, with all its 64 bits, over the number of the time slice and the source
//! address. Nothing is stored, so a flood of connects costs no memory, and every worker accepts the ids
//! of all others. The port is left out because clients and NATs change it between packets. The XDP
//! program of `edge/xdp` issues and verifies the same ids.
//!
//! Slices count from the start of the process, or from 1970 in a cluster: nodes with the same key then
//! accept each other's ids, as far as their clocks agree. Those that differ by at most [`NEXT_SLICE_S`]
//! accept them from the first second on, and for a lifetime less that difference at least. If clocks differ
//! by more, ids of the node that is ahead are refused elsewhere in the first seconds of each of its slices:
//! as many as the difference exceeds [`NEXT_SLICE_S`].

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use primitives::siphash::siphash_slice_ip;
use types::Tick;

pub(crate) struct ConnectionIds {
    keys: ArcSwap<Keys>,
    /// Unix time at tick 0; 0 outside clusters.
    unix_offset_s: AtomicU32,
}

/// The keys of what is issued to clients.
pub(crate) struct Keys {
    /// The key by which it is issued.
    pub(crate) current: [u8; 16],
    /// Another one by which it is accepted, but not issued.
    pub(crate) previous: Option<[u8; 16]>,
}

/// The connection ids that are issued and valid now, for an XDP program that issues and verifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionIdSlices {
    /// The key of the ids that are issued.
    pub key: [u8; 16],
    /// True if ids of another key are valid, too. The program knows one key: it must leave ids that it cannot
    /// verify to the tracker.
    pub has_previous_key: bool,
    /// The slice of the ids that are issued now. Those of the slice before it are valid, too.
    pub current: u32,
    /// True if the ids of the slice after it are valid already.
    pub accepts_next: bool,
}

/// Seconds before the end of a slice in which ids of the next one are valid already: parts of the tracker
/// turn to it at slightly different times.
const NEXT_SLICE_S: u32 = 10;

impl ConnectionIds {
    pub(crate) fn new(current: [u8; 16], previous: Option<[u8; 16]>) -> Self {
        let keys = ArcSwap::from_pointee(Keys { current, previous });
        Self { keys, unix_offset_s: AtomicU32::new(0) }
    }

    /// Issues ids by `current` from now on, and accepts those of `previous`, too.
    pub(crate) fn replace_keys(&self, current: [u8; 16], previous: Option<[u8; 16]>) {
        self.keys.store(Arc::new(Keys { current, previous }));
    }

    pub(crate) fn set_unix_offset(&self, seconds: u64) {
        // Unix time exceeds 32 bits in 2106. All nodes turn to small numbers in the same second then.
        self.unix_offset_s.store(seconds as u32, Ordering::Relaxed);
    }

    /// Returns the id of `ip` in the current slice of `lifetime_s` seconds.
    //= bep15#connection-id-unguessable
    pub(crate) fn issue(&self, now: Tick, lifetime_s: u32, ip: IpAddr) -> u64 {
        mac(&self.keys.load().current, slice(self.time(now), lifetime_s), ip)
    }

    /// Returns whether `id` is that of `ip` in the current slice, in the one before it or, near the end of
    /// the current one, in the next.
    //= bep15#connection-id-lifetime
    pub(crate) fn verify(&self, now: Tick, lifetime_s: u32, ip: IpAddr, id: u64) -> bool {
        let time = self.time(now);
        let keys = self.keys.load();
        verify(&keys.current, (time, lifetime_s), ip, id)
            || keys.previous.is_some_and(|key| verify(&key, (time, lifetime_s), ip, id))
    }

    pub(crate) fn slices(&self, now: Tick, lifetime_s: u32) -> ConnectionIdSlices {
        let time = self.time(now);
        let keys = self.keys.load();
        ConnectionIdSlices {
            key: keys.current,
            has_previous_key: keys.previous.is_some(),
            current: slice(time, lifetime_s),
            accepts_next: accepts_next(time, lifetime_s),
        }
    }

    /// Returns the time by which slices are counted, seconds.
    fn time(&self, now: Tick) -> u32 {
        self.unix_offset_s.load(Ordering::Relaxed).wrapping_add(now.0)
    }
}

fn verify(key: &[u8; 16], (time, lifetime_s): (u32, u32), ip: IpAddr, id: u64) -> bool {
    let slice = slice(time, lifetime_s);
    id == mac(key, slice, ip)
        || id == mac(key, slice.wrapping_sub(1), ip)
        || accepts_next(time, lifetime_s) && id == mac(key, slice.wrapping_add(1), ip)
}

fn mac(key: &[u8; 16], slice: u32, ip: IpAddr) -> u64 {
    siphash_slice_ip::<2, 4>(key, slice, ip)
}

/// Returns the number of the current slice. Counts from 1, so that the slice before the first is not
/// `u32::MAX`.
fn slice(time: u32, lifetime_s: u32) -> u32 {
    time / lifetime_s.max(1) + 1
}

/// Returns whether ids of the next slice are valid already.
fn accepts_next(time: u32, lifetime_s: u32) -> bool {
    let lifetime_s = lifetime_s.max(1);
    lifetime_s - time % lifetime_s <= NEXT_SLICE_S
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME_S: u32 = 120;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    //= bep15#connection-id-unguessable
    //= type=test
    #[test]
    fn ids_are_bound_to_address_and_key() {
        let ids = ConnectionIds::new([7; 16], None);
        let id = ids.issue(Tick(5), LIFETIME_S, ip("1.2.3.4"));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("1.2.3.5"), id));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("::102:304"), id));
        assert!(!ConnectionIds::new([8; 16], None).verify(Tick(5), LIFETIME_S, ip("1.2.3.4"), id));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("1.2.3.4"), id ^ 1));
        // Both halves depend on the address: no part of the id is constant.
        let other = ids.issue(Tick(5), LIFETIME_S, ip("1.2.3.5"));
        assert!((id >> 32) != (other >> 32) && (id as u32) != (other as u32));
    }

    #[test]
    fn ids_of_the_next_slice_are_good_shortly_before_it() {
        let ids = ConnectionIds::new([7; 16], None);
        let next = ids.issue(Tick(2 * LIFETIME_S), LIFETIME_S, ip("1.2.3.4"));
        for now in 0..2 * LIFETIME_S {
            let is_good = ids.verify(Tick(now), LIFETIME_S, ip("1.2.3.4"), next);
            assert_eq!(is_good, now >= 2 * LIFETIME_S - 10, "{now}");
            let slices = ids.slices(Tick(now), LIFETIME_S);
            assert_eq!(slices.accepts_next, now % LIFETIME_S >= LIFETIME_S - 10, "{now}");
            assert_eq!(slices.current, now / LIFETIME_S + 1);
        }
    }

    /// Two nodes with different starts, whose clocks differ.
    fn nodes(differ_s: u32) -> [ConnectionIds; 2] {
        let nodes = [7, 7].map(|key| ConnectionIds::new([key; 16], None));
        nodes[0].set_unix_offset(1_800_000_000);
        nodes[1].set_unix_offset(1_800_000_000 + 1234 + u64::from(differ_s));
        nodes
    }

    /// Returns the age up to which ids that `from` issues at `start` are good at `to`, and whether they are
    /// from the first second on.
    fn good_for(from: &ConnectionIds, to: &ConnectionIds, start: [u32; 2]) -> (bool, u32) {
        let client = ip("1.2.3.4");
        let id = from.issue(Tick(start[0]), LIFETIME_S, client);
        let is_good = |age| to.verify(Tick(start[1] + age), LIFETIME_S, client, id);
        let last = (0..3 * LIFETIME_S).filter(|age| is_good(*age)).max();
        (is_good(0), last.unwrap_or(0))
    }

    //= bep15#connection-id-lifetime
    //= type=test
    #[test]
    fn ids_of_one_node_are_good_at_another() {
        for (differ_s, good_for_s) in [(0, LIFETIME_S), (1, LIFETIME_S - 1), (10, LIFETIME_S - 10)]
        {
            let [behind, ahead] = nodes(differ_s);
            for start in 2000..2000 + 2 * LIFETIME_S {
                // The second node started 1234 seconds later.
                let ticks = [start, start - 1234];
                for (from, to, ticks) in
                    [(&behind, &ahead, ticks), (&ahead, &behind, [ticks[1], ticks[0]])]
                {
                    let (is_good_at_once, last) = good_for(from, to, ticks);
                    assert!(is_good_at_once, "clocks differ by {differ_s} s, issued at {start}");
                    assert!(last >= good_for_s, "{last} s");
                    assert!(last <= 2 * LIFETIME_S + differ_s, "{last} s");
                }
            }
        }
    }

    #[test]
    fn ids_of_a_node_far_ahead_are_refused_elsewhere_early_in_its_slices() {
        let [behind, ahead] = nodes(30);
        let refused = |from: &ConnectionIds, to: &ConnectionIds, lead: [u32; 2]| {
            let slice = 2000..2000 + LIFETIME_S;
            slice.filter(|at| !good_for(from, to, [at - lead[0], at - lead[1]]).0).count()
        };
        assert_eq!(refused(&ahead, &behind, [1234, 0]), 30 - 10);
        assert_eq!(refused(&behind, &ahead, [0, 1234]), 0);
    }

    #[test]
    fn a_clock_that_is_set_keeps_recent_ids() {
        for (step_s, is_good) in [(-100, true), (100, true), (-300, false), (300, false)] {
            let [node, _] = nodes(0);
            let client = ip("1.2.3.4");
            let id = node.issue(Tick(5 + LIFETIME_S - 11), LIFETIME_S, client);
            node.set_unix_offset(1_800_000_000_u64.strict_add_signed(step_s));
            let now = Tick(5 + LIFETIME_S - 11);
            assert_eq!(node.verify(now, LIFETIME_S, client, id), is_good, "{step_s}");
        }
    }

    /// The old secret only; the new one behind it; before it; the new one only. Each step reaches one node
    /// after the other.
    #[test]
    fn changing_the_secret_loses_nobody() {
        const OLD: [u8; 16] = [7; 16];
        const NEW: [u8; 16] = [8; 16];
        let steps = [(OLD, None), (OLD, Some(NEW)), (NEW, Some(OLD)), (NEW, None)];
        let nodes = steps.map(|(key, previous)| {
            // As nodes do, while they serve.
            let node = ConnectionIds::new(OLD, None);
            node.replace_keys(key, previous);
            node.set_unix_offset(1_800_000_000);
            node
        });
        let client = ip("2001:db8::1");
        let id = |node: &ConnectionIds| node.issue(Tick(5), LIFETIME_S, client);
        let accepts = |node: &ConnectionIds, id| node.verify(Tick(50), LIFETIME_S, client, id);
        for pair in nodes.windows(2) {
            for [from, to] in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
                assert!(accepts(from, id(to)) && accepts(from, id(from)));
            }
        }
        // A step too many at once.
        assert!(!accepts(&nodes[0], id(&nodes[2])) && !accepts(&nodes[3], id(&nodes[1])));
        let slices = nodes.map(|node| {
            let slices = node.slices(Tick(5), LIFETIME_S);
            (slices.key, slices.has_previous_key)
        });
        assert_eq!(slices, [(OLD, false), (OLD, true), (NEW, true), (NEW, false)]);
    }
}
