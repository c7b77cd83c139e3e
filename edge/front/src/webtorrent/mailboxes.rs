//! Frames for connections that another worker holds.
//!
//! Plain form: a locked queue and a notification for each worker. Departure: a worker gathers all
//! messages that one turn of the reactor brings for another worker, and takes the lock once for them.

use std::mem::{replace, swap, take};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tracker::{OfferNetwork, OfferTag};
use types::{ConnectionKey, limits};

use super::letters::{Remote, RemoteLetters, lock};

/// The mailboxes of all workers of a process.
pub(super) struct WorkerMailboxes {
    mailboxes: Box<[Mailbox]>,
    /// In a cluster.
    pub(super) remote: Option<Arc<Remote>>,
}

/// Connects a worker with the other workers of its process.
#[derive(Clone)]
pub struct WorkerLink {
    pub(crate) worker: usize,
    pub(super) mailboxes: Arc<WorkerMailboxes>,
}

impl WorkerLink {
    /// Returns one link for each of `count` workers.
    pub fn for_workers(count: usize) -> Vec<Self> {
        Self::all(&Arc::new(WorkerMailboxes::new(count, None)))
    }

    /// Returns one link for each of `count` workers of the node `node` of a cluster, and what connects them
    /// with the workers of other nodes. At most `bytes_per_s` go there.
    pub fn for_workers_of_node(
        count: usize,
        node: u8,
        bytes_per_s: u32,
    ) -> (Vec<Self>, RemoteLetters) {
        let remote = Arc::new(Remote::new(node, bytes_per_s));
        let mailboxes = Arc::new(WorkerMailboxes::new(count, Some(Arc::clone(&remote))));
        (Self::all(&mailboxes), RemoteLetters { mailboxes, remote })
    }

    fn all(mailboxes: &Arc<WorkerMailboxes>) -> Vec<Self> {
        let link = |worker| Self { worker, mailboxes: Arc::clone(mailboxes) };
        (0..mailboxes.workers()).map(link).collect()
    }

    fn mailbox(&self) -> &Mailbox {
        &self.mailboxes.mailboxes[self.worker]
    }

    pub(super) async fn arrived(&self) {
        self.mailbox().arrived.notified().await;
    }

    /// Takes the messages of this worker's mailbox, and leaves it the memory of `empty`.
    pub(super) fn collect(&self, mut empty: MessageBatch) -> MessageBatch {
        empty.clear();
        replace(&mut *lock(&self.mailbox().batch), empty)
    }

    /// Returns the number of this node; 0 outside clusters.
    pub(crate) fn node(&self) -> u8 {
        self.mailboxes.remote.as_ref().map_or(0, |remote| remote.node)
    }
}

#[derive(Default)]
struct Mailbox {
    batch: Mutex<MessageBatch>,
    arrived: Notify,
}

/// Messages for the connections of one worker or node.
#[derive(Default)]
pub(super) struct MessageBatch {
    /// The frames of all messages, one after the other. Of messages for another node, the texts.
    frames: Vec<u8>,
    /// The envelope of each message, and the length of its frame.
    envelopes: Vec<(Envelope, usize)>,
}

/// The data of a message besides its frame.
#[derive(Clone, Copy)]
pub(super) struct Envelope {
    pub(super) to: ConnectionKey,
    pub(super) content: Content,
    /// The number of the sender's listener, under which a lost message is counted. `None` if it came from
    /// another node.
    pub(super) listener: Option<usize>,
}

/// The kind of a message, and its data if it is an offer.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// An offer that `from`, in `network`, made. An answer must carry the tag.
    Offer { tag: OfferTag, from: ConnectionKey, network: OfferNetwork },
    /// An answer.
    Answer,
}

impl WorkerMailboxes {
    fn new(workers: usize, remote: Option<Arc<Remote>>) -> Self {
        Self { mailboxes: (0..workers).map(|_| Mailbox::default()).collect(), remote }
    }

    pub(super) fn workers(&self) -> usize {
        self.mailboxes.len()
    }

    /// Moves the messages of `batch` to a worker's mailbox. If the mailbox is full, because the worker
    /// is too busy to empty it, drops the batch, and calls `lost` for each message with the number of
    /// its sender's listener.
    pub(super) fn post(
        &self,
        worker: usize,
        batch: &mut MessageBatch,
        lost: impl FnMut(Option<usize>),
    ) {
        let Some(mailbox) = self.mailboxes.get(worker) else { return };
        let mut waiting = lock(&mailbox.batch);
        let fits = waiting.frames.len() + batch.frames.len() <= limits::EXCHANGE_BYTES_MAX;
        if waiting.is_empty() {
            swap(&mut *waiting, batch);
        } else if fits {
            waiting.frames.append(&mut batch.frames);
            waiting.envelopes.append(&mut batch.envelopes);
        }
        drop(waiting);
        // Messages that have been moved are no longer in the batch.
        batch.envelopes.iter().map(|(envelope, _)| envelope.listener).for_each(lost);
        batch.clear();
        mailbox.arrived.notify_one();
    }
}

/// Memory above this is freed when a batch is cleared.
const KEPT_BYTES: usize = 1 << 20;

impl MessageBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.envelopes.is_empty()
    }

    /// Adds a message. `write` appends its frame, or its text.
    pub(super) fn push(&mut self, envelope: Envelope, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.frames.len();
        write(&mut self.frames);
        self.envelopes.push((envelope, self.frames.len() - start));
    }

    /// Returns the messages in order, each with its frame or text.
    pub(super) fn messages(&self) -> impl Iterator<Item = (&Envelope, &[u8])> {
        let mut frames = self.frames.as_slice();
        self.envelopes.iter().map(move |(envelope, len)| {
            let (frame, rest) = frames.split_at(*len);
            frames = rest;
            (envelope, frame)
        })
    }

    pub(super) fn clear(&mut self) {
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

    fn push(batch: &mut MessageBatch, listener: usize, len: usize) {
        let envelope =
            Envelope { to: ConnectionKey(0), content: Content::Answer, listener: Some(listener) };
        batch.push(envelope, |out| out.resize(out.len() + len, b'x'));
    }

    #[test]
    fn full_mailbox_reports_each_lost_message() {
        let link = WorkerLink::for_workers(1).remove(0);
        let post = |batch: &mut MessageBatch| {
            let mut lost = Vec::new();
            link.mailboxes.post(0, batch, |listener| lost.extend(listener));
            lost
        };
        let mut batch = MessageBatch::default();
        push(&mut batch, 1, limits::EXCHANGE_BYTES_MAX);
        assert!(post(&mut batch).is_empty());
        push(&mut batch, 2, 1);
        push(&mut batch, 3, 0);
        assert_eq!(post(&mut batch), [2, 3]);
        assert!(batch.is_empty());
        assert_eq!(link.collect(batch).envelopes.len(), 1);
    }
}
