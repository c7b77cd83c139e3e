//! The way of a node's own blocks: live once, and to the log until they are stored in order.
//!
//! Plain form: publish each block, and publish it again if it is not acknowledged. Departures:
//! 1. Go-back-N. What is published again is the oldest block that is not stored **and all that followed**, so
//!    the last copies of a node's blocks are in the stream in the order in which they were cut. A late copy of
//!    one block alone would undo what later ones said, at every node.
//! 2. Blocks that wait are bounded. When there are too many, they are dropped, and a walk over the peers that
//!    announced since follows when the log acknowledges again. What a walk cannot say is kept apart.

mod kept;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::inbound::late::TELL_AGAIN_MS;
use crate::seam::{Output, Time};
use crate::snapshot::OutboundState;
use kept::Kept;
use replication::block::{self, Header, Kind};

/// Blocks that are published and not acknowledged, at most: at 20 blocks a second, what a stream that stalls
/// for seconds leaves behind.
const IN_FLIGHT_BLOCKS: usize = 256;
/// Bytes of them. A stream that takes 100 MB/s acknowledges within 80 ms.
const IN_FLIGHT_BYTES: usize = 8 << 20;
/// A stream that acknowledges nothing for so long may have lost everything.
const ACK_WAIT_MS: u64 = 2000;
/// Acknowledgements overtake each other in the client by less than this.
const HOLE_WAIT_MS: u64 = 200;
/// The oldest block is published again after this time, and after twice as long each time, while nothing is
/// acknowledged. A stream without a leader gets one within some seconds.
const PROBE_MS: u64 = 250;
const PROBE_MS_MAX: u64 = 1000;
/// A block that is not stored after these times goes out live once more: nodes that changed their server may
/// have missed it, and do not find it in the log yet. Servers need seconds to find each other again.
const REPEAT_MS: [u64; 2] = [3000, 6000];
/// Bytes of blocks that are repeated in a tick: 20 MB/s.
const REPEAT_BYTES: usize = 2 << 20;
/// Bytes per second of walks that catch up: a sixth of a network of 1 Gbit/s.
const WALK_BYTES_PER_S: u64 = 20 << 20;
/// From when the log is applied until a walk begins: the threads that merge are behind by less.
pub(crate) const MERGE_WAIT_MS: u64 = 1000;
/// A walk makes up for no longer pauses than this.
const WALK_PAUSE_MS: u64 = 200;

/// A block that is not stored.
#[derive(Debug)]
struct Queued {
    block: Arc<[u8]>,
    number: u64,
    /// When it came, by the steady clock.
    since_ms: u64,
    /// Where the stream has stored it.
    stored: Option<u64>,
}

/// Only the oldest block is published, until the stream acknowledges it.
#[derive(Debug)]
struct Probe {
    /// The tickets of its copies. Empty at first.
    tickets: std::ops::Range<u64>,
    published_ms: u64,
    wait_ms: u64,
    /// Where the first copy was stored. The last one may follow.
    stored: Option<u64>,
}

/// A walk for what was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchUp {
    /// It has not begun.
    Waiting,
    /// It is under way; when it was last asked for more.
    Walking { asked_ms: u64 },
    /// It has ended; the number of its last block.
    Ended { number: u64 },
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutboundCounts {
    pub(crate) cut_blocks: u64,
    pub(crate) logged_blocks: u64,
    pub(crate) logged_bytes: u64,
    pub(crate) stored_blocks: u64,
    pub(crate) go_backs: u64,
    pub(crate) spills: u64,
    pub(crate) walks: u64,
}

