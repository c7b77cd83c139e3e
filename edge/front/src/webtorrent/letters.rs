//! Letters: messages between browsers whose connections are at different nodes of a cluster.
//!
//! Workers leave them in a mailbox, from which the cluster's thread takes them as bodies for other nodes, and
//! it delivers the bodies that come from there. A lost letter is lost: browsers make new offers with each
//! announce. A body has one letter after the other, numbers are little-endian:
//!
//! | bytes | letter |
//! |---|---|
//! | 8 | the connection that it is for |
//! | 1 | 0 = an offer, 1 = an answer |
//! | 8 | the offer's tag; 0 for an answer |
//! | 8 | the connection that made the offer; 0 for an answer |
//! | 4 | the network that the offer comes from; 0 for an answer |
//! | 4 | length of the text |
//! | length | the text, JSON as the browser gets it |
//!
//! Nothing of a body is trusted: it is read as a whole before any of it is delivered, its texts become frames
//! here, and a node speaks only for its own connections.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tracker::{OfferNetwork, OfferTag};
use types::{ConnectionKey, limits};
use wire::ws;

use super::mailboxes::{Content, Envelope, MessageBatch, WorkerMailboxes};

/// Letters to and from other nodes, for the cluster's thread.
pub struct RemoteLetters {
    pub(super) mailboxes: Arc<WorkerMailboxes>,
    pub(super) remote: Arc<Remote>,
}

/// Numbers of letters since the start, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LetterCounts {
    /// Letters that the cluster's thread took.
    pub sent: u64,
    /// Letters that were not sent because too many waited.
    pub unsent: u64,
    /// Letters that were written to their connections.
    pub delivered: u64,
    /// Letters for connections that are gone, or whose clients have not read earlier ones.
    pub gone: u64,
    /// Letters for a worker whose mailbox was full.
    pub mailbox_full: u64,
    /// Letters for another node, or in the name of one.
    pub misaddressed: u64,
}

/// The error of a body that is not a sequence of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLetters;

/// The cluster's part of a node's mailboxes, besides those of its workers.
pub(super) struct Remote {
    pub(super) node: u8,
    outgoing: Mutex<Outgoing>,
    arrived: Notify,
    counts: Mutex<LetterCounts>,
}

/// Letters that wait for the cluster's thread.
struct Outgoing {
    /// Bodies for each node, the oldest first.
    bodies: BTreeMap<u8, VecDeque<Body>>,
    /// The bytes of all bodies.
    bytes: usize,
    /// Bytes that may be taken as of `at`. Below 0 after a body that was larger.
    allowed: i64,
    at: Duration,
    bytes_per_s: u32,
}

#[derive(Default)]
struct Body {
    bytes: Vec<u8>,
    letters: u64,
}

/// A letter of another node.
struct Letter<'a> {
    envelope: Envelope,
    text: &'a str,
}

/// Bytes of a letter before its text.
const HEAD_LEN: usize = 33;
/// The time for which letters are gathered before they are taken.
const GATHER: Duration = Duration::from_millis(2);

impl RemoteLetters {
    /// Waits until letters may be there to be taken.
    pub async fn wait(&self) {
        self.remote.arrived.notified().await;
        sleep(GATHER).await;
    }

    /// Takes waiting letters, as far as the rate allows: for some nodes a body of at most
    /// [`limits::LETTERS_BODY_MAX`] bytes, or of one larger letter. `now` is the time since any fixed
    /// moment. Returns nothing if nothing waits, or nothing may be taken yet.
    pub fn take(&self, now: Duration) -> Vec<(u8, Vec<u8>)> {
        let remote = &self.remote;
        let mut outgoing = lock(&remote.outgoing);
        outgoing.refill(now);
        let Outgoing { bodies, bytes, allowed, .. } = &mut *outgoing;
        let mut taken = Vec::new();
        for (node, waiting) in bodies.iter_mut() {
            if *allowed > 0
                && let Some(body) = waiting.pop_front()
            {
                *bytes -= body.bytes.len();
                *allowed -= body.bytes.len() as i64;
                remote.count(|counts| counts.sent += body.letters);
                taken.push((*node, body.bytes));
            }
        }
        bodies.retain(|_, waiting| !waiting.is_empty());
        if !bodies.is_empty() {
            remote.arrived.notify_one();
        }
        taken
    }

