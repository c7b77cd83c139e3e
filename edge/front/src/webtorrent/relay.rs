//! State that a worker's WebSockets share: messages on their way to other workers.

use tracker::Random;

use super::letters::LetterBatch;
use super::mailboxes::{MessageBatch, WorkerLink};
use crate::clock::Sampling;

/// State that a worker's WebSockets share besides the table of connections.
pub(crate) struct Relay {
    pub(super) random: Random,
    pub(super) sampling: Sampling,
    pub(super) link: WorkerLink,
    /// Messages that wait for the next flush, by the worker that they are for.
    pub(super) outgoing: Vec<MessageBatch>,
    /// Likewise, for the few other nodes of a cluster that there are.
    pub(super) letters: Vec<LetterBatch>,
}

impl Relay {
    pub(crate) fn new(random: Random, link: WorkerLink) -> Self {
        let outgoing = (0..link.mailboxes.workers()).map(|_| MessageBatch::default()).collect();
        Self { random, sampling: Sampling::default(), link, outgoing, letters: Vec::new() }
    }

    /// The number of this worker.
    pub(crate) fn worker_number(&self) -> usize {
        self.link.worker
    }

    /// The number of this node; 0 outside clusters.
    pub(crate) fn node(&self) -> u8 {
        self.link.node()
    }

    /// Returns true if messages wait for another worker or node.
    pub(crate) fn has_messages(&self) -> bool {
        self.outgoing.iter().any(|batch| !batch.is_empty())
            || self.letters.iter().any(|batch| !batch.letters.is_empty())
    }

    /// Returns the batch in which letters for a node wait.
    pub(super) fn letters_for(&mut self, node: u8) -> &mut LetterBatch {
        let at = match self.letters.iter().position(|batch| batch.node == node) {
            Some(at) => at,
            None => {
                self.letters.push(LetterBatch { node, ..LetterBatch::default() });
                self.letters.len() - 1
            }
        };
        &mut self.letters[at]
    }
}
