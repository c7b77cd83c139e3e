//! Merging: reports of peers in blocks, and which of them win against what a store has.
//!
//! Of a peer's announce here and the block's, the younger one wins, and of equally old ones the one that comes later.

use types::{Role, Tick};

use crate::block::{Head, Word};
use crate::meta::{AGE_UNIT_S, PeerMeta, age_max};

/// The time of blocks on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeTime {
    /// The present tick.
    pub now: Tick,
    /// Seconds that count as passed since the block was cut.
    pub cut_ago_s: u32,
    /// Unix minutes at tick 0.
    pub epoch_min: u32,
}

/// The results of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Peers stored or renewed.
    pub peers: u64,
    /// Torrents created.
    pub torrents: u64,
    /// Peers removed, because they were gone.
    pub gone: u64,
    /// Peers skipped, because their lifetime has passed.
    pub old: u64,
    /// Peers skipped, because there is no memory for them.
    pub full: u64,
}

impl Merged {
    /// Returns the sum of two parts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            peers: self.peers + other.peers,
            torrents: self.torrents + other.torrents,
            gone: self.gone + other.gone,
            old: self.old + other.old,
            full: self.full + other.full,
        }
    }
}

/// The times of a block on the store's clock.
#[derive(Clone, Copy, Debug)]
pub struct MergeClock {
    /// The present tick.
    pub now: Tick,
    /// When the block was cut, in seconds since tick 0.
    pub(crate) cut_s: i64,
    /// Units of age between the cut and now.
    cut_age: u32,
    /// The age past which a peer is not stored.
    age_max: u32,
    /// Unix minutes at tick 0.
    epoch_min: u32,
}

/// A block's report of a peer, on the store's clock.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The reported state.
    pub word: Word,
    /// The same on the store's clock.
    pub meta: PeerMeta,
    /// Units of age between the peer's last announce and now.
    pub age: u32,
}

/// The effect of a report on a peer that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has announced since the report: it stays, with this metadata.
    Keep(PeerMeta),
    /// It takes the reported role, and this metadata.
    Replace(PeerMeta),
    /// It is removed.
    Remove,
}

impl MergeClock {
    /// Returns the times of a block for a store whose peers expire after `lifetime_s` seconds.
    pub fn new(time: MergeTime, lifetime_s: u32) -> Self {
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
    pub fn report(self, word: Word) -> Option<Report> {
        let age = self.cut_age.saturating_add(word.age());
        let is_partial = word.role() == Role::PartialSeed;
        (age <= self.age_max).then(|| Report {
            word,
            meta: PeerMeta::aged(self.now, age, word.is_counted(), is_partial),
            age,
        })
    }

    /// Compares a report with the stored peer.
    #[inline]
    pub fn judge(self, known: PeerMeta, report: &Report) -> Verdict {
        if known.age(self.now) < report.age {
            Verdict::Keep(known.or_counted(report.meta.is_counted() && !report.word.is_gone()))
        } else if report.word.is_gone() {
            Verdict::Remove
        } else {
            Verdict::Replace(report.meta.or_counted(known.is_counted()))
        }
    }

    /// Returns when a torrent's first peer came.
    pub fn born(self, head: Option<Head>) -> Tick {
        let Some(head) = head else { return self.now };
        // The end of the minute: what is stored is rounded down, and else would be again each time.
        let minutes = head.born_min.saturating_sub(self.epoch_min);
        Tick(minutes.saturating_mul(60).saturating_add(59)).min(self.now)
    }
}