    /// Delivers a body of the node `from` to the connections that it is for.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is malformed. Nothing is delivered then.
    pub fn deliver(&self, from: u8, body: &[u8]) -> Result<(), BadLetters> {
        let Self { mailboxes, remote } = self;
        let mut rest = body;
        while !rest.is_empty() {
            Letter::read(&mut rest)?;
        }
        let mut batches: BTreeMap<usize, MessageBatch> = BTreeMap::new();
        let mut rest = body;
        while let Ok(Letter { envelope, text }) = Letter::read(&mut rest) {
            let Envelope { to, content, .. } = envelope;
            let speaks_for_itself = match content {
                Content::Offer { from: connection, .. } => connection.node() == from,
                Content::Answer => true,
            };
            if to.node() != remote.node || !speaks_for_itself {
                remote.count(|counts| counts.misaddressed += 1);
            } else if to.worker() >= mailboxes.workers() {
                // A process of this node had more workers once.
                remote.count(|counts| counts.gone += 1);
            } else {
                let batch = batches.entry(to.worker()).or_default();
                batch.push(envelope, |out| ws::text(out, text));
            }
        }
        for (worker, mut batch) in batches {
            mailboxes.post(worker, &mut batch, |_| remote.count(|counts| counts.mailbox_full += 1));
        }
        Ok(())
    }

    /// Returns the numbers of letters since the start, by outcome.
    pub fn counts(&self) -> LetterCounts {
        *lock(&self.remote.counts)
    }
}

impl Remote {
    /// `bytes_per_s` limits the bytes that are taken.
    pub(super) fn new(node: u8, bytes_per_s: u32) -> Self {
        let outgoing = Outgoing {
            bodies: BTreeMap::new(),
            bytes: 0,
            allowed: bytes_per_s.into(),
            at: Duration::ZERO,
            bytes_per_s,
        };
        Self {
            node,
            outgoing: Mutex::new(outgoing),
            arrived: Notify::new(),
            counts: Mutex::default(),
        }
    }

    /// Moves a worker's messages for connections of `node` to the mailbox of the cluster's thread. Calls `lost`
    /// for each that does not fit, with the number of its sender's listener.
    pub(super) fn post(
        &self,
        node: u8,
        batch: &mut MessageBatch,
        mut lost: impl FnMut(Option<usize>),
    ) {
        let mut outgoing = lock(&self.outgoing);
        for (envelope, text) in batch.messages() {
            if !outgoing.push(node, envelope, text) {
                self.count(|counts| counts.unsent += 1);
                lost(envelope.listener);
            }
        }
        drop(outgoing);
        batch.clear();
        self.arrived.notify_one();
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut LetterCounts)) {
        count(&mut lock(&self.counts));
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Outgoing {
    /// Adds a letter. Returns false if too many bytes wait already.
    fn push(&mut self, node: u8, envelope: &Envelope, text: &[u8]) -> bool {
        let len = HEAD_LEN + text.len();
        if self.bytes + len > limits::LETTERS_BYTES_MAX {
            return false;
        }
        self.bytes += len;
        let bodies = self.bodies.entry(node).or_default();
        let fits = |body: &&mut Body| body.bytes.len() + len <= limits::LETTERS_BODY_MAX;
        let body = match bodies.back_mut().filter(fits) {
            Some(body) => body,
            None => bodies.push_back_mut(Body::default()),
        };
        let bytes = &mut body.bytes;
        bytes.extend(envelope.to.0.to_le_bytes());
        match envelope.content {
            Content::Offer { tag, from, network } => {
                bytes.push(OFFER);
                bytes.extend(tag.0.to_le_bytes());
                bytes.extend(from.0.to_le_bytes());
                bytes.extend(network.0.to_le_bytes());
            }
            Content::Answer => {
                bytes.push(ANSWER);
                bytes.extend([0; 20]);
            }
        }
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text);
        body.letters += 1;
        true
    }

    /// Adds what the time since the last call allows. A second's worth waits at most.
    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).min(Duration::from_secs(1));
        let per_s = u64::from(self.bytes_per_s);
        let more = per_s.saturating_mul(passed.as_micros() as u64) / 1_000_000;
        // Time that allows less than a byte is not lost: `at` stays.
        if more > 0 {
            self.at = now;
            self.allowed = (self.allowed + more as i64).min(per_s as i64);
        }
    }
}

