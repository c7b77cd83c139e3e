//! A node's own blocks on their way to the log.
//!
//! The log has the blocks in the order in which they were cut, and each once. That is by one message in flight: it has
//! the blocks that wait, as many as fit, and is published again under the same id until the stream has acknowledged it.
//! The stream drops what it has stored under that id, so a late copy undoes nothing that later blocks say.
//!
//! A block that is not stored in time goes out live, too: other nodes are not to wait for a stream without a leader.
//!
//! Blocks wait for [`HOLD_MS`], and are dropped then: peers that an old block reports may have gone elsewhere
//! meanwhile, and nodes remember that for a limited time. When the log acknowledges again, the node tells which of the
//! peers of dropped blocks are gone, and walks over those that announced since.
//!
//! A log that falls back to an older state has lost removals, too. A node that reads it would bring these peers back, so
//! removals are published again.

mod gone;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::seam::{Output, Time};
use crate::snapshot::SentCounts;
use crate::status::LogState;
use gone::Gone;
use replication::block::{self, Block, Header, Kind};

/// Blocks wait for the log for this long. Removals are remembered for [`swarm::REMOVALS_KEPT_S`]; the rest of that is
/// for clocks that differ, and for the time that a message is on its way.
pub(crate) const HOLD_MS: u64 = 30_000;
/// Changes are cut more often than this.
const CUT_PERIOD_MS: i64 = 1000;
/// The longest message: that of the longest block.
const MESSAGE_MAX: usize = block::HEADER_LEN + block::BODY_MAX;
/// A message that is not acknowledged is published again after this time. A stream without a leader gets one within
/// some seconds.
const RETRY_MS: u64 = 1000;
/// A block that is not stored after this time goes out live.
const OVERDUE_MS: u64 = 500;
/// Bytes of blocks that go out live in a tick: 20 MB/s.
const LIVE_BYTES: usize = 2 << 20;
/// Bytes per second of walks: a sixth of a network of 1 Gbit/s.
const WALK_BYTES_PER_S: u64 = 20 << 20;
/// A walk makes up for no longer pauses than this.
const WALK_PAUSE_MS: u64 = 200;
/// Removals that are older than a lifetime are forgotten once in this time.
const FORGET_PERIOD_MS: u64 = 16_000;

const _: () = assert!(HOLD_MS < 1000 * swarm::REMOVALS_KEPT_S as u64);

/// A block that is not stored.
#[derive(Debug)]
struct Queued {
    /// With the time by this node's wall clock.
    header: Header,
    body: Box<[u8]>,
    /// When it came, by the steady clock.
    since_ms: u64,
    /// When the first of its changes happened at the earliest: they wait to be cut, for long if the thread does.
    changed_ms: i64,
    /// Milliseconds by which the wall clock was ahead of the stream's then, if that was known.
    correction_ms: Option<i64>,
}

impl Queued {
    fn len(&self) -> usize {
        block::HEADER_LEN + self.body.len()
    }

    /// Appends the block, with the time by the stream's clock.
    fn write(&self, correction_ms: i64, out: &mut Vec<u8>) {
        let correction_ms = self.correction_ms.unwrap_or(correction_ms);
        let cut_ms = self.header.cut_ms.saturating_add_signed(-correction_ms);
        block::write(&Header { cut_ms, ..self.header }, &self.body, out);
    }
}

/// A message that is published and not acknowledged.
#[derive(Debug)]
struct InFlight {
    message: Arc<[u8]>,
    ticket: u64,
    /// The number of its last block.
    last: u64,
}

/// The way in which the others come to know what is in no block that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CatchUp {
    /// There is nothing to be told.
    #[default]
    Idle,
    /// A block with this number or a later one is to be stored: what the others have told is before it in the log.
    Marking { number: u64 },
    /// It is stored here. The log is to be applied up to there: otherwise this node tells of peers that are gone.
    Reading { sequence: u64 },
    /// The node has read up to there, and threads are applying what it read.
    Settling,
    /// The node knows what the others know. First it tells which peers of dropped blocks are gone.
    Telling,
    /// Then it walks over the peers that announced since; when the walk was last asked for more.
    Walking { asked_ms: u64 },
    /// The walk has ended; the number of its last block.
    Ended { number: u64 },
}

