//! The stream of an upgrade: the old process sends what it has to the new one, as a journal would hold it.
//!
//! ```text
//! walk, and changes as they happen │ end of round 1 │ changes │ last changes, walk, sessions │ end of round 2
//!  the old process serves          │  both serve             │  the new process serves
//! ```
//!
//! The stream consists of blocks. The end of round 1 says that the new process has everything; the end of
//! round 2 that nothing follows. Kinds that the receiver does not know are skipped.
//!
//! Peers that only announced again after the first walk are no changes. The second walk says when they did:
//! else they would seem to be silent since the announce before, and expire early.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use primitives::Random;
use replication::block::{BODY_LEN_AT, Block, BlockError, HEADER_LEN, Kind};
use replication::{AGE_UNIT_S, Clocks, Merged, Now, ReplayClock};
use swarm::{BlockSink, Encoder, Store};

/// Interval at which changes are sent after the walk. A peer that stops at one process and comes to the other within
/// this time may be forgotten.
const CHANGES_PERIOD: Duration = Duration::from_millis(20);
/// Blocks are merged within seconds, whatever the wall clock does meanwhile.
const CUT_AGO_S_MAX: u32 = 300;
/// The rounds whose ends are milestones.
const WALKED: u64 = 1;
const COMPLETE: u64 = 2;
const ROUND_END: u64 = 1;

/// Orders to the sender while it sends.
#[derive(Debug, Default)]
pub struct SendOrders {
    finish: AtomicBool,
    cancel: AtomicBool,
}

impl SendOrders {
    /// Nothing changes any more: the sender sends the last changes and sessions, and returns.
    pub fn finish(&self) {
        self.finish.store(true, Ordering::Release);
    }

    /// The sender returns as soon as it does not wait for the receiver. Shut the stream down as well.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Release);
    }

    fn check(&self) -> io::Result<()> {
        if self.cancel.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, "the upgrade was cancelled"));
        }
        Ok(())
    }
}

/// Appends the next sessions to a body; returns false if there are no more.
pub type NextSessions<'a> = dyn FnMut(Now, &mut Vec<u8>) -> bool + 'a;

/// Sends all that `encoder` gives to `stream`: a walk at full speed, then changes until `orders` say that
/// nothing changes any more, then another walk and sessions. Returns how many bytes that were.
///
/// If changes are lost because the receiver is slow, another walk follows.
///
/// # Errors
///
/// If the stream ends early, or `orders` cancel it.
pub fn send(
    mut stream: impl Write,
    mut encoder: Encoder<'_>,
    clocks: &Clocks,
    orders: &SendOrders,
    sessions: &mut NextSessions<'_>,
) -> io::Result<u64> {
    let mut bytes = 0;
    let sink: &mut BlockSink<'_> = &mut |_, block| {
        orders.check()?;
        bytes += block.len() as u64;
        stream.write_all(block)
    };
    walk(&mut encoder, clocks, sink)?;
    encoder.block(clocks(), Kind::ROUND, &round_end(WALKED), sink)?;
    loop {
        // Read before the changes: then these are the last ones.
        let is_last = orders.finish.load(Ordering::Acquire);
        if encoder.changes(clocks(), sink)? > 0 {
            walk(&mut encoder, clocks, sink)?;
        }
        if is_last {
            break;
        }
        std::thread::sleep(CHANGES_PERIOD);
        orders.check()?;
    }
    walk(&mut encoder, clocks, sink)?;
    let mut body = Vec::new();
    loop {
        let now = clocks();
        if !sessions(now, &mut body) {
            break;
        }
        encoder.block(now, Kind::SESSIONS, &body, sink)?;
        body.clear();
    }
    encoder.block(clocks(), Kind::ROUND, &round_end(COMPLETE), sink)?;
    Ok(bytes)
}

/// Walks over everything, from the beginning again if changes are lost meanwhile.
fn walk(encoder: &mut Encoder<'_>, clocks: &Clocks, sink: &mut BlockSink<'_>) -> io::Result<()> {
    encoder.restart_walk();
    loop {
        let step = encoder.step(clocks(), sink)?;
        if step.missed > 0 {
            encoder.restart_walk();
        } else if step.is_complete {
            return Ok(());
        }
    }
}

