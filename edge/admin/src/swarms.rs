//! The journal of swarms, as statistics show it.

use serde::Serialize;

use crate::sources::{JournalState, JournalStats};
use utoipa::ToSchema;

/// The journal of swarms, by which peers survive a restart.
#[derive(Serialize, ToSchema)]
pub(crate) struct Swarms {
    journal: JournalState,
    /// Seconds since the last complete round of the journal began, or since the start; null without a journal.
    round_age_s: Option<u64>,
    /// Size of the journal, bytes.
    disk_bytes: u64,
    /// Peers restored at the start.
    restored: u64,
}

impl Swarms {
    pub(crate) fn new(stats: Option<&JournalStats>) -> Self {
        Self {
            journal: stats.map_or(JournalState::Off, |stats| stats.state),
            round_age_s: stats.map(|stats| stats.round_age_s as u64),
            disk_bytes: stats.map_or(0, |stats| stats.disk_bytes),
            restored: stats.map_or(0, |stats| stats.restored_peers),
        }
    }
}