const OFFER: u8 = 0;
const ANSWER: u8 = 1;

impl<'a> Letter<'a> {
    /// Reads the letter at the beginning of `rest`, and moves `rest` behind it.
    fn read(rest: &mut &'a [u8]) -> Result<Self, BadLetters> {
        let to = ConnectionKey(u64::from_le_bytes(take(rest)?));
        let [kind] = take(rest)?;
        let tag = OfferTag(u64::from_le_bytes(take(rest)?));
        let from = ConnectionKey(u64::from_le_bytes(take(rest)?));
        let network = OfferNetwork(u32::from_le_bytes(take(rest)?));
        let content = match kind {
            OFFER => Content::Offer { tag, from, network },
            ANSWER => Content::Answer,
            _ => return Err(BadLetters),
        };
        let len = u32::from_le_bytes(take(rest)?) as usize;
        if len > limits::LETTER_TEXT_MAX {
            return Err(BadLetters);
        }
        let (text, behind) = rest.split_at_checked(len).ok_or(BadLetters)?;
        *rest = behind;
        let text = str::from_utf8(text).map_err(|_| BadLetters)?;
        Ok(Self { envelope: Envelope { to, content, listener: None }, text })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], BadLetters> {
    let (taken, rest) = bytes.split_first_chunk().ok_or(BadLetters)?;
    *bytes = rest;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use super::super::WorkerLink;
    use super::*;

    const TO: ConnectionKey = ConnectionKey(2 << 56);

    /// Posts letters of `len` bytes for node 2, one by one. Returns how many do not fit.
    fn post(letters: &RemoteLetters, count: usize, len: usize) -> u64 {
        let mut lost = 0;
        for _ in 0..count {
            let mut batch = MessageBatch::default();
            let envelope = Envelope { to: TO, content: Content::Answer, listener: Some(0) };
            batch.push(envelope, |out| out.resize(out.len() + len, b'x'));
            letters.remote.post(2, &mut batch, |_| lost += 1);
        }
        lost
    }

    #[test]
    fn what_is_sent_is_bounded() {
        const LEN: usize = 60_000;
        let (_, letters) = WorkerLink::for_workers_of_node(1, 1, 100_000);
        let fits = limits::LETTERS_BYTES_MAX / (HEAD_LEN + LEN);
        assert_eq!(post(&letters, fits + 20, LEN), 20);
        assert_eq!(letters.counts().unsent, 20);
        // A body has one letter here. What a second allows may be taken at once.
        let take = |ms| letters.take(Duration::from_millis(ms)).len();
        assert_eq!([0; 4].map(take), [1, 1, 0, 0]);
        let taken: usize = (0..6000).map(take).sum();
        assert!((9..=11).contains(&taken), "{taken} in six seconds");
        // A pause allows no more.
        assert_eq!([100_000; 4].map(take), [1, 1, 0, 0]);
    }

    /// Malformed bodies are tested by the fuzzer's corpus.
    #[test]
    fn bodies_hold_many_letters() {
        let (_, letters) = WorkerLink::for_workers_of_node(1, 1, u32::MAX);
        assert_eq!(post(&letters, 900, 200), 0);
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        while letters.counts().sent < 900 {
            bodies.extend(letters.take(Duration::ZERO).into_iter().map(|(_, body)| body));
        }
        assert!(bodies.iter().all(|body| body.len() <= limits::LETTERS_BODY_MAX));
        // They are for another node: each letter of a good body is counted.
        bodies.iter().for_each(|body| letters.deliver(2, body).unwrap());
        assert_eq!(letters.counts().misaddressed, 900);
    }
}