/// The way of a node's own blocks.
#[derive(Debug)]
pub(crate) struct Outbound {
    node: u8,
    boot: u64,
    bytes_max: usize,
    lifetime_ms: u64,
    /// The number of the last block.
    number: u64,
    /// The last ticket.
    ticket: u64,
    /// Whether anything may be published.
    is_open: bool,
    /// Whether walks may begin.
    may_walk: bool,
    /// Blocks that are not stored, oldest first. The first ones are in flight.
    ring: VecDeque<Queued>,
    bytes: usize,
    in_flight: usize,
    in_flight_bytes: usize,
    /// The numbers of the last blocks that went out live a second time and a third time.
    repeated: [u64; REPEAT_MS.len()],
    /// When a block was last stored, or published while none was in flight.
    progress_ms: u64,
    /// Since when a later block than the oldest is stored.
    hole_ms: Option<u64>,
    probe: Option<Probe>,
    /// Where the last block was stored.
    sequence: u64,
    /// Whether blocks are dropped. The ring has at most a block that serves as probe.
    is_spilled: bool,
    kept: Kept,
    /// Since when changes are in no block, by the steady clock: perhaps before it began.
    dirty_ms: Option<i64>,
    /// The same for what a walk under way may have missed.
    dirty_again_ms: Option<i64>,
    catch_up: CatchUp,
    /// Where the last block that came late to the log is stored, until it is applied here: a walk that began before might
    /// tell of peers that went meanwhile elsewhere. 0 if there is none.
    late_sequence: u64,
    /// When walks may begin after that, by the steady clock.
    walk_ms: u64,
    counts: OutboundCounts,
}

impl Outbound {
    pub(crate) fn new(node: u8, boot: u64, bytes_max: usize, lifetime_s: u32) -> Self {
        Self {
            node,
            boot,
            bytes_max,
            lifetime_ms: u64::from(lifetime_s) * 1000,
            number: 0,
            ticket: 0,
            is_open: false,
            may_walk: false,
            ring: VecDeque::new(),
            bytes: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            repeated: [0; REPEAT_MS.len()],
            progress_ms: 0,
            hole_ms: None,
            probe: None,
            sequence: 0,
            is_spilled: false,
            kept: Kept::default(),
            dirty_ms: None,
            dirty_again_ms: None,
            catch_up: CatchUp::Waiting,
            late_sequence: 0,
            walk_ms: 0,
            counts: OutboundCounts::default(),
        }
    }

    /// Takes a block of this node. `is_live`: whether it goes out live, too.
    pub(crate) fn push(
        &mut self,
        now: Time,
        block: &block::Block<'_>,
        is_live: bool,
        out: &mut Vec<Output>,
    ) {
        let block::Block { header, body } = *block;
        let block = self.cut(&header, body);
        if is_live && self.is_open {
            out.push(Output::PublishLive { block: Arc::clone(&block) });
        }
        self.enqueue(now, block, out);
    }

    /// Writes a block with the node's own number and the next number of a block.
    fn cut(&mut self, header: &Header, body: &[u8]) -> Arc<[u8]> {
        self.number += 1;
        self.counts.cut_blocks += 1;
        let (node, boot) = (self.node.into(), self.boot);
        let header = Header { node, boot, number: self.number, ..*header };
        let mut bytes = Vec::with_capacity(block::HEADER_LEN + body.len());
        block::write(&header, body, &mut bytes);
        bytes.into()
    }

    fn enqueue(&mut self, now: Time, block: Arc<[u8]>, out: &mut Vec<Output>) {
        if !self.is_spilled && self.bytes + block.len() > self.bytes_max {
            self.spill(now);
        }
        if self.is_spilled {
            self.soil(now.steady_ms as i64);
            self.kept.absorb(&block);
            return;
        }
        self.kept.correct(&block);
        self.append(now, block);
        self.pump(now, out);
    }

    fn append(&mut self, now: Time, block: Arc<[u8]>) {
        self.bytes += block.len();
        let (number, since_ms) = (self.number, now.steady_ms);
        self.ring.push_back(Queued { block, number, since_ms, stored: None });
    }

    /// Notes that changes since then are in no block.
    fn soil(&mut self, since_ms: i64) {
        self.dirty_ms = Some(self.dirty_ms.unwrap_or(since_ms).min(since_ms));
    }

    /// Drops all that waits.
    fn spill(&mut self, now: Time) {
        self.counts.spills += 1;
        self.is_spilled = true;
        for queued in std::mem::take(&mut self.ring) {
            self.soil(queued.since_ms as i64);
            self.kept.absorb(&queued.block);
        }
        self.bytes = 0;
        self.restart_walk();
        self.fall_back(now);
    }

    /// Notes that changes since `since_ms` are in no block, and only a walk can tell them.
    pub(crate) fn missed(&mut self, since_ms: i64) {
        if let CatchUp::Walking { .. } = self.catch_up {
            self.dirty_again_ms = Some(self.dirty_again_ms.unwrap_or(since_ms).min(since_ms));
        } else {
            self.soil(since_ms);
            self.catch_up = CatchUp::Waiting;
        }
    }

