//! Outstanding requests, found by the transaction ids of their responses.
//!
//! A transaction id encodes a slot and the slot's generation. So a response is matched without a
//! map, a late response is distinguished from an unsolicited one, and a tracker cannot guess other
//! ids.

/// The kind of an outstanding request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked<P> {
    Connect,
    /// The announce of this peer.
    Announce(P),
    Scrape,
}

/// An outstanding request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PendingRequest<P> {
    pub(super) asked: Asked<P>,
    /// Scheduled time in nanoseconds from the start.
    pub(super) due_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ResponseMatch<P> {
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

pub(super) struct PendingRequests<P> {
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
    pub(super) fn insert(&mut self, slot: u32, asked: Asked<P>, due_ns: u64) -> u32 {
        let Some(place) = self.slots.get_mut(slot as usize) else { return SLOT_MASK ^ self.key };
        place.request = Some(PendingRequest { asked, due_ns });
        (place.generation << SLOT_BITS | slot) ^ self.key
    }

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

    /// Expires requests scheduled before `before_ns` and passes their free slots and what they asked for to `freed`.
    pub(super) fn expire(&mut self, before_ns: u64, mut freed: impl FnMut(u32, Asked<P>)) {
        for (slot, place) in (0..).zip(&mut self.slots) {
            if let Some(request) = place.request.filter(|request| request.due_ns < before_ns) {
                place.request = None;
                place.expired = Some(place.generation);
                place.generation = (place.generation + 1) & GENERATION_MASK;
                freed(slot, request.asked);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(due_ns: u64) -> PendingRequest<()> {
        PendingRequest { asked: Asked::Scrape, due_ns }
    }

    #[test]
    fn a_response_completes_its_request_once() {
        let mut pending = PendingRequests::<()>::new(4, 0xdead_beef);
        for generation in 0..10_000 {
            let id = pending.insert(3, Asked::Scrape, generation);
            for other in [id ^ 1, id ^ 2, id ^ (1 << 20), id ^ (1 << 31), 0, u32::MAX] {
                assert_eq!(pending.complete(other), ResponseMatch::Unknown, "{other:x}");
            }
            assert_eq!(pending.complete(id), ResponseMatch::Request(3, request(generation)));
            assert_eq!(pending.complete(id), ResponseMatch::Unknown);
        }
    }

    #[test]
    fn a_late_response_is_recognized_once() {
        let mut pending = PendingRequests::<()>::new(4, 7);
        let old = pending.insert(0, Asked::Scrape, 5);
        let fresh = pending.insert(1, Asked::Scrape, 6);
        let mut freed = Vec::new();
        pending.expire(6, |slot, _| freed.push(slot));
        assert_eq!(freed, [0]);
        let again = pending.insert(0, Asked::Scrape, 8);
        assert_ne!(old, again);
        assert_eq!(pending.complete(old), ResponseMatch::Late);
        assert_eq!(pending.complete(old), ResponseMatch::Unknown);
        assert_eq!(pending.complete(fresh), ResponseMatch::Request(1, request(6)));
        assert_eq!(pending.complete(again), ResponseMatch::Request(0, request(8)));
    }
}