/// A node's own blocks on their way to the log.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    node: u8,
    boot: u64,
    bytes_max: usize,
    lifetime_ms: u64,
    /// The number of the last block.
    number: u64,
    ticket: u64,
    tick_ms: u64,
    /// True if anything may be published.
    is_open: bool,
    /// Milliseconds by which this node's wall clock is ahead of the stream's; `None` until that is known.
    correction_ms: Option<i64>,
    /// Blocks that are not stored, oldest first.
    queue: VecDeque<Queued>,
    bytes: usize,
    /// The first blocks of the queue.
    in_flight: Option<InFlight>,
    published_ms: u64,
    /// True if the last message was not acknowledged in time, or was dropped: messages follow at the pace of retries.
    is_unanswered: bool,
    /// The number of the last block that went out live.
    live: u64,
    /// Where the last message is stored.
    sequence: u64,
    /// Removals to publish, which no kept block reports.
    gone: Gone,
    /// Removals that blocks have reported within a lifetime.
    told_gone: Gone,
    forgot_ms: u64,
    /// Since when changes are in no block, by the steady clock: perhaps before it began.
    dirty_ms: Option<i64>,
    /// The same for what a walk under way may have missed.
    dirty_again_ms: Option<i64>,
    catch_up: CatchUp,
    counts: SentCounts,
}

impl Outbound {
    pub(crate) fn new(node: u8, boot: u64, bytes_max: usize, lifetime_s: u32) -> Self {
        Self {
            node,
            boot,
            bytes_max,
            lifetime_ms: u64::from(lifetime_s) * 1000,
            tick_ms: u64::MAX,
            gone: Gone::with_room(gone::DROPPED_MAX),
            told_gone: Gone::with_room(gone::STORED_MAX),
            ..Self::default()
        }
    }

    /// Notes how many milliseconds this node's wall clock is ahead of the stream's; `None` if that is not known.
    pub(crate) fn set_correction(&mut self, correction_ms: Option<i64>) {
        self.correction_ms = correction_ms;
    }

    /// Takes a block of this node. `header` has the time of its cut by this node's wall clock.
    pub(crate) fn push(&mut self, now: Time, header: &Header, body: &[u8], out: &mut Vec<Output>) {
        self.enqueue(now, header, body);
        self.publish_next(now, out);
    }

    /// Appends a block with the node's own number and the next number of a block.
    fn enqueue(&mut self, now: Time, header: &Header, body: &[u8]) {
        self.number += 1;
        self.counts.cut_blocks += 1;
        let (node, boot, number) = (self.node.into(), self.boot, self.number);
        let queued = Queued {
            header: Header { node, boot, number, ..*header },
            body: body.into(),
            since_ms: now.steady_ms,
            changed_ms: self.tick_ms.min(now.steady_ms) as i64 - CUT_PERIOD_MS,
            correction_ms: self.correction_ms,
        };
        let block = Block { header: queued.header, body };
        self.gone.correct(&block);
        self.told_gone.absorb(&block);
        self.bytes += queued.len();
        self.queue.push_back(queued);
        while self.bytes > self.bytes_max {
            self.drop_oldest();
        }
    }

