//! Bounds lines of the same kind: those of one place in the program. There are only so many places, so
//! the memory for them is bounded, too.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;

use crate::config::Repeat;

/// Characters of an example.
const EXAMPLE_MAX: usize = 300;

/// What was written of each kind.
pub(super) struct Repeats {
    pub(super) rule: Repeat,
    kinds: HashMap<Identifier, Kind>,
}

struct Kind {
    metadata: &'static Metadata<'static>,
    since: Instant,
    told: u32,
    left_out: u64,
    example: String,
}

/// Whether a line is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Tell,
    /// One too many; the first of them may serve as an example.
    LeaveOut {
        is_first: bool,
    },
}

/// What was not written of a kind.
pub(super) struct LeftOut {
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) count: u64,
    pub(super) time_s: u64,
    pub(super) example: String,
}

impl Repeats {
    pub(super) fn new(rule: Repeat) -> Self {
        Self { rule, kinds: HashMap::new() }
    }

    /// Counts a line.
    pub(super) fn judge(&mut self, metadata: &'static Metadata<'static>, now: Instant) -> Verdict {
        let Repeat { lines_max, interval_s } = self.rule;
        if lines_max == 0 {
            return Verdict::Tell;
        }
        let fresh = || Kind { metadata, since: now, told: 0, left_out: 0, example: String::new() };
        let kind = self.kinds.entry(metadata.callsite()).or_insert_with(fresh);
        // What was left out is told before another interval begins.
        if kind.left_out == 0 && now.duration_since(kind.since) >= seconds(interval_s) {
            (kind.since, kind.told) = (now, 0);
        }
        if kind.told < lines_max {
            kind.told += 1;
            return Verdict::Tell;
        }
        kind.left_out += 1;
        Verdict::LeaveOut { is_first: kind.left_out == 1 }
    }

    /// Keeps a line as an example of those that are left out.
    pub(super) fn keep(&mut self, metadata: &Metadata<'_>, mut text: String) {
        text.truncate(text.floor_char_boundary(EXAMPLE_MAX));
        if let Some(kind) = self.kinds.get_mut(&metadata.callsite()) {
            kind.example = text;
        }
    }

    /// What was left out of kinds whose interval is over, or of all: another one begins for them.
    pub(super) fn take_left_out(&mut self, now: Instant, all: bool) -> Vec<LeftOut> {
        let interval = seconds(self.rule.interval_s);
        let is_due = |kind: &&mut Kind| {
            kind.left_out > 0 && (all || now.duration_since(kind.since) >= interval)
        };
        let take = |kind: &mut Kind| {
            let time_s = now.duration_since(kind.since).as_secs();
            let (count, example) = (kind.left_out, std::mem::take(&mut kind.example));
            (kind.since, kind.told, kind.left_out) = (now, 0, 0);
            LeftOut { metadata: kind.metadata, count, time_s, example }
        };
        self.kinds.values_mut().filter(is_due).map(take).collect()
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

#[cfg(test)]
mod tests {
    use tracing::callsite::Callsite;

    use super::*;

    #[test]
    fn so_many_of_a_kind_and_then_how_many_more() {
        let kind = |which| match which {
            0 => tracing::callsite!(name: "a", kind: tracing::metadata::Kind::EVENT, fields: )
                .metadata(),
            _ => tracing::callsite!(name: "b", kind: tracing::metadata::Kind::EVENT, fields: )
                .metadata(),
        };
        let mut repeats = Repeats::new(Repeat { lines_max: 3, interval_s: 10 });
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        for _ in 0..3 {
            assert_eq!(repeats.judge(kind(0), at(0)), Verdict::Tell);
        }
        assert_eq!(repeats.judge(kind(0), at(1)), Verdict::LeaveOut { is_first: true });
        repeats.keep(kind(0), "é".repeat(EXAMPLE_MAX));
        assert_eq!(repeats.judge(kind(0), at(2)), Verdict::LeaveOut { is_first: false });
        // Others are none of its business.
        assert_eq!(repeats.judge(kind(1), at(2)), Verdict::Tell);
        assert!(repeats.take_left_out(at(9), false).is_empty());
        // It is told of even if more comes in between.
        assert_eq!(repeats.judge(kind(0), at(12)), Verdict::LeaveOut { is_first: false });
        let told = repeats.take_left_out(at(13), false);
        let [one] = &told[..] else { panic!("one kind") };
        assert_eq!((one.count, one.time_s), (3, 13));
        assert!(one.example.starts_with('é') && one.example.len() <= EXAMPLE_MAX);
        assert_eq!(repeats.judge(kind(0), at(13)), Verdict::Tell);
        // Who keeps within the bound is never spoken of.
        for second in (20..100).step_by(5) {
            assert_eq!(repeats.judge(kind(1), at(second)), Verdict::Tell);
        }
        assert!(repeats.take_left_out(at(100), true).is_empty());
        // The end waits for no interval.
        let four = [(); 4].map(|()| repeats.judge(kind(1), at(200)));
        assert_eq!(four[3], Verdict::LeaveOut { is_first: true });
        assert_eq!(repeats.take_left_out(at(200), true).len(), 1);
    }

    #[test]
    fn nothing_is_bounded_where_nothing_is_to_be() {
        let kind = tracing::callsite!(name: "c", kind: tracing::metadata::Kind::EVENT, fields: )
            .metadata();
        let mut repeats = Repeats::new(Repeat { lines_max: 0, interval_s: 10 });
        let now = Instant::now();
        assert!((0..1000).all(|_| repeats.judge(kind, now) == Verdict::Tell));
    }
}
