//! The rounds of a journal: changes as they happen, and between them a walk at an even pace.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use replication::Now;
use replication::block::Kind;
use swarm::{Encoder, Feed, Store};
use tracing::warn;

use crate::log::SegmentLog;
use crate::{Pace, SessionSource, Status};

/// Blocks of sessions in one turn.
const SESSION_BLOCKS_MAX: u32 = 32;
/// Steps of a walk in one turn. Each takes some tens of microseconds.
const STEPS_MAX: u32 = 4096;
/// The longest time that a turn makes up for after a stall.
const TURN_MAX: Duration = Duration::from_secs(2);
/// A round's last twentieth is a reserve for bytes that the estimate missed.
const SPARE: u32 = 20;
/// A round that hurries takes a thirtieth of its time.
const HURRY: u32 = 30;
/// Rounds in a row that are given up because changes were lost. A disk that never keeps up gets rounds with
/// gaps then, instead of a journal that grows without end.
const VOIDED_MAX: u32 = 3;

/// Says that a round begins or ends, in the body of its block.
const BEGIN: u64 = 0;
pub(crate) const END: u64 = 1;

/// Writes rounds until it fails.
pub(crate) struct Rounds<'a> {
    store: &'a Store,
    encoder: Encoder<'a>,
    sessions: Option<&'a mut SessionSource>,
    /// True if some of the sessions of a pass have been written, and the pass has not ended.
    is_in_pass: bool,
    log: SegmentLog,
    status: Arc<Status>,
    round: Round,
    /// Bytes that the walk may find yet; negative if it found too many.
    credit: i64,
    last: Duration,
    synced: Duration,
    /// Number of times that changes were lost since the last complete round.
    voided: u32,
}

/// A round that is being written.
struct Round {
    number: u64,
    began: Duration,
    began_ms: u64,
    segment: u64,
    /// Bytes that its walk has found.
    walked: u64,
    /// True if its walk has visited everything.
    is_walked: bool,
    /// True if it has all sessions.
    has_sessions: bool,
    /// True if there is no complete round before it.
    is_urgent: bool,
}

/// The clocks, read once for a turn, and the pace.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// The clocks of blocks.
    pub(crate) now: Now,
    /// The time since the writer began, which no setting of a clock changes.
    pub(crate) elapsed: Duration,
    pub(crate) pace: Pace,
}

impl<'a> Rounds<'a> {
    pub(crate) fn begin(
        feed: &'a Feed,
        store: &'a Store,
        mut log: SegmentLog,
        status: Arc<Status>,
        (boot, turn): (u64, Turn),
    ) -> io::Result<Self> {
        log.bytes_max = turn.pace.bytes_max;
        let encoder = Encoder::new(feed, store, boot);
        let round = Round::new(0, turn, 0);
        let (last, synced) = (turn.elapsed, turn.elapsed);
        let mut rounds = Self {
            store,
            encoder,
            sessions: None,
            is_in_pass: false,
            log,
            status,
            round,
            credit: 0,
            last,
            synced,
            voided: 0,
        };
        let begun = rounds.begin_round(turn).and_then(|()| rounds.log.sync());
        if begun.is_err() {
            // Attempts may be many.
            rounds.log.discard();
        }
        begun.map(|()| rounds)
    }

    /// Makes each round include the sessions of `source`, too.
    pub(crate) fn set_sessions(&mut self, source: Option<&'a mut SessionSource>) {
        self.sessions = source;
    }

    /// Ends the present round as soon as possible: there is no complete one.
    pub(crate) fn hurry(&mut self) {
        self.round.is_urgent = true;
    }

    /// Does the work for the time since the last turn: writes the changes and a part of the walk.
    pub(crate) fn turn(&mut self, turn: Turn) -> io::Result<()> {
        self.log.bytes_max = turn.pace.bytes_max;
        let missed = self.write_changes(turn.now)?;
        self.note_missed(turn, missed)?;
        let is_hurried = self.is_hurried(turn.pace);
        self.walk(turn, is_hurried)?;
        let is_over = self.elapsed(turn) >= turn.pace.round || is_hurried;
        if self.round.is_walked && is_over {
            // Last, so that they are not old.
            self.write_sessions(turn.now, SESSION_BLOCKS_MAX, false)?;
        }
        if self.round.has_sessions {
            self.end_round(turn)?;
        }
        self.log.write()?;
        self.status.update(|figures| figures.written_ms = Some(turn.now.unix_ms));
        let since_sync = turn.elapsed.saturating_sub(self.synced);
        if !turn.pace.sync.is_zero() && since_sync >= turn.pace.sync {
            self.log.sync()?;
            self.synced = turn.elapsed;
        }
        Ok(())
    }

    /// Returns true if changes come so fast that the next turn must be soon.
    pub(crate) fn is_pressed(&self) -> bool {
        self.encoder.is_pressed()
    }

    /// Writes the last changes, and waits until the disk has them.
    pub(crate) fn finish(mut self, now: Now) -> io::Result<()> {
        self.write_changes(now)?;
        // First the rest of a pass that has begun, then a whole pass, because nothing changes any more.
        if self.is_in_pass {
            self.write_sessions(now, u32::MAX, false)?;
        }
        self.write_sessions(now, u32::MAX, true)?;
        self.log.sync()?;
        self.status.update(|figures| figures.written_ms = Some(now.unix_ms));
        Ok(())
    }