fn round_end(number: u64) -> [u8; 16] {
    let mut body = [0; 16];
    let (round, which) = body.split_at_mut(8);
    round.copy_from_slice(&number.to_le_bytes());
    which.copy_from_slice(&ROUND_END.to_le_bytes());
    body
}

/// The progress of a received stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// The store has everything that the sender's has, but for changes that follow.
    Walked,
    /// Nothing follows.
    Complete,
}

/// Receives a stream.
pub struct Receiver<R> {
    stream: R,
    random: Random,
    block: Vec<u8>,
    merged: Merged,
    bytes: u64,
    /// True if the first walk is complete.
    is_walked: bool,
}

/// Takes the sessions of a block: seconds that count as passed since it was cut, and its body.
pub type TakeSessions<'a> = dyn FnMut(u32, &[u8]) + 'a;

impl<R: Read> Receiver<R> {
    /// Returns a receiver of `stream`. `seed` is for samples.
    pub fn new(stream: R, seed: u64) -> Self {
        Self {
            stream,
            random: Random::new(seed),
            block: Vec::new(),
            merged: Merged::default(),
            bytes: 0,
            is_walked: false,
        }
    }

    /// Merges what comes into `store`, until the next milestone. Needs the memory of one block.
    ///
    /// # Errors
    ///
    /// If the stream ends before, or holds anything but blocks. What came before is merged.
    pub fn receive(
        &mut self,
        store: &Store,
        clocks: &Clocks,
        sessions: &mut TakeSessions<'_>,
    ) -> Result<Milestone, StreamError> {
        loop {
            self.read_block()?;
            let (block, _) = Block::read(&self.block)?;
            let now = clocks();
            let clock = ReplayClock::new(now).at_most(CUT_AGO_S_MAX);
            match block.header.kind {
                kind @ (Kind::CHANGES | Kind::WALK) => {
                    // A peer that has announced here since, perhaps in another role, stays so even within the
                    // precision of ages.
                    let is_repeated = self.is_walked && kind == Kind::WALK;
                    let clock = if is_repeated { clock.older_by(AGE_UNIT_S) } else { clock };
                    let time = clock.time(now, block.header.cut_ms);
                    let all = 0..store.shards();
                    let merged = store.merge(time, &mut self.random, block.groups()?, all);
                    self.merged = self.merged.plus(merged);
                }
                Kind::SESSIONS => {
                    sessions(clock.time(now, block.header.cut_ms).cut_ago_s, block.body);
                }
                Kind::ROUND if block.body == round_end(WALKED) => {
                    self.is_walked = true;
                    return Ok(Milestone::Walked);
                }
                Kind::ROUND if block.body == round_end(COMPLETE) => return Ok(Milestone::Complete),
                _ => {}
            }
        }
    }

    /// Returns what has been merged.
    pub fn merged(&self) -> Merged {
        self.merged
    }

    /// Returns how many bytes have been received.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_block(&mut self) -> Result<(), StreamError> {
        let mut header = [0; HEADER_LEN];
        self.stream.read_exact(&mut header)?;
        // Checks all but the checksum, which needs the body.
        match Block::read(&header) {
            Ok(_) | Err(BlockError::Truncated | BlockError::Damaged) => {}
            Err(error) => return Err(error.into()),
        }
        let len =
            header.get(BODY_LEN_AT..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        let len = u32::from_le_bytes(len) as usize;
        self.block.clear();
        self.block.extend_from_slice(&header);
        self.block.resize(HEADER_LEN + len, 0);
        let body = self.block.get_mut(HEADER_LEN..).unwrap_or_default();
        self.stream.read_exact(body)?;
        self.bytes += self.block.len() as u64;
        Ok(())
    }
}

/// Why a stream was not received to its end.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// It ended, or nothing came for too long.
    #[error("the stream of swarms ended early: {0}")]
    Ended(#[from] io::Error),
    /// It holds something else than blocks.
    #[error("the stream of swarms is damaged: {0:?}")]
    Damaged(BlockError),
}

impl From<BlockError> for StreamError {
    fn from(error: BlockError) -> Self {
        Self::Damaged(error)
    }
}
