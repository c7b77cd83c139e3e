//! State that a worker's WebSockets share: messages on their way to other workers.

use std::collections::BTreeMap;

use tracker::Random;

use super::mailboxes::{MessageBatch, WorkerLink};
use crate::clock::Sampling;

/// State that a worker's WebSockets share besides the table of connections.
pub(crate) struct Relay {
    pub(super) random: Random,
    pub(super) sampling: Sampling,
    pub(crate) link: WorkerLink,
    /// Messages that wait for the next flush, by the worker that they are for.
    pub(super) outgoing: Vec<MessageBatch>,
    /// Likewise, for the few other nodes of a cluster that there are.
    pub(super) letters: BTreeMap<u8, MessageBatch>,
}

impl Relay {
    pub(crate) fn new(random: Random, link: WorkerLink) -> Self {
        let outgoing = (0..link.mailboxes.workers()).map(|_| MessageBatch::default()).collect();
        Self { random, sampling: Sampling::default(), link, outgoing, letters: BTreeMap::new() }
    }

    /// Returns true if messages wait for another worker or node.
    pub(crate) fn has_messages(&self) -> bool {
        self.outgoing.iter().chain(self.letters.values()).any(|batch| !batch.is_empty())
    }
}
