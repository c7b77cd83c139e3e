//! State and counters of a journal, for metrics and the API.

use serde::Serialize;
use utoipa::ToSchema;

use replication::Merged;
use replication::block::Kind;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
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

/// The reason why a journal stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The disk or the quota is full.
    NoSpace,
    /// The file system is read-only.
    ReadOnly,
    /// Any other error of the system.
    Io,
    /// The journal would exceed [`crate::Pace::bytes_max`].
    Bound,
}

impl Failure {
    /// All, in the order of [`Figures::failures`].
    pub const ALL: [Self; 4] = [Self::NoSpace, Self::ReadOnly, Self::Io, Self::Bound];

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "no_space",
            Self::ReadOnly => "read_only",
            Self::Io => "io",
            Self::Bound => "bound",
        }
    }

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
pub struct Status {
    state: AtomicU8,
    bytes: [AtomicU64; KINDS.len()],
    blocks: [AtomicU64; KINDS.len()],
    disk_bytes: AtomicU64,
    segments: AtomicU64,
    round_began_ms: AtomicU64,
    written_ms: AtomicU64,
    syncs: AtomicU64,
    sync_us: AtomicU64,
    missed: AtomicU64,
    voided_rounds: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    restored_peers: AtomicU64,
    restored_torrents: AtomicU64,
    restored_bytes: AtomicU64,
    restore_bytes: AtomicU64,
    restore_us: AtomicU64,
    skipped: [AtomicU64; SKIPPED.len()],
}

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
    /// Bytes restored so far.
    pub restored_bytes: u64,
    /// Bytes to restore in all; 0 if there is no journal to restore.
    pub restore_bytes: u64,
    /// Duration of restoring; zero until it has ended.
    pub restore_time: Duration,
    /// Peers and damaged places skipped while restoring, by the reasons of [`SKIPPED`].
    pub skipped: [u64; SKIPPED.len()],
}

impl Status {
    /// Returns the present figures.
    pub fn figures(&self) -> Figures {
        let read = |value: &AtomicU64| value.load(Relaxed);
        let time = |value: &AtomicU64| Duration::from_micros(value.load(Relaxed));
        let moment = |value: &AtomicU64| Some(value.load(Relaxed)).filter(|ms| *ms != 0);
        Figures {
            state: match self.state.load(Relaxed) {
                0 => State::Off,
                1 => State::Writing,
                _ => State::Stopped,
            },
            bytes: self.bytes.each_ref().map(read),
            blocks: self.blocks.each_ref().map(read),
            disk_bytes: read(&self.disk_bytes),
            segments: read(&self.segments),
            round_began_ms: moment(&self.round_began_ms),
            written_ms: moment(&self.written_ms),
            syncs: read(&self.syncs),
            sync_time: time(&self.sync_us),
            missed: read(&self.missed),
            voided_rounds: read(&self.voided_rounds),
            failures: self.failures.each_ref().map(read),
            restored_peers: read(&self.restored_peers),
            restored_torrents: read(&self.restored_torrents),
            restored_bytes: read(&self.restored_bytes),
            restore_bytes: read(&self.restore_bytes),
            restore_time: time(&self.restore_us),
            skipped: self.skipped.each_ref().map(read),
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    pub(crate) fn wrote(&self, kind: Kind, bytes: usize) {
        let kind = match kind {
            Kind::CHANGES => 0,
            Kind::WALK => 1,
            Kind::SESSIONS => 2,
            _ => 3,
        };
        self.bytes[kind].fetch_add(bytes as u64, Relaxed);
        self.blocks[kind].fetch_add(1, Relaxed);
    }

    pub(crate) fn set_disk(&self, segments: u64, bytes: u64) {
        self.segments.store(segments, Relaxed);
        self.disk_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn set_round_began(&self, unix_ms: u64) {
        self.round_began_ms.store(unix_ms, Relaxed);
    }

    pub(crate) fn set_written(&self, unix_ms: u64) {
        self.written_ms.store(unix_ms, Relaxed);
    }

    pub(crate) fn synced(&self, time: Duration) {
        self.syncs.fetch_add(1, Relaxed);
        self.sync_us.fetch_add(time.as_micros() as u64, Relaxed);
    }

    pub(crate) fn missed(&self, changes: u64) {
        self.missed.fetch_add(changes, Relaxed);
    }

    pub(crate) fn voided_round(&self) {
        self.voided_rounds.fetch_add(1, Relaxed);
    }

    pub(crate) fn failed(&self, failure: Failure) {
        self.failures[failure as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn set_restore_bytes(&self, bytes: u64) {
        self.restore_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn read(&self, bytes: u64) {
        self.restored_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn restored(&self, merged: &Merged) {
        self.restored_peers.fetch_add(merged.peers, Relaxed);
        self.restored_torrents.fetch_add(merged.torrents, Relaxed);
        let [old, _, full] = &self.skipped;
        old.fetch_add(merged.old, Relaxed);
        full.fetch_add(merged.full, Relaxed);
    }

    pub(crate) fn damaged(&self, places: u64) {
        let [_, damaged, _] = &self.skipped;
        damaged.fetch_add(places, Relaxed);
    }

    pub(crate) fn set_restore_time(&self, time: Duration) {
        self.restore_us.store((time.as_micros() as u64).max(1), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_counted() {
        let status = Status::default();
        assert_eq!(status.figures(), Figures::default());
        status.set_state(State::Stopped);
        status.wrote(Kind::WALK, 7);
        status.failed(Failure::Bound);
        status.set_written(5);
        status.damaged(2);
        let figures = status.figures();
        assert_eq!(figures.state, State::Stopped);
        assert_eq!((figures.bytes, figures.blocks), ([0, 7, 0, 0], [0, 1, 0, 0]));
        assert_eq!(figures.failures, [0, 0, 0, 1]);
        assert_eq!((figures.written_ms, figures.round_began_ms), (Some(5), None));
        assert_eq!(figures.skipped, [0, 2, 0]);
    }

    #[test]
    fn failures_have_the_order_of_their_list() {
        for (at, failure) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, at);
        }
        assert_eq!(Failure::of(&io::ErrorKind::StorageFull.into()), Failure::NoSpace);
        assert_eq!(Failure::of(&io::ErrorKind::ReadOnlyFilesystem.into()), Failure::ReadOnly);
        assert_eq!(Failure::of(&io::ErrorKind::PermissionDenied.into()), Failure::Io);
        assert_eq!(Failure::of(&io::Error::other(BoundReached)), Failure::Bound);
    }
}
