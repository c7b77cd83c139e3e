//! Between workers: frames for connections that another one holds.
//!
//! Plain form: a locked queue for each worker, and a bell. Departure: a worker gathers all that a
//! turn of its connections brings for another one, and takes the lock once for it.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracker::OfferTag;
use types::{ConnectionKey, limits};

/// The inboxes of all workers of a process.
pub(super) struct Exchange(Box<[Inbox]>);

/// A worker's place in the exchange.
pub struct Place {
    pub(super) number: usize,
    pub(super) exchange: Arc<Exchange>,
}

impl Place {
    /// One for each of so many workers.
    pub fn for_workers(count: usize) -> Vec<Self> {
        let exchange = Arc::new(Exchange::new(count));
        (0..count).map(|number| Self { number, exchange: Arc::clone(&exchange) }).collect()
    }
}

#[derive(Default)]
struct Inbox {
    packet: Mutex<Packet>,
    arrived: Notify,
}

/// Letters, and behind each other the frames they carry.
#[derive(Default)]
pub(super) struct Packet {
    pub(super) frames: Vec<u8>,
    pub(super) letters: Vec<Letter>,
}

/// A frame for one connection.
pub(super) struct Letter {
    pub(super) to: ConnectionKey,
    pub(super) content: Content,
    /// Bytes of the frame.
    pub(super) len: usize,
}

/// What a frame is.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// An offer, which `from` made, and which may be answered by this name.
    Offer { name: OfferTag, from: ConnectionKey },
    /// An answer.
    Answer,
}

impl Exchange {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Inbox::default()).collect())
    }

    pub(super) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Moves what is in `packet` to a worker's inbox. When that is full, because the worker is too
    /// busy to empty it, all is lost, and how many letters that were is said.
    pub(super) fn post(&self, worker: usize, packet: &mut Packet) -> usize {
        let Some(inbox) = self.0.get(worker) else { return 0 };
        let mut waiting = inbox.packet.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = 0;
        if waiting.letters.is_empty() {
            std::mem::swap(&mut *waiting, packet);
        } else if waiting.frames.len() + packet.frames.len() <= limits::EXCHANGE_BYTES_MAX {
            waiting.frames.append(&mut packet.frames);
            waiting.letters.append(&mut packet.letters);
        } else {
            lost = packet.letters.len();
        }
        drop(waiting);
        packet.clear();
        inbox.arrived.notify_one();
        lost
    }

    /// Waits until something is in a worker's inbox.
    pub(super) async fn arrived(&self, worker: usize) {
        match self.0.get(worker) {
            Some(inbox) => inbox.arrived.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Takes what is in a worker's inbox, in exchange for an empty packet's memory.
    pub(super) fn collect(&self, worker: usize, mut empty: Packet) -> Packet {
        empty.clear();
        let Some(inbox) = self.0.get(worker) else { return empty };
        let mut waiting = inbox.packet.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *waiting, empty)
    }
}

/// Memory kept for the next packet; more than that is given back.
const KEPT_BYTES: usize = 1 << 20;

impl Packet {
    pub(super) fn clear(&mut self) {
        if self.frames.capacity() > KEPT_BYTES {
            drop(take(self));
        }
        self.frames.clear();
        self.letters.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(to: u64, frame: &[u8]) -> Packet {
        let letter = Letter { to: ConnectionKey(to), content: Content::Answer, len: frame.len() };
        Packet { frames: frame.to_vec(), letters: vec![letter] }
    }

    #[test]
    fn letters_arrive_in_order_and_once() {
        let exchange = Exchange::new(2);
        assert_eq!(exchange.post(1, &mut packet(7, b"one")), 0);
        assert_eq!(exchange.post(1, &mut packet(8, b"two!")), 0);
        let all = exchange.collect(1, Packet::default());
        assert_eq!(all.frames, b"onetwo!");
        let letters: Vec<_> = all.letters.iter().map(|letter| (letter.to.0, letter.len)).collect();
        assert_eq!(letters, [(7, 3), (8, 4)]);
        assert!(exchange.collect(1, all).letters.is_empty());
        assert!(exchange.collect(0, Packet::default()).letters.is_empty());
    }

    #[test]
    fn a_full_inbox_takes_no_more() {
        let exchange = Exchange::new(1);
        let big = vec![0; limits::EXCHANGE_BYTES_MAX];
        assert_eq!(exchange.post(0, &mut packet(1, &big)), 0);
        let mut more = packet(2, b"x");
        assert_eq!(exchange.post(0, &mut more), 1);
        assert!(more.letters.is_empty());
        assert_eq!(exchange.collect(0, Packet::default()).letters.len(), 1);
    }
}