    /// The walk under way, if there is one, begins again.
    fn restart_walk(&mut self) {
        if let Some(again_ms) = self.dirty_again_ms.take() {
            self.soil(again_ms);
        }
        self.catch_up = CatchUp::Waiting;
    }

    /// Notes whether anything may be published. What is in flight is lost if not.
    pub(crate) fn set_open(&mut self, now: Time, is_open: bool, out: &mut Vec<Output>) {
        if self.is_open != is_open {
            self.is_open = is_open;
            self.fall_back(now);
            self.pump(now, out);
        }
    }

    /// Notes that the stream counts from 1 again.
    pub(crate) fn begin_stream(&mut self) {
        (self.sequence, self.late_sequence) = (0, 0);
    }

    /// Notes up to where the log is applied here.
    pub(crate) fn applied(&mut self, now: Time, sequence: u64) {
        if self.late_sequence > 0 && sequence >= self.late_sequence {
            self.late_sequence = 0;
            self.walk_ms = now.steady_ms + MERGE_WAIT_MS;
        }
    }

    /// Notes that this node was apart from the others since `since_ms`, and has just applied what they told meanwhile: it
    /// tells of the peers that it knows since.
    pub(crate) fn was_apart(&mut self, now: Time, since_ms: u64) {
        self.missed(since_ms as i64);
        self.walk_ms = now.steady_ms + MERGE_WAIT_MS;
    }

    /// Lets walks begin from now on.
    pub(crate) fn allow_walks(&mut self) {
        self.may_walk = true;
    }

    /// Goes back to the oldest block that is not stored. It is published alone until it is stored.
    fn fall_back(&mut self, now: Time) {
        (self.in_flight, self.in_flight_bytes, self.hole_ms) = (0, 0, None);
        self.ring.iter_mut().for_each(|queued| queued.stored = None);
        let tickets = self.ticket + 1..self.ticket + 1;
        self.probe = Some(Probe { tickets, published_ms: now.steady_ms, wait_ms: 0, stored: None });
    }

    fn go_back(&mut self, now: Time, out: &mut Vec<Output>) {
        self.counts.go_backs += 1;
        self.fall_back(now);
        self.pump(now, out);
    }

    /// Publishes what may be in flight.
    fn pump(&mut self, now: Time, out: &mut Vec<Output>) {
        if !self.is_open {
            return;
        }
        if self.probe.is_some() {
            self.pump_probe(now, out);
            return;
        }
        while let Some(queued) = self.ring.get(self.in_flight)
            && self.in_flight < IN_FLIGHT_BLOCKS
            && (self.in_flight == 0 || self.in_flight_bytes + queued.block.len() <= IN_FLIGHT_BYTES)
        {
            if self.in_flight == 0 {
                self.progress_ms = now.steady_ms;
            }
            let block = Arc::clone(&queued.block);
            self.in_flight += 1;
            self.in_flight_bytes += block.len();
            self.publish(block, out);
        }
    }

    fn pump_probe(&mut self, now: Time, out: &mut Vec<Output>) {
        if self.ring.is_empty() && self.is_spilled {
            // Something has to be acknowledged before the walk begins.
            let block = self.cut(&changes_at(now.unix_ms), &[]);
            self.append(now, block);
        }
        let Some(probe) = &mut self.probe else { return };
        let Some(oldest) = self.ring.front() else {
            // Nothing waits, so whatever comes next is the probe.
            return;
        };
        if probe.stored.is_some() || now.steady_ms < probe.published_ms + probe.wait_ms {
            return;
        }
        probe.published_ms = now.steady_ms;
        probe.wait_ms = (probe.wait_ms * 2).clamp(PROBE_MS, PROBE_MS_MAX);
        probe.tickets.end += 1;
        let block = Arc::clone(&oldest.block);
        self.publish(block, out);
    }

    fn publish(&mut self, block: Arc<[u8]>, out: &mut Vec<Output>) {
        self.ticket += 1;
        self.counts.logged_blocks += 1;
        self.counts.logged_bytes += block.len() as u64;
        out.push(Output::PublishLog { ticket: self.ticket, block });
    }

