//! Outstanding requests, found by the transaction ids of their responses.
//!
//! A transaction id encodes a slot and the slot's generation. So a response is matched without a
//! map, a late response is distinguished from an unsolicited one, and a tracker cannot guess other
//! ids.

use crate::mix::RequestKind;
use crate::population::TorrentPeer;

/// An outstanding request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PendingRequest<P = TorrentPeer> {
    pub(super) kind: RequestKind,
    /// The announcing peer.
    pub(super) peer: P,
    /// Scheduled time in nanoseconds from the start.
    pub(super) due_ns: u64,
}

/// The request that a response belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ResponseMatch<P = TorrentPeer> {
    /// The request in this slot, which is now free.
    Request(u32, PendingRequest<P>),
    /// A request that has expired.
    Late,
    /// No known request.
    Unknown,
}

#[derive(Clone)]
struct Slot<P> {
    request: Option<PendingRequest<P>>,
    generation: u32,
    /// The generation of the last expired request.
    expired: Option<u32>,
}

pub(super) struct PendingRequests<P = TorrentPeer> {
    slots: Vec<Slot<P>>,
    key: u32,
}

/// Bits of an id that hold the slot.
const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const GENERATION_MASK: u32 = u32::MAX >> SLOT_BITS;
/// Maximum number of outstanding requests. The slot behind the last one is that of no request.
pub(super) const PENDING_MAX: u32 = SLOT_MASK;

impl<P: Copy> PendingRequests<P> {
    /// Creates slots, at most [`PENDING_MAX`]. `key` masks the ids.
    pub(super) fn new(slots: u32, key: u32) -> Self {
        let slot = Slot { request: None, generation: 0, expired: None };
        Self { slots: vec![slot; slots.min(PENDING_MAX) as usize], key }
    }

    /// Puts a request into a free slot and returns its transaction id.
    pub(super) fn insert(&mut self, slot: u32, request: PendingRequest<P>) -> u32 {
        let Some(place) = self.slots.get_mut(slot as usize) else { return SLOT_MASK ^ self.key };
        place.request = Some(request);
        (place.generation << SLOT_BITS | slot) ^ self.key
    }

    /// Handles a response with this transaction id.
    pub(super) fn complete(&mut self, transaction_id: u32) -> ResponseMatch<P> {
        let id = transaction_id ^ self.key;
        let (slot, generation) = (id & SLOT_MASK, id >> SLOT_BITS);
        let Some(place) = self.slots.get_mut(slot as usize) else { return ResponseMatch::Unknown };
        match place.request {
            Some(request) if place.generation == generation => {
                place.request = None;
                place.generation = (generation + 1) & GENERATION_MASK;
                ResponseMatch::Request(slot, request)
            }
            _ if place.expired == Some(generation) => {
                place.expired = None;
                ResponseMatch::Late
            }
            _ => ResponseMatch::Unknown,
        }
    }

    /// Expires requests scheduled before `before_ns` and passes them and their free slots to `freed`.
    pub(super) fn expire(&mut self, before_ns: u64, mut freed: impl FnMut(u32, PendingRequest<P>)) {
        for (slot, place) in (0..).zip(&mut self.slots) {
            if let Some(request) = place.request.filter(|request| request.due_ns < before_ns) {
                place.request = None;
                place.expired = Some(place.generation);
                place.generation = (place.generation + 1) & GENERATION_MASK;
                freed(slot, request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due_ns: u64) -> PendingRequest {
        let peer = TorrentPeer { torrent: 1, port: 2 };
        PendingRequest { kind: RequestKind::Announce, peer, due_ns }
    }

    #[test]
    fn a_response_completes_its_request_once() {
        let mut pending = PendingRequests::new(4, 0xdead_beef);
        for generation in 0..10_000 {
            let id = pending.insert(3, request(generation));
            assert_eq!(pending.complete(id), ResponseMatch::Request(3, request(generation)));
            assert_eq!(pending.complete(id), ResponseMatch::Unknown);
        }
    }

    #[test]
    fn a_late_response_is_recognized_once() {
        let mut pending = PendingRequests::new(4, 7);
        let (old, fresh) = (pending.insert(0, request(5)), pending.insert(1, request(6)));
        let mut freed = Vec::new();
        pending.expire(6, |slot, _| freed.push(slot));
        assert_eq!(freed, [0]);
        let again = pending.insert(0, request(8));
        assert_ne!(old, again);
        assert_eq!(pending.complete(old), ResponseMatch::Late);
        assert_eq!(pending.complete(old), ResponseMatch::Unknown);
        assert_eq!(pending.complete(fresh), ResponseMatch::Request(1, request(6)));
        assert_eq!(pending.complete(again), ResponseMatch::Request(0, request(8)));
    }

    #[test]
    fn other_ids_are_unknown() {
        let mut pending = PendingRequests::new(2, 0x1234_5678);
        let id = pending.insert(0, request(0));
        for other in [id ^ 1, id ^ 2, id ^ (1 << 20), id ^ (1 << 31), 0, u32::MAX] {
            assert_eq!(pending.complete(other), ResponseMatch::Unknown, "{other:x}");
        }
    }
}
