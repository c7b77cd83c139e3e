//! The journal of swarms, in `[state]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use net::process::memory_bytes;
use types::limits;

use super::keys::Sections;
use super::{interval_jitter_s, memory_budget, peer_lifetime_s};

const DIRECTORY: &str = "swarms";
/// Seconds by which a client may be late, beyond its interval.
const LATE_S: u32 = 120;
/// The shortest round, seconds.
pub(super) const ROUND_S_MIN: u32 = 60;

/// The journal of swarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmsConfig {
    /// Its directory.
    pub dir: PathBuf,
    /// Duration of a round.
    pub round: Duration,
    /// Period of syncing the journal to the disk. Zero = never.
    pub sync: Duration,
    /// The most bytes on the disk. 0 = unlimited.
    pub bytes_max: u64,
    /// Longest time that the start waits for peers to be restored.
    pub restore_wait: Duration,
    /// True if restored peers may expire between two announces: their lifetime is too short for any round.
    pub is_lifetime_short: bool,
}

impl SwarmsConfig {
    /// Returns the directory of the journal in `state_dir`.
    pub fn directory(state_dir: &Path) -> PathBuf {
        state_dir.join(DIRECTORY)
    }

    /// Returns the journal, unless it is off.
    ///
    /// A restored age is up to a round too old. A round is short enough if a restored client comes back
    /// before its peer expires nevertheless. A longer one is shortened to that.
    pub(super) fn from_sections(sections: &Sections) -> Option<Self> {
        let Sections { state, tracker, limits, .. } = sections;
        let place = state.place().filter(|_| state.swarms.value)?;
        let round = &state.swarms_round_s;
        let interval_s = tracker.interval_s.value + interval_jitter_s(tracker);
        let spare_s = peer_lifetime_s(tracker).saturating_sub(interval_s + LATE_S);
        let is_lifetime_short = spare_s < ROUND_S_MIN;
        let round_s_max = spare_s.max(ROUND_S_MIN);
        Some(Self {
            dir: Self::directory(place),
            round: Duration::from_secs(round.value.min(round_s_max).into()),
            sync: Duration::from_secs(state.swarms_sync_s.value.into()),
            bytes_max: bytes_max(memory_budget(limits.memory_mib.value, memory_bytes())),
            restore_wait: Duration::from_secs(state.swarms_restore_wait_s.value.into()),
            is_lifetime_short,
        })
    }
}

/// Returns the most bytes that the journal may have; 0 = unlimited.
pub(super) fn bytes_max(memory_budget: Option<u64>) -> u64 {
    let share = |budget: u64| budget.saturating_mul(limits::JOURNAL_SHARE);
    memory_budget.map_or(0, |budget| share(budget).max(limits::JOURNAL_LEAST))
}
