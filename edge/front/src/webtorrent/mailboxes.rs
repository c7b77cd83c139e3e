//! Frames for connections that another worker holds.
//!
//! Plain form: a locked queue and a notification for each worker. Departure: a worker gathers all
//! messages that one turn of the reactor brings for another worker, and takes the lock once for them.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tracker::OfferTag;
use types::{ConnectionKey, limits};

/// The mailboxes of all workers of a process.
pub(super) struct WorkerMailboxes(Box<[Mailbox]>);

/// Connects a worker with the other workers of its process.
#[derive(Clone)]
pub struct WorkerLink {
    /// The number of this worker.
    pub(super) worker: usize,
    pub(super) mailboxes: Arc<WorkerMailboxes>,
}

impl WorkerLink {
    /// Returns one link for each of `count` workers.
    pub fn for_workers(count: usize) -> Vec<Self> {
        let mailboxes = Arc::new(WorkerMailboxes::new(count));
        (0..count).map(|worker| Self { worker, mailboxes: Arc::clone(&mailboxes) }).collect()
    }
}

#[derive(Default)]
struct Mailbox {
    batch: Mutex<MessageBatch>,
    arrived: Notify,
}

/// Messages for the connections of one worker.
#[derive(Default)]
pub(super) struct MessageBatch {
    /// The frames of all messages, one after the other.
    pub(super) frames: Vec<u8>,
    pub(super) envelopes: Vec<Envelope>,
}

/// What is known of a message besides its frame.
pub(super) struct Envelope {
    pub(super) to: ConnectionKey,
    pub(super) content: Content,
    /// The length of the frame, in bytes.
    pub(super) len: usize,
    /// The number of the sender's listener, under which a lost message is counted.
    pub(super) listener: usize,
}

/// What a message is.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// An offer that `from` made. An answer must carry the tag.
    Offer { tag: OfferTag, from: ConnectionKey },
    /// An answer.
    Answer,
}

impl WorkerMailboxes {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mailbox::default()).collect())
    }

    pub(super) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Moves the messages of `batch` to a worker's mailbox. If the mailbox is full, because the worker
    /// is too busy to empty it, drops the batch, and calls `lost` for each message with the number of
    /// its sender's listener.
    pub(super) fn post(&self, worker: usize, batch: &mut MessageBatch, lost: impl FnMut(usize)) {
        let Some(mailbox) = self.0.get(worker) else { return };
        let mut waiting = mailbox.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = waiting.frames.len() + batch.frames.len() <= limits::EXCHANGE_BYTES_MAX;
        if waiting.is_empty() {
            std::mem::swap(&mut *waiting, batch);
        } else if fits {
            waiting.frames.append(&mut batch.frames);
            waiting.envelopes.append(&mut batch.envelopes);
        }
        drop(waiting);
        // What has been moved is no longer in the batch.
        batch.envelopes.iter().map(|envelope| envelope.listener).for_each(lost);
        batch.clear();
        mailbox.arrived.notify_one();
    }

    /// Waits until something is in a worker's mailbox.
    pub(super) async fn arrived(&self, worker: usize) {
        match self.0.get(worker) {
            Some(mailbox) => mailbox.arrived.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Takes the messages of a worker's mailbox, and leaves it the memory of `empty`.
    pub(super) fn collect(&self, worker: usize, mut empty: MessageBatch) -> MessageBatch {
        empty.clear();
        let Some(mailbox) = self.0.get(worker) else { return empty };
        let mut waiting = mailbox.batch.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *waiting, empty)
    }
}

/// Memory above this is freed when a batch is cleared.
const KEPT_BYTES: usize = 1 << 20;

impl MessageBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.envelopes.is_empty()
    }

    fn clear(&mut self) {
        if self.frames.capacity() > KEPT_BYTES {
            drop(take(self));
        }
        self.frames.clear();
        self.envelopes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(to: u64, frame: &[u8]) -> MessageBatch {
        let envelope = Envelope {
            to: ConnectionKey(to),
            content: Content::Answer,
            len: frame.len(),
            listener: to as usize,
        };
        MessageBatch { frames: frame.to_vec(), envelopes: vec![envelope] }
    }

    fn post(mailboxes: &WorkerMailboxes, worker: usize, batch: &mut MessageBatch) -> Vec<usize> {
        let mut lost = Vec::new();
        mailboxes.post(worker, batch, |listener| lost.push(listener));
        lost
    }

    #[test]
    fn messages_arrive_in_order_and_once() {
        let mailboxes = WorkerMailboxes::new(2);
        assert!(post(&mailboxes, 1, &mut batch(7, b"one")).is_empty());
        assert!(post(&mailboxes, 1, &mut batch(8, b"two!")).is_empty());
        let all = mailboxes.collect(1, MessageBatch::default());
        assert_eq!(all.frames, b"onetwo!");
        let envelopes: Vec<_> = all.envelopes.iter().map(|one| (one.to.0, one.len)).collect();
        assert_eq!(envelopes, [(7, 3), (8, 4)]);
        assert!(mailboxes.collect(1, all).is_empty());
        assert!(mailboxes.collect(0, MessageBatch::default()).is_empty());
    }

    #[test]
    fn full_mailbox_reports_each_lost_message() {
        let mailboxes = WorkerMailboxes::new(1);
        let big = vec![0; limits::EXCHANGE_BYTES_MAX];
        assert!(post(&mailboxes, 0, &mut batch(1, &big)).is_empty());
        let mut more = batch(2, b"x");
        more.envelopes.extend(batch(3, b"").envelopes);
        assert_eq!(post(&mailboxes, 0, &mut more), [2, 3]);
        assert!(more.is_empty());
        assert_eq!(mailboxes.collect(0, MessageBatch::default()).envelopes.len(), 1);
    }
}
