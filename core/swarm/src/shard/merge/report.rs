//! Reports of peers in blocks, and their effects.

use types::{Role, Tick};

use crate::MergeTime;
use crate::block::{Head, Word};
use crate::meta::{AGE_UNIT_S, PeerMeta, age_max};
use crate::role::SetRole;

/// Marks of a block on the store's clock.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) now: Tick,
    /// When the block was cut, in seconds since tick 0.
    pub(super) cut_s: i64,
    /// Units of age between the cut and now.
    pub(super) cut_age: u32,
    /// The age past which a peer is not stored.
    pub(super) age_max: u32,
    /// Unix minutes at tick 0.
    pub(super) epoch_min: u32,
}

/// A block's report of a peer, on the store's clock.
#[derive(Clone, Copy)]
pub(super) struct Report {
    pub(super) word: Word,
    pub(super) meta: PeerMeta,
    /// Its age.
    pub(super) age: u32,
    /// The set that the peer belongs to.
    pub(super) role: SetRole,
    pub(super) is_gone: bool,
    pub(super) is_completed: bool,
}

/// The effect of a report on a peer that is known.
pub(super) enum Verdict {
    /// Its mark is younger than the report.
    Keep(PeerMeta),
    Replace(PeerMeta),
    Remove,
}

/// The outcome of a report for its peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is gone, and was not there.
    Unknown,
    /// There is no memory for it.
    Full,
    /// Its host or network has as many younger peers as a cap allows.
    Crowded,
    Removed,
    /// It is as it was. `was_counted`: its download was counted before.
    Kept {
        was_counted: bool,
    },
    Stored {
        was_counted: bool,
    },
}

impl Clock {
    pub(super) fn new(time: MergeTime, lifetime_s: u32) -> Self {
        let MergeTime { now, cut_ago_s, epoch_min } = time;
        // The cut may be before tick 0.
        let cut_s = i64::from(now.0) - i64::from(cut_ago_s);
        let cut_unit = cut_s.div_euclid(AGE_UNIT_S.into());
        let cut_age = i64::from(now.0 / AGE_UNIT_S) - cut_unit;
        let cut_age = u32::try_from(cut_age).unwrap_or(u32::MAX);
        Self { now, cut_s, cut_age, age_max: age_max(lifetime_s), epoch_min }
    }

    /// Returns a word's report; `None` if its peer's lifetime has passed.
    #[inline]
    pub(super) fn report(self, word: Word) -> Option<Report> {
        let age = self.cut_age.saturating_add(word.age());
        let role = word.role();
        let is_partial = role == Role::PartialSeed;
        (age <= self.age_max).then(|| Report {
            word,
            meta: PeerMeta::aged(self.now, age, word.is_counted(), is_partial),
            age,
            role: role.into(),
            is_gone: word.is_gone(),
            is_completed: word.is_completed(),
        })
    }

    /// Compares a report with the stored peer.
    #[inline]
    pub(super) fn judge(self, known: PeerMeta, report: &Report) -> Verdict {
        if known.age(self.now) < report.age {
            Verdict::Keep(known.or_counted(report.meta.is_counted() && !report.is_gone))
        } else if report.is_gone {
            Verdict::Remove
        } else {
            Verdict::Replace(report.meta.or_counted(known.is_counted()))
        }
    }

    /// Returns when a torrent's first peer came.
    pub(super) fn born(self, head: Option<Head>) -> Tick {
        let Some(head) = head else { return self.now };
        // The end of the minute: what is stored is rounded down, and else would be again each time.
        let minutes = head.born_min.saturating_sub(self.epoch_min);
        Tick(minutes.saturating_mul(60).saturating_add(59)).min(self.now)
    }
}

impl Outcome {
    /// Returns true if the peer is there and its download was not counted before.
    #[inline]
    pub(super) fn is_uncounted(self) -> bool {
        matches!(self, Self::Kept { was_counted: false } | Self::Stored { was_counted: false })
    }
}
