//! What a worker's WebSockets share: messages on their way to other workers.

use tracker::Random;

use super::mailboxes::{MessageBatch, WorkerLink};
use crate::clock::Sampling;

/// What a worker's WebSockets share besides the table of connections.
pub(crate) struct Relay {
    pub(super) random: Random,
    pub(super) sampling: Sampling,
    pub(super) link: WorkerLink,
    /// Messages that wait for the next flush, by the worker that they are for.
    pub(super) outgoing: Vec<MessageBatch>,
}

impl Relay {
    pub(crate) fn new(random: Random, link: WorkerLink) -> Self {
        let outgoing = (0..link.mailboxes.workers()).map(|_| MessageBatch::default()).collect();
        Self { random, sampling: Sampling::default(), link, outgoing }
    }

    /// The number of this worker.
    pub(crate) fn worker_number(&self) -> usize {
        self.link.worker
    }

    /// Whether messages wait for another worker.
    pub(crate) fn has_messages(&self) -> bool {
        self.outgoing.iter().any(|batch| !batch.is_empty())
    }
}