    /// The stream has stored the message with `ticket` at `sequence`.
    pub(crate) fn stored(&mut self, now: Time, ticket: u64, sequence: u64, out: &mut Vec<Output>) {
        if let Some(probe) = &mut self.probe {
            if probe.tickets.contains(&ticket) {
                probe.stored = Some(probe.stored.unwrap_or(0).max(sequence));
                if ticket + 1 == probe.tickets.end {
                    self.end_probe(now, out);
                }
            }
            return;
        }
        let Some(at) = self.flying(ticket) else { return };
        self.ring[at].stored = Some(sequence);
        while self.in_flight > 0
            && let Some(sequence) = self.ring.front().and_then(|oldest| oldest.stored)
        {
            if sequence <= self.sequence {
                // It was stored before the one that precedes it.
                self.go_back(now, out);
                return;
            }
            self.pop(now, sequence);
        }
        let has_hole = self.ring.iter().take(self.in_flight).any(|queued| queued.stored.is_some());
        self.hole_ms = has_hole.then(|| self.hole_ms.unwrap_or(now.steady_ms));
        self.pump(now, out);
    }

    /// Returns where in the ring the message with a ticket is, if it is in flight.
    fn flying(&self, ticket: u64) -> Option<usize> {
        let first = self.ticket + 1 - self.in_flight as u64;
        let at = ticket.checked_sub(first)? as usize;
        (at < self.in_flight).then_some(at)
    }

    /// Removes the oldest block, which is stored.
    fn pop(&mut self, now: Time, sequence: u64) {
        let Some(oldest) = self.ring.pop_front() else { return };
        self.bytes -= oldest.block.len();
        if self.in_flight > 0 {
            self.in_flight -= 1;
            self.in_flight_bytes -= oldest.block.len();
        }
        self.counts.stored_blocks += 1;
        (self.sequence, self.progress_ms) = (sequence, now.steady_ms);
        if now.steady_ms >= oldest.since_ms + TELL_AGAIN_MS {
            // Nodes that may have forgotten who went meanwhile do not add its peers.
            self.missed(oldest.since_ms as i64);
            self.late_sequence = sequence;
        }
        self.end_catch_up();
    }

    /// The oldest block is stored, and no other copy of it follows: all others may go.
    fn end_probe(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(sequence) = self.probe.take().and_then(|probe| probe.stored) else { return };
        self.pop(now, sequence);
        self.is_spilled = false;
        if self.dirty_ms.is_some() {
            self.late_sequence = sequence;
        }
        self.pump(now, out);
    }

