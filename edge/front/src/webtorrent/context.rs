//! The context in which a session serves a message: the tracker, the worker's connections, and the way
//! to those of other workers.

use std::cell::RefMut;
use std::collections::BTreeMap;

use tracker::{Random, Tracker};
use types::{ConnectionKey, Tick};
use wire::ws;

use super::mailboxes::{Content, Envelope, MessageBatch, WorkerLink};
use crate::Clock;
use crate::clock::Sampling;
use crate::connections::Connections;
use crate::worker::Worker;

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

    pub(crate) fn has_messages(&self) -> bool {
        self.outgoing.iter().chain(self.letters.values()).any(|batch| !batch.is_empty())
    }
}

/// A worker's WebTorrent side, borrowed for one step of one session.
pub(super) struct WsContext<'a> {
    pub(super) now: Tick,
    pub(super) tracker: &'a Tracker,
    pub(super) connections: RefMut<'a, Connections>,
    pub(super) clock: Clock,
    pub(super) relay: RefMut<'a, Relay>,
}

impl WsContext<'_> {
    /// Calls `step`, and wakes the task that flushes if there is output afterwards. Panics if a step
    /// is under way.
    pub(super) fn with<T>(worker: &Worker, step: impl FnOnce(&mut WsContext<'_>) -> T) -> T {
        let mut context = WsContext {
            now: worker.now(),
            tracker: &worker.tracker,
            connections: worker.connections.borrow_mut(),
            clock: worker.clock,
            relay: worker.relay.borrow_mut(),
        };
        let result = step(&mut context);
        drop(context);
        worker.notify_flush();
        result
    }

    /// Sends a message to a connection of any worker of any node, if it still exists and its client has read
    /// earlier ones.
    #[inline]
    pub(super) fn relay(&mut self, envelope: Envelope, write: impl FnOnce(&mut Vec<u8>)) {
        let Envelope { to, content, .. } = envelope;
        if to.node() != self.relay.link.node() {
            self.relay_to_node(envelope, write);
        } else if to.worker() == self.relay.link.worker {
            if self.connections.relay(self.now, to, |out| ws::text_with(out, write)) {
                self.remember_offer(to, content);
            }
        } else if let Some(batch) = self.relay.outgoing.get_mut(to.worker()) {
            batch.push(envelope, |out| ws::text_with(out, write));
        }
    }

    #[cold]
    fn relay_to_node(&mut self, envelope: Envelope, write: impl FnOnce(&mut Vec<u8>)) {
        // Outside clusters, no connection has a node.
        if self.relay.link.mailboxes.remote.is_some() {
            self.relay.letters.entry(envelope.to.node()).or_default().push(envelope, write);
        }
    }

    /// Delivers the messages of other workers and nodes.
    pub(super) fn receive(&mut self, batch: &MessageBatch) {
        for (envelope, frame) in batch.messages() {
            let write = |out: &mut Vec<u8>| out.extend_from_slice(frame);
            let is_sent = self.connections.relay(self.now, envelope.to, write);
            if is_sent {
                self.remember_offer(envelope.to, envelope.content);
            }
            if envelope.listener.is_none()
                && let Some(remote) = &self.relay.link.mailboxes.remote
            {
                remote.count(|counts| match is_sent {
                    true => counts.delivered += 1,
                    false => counts.gone += 1,
                });
            }
        }
    }

    /// Remembers an offer that was sent, so that its receiver may answer it.
    #[inline]
    fn remember_offer(&mut self, to: ConnectionKey, content: Content) {
        if let Content::Offer { tag, from, network } = content
            && let Some(offers) = self.connections.offers(to)
        {
            offers.remember(self.now, tag, from, network);
        }
    }
}
