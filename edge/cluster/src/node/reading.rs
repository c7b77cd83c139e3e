//! Reading the log: where a node begins, when it has read what was there, and what it does if the log is another one.

use super::{Node, Time};
use crate::host::Position;
use crate::outbound::HOLD_MS;
use crate::seam::{Output, Start};

/// Time before the known end of a journal or a stream from which messages may be missing, milliseconds: clocks
/// differ, and blocks wait for the log.
const MARGIN_MS: u64 = 120_000;
/// A server that was cut off says for some 10 s that the stream ends earlier than it does. One that says so for
/// longer is right.
const DOUBT_MS: u64 = 30_000;

/// The messages that a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    /// 0 = it has none.
    pub(super) last: u64,
    /// When the last one was stored.
    pub(super) last_ms: u64,
}

/// A stream that says that it ends before the last message that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shorter {
    /// Since when, by the steady clock.
    since_ms: u64,
    /// When its last message was stored then. Later ones are new, and may have the sequences of those that were lost.
    last_ms: u64,
}

/// The node's progress in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    /// It has not been looked up.
    Unknown,
    /// It has been looked up, and is read once heartbeats have been collected.
    Waiting(Extent),
    /// It is read, and was applied up to `until` when everything is known.
    Behind { until: u64 },
    /// It was applied up to where it ended once.
    Current,
}

impl Node {
    pub(super) fn looked_up(
        &mut self,
        now: Time,
        stream: u64,
        extent: Extent,
        out: &mut Vec<Output>,
    ) {
        if self.position.stream != stream {
            let was_read = matches!(self.reading, ReadState::Current | ReadState::Behind { .. });
            self.position = Position { stream, sequence: 0 };
            self.stored_sequence = 0;
            self.shorter = None;
            self.outbound.begin_stream();
            if was_read {
                out.push(Output::warning("the log was made anew"));
                // Nodes that start later find all peers in it, and what journals do not know.
                self.outbound.lost_removals(now);
                if self.members.is_first() {
                    self.outbound.missed(now.steady_ms as i64 - self.lifetime_ms() as i64);
                }
            }
        }
        if let Some(cut_ms) = self.cut_ms.take().filter(|at_ms| now.steady_ms >= at_ms + HOLD_MS) {
            self.fall_behind(cut_ms as i64, out);
        }
        self.log_last = extent.last;
        self.looked_up_last = extent.last;
        self.reading = ReadState::Waiting(extent);
    }

    /// Begins to read the log.
    pub(super) fn read(&mut self, now: Time, extent: Extent, out: &mut Vec<Output>) {
        let Extent { first, last, last_ms } = extent;
        let applied = self.position.sequence;
        // Of an empty stream, too, the end is known.
        let is_shorter = applied > last.max(first.saturating_sub(1));
        let found_now = Shorter { since_ms: now.steady_ms, last_ms };
        let shorter = is_shorter.then(|| self.shorter.unwrap_or(found_now));
        self.shorter = shorter;
        let is_certain = |it: &Shorter| now.steady_ms >= it.since_ms + DOUBT_MS;
        let start = if let Some(shorter) = shorter.filter(is_certain) {
            self.lose_end(now, shorter.last_ms, out)
        } else if applied > 0 {
            let lost = first.saturating_sub(applied + 1);
            if lost > 0 {
                let text =
                    format!("the log has dropped {lost} messages that were not applied here");
                out.push(Output::warning(text));
            }
            // Once more the last one, to see whether it is the same.
            Start::Sequence(applied)
        } else {
            self.first_start(now)
        };
        if let Start::Time(at_ms) = start
            && last_ms < at_ms
        {
            // There is nothing so late.
            self.position.sequence = last;
        }
        out.push(Output::Read(start));
        self.reading = ReadState::Behind { until: last };
        self.check_current(out);
    }

    /// Returns where this process begins to read the log.
    fn first_start(&self, now: Time) -> Start {
        let Some(restored_ms) = self.options.restored_ms.filter(|_| self.stored_ms == 0) else {
            return Start::First;
        };
        if restored_ms > now.unix_ms || self.clock.is_wrong(now) {
            // This clock is wrong, or was. What was restored may have been taken for too old, or for younger than
            // it is.
            return Start::First;
        }
        Start::Time(restored_ms.saturating_sub(MARGIN_MS))
    }

    /// The stream has lost its end, and its sequences name other messages now: what was stored after `left_ms`, a time of
    /// the stream, may be gone. Returns where to read. What came before is not to be read again: a peer that is gone by
    /// what was lost would come back. What this node had stored may not have been read by others.
    pub(super) fn lose_end(&mut self, now: Time, left_ms: u64, out: &mut Vec<Output>) -> Start {
        out.push(Output::warning("the log has lost its end"));
        self.position.sequence = 0;
        self.stored_sequence = 0;
        self.shorter = None;
        self.outbound.begin_stream();
        let lost_ms = self.clock.stream_time(now).unix_ms.saturating_sub(left_ms);
        self.outbound.missed(now.steady_ms as i64 - lost_ms.min(self.lifetime_ms()) as i64);
        self.outbound.lost_removals(now);
        Start::Time(self.stored_ms + 1)
    }

    /// Notes whether the log is applied up to where it ended when it was looked up.
    pub(super) fn check_current(&mut self, out: &mut Vec<Output>) {
        if let ReadState::Behind { until } = self.reading
            && self.position.sequence >= until
        {
            self.reading = ReadState::Current;
            self.settle(out);
        }
    }

    /// The node has decided on the blocks up to here; threads are still applying them.
    pub(super) fn settle(&mut self, out: &mut Vec<Output>) {
        self.settling += 1;
        out.push(Output::Settle);
    }

    /// All blocks are applied that were read by some time.
    pub(super) fn settled(&mut self, now: Time, out: &mut Vec<Output>) {
        self.settling = self.settling.saturating_sub(1);
        if self.settling > 0 || self.reading != ReadState::Current {
            // More was read since, or is to be read.
            return;
        }
        if self.outbound.settled() && std::mem::take(&mut self.is_behind) {
            out.push(Output::Behind(false));
        }
        let restored_ms = self.options.restored_ms.take();
        // With a wrong clock, what this node takes for young is not to be told.
        if let Some(restored_ms) = restored_ms.filter(|_| !self.clock.is_wrong(now)) {
            // This process has all that the one before it knew, but the others may lack the last changes of that one.
            let since_ms = match self.own_cut_ms {
                0 => restored_ms.min(now.unix_ms.saturating_sub(self.lifetime_ms())),
                cut_ms => cut_ms.saturating_sub(MARGIN_MS),
            };
            let age_ms = now.unix_ms.saturating_sub(since_ms).min(self.lifetime_ms());
            self.outbound.missed(now.steady_ms as i64 - age_ms as i64);
        }
        if self.warm_ms.is_none() {
            let started_ms = self.started_ms.unwrap_or(now.steady_ms);
            let warm_ms = now.steady_ms.saturating_sub(started_ms);
            self.warm_ms = Some(warm_ms);
            let seconds = warm_ms as f64 / 1000.0;
            out.push(Output::info(format!("warm after {seconds:.1} s")));
        }
    }
}