    /// Writes up to `blocks_max` blocks of sessions, unless the pass over them ends before.
    fn write_sessions(&mut self, now: Now, blocks_max: u32, is_last: bool) -> io::Result<()> {
        let Self { sessions, encoder, log, .. } = self;
        let sink = &mut |kind: Kind, block: &[u8]| log.append(now, kind, block);
        let mut body = Vec::new();
        for _ in 0..blocks_max {
            let has_more = sessions.as_mut().is_some_and(|source| source(now, is_last, &mut body));
            self.is_in_pass = has_more;
            if !has_more {
                self.round.has_sessions = true;
                break;
            }
            encoder.block(now, Kind::SESSIONS, &body, sink)?;
            body.clear();
        }
        Ok(())
    }

    fn write_changes(&mut self, now: Now) -> io::Result<u64> {
        let log = &mut self.log;
        self.encoder.changes(now, &mut |kind, block| log.append(now, kind, block))
    }

    fn elapsed(&self, turn: Turn) -> Duration {
        turn.elapsed.saturating_sub(self.round.began)
    }

    /// Advances the walk by this turn's share of the bytes of a round.
    fn walk(&mut self, turn: Turn, is_hurried: bool) -> io::Result<()> {
        let time = turn.elapsed.saturating_sub(self.last).min(TURN_MAX);
        self.last = turn.elapsed;
        if self.round.is_walked {
            return Ok(());
        }
        let round = if is_hurried { turn.pace.round / HURRY } else { turn.pace.round };
        let time_left = round.saturating_sub(self.elapsed(turn)).max(round / SPARE);
        let expected = self.store.walk_bytes();
        let bytes_left = expected.saturating_sub(self.round.walked).max(expected / 50 + 4096);
        let share = time.as_secs_f64() / time_left.as_secs_f64().max(1e-3);
        self.credit = self.credit.saturating_add((bytes_left as f64 * share) as i64);
        let mut missed = 0;
        let log = &mut self.log;
        let sink = &mut |kind: Kind, block: &[u8]| log.append(turn.now, kind, block);
        for _ in 0..STEPS_MAX {
            if self.credit <= 0 {
                break;
            }
            let step = self.encoder.step(turn.now, sink)?;
            self.round.walked += step.bytes;
            self.credit -= step.bytes as i64;
            missed += step.missed;
            if step.is_complete {
                self.round.is_walked = true;
                self.credit = 0;
                break;
            }
        }
        self.encoder.flush_walk(sink)?;
        self.note_missed(turn, missed)
    }

    /// Returns true if the round is urgent, or about to take more than its half of the bound: two rounds must
    /// have room. Hurrying is useless where even the walks of two rounds hardly have room.
    fn is_hurried(&self, pace: Pace) -> bool {
        let walk = self.store.walk_bytes();
        let bytes_left = walk.saturating_sub(self.round.walked);
        let round = self.log.bytes_from(self.round.segment) + bytes_left;
        let is_long = has_room_for_two(walk, pace) && round > pace.bytes_max / 20 * 9;
        self.round.is_urgent || is_long
    }

    /// Abandons the round if changes were lost: the written state of their torrents may be wrong.
    fn note_missed(&mut self, turn: Turn, missed: u64) -> io::Result<()> {
        if missed == 0 {
            return Ok(());
        }
        self.status.update(|figures| figures.missed += missed);
        self.voided += 1;
        if self.voided > VOIDED_MAX + 1 {
            return Ok(());
        }
        if self.voided > VOIDED_MAX {
            warn!(
                missed,
                "the disk is too slow for the journal of swarms: changes are missing in it"
            );
            return Ok(());
        }
        warn!(missed, "the disk was too slow for the journal of swarms: beginning its round anew");
        self.status.update(|figures| figures.voided_rounds += 1);
        self.begin_round(turn)
    }

    fn begin_round(&mut self, turn: Turn) -> io::Result<()> {
        self.encoder.restart_walk();
        self.credit = 0;
        self.write_mark(turn.now, self.round.number + 1, BEGIN)?;
        // The log may have begun another segment for the mark.
        self.round = Round::new(self.round.number + 1, turn, self.log.segment());
        Ok(())
    }

    fn end_round(&mut self, turn: Turn) -> io::Result<()> {
        self.write_mark(turn.now, self.round.number, END)?;
        self.log.complete_round(turn.now, self.round.segment)?;
        self.synced = turn.elapsed;
        self.voided = 0;
        self.status.update(|figures| figures.round_began_ms = Some(self.round.began_ms));
        self.begin_round(turn)
    }

    fn write_mark(&mut self, now: Now, number: u64, mark: u64) -> io::Result<()> {
        let body = [number.to_le_bytes(), mark.to_le_bytes()];
        let log = &mut self.log;
        let sink = &mut |kind: Kind, block: &[u8]| log.append(now, kind, block);
        self.encoder.block(now, Kind::ROUND, body.as_flattened(), sink)
    }
}

/// Returns true if two rounds, with walks of `walk_bytes` each, and their changes fit within the bound.
pub(crate) fn has_room_for_two(walk_bytes: u64, pace: Pace) -> bool {
    walk_bytes < pace.bytes_max / 5 * 2
}

impl Round {
    fn new(number: u64, turn: Turn, segment: u64) -> Self {
        let (began, began_ms) = (turn.elapsed, turn.now.unix_ms);
        Self {
            number,
            began,
            began_ms,
            segment,
            walked: 0,
            is_walked: false,
            has_sessions: false,
            is_urgent: false,
        }
    }
}
