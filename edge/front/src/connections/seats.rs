//! Seats: the connection that is closed when a new one finds no room.
//!
//! Plain form: connections by network, and the networks by the number of their connections; the network with
//! the most loses the one that would time out first. Departure: a random sample stands for all connections.
//! It costs the same for any number of connections, and no memory. The limiter knows how many connections each
//! network holds at all workers.
//!
//! A network never loses a connection to one that has as many. So however fast some of them connect, all get
//! what they need, up to what the largest have.

use std::cmp::Reverse;

use tracker::ConnectionPermit;
use tracker::counters::DropReason;
use types::Tick;

use super::{Connections, Entry, Phase};
use crate::listener::Listener;

/// Connections that are looked at to find one. Networks that hold a tenth of all are missed in 3 % of the
/// samples (0.9^32), and the newcomer then takes the place of a smaller one, or is refused.
const SAMPLE: usize = 32;
/// Places that are looked at for one of the sample: up to half of the table's are free.
const TRIES: usize = 4 * SAMPLE;
/// Displaced connections whose tasks have not ended yet: a few batches of newcomers. Further newcomers are
/// refused, because each still has its descriptor.
const DISPLACED_MAX: usize = 256;

/// The connections of which one must make room.
#[derive(Clone, Copy)]
pub(crate) enum Crowd<'a> {
    /// All of the worker.
    Worker,
    /// Those of one listener, which holds as many as it may.
    Listener(&'a Listener),
}

impl Crowd<'_> {
    /// Returns how many of these connections the permit's network holds; 0 if its client is not counted, because
    /// it is exempt or not known yet.
    pub(crate) fn weight(self, permit: &ConnectionPermit) -> u32 {
        match self {
            Self::Worker => permit.network_connections(),
            Self::Listener(_) => permit.network_connections_at_listener(),
        }
    }
}

impl Connections {
    /// Returns the number of connections, without those that have made room for others.
    pub(crate) fn seated(&self) -> usize {
        self.entries.len() - self.displaced
    }

    /// Closes a connection of a network that holds more than `newcomer_weight` connections: in all likelihood of
    /// the one that holds the most. Returns false if there is none.
    pub(crate) fn make_room(&mut self, now: Tick, crowd: Crowd<'_>, newcomer_weight: u32) -> bool {
        if self.displaced >= DISPLACED_MAX {
            return false;
        }
        let Some(number) = self.choose_victim(crowd, newcomer_weight) else { return false };
        self.close_now(now, number, DropReason::Displaced, "others need this connection's place");
        let entry = &mut self.entries[number];
        entry.permit = ConnectionPermit::uncounted();
        entry.is_displaced = true;
        entry.listener.displaced.update(|displaced| displaced + 1);
        self.displaced += 1;
        true
    }

    fn choose_victim(&mut self, crowd: Crowd<'_>, newcomer_weight: u32) -> Option<usize> {
        let (mut best, mut seen) = (None, 0);
        for _ in 0..TRIES {
            let number = self.random_place(crowd);
            let entry = self.entries.get(number).filter(|entry| entry.phase != Phase::Ended);
            let Some(entry) = entry else { continue };
            let weight = crowd.weight(&entry.permit);
            if weight > newcomer_weight {
                best = best.max(Some((entry.rank(weight), number)));
            }
            seen += 1;
            if seen == SAMPLE {
                break;
            }
        }
        best.map(|(_, number)| number)
    }

    fn random_place(&mut self, crowd: Crowd<'_>) -> usize {
        match crowd {
            Crowd::Listener(listener) if listener.share.is_some() => {
                let seats = listener.seats.borrow();
                let seat = self.random.below(seats.len() as u32) as usize;
                seats.get(seat).map_or(usize::MAX, |number| *number as usize)
            }
            // A listener without a share holds the worker's maximum if it is full: all there are.
            _ => self.random.below(self.entries.capacity() as u32) as usize,
        }
    }

    /// Takes a connection that was removed out of the seats.
    pub(super) fn leave_seat(&mut self, left: &Entry) {
        if left.is_displaced {
            left.listener.displaced.update(|displaced| displaced.saturating_sub(1));
            self.displaced -= 1;
        }
        if left.listener.share.is_none() {
            return;
        }
        let mut seats = left.listener.seats.borrow_mut();
        seats.swap_remove(left.seat as usize);
        if let Some(moved) = seats.get(left.seat as usize) {
            self.entries[*moved as usize].seat = left.seat;
        }
    }
}

/// The rank by which connections are closed for others: the greatest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The connections of its network.
    weight: u32,
    /// False for a WebSocket that has announced torrents and is neither pinged, blocked nor closing; true for
    /// all other connections.
    is_idle: bool,
    /// The tick at which it would time out. Half a request and an unfinished handshake have less time than a
    /// connection between two requests.
    deadline: Reverse<Tick>,
}

impl Entry {
    fn rank(&self, weight: u32) -> Rank {
        let is_idle = self.phase != Phase::WebSocket || !self.memory.has_torrents();
        Rank { weight, is_idle, deadline: Reverse(self.deadline) }
    }
}

impl Listener {
    /// Records the place of a new connection in the worker's table. Returns the connection's seat.
    pub(super) fn take_seat(&self, number: usize) -> u32 {
        if self.share.is_none() {
            return 0;
        }
        let mut seats = self.seats.borrow_mut();
        // A place has 24 bits.
        seats.push(number as u32);
        seats.len() as u32 - 1
    }
}