    /// The message with `ticket` was refused, or there was no answer.
    pub(crate) fn not_stored(&mut self, now: Time, ticket: u64, out: &mut Vec<Output>) {
        if self.probe.is_none() && self.flying(ticket).is_some() {
            self.go_back(now, out);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        if !self.is_open {
            return;
        }
        if let Some(probe) = &self.probe {
            if probe.stored.is_some() && now.steady_ms >= probe.published_ms + ACK_WAIT_MS {
                // The last copy is lost.
                self.end_probe(now, out);
            } else {
                self.pump(now, out);
            }
        } else if self.in_flight > 0 {
            let is_late = now.steady_ms >= self.progress_ms + ACK_WAIT_MS;
            if is_late || self.hole_ms.is_some_and(|since| now.steady_ms >= since + HOLE_WAIT_MS) {
                self.go_back(now, out);
            }
        }
        self.repeat(now, out);
        self.catch_up(now, out);
    }

    /// Publishes blocks live once more that have not been stored in time.
    fn repeat(&mut self, now: Time, out: &mut Vec<Output>) {
        let mut left = REPEAT_BYTES;
        let mut last = 0;
        for (after_ms, repeated) in REPEAT_MS.iter().zip(&mut self.repeated).rev() {
            // Once is enough for a block that should have gone out twice while there was no connection.
            *repeated = last.max(*repeated);
            let first = self.ring.partition_point(|queued| queued.number <= *repeated);
            for queued in self.ring.range(first..) {
                if now.steady_ms < queued.since_ms + after_ms || left == 0 {
                    break;
                }
                left = left.saturating_sub(queued.block.len());
                *repeated = queued.number;
                out.push(Output::PublishLive { block: Arc::clone(&queued.block) });
            }
            last = *repeated;
        }
    }

    /// Tells the others what was dropped: first what was kept, then a walk, at a bounded rate.
    fn catch_up(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(dirty_ms) = self.dirty_ms else { return };
        let has_applied = self.late_sequence == 0 && now.steady_ms >= self.walk_ms;
        if !self.may_walk || !self.is_open || self.is_spilled || !has_applied {
            return;
        }
        // What is in the ring at the start precedes the walk, so nothing is missed between.
        let room = (self.bytes_max / 2).saturating_sub(self.bytes);
        match self.catch_up {
            CatchUp::Waiting if self.kept.is_empty() => {
                self.counts.walks += 1;
                self.catch_up = CatchUp::Walking { asked_ms: now.steady_ms };
                let since_s = age_ms(now, dirty_ms).min(self.lifetime_ms) / 1000;
                out.push(Output::Walk { since_s: since_s as u32 + 1 });
            }
            CatchUp::Waiting if room > 0 => self.tell_kept(now, dirty_ms, out),
            CatchUp::Walking { asked_ms } if room > 0 => {
                self.catch_up = CatchUp::Walking { asked_ms: now.steady_ms };
                let pause_ms = now.steady_ms.saturating_sub(asked_ms).min(WALK_PAUSE_MS);
                let bytes = (WALK_BYTES_PER_S * pause_ms / 1000) as usize;
                out.push(Output::WalkMore { bytes: bytes.min(room) });
            }
            _ => {}
        }
    }

    fn tell_kept(&mut self, now: Time, dirty_ms: i64, out: &mut Vec<Output>) {
        let [completed, gone] = self.kept.take_some(now.unix_ms);
        // Completed downloads have no age. What the walk says of their peers is to be younger, but neither
        // may others drop the block because it is too old.
        let completed_ms =
            now.unix_ms - age_ms(now, dirty_ms).min(self.lifetime_ms / 2).min(now.unix_ms);
        for (cut_ms, body) in [(completed_ms, completed), (now.unix_ms, gone)] {
            if !body.is_empty() {
                let block = self.cut(&changes_at(cut_ms), &body);
                self.enqueue(now, block, out);
            }
        }
    }

    /// The walk has ended.
    pub(crate) fn walk_ended(&mut self) {
        if let CatchUp::Walking { .. } = self.catch_up {
            self.catch_up = CatchUp::Ended { number: self.number };
            self.end_catch_up();
        }
    }

    /// Once the last block of the walk is stored, nothing is dirty any more.
    fn end_catch_up(&mut self) {
        let CatchUp::Ended { number } = self.catch_up else { return };
        if self.ring.front().is_none_or(|oldest| oldest.number > number) {
            self.dirty_ms = self.dirty_again_ms.take();
            self.catch_up = CatchUp::Waiting;
        }
    }

    /// Returns what becomes of blocks.
    pub(crate) fn state(&self) -> OutboundState {
        if self.is_spilled {
            OutboundState::Spilled
        } else if !self.is_open || (self.probe.is_some() && !self.ring.is_empty()) {
            OutboundState::Held
        } else if self.dirty_ms.is_some() {
            OutboundState::CatchingUp
        } else {
            OutboundState::Flowing
        }
    }

    /// Returns the number of the last block.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns where the last block that is stored in order is stored.
    pub(crate) fn stored_sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the age of the oldest block that is not stored, and of the oldest change that is in no block;
    /// 0 if there is none.
    pub(crate) fn ages_ms(&self, now: Time) -> [u64; 2] {
        let unstored_ms = self.ring.front().map(|oldest| oldest.since_ms as i64);
        [unstored_ms, self.dirty_ms].map(|since| since.map_or(0, |since_ms| age_ms(now, since_ms)))
    }

    /// Returns blocks that are not stored, and their bytes.
    pub(crate) fn queue(&self) -> (usize, usize) {
        (self.ring.len(), self.bytes)
    }

    pub(crate) fn counts(&self) -> OutboundCounts {
        self.counts
    }
}

/// Returns the milliseconds since a time of the steady clock.
fn age_ms(now: Time, since_ms: i64) -> u64 {
    (now.steady_ms as i64).saturating_sub(since_ms).max(0) as u64
}

/// Returns the header of a block of changes without node and number.
fn changes_at(cut_ms: u64) -> Header {
    Header { kind: Kind::CHANGES, has_ids: false, node: 0, boot: 0, number: 0, cut_ms }
}