    /// Drops the oldest block. Nodes learn in another way what it says; a walk under way has lost a part of it, or of what
    /// precedes it, and begins again.
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.queue.pop_front() else { return };
        self.bytes -= oldest.len();
        self.is_unanswered |= self.in_flight.take().is_some();
        self.counts.dropped_blocks += 1;
        self.gone.absorb(&Block { header: oldest.header, body: &oldest.body });
        let again_ms = self.dirty_again_ms.take().unwrap_or(i64::MAX);
        self.catch_up = CatchUp::Idle;
        self.missed(again_ms.min(oldest.changed_ms));
    }

    /// Drops what has waited for too long.
    fn drop_old(&mut self, now: Time) {
        let is_old = |oldest: &Queued| now.steady_ms >= oldest.since_ms + HOLD_MS;
        while self.queue.front().is_some_and(is_old) {
            self.drop_oldest();
        }
    }

    /// Drops all that waits, because it waited for longer than it seems.
    pub(crate) fn drop_all(&mut self) {
        while !self.queue.is_empty() {
            self.drop_oldest();
        }
    }

    /// Notes that changes since `since_ms` are in no block, and only a walk can tell them.
    pub(crate) fn missed(&mut self, since_ms: i64) {
        let is_walking = matches!(self.catch_up, CatchUp::Walking { .. });
        let dirty_ms = if is_walking { &mut self.dirty_again_ms } else { &mut self.dirty_ms };
        *dirty_ms = Some(dirty_ms.map_or(since_ms, |known| known.min(since_ms)));
        if matches!(self.catch_up, CatchUp::Idle | CatchUp::Ended { .. }) {
            self.mark();
        }
    }

    /// Notes that the log has lost removals. Publishes again all that are remembered: from when on they are lost, no one
    /// knows for sure, because the log may have stored something new before it was found to be shorter.
    pub(crate) fn lost_removals(&mut self, now: Time) {
        self.gone.add(&self.told_gone);
        self.missed(now.steady_ms as i64);
    }

    /// The next block marks a place in the log.
    fn mark(&mut self) {
        self.catch_up = CatchUp::Marking { number: self.number + 1 };
    }

    /// Notes whether anything may be published.
    pub(crate) fn set_open(&mut self, now: Time, is_open: bool, out: &mut Vec<Output>) {
        if self.is_open != is_open {
            self.is_open = is_open;
            self.publish_again(now, out);
            self.publish_next(now, out);
        }
    }

    /// Notes that the stream counts from 1 again.
    pub(crate) fn begin_stream(&mut self) {
        self.sequence = 0;
        if matches!(self.catch_up, CatchUp::Reading { .. } | CatchUp::Settling) {
            self.mark();
        }
    }

    /// Notes up to where the log is applied, apart from what threads are still applying. Returns true if
    /// [`Self::settled`] is to be called when they have.
    pub(crate) fn applied(&mut self, applied: u64) -> bool {
        let is_there =
            matches!(self.catch_up, CatchUp::Reading { sequence } if applied >= sequence);
        if is_there {
            self.catch_up = CatchUp::Settling;
        }
        is_there
    }

    /// Notes that all is applied that was read. Returns true if the node knows by that what the others know.
    pub(crate) fn settled(&mut self) -> bool {
        let is_awaited = self.catch_up == CatchUp::Settling;
        if is_awaited {
            self.catch_up = CatchUp::Telling;
        }
        is_awaited
    }

    /// Publishes the blocks that wait as one message, as many as fit, unless a message is in flight.
    fn publish_next(&mut self, now: Time, out: &mut Vec<Output>) {
        self.drop_old(now);
        if self.in_flight.is_some() || !self.is_open || self.is_stalled(now) {
            return;
        }
        let correction_ms = self.correction_ms.unwrap_or_default();
        let (mut message, mut last) = (Vec::new(), 0);
        for queued in &self.queue {
            if !message.is_empty() && message.len() + queued.len() > MESSAGE_MAX {
                break;
            }
            queued.write(correction_ms, &mut message);
            last = queued.header.number;
        }
        if message.is_empty() {
            return;
        }
        self.ticket += 1;
        self.in_flight = Some(InFlight { message: message.into(), ticket: self.ticket, last });
        self.publish(now, out);
    }

    /// Returns true while the log does not acknowledge, and a message was published less than [`RETRY_MS`] ago.
    fn is_stalled(&self, now: Time) -> bool {
        self.is_unanswered && now.steady_ms < self.published_ms + RETRY_MS
    }

    /// Publishes the message in flight again.
    fn publish_again(&mut self, now: Time, out: &mut Vec<Output>) {
        self.drop_old(now);
        if self.in_flight.is_some() && self.is_open {
            self.is_unanswered = true;
            self.counts.retries += 1;
            self.publish(now, out);
        }
    }

    fn publish(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(InFlight { message, ticket, .. }) = &self.in_flight else { return };
        self.published_ms = now.steady_ms;
        self.counts.logged_bytes += message.len() as u64;
        out.push(Output::PublishLog { ticket: *ticket, message: Arc::clone(message) });
    }

    /// The stream has stored the message with `ticket` at `sequence`, or had stored it before.
    pub(crate) fn stored(&mut self, now: Time, ticket: u64, sequence: u64, out: &mut Vec<Output>) {
        let Some(stored) = self.in_flight.take_if(|it| it.ticket == ticket) else { return };
        self.sequence = sequence;
        self.is_unanswered = false;
        let is_stored = |oldest: &mut Queued| oldest.header.number <= stored.last;
        while let Some(oldest) = self.queue.pop_front_if(is_stored) {
            self.bytes -= oldest.len();
            self.counts.stored_blocks += 1;
        }
        if matches!(self.catch_up, CatchUp::Marking { number } if stored.last >= number) {
            self.catch_up = CatchUp::Reading { sequence };
        }
        self.end_walk();
        self.publish_next(now, out);
    }

    pub(crate) fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        self.tick_ms = now.steady_ms;
        self.drop_old(now);
        if now.steady_ms >= self.forgot_ms + FORGET_PERIOD_MS {
            self.forgot_ms = now.steady_ms;
            let since_ms = now.unix_ms.saturating_sub(self.lifetime_ms);
            self.told_gone.forget_before(since_ms, now.unix_ms);
        }
        if !self.is_open {
            return;
        }
        if now.steady_ms >= self.published_ms + RETRY_MS {
            self.publish_again(now, out);
        }
        self.publish_next(now, out);
        self.publish_overdue(now, out);
        self.catch_up(now, out);
    }

    /// Publishes blocks live that are not stored in time. Walks can wait.
    fn publish_overdue(&mut self, now: Time, out: &mut Vec<Output>) {
        let correction_ms = self.correction_ms.unwrap_or_default();
        let first = self.queue.partition_point(|queued| queued.header.number <= self.live);
        let mut left = LIVE_BYTES;
        for queued in self.queue.range(first..) {
            if now.steady_ms < queued.since_ms + OVERDUE_MS || left == 0 {
                break;
            }
            self.live = queued.header.number;
            if queued.header.kind != Kind::WALK {
                left = left.saturating_sub(queued.len());
                self.counts.live_blocks += 1;
                let mut block = Vec::with_capacity(queued.len());
                queued.write(correction_ms, &mut block);
                out.push(Output::PublishLive { block: block.into() });
            }
        }
    }

    /// Tells the others what is in no block, at a bounded rate and while the log acknowledges.
    fn catch_up(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(dirty_ms) = self.dirty_ms else { return };
        let room = (self.bytes_max / 2).saturating_sub(self.bytes);
        let is_in_flight = self.is_unanswered && self.in_flight.is_some();
        if room == 0 || is_in_flight || self.is_stalled(now) {
            return;
        }
        match self.catch_up {
            CatchUp::Marking { .. } if self.queue.is_empty() => self.push_changes(now, &[], out),
            CatchUp::Telling if !self.gone.is_empty() => {
                let body = self.gone.take_some(now.unix_ms);
                self.push_changes(now, &body, out);
            }
            CatchUp::Telling => {
                self.counts.walks += 1;
                self.catch_up = CatchUp::Walking { asked_ms: now.steady_ms };
                let since_s = age_ms(now, dirty_ms).min(self.lifetime_ms) / 1000;
                out.push(Output::Walk { since_s: since_s as u32 + 1 });
            }
            CatchUp::Walking { asked_ms } => {
                self.catch_up = CatchUp::Walking { asked_ms: now.steady_ms };
                let pause_ms = now.steady_ms.saturating_sub(asked_ms).min(WALK_PAUSE_MS);
                let bytes = (WALK_BYTES_PER_S * pause_ms / 1000) as usize;
                out.push(Output::WalkMore { bytes: bytes.min(room) });
            }
            _ => {}
        }
    }

    /// Publishes a block of changes that is cut now.
    fn push_changes(&mut self, now: Time, body: &[u8], out: &mut Vec<Output>) {
        let header = Header {
            kind: Kind::CHANGES,
            has_ids: false,
            node: 0,
            boot: 0,
            number: 0,
            cut_ms: now.unix_ms,
        };
        self.push(now, &header, body, out);
    }

    pub(crate) fn walk_ended(&mut self) {
        if let CatchUp::Walking { .. } = self.catch_up {
            self.catch_up = CatchUp::Ended { number: self.number };
            self.end_walk();
        }
    }

    /// Once the last block of the walk is stored, nothing is dirty any more, unless the walk missed something.
    fn end_walk(&mut self) {
        let CatchUp::Ended { number } = self.catch_up else { return };
        if self.queue.front().is_none_or(|oldest| oldest.header.number > number) {
            self.dirty_ms = self.dirty_again_ms.take();
            self.catch_up = CatchUp::Idle;
            if self.dirty_ms.is_some() {
                self.mark();
            }
        }
    }

    /// Returns what becomes of blocks.
    pub(crate) fn state(&self) -> LogState {
        if !self.is_open || self.is_unanswered && !self.queue.is_empty() {
            LogState::Held
        } else if self.dirty_ms.is_some() {
            LogState::CatchingUp
        } else {
            LogState::Flowing
        }
    }

    /// Returns where the last message is stored; 0 if none is.
    pub(crate) fn stored_sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the age of the oldest block that is not stored, and of the oldest change that is in no block;
    /// 0 if there is none.
    pub(crate) fn ages_ms(&self, now: Time) -> [u64; 2] {
        let unstored_ms = self.queue.front().map(|oldest| oldest.since_ms as i64);
        [unstored_ms, self.dirty_ms].map(|since| since.map_or(0, |since_ms| age_ms(now, since_ms)))
    }

    /// Returns blocks that are not stored, and their bytes.
    pub(crate) fn queue(&self) -> (usize, usize) {
        (self.queue.len(), self.bytes)
    }

    pub(crate) fn counts(&self) -> SentCounts {
        self.counts
    }
}

/// Returns the milliseconds since a time of the steady clock.
fn age_ms(now: Time, since_ms: i64) -> u64 {
    (now.steady_ms as i64).saturating_sub(since_ms).max(0) as u64
}
