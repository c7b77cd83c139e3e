//! Requests that are under way, found by the transaction ids of their answers.
//!
//! An id is the number of a slot and of its turn. So an answer is found without a map, one that comes
//! too late is told from one that nobody asked for, and a tracker cannot guess the ids of others.

use crate::mix::Asked;
use crate::population::Member;

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Flight {
    pub(super) asked: Asked,
    /// Who announces.
    pub(super) member: Member,
    /// When it was due: in nanoseconds from the start.
    pub(super) due_ns: u64,
}

/// What an answer is to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Landing {
    /// The request in this slot, which is free now.
    Of(u32, Flight),
    /// A request that was given up.
    Late,
    /// A hostile request.
    Hostile,
    /// Nothing that is known.
    Unknown,
}

#[derive(Clone)]
struct Slot {
    flight: Option<Flight>,
    turn: u32,
    /// The turn of the last request that was given up.
    given_up: Option<u32>,
}

pub(super) struct Flights {
    slots: Vec<Slot>,
    key: u32,
}

/// Bits of an id that number the slot.
const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const TURN_MASK: u32 = u32::MAX >> SLOT_BITS;
/// The slot of hostile requests, whose answers are counted but not awaited.
const HOSTILE: u32 = SLOT_MASK;
/// How many requests can be under way.
pub(super) const FLIGHTS_MAX: u32 = HOSTILE;

impl Flights {
    /// With so many slots, at most [`FLIGHTS_MAX`]. Ids are masked by `key`.
    pub(super) fn new(slots: u32, key: u32) -> Self {
        let slot = Slot { flight: None, turn: 0, given_up: None };
        Self { slots: vec![slot; slots.min(FLIGHTS_MAX) as usize], key }
    }

    /// Puts a request into a free slot: its transaction id.
    pub(super) fn take_off(&mut self, slot: u32, flight: Flight) -> u32 {
        let Some(place) = self.slots.get_mut(slot as usize) else { return self.hostile() };
        place.flight = Some(flight);
        (place.turn << SLOT_BITS | slot) ^ self.key
    }

    /// The transaction id of hostile requests.
    pub(super) fn hostile(&self) -> u32 {
        HOSTILE ^ self.key
    }

    /// An answer with this id has come.
    pub(super) fn land(&mut self, transaction_id: u32) -> Landing {
        let id = transaction_id ^ self.key;
        let (slot, turn) = (id & SLOT_MASK, id >> SLOT_BITS);
        if slot == HOSTILE {
            return if turn == 0 { Landing::Hostile } else { Landing::Unknown };
        }
        let Some(place) = self.slots.get_mut(slot as usize) else { return Landing::Unknown };
        match place.flight {
            Some(flight) if place.turn == turn => {
                place.flight = None;
                place.turn = (turn + 1) & TURN_MASK;
                Landing::Of(slot, flight)
            }
            _ if place.given_up == Some(turn) => {
                place.given_up = None;
                Landing::Late
            }
            _ => Landing::Unknown,
        }
    }

    /// Gives up requests that were due before then, and names their slots, which are free now.
    pub(super) fn give_up(&mut self, before_ns: u64, mut freed: impl FnMut(u32)) {
        for (slot, place) in (0..).zip(&mut self.slots) {
            if place.flight.is_some_and(|flight| flight.due_ns < before_ns) {
                place.flight = None;
                place.given_up = Some(place.turn);
                place.turn = (place.turn + 1) & TURN_MASK;
                freed(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(due_ns: u64) -> Flight {
        let member = Member { torrent: 1, port: 2 };
        Flight { asked: Asked::Announce, member, due_ns }
    }

    #[test]
    fn an_answer_lands_once() {
        let mut flights = Flights::new(4, 0xdead_beef);
        for turn in 0..10_000 {
            let id = flights.take_off(3, flight(turn));
            assert_eq!(flights.land(id), Landing::Of(3, flight(turn)));
            assert_eq!(flights.land(id), Landing::Unknown);
        }
    }

    #[test]
    fn what_was_given_up_is_late_once() {
        let mut flights = Flights::new(4, 7);
        let (old, fresh) = (flights.take_off(0, flight(5)), flights.take_off(1, flight(6)));
        let mut freed = Vec::new();
        flights.give_up(6, |slot| freed.push(slot));
        assert_eq!(freed, [0]);
        let again = flights.take_off(0, flight(8));
        assert_ne!(old, again);
        assert_eq!(flights.land(old), Landing::Late);
        assert_eq!(flights.land(old), Landing::Unknown);
        assert_eq!(flights.land(fresh), Landing::Of(1, flight(6)));
        assert_eq!(flights.land(again), Landing::Of(0, flight(8)));
    }

    #[test]
    fn other_ids_are_unknown() {
        let mut flights = Flights::new(2, 0x1234_5678);
        let id = flights.take_off(0, flight(0));
        for other in [id ^ 1, id ^ 2, id ^ (1 << 20), id ^ (1 << 31), 0, u32::MAX] {
            assert_eq!(flights.land(other), Landing::Unknown, "{other:x}");
        }
        assert_eq!(flights.land(flights.hostile()), Landing::Hostile);
    }
}
