//! State and counters of a journal, for metrics and the API.

use serde::Serialize;
use utoipa::ToSchema;

use replication::Merged;
use replication::block::Kind;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The activity of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JournalState)]
pub enum State {
    /// There is none: swarms are lost when the process ends.
    #[default]
    Off,
    /// Changes are written as they happen.
    Writing,
    /// The disk or another process prevents writing. The writer tries again; until then nothing is kept.
    Stopped,
    /// Peers are being restored from it. It is written after that. A [`Status`] never has this state.
    Restoring,
}

types::labelled! {
    /// The reason why a journal stopped.
    pub enum Failure {
        /// The disk or the quota is full.
        NoSpace = "no_space",
        /// The file system is read-only.
        ReadOnly = "read_only",
        /// Any other error of the system.
        Io = "io",
        /// The journal would exceed [`crate::Pace::bytes_max`].
        Bound = "bound",
    }
}

impl Failure {
    pub(crate) fn of(error: &io::Error) -> Self {
        if error.get_ref().is_some_and(|error| error.is::<BoundReached>()) {
            return Self::Bound;
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::Io,
        }
    }
}

/// The journal has as many bytes as it may have.
#[derive(Debug, thiserror::Error)]
#[error("the journal has as many bytes as limits.memory_mib allows")]
pub(crate) struct BoundReached;

/// Names of the kinds of blocks in metrics, in the order of [`Figures::bytes`].
pub const KINDS: [&str; 4] = ["changes", "walk", "sessions", "round"];

/// Names of the reasons to skip what a journal holds, in the order of [`Figures::skipped`]. Old and full
/// count peers; damaged counts places in files.
pub const SKIPPED: [&str; 3] = ["old", "damaged", "full"];

/// State and counters of a journal. The writer and the reader update it; any thread may read it.
#[derive(Debug, Default)]
pub struct Status(Mutex<Figures>);

/// A reading of a [`Status`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The state of the writer.
    pub state: State,
    /// Bytes written, by the kinds of [`KINDS`].
    pub bytes: [u64; KINDS.len()],
    /// Blocks written, by the kinds of [`KINDS`].
    pub blocks: [u64; KINDS.len()],
    /// Bytes of the journal on the disk.
    pub disk_bytes: u64,
    /// Segments of the journal on the disk.
    pub segments: u64,
    /// When the last complete round began, unix ms.
    pub round_began_ms: Option<u64>,
    /// Time up to which all changes are written, unix ms.
    pub written_ms: Option<u64>,
    /// Number of times that written data was forced to the disk.
    pub syncs: u64,
    /// Total duration of forcing written data to the disk.
    pub sync_time: Duration,
    /// Changes that were lost because the disk was too slow.
    pub missed: u64,
    /// Rounds that began anew because changes were lost.
    pub voided_rounds: u64,
    /// Number of times that writing failed, by the reasons of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Peers restored.
    pub restored_peers: u64,
    /// Torrents restored.
    pub restored_torrents: u64,
    /// Duration of restoring; zero until it has ended.
    pub restore_time: Duration,
    /// Peers and damaged places skipped while restoring, by the reasons of [`SKIPPED`].
    pub skipped: [u64; SKIPPED.len()],
}

impl Status {
    /// Returns the present figures.
    pub fn figures(&self) -> Figures {
        *self.lock()
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.lock());
    }

    /// Counts a block that was written.
    pub(crate) fn wrote(&self, kind: Kind, bytes: usize) {
        let kind = match kind {
            Kind::CHANGES => 0,
            Kind::WALK => 1,
            Kind::SESSIONS => 2,
            _ => 3,
        };
        self.update(|figures| {
            figures.bytes[kind] += bytes as u64;
            figures.blocks[kind] += 1;
        });
    }

    /// Counts what a block has restored.
    pub(crate) fn restored(&self, merged: &Merged) {
        self.update(|figures| {
            figures.restored_peers += merged.peers;
            figures.restored_torrents += merged.torrents;
            let [old, _, full] = &mut figures.skipped;
            *old += merged.old;
            *full += merged.full;
        });
    }

    /// Counts damaged places in files.
    pub(crate) fn damaged(&self, places: u64) {
        self.update(|figures| {
            let [_, damaged, _] = &mut figures.skipped;
            *damaged += places;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
