//! What each peer of a key holder said last, so that the next announce tells what it has done since.
//!
//! A session is a cache line, and a batch asks for all of its lines before it needs the first.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use types::{Event, Role, Tick, limits};

use super::table::{Hint, Line, Name, Table};
use super::{KeyName, KeyTotals, Report};

/// Stands for a peer of a key in a torrent: a keyed hash of all three.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SessionTag(pub(super) u64);

/// A peer of a key in a torrent.
#[repr(align(64))]
pub(super) struct Session {
    tag: SessionTag,
    pub(super) holder: KeyName,
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    /// Torrent and address, if they are counted.
    pub(super) place: Option<(u32, u32)>,
    is_seeder: bool,
    is_web: bool,
}

const _: () = assert!(size_of::<Option<Session>>() == 64);

/// All of them.
pub(super) struct Sessions {
    shards: Box<[Shard]>,
    /// The one that the sweep comes to next.
    next: AtomicUsize,
}

#[repr(align(64))]
#[derive(Default)]
struct Shard {
    hint: Hint,
    table: Mutex<Table<Session>>,
}

/// A power of two: enough that the table of one, with ten million peers, doubles within a millisecond.
const SHARDS: usize = 1024;

impl Name for SessionTag {
    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

impl Line for Session {
    type Name = SessionTag;

    #[inline]
    fn name(&self) -> SessionTag {
        self.tag
    }
}

impl Session {
    pub(super) fn new(tag: SessionTag, holder: KeyName, now: Tick, report: &Report<'_>) -> Self {
        let mut session = Self {
            tag,
            holder,
            uploaded: 0,
            downloaded: 0,
            at: now,
            place: None,
            is_seeder: false,
            is_web: report.is_web,
        };
        session.renew(now, report);
        session
    }

    /// What the peer has done since its last announce. Figures count from the client's start: when they
    /// begin anew, there is nothing to tell yet.
    pub(super) fn moved(&self, now: Tick, report: &Report<'_>) -> KeyTotals {
        if report.event == Event::Started {
            return KeyTotals::default();
        }
        let passed_s = u64::from(now.since(self.at));
        let most = (passed_s + 1).saturating_mul(limits::KEY_BYTES_PER_S_MAX);
        KeyTotals {
            uploaded: report.uploaded.saturating_sub(self.uploaded).min(most),
            downloaded: report.downloaded.saturating_sub(self.downloaded).min(most),
            seeding_s: if self.is_seeder { passed_s } else { 0 },
            announces: 0,
        }
    }

    /// Remembers what it says now.
    pub(super) fn renew(&mut self, now: Tick, report: &Report<'_>) {
        self.uploaded = report.uploaded;
        self.downloaded = report.downloaded;
        self.at = now;
        self.is_seeder = report.role == Role::Seeder;
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            next: AtomicUsize::default(),
        }
    }

    /// Where the session of `tag` is, if it is.
    #[inline]
    pub(super) fn lock(&self, tag: SessionTag) -> MutexGuard<'_, Table<Session>> {
        self.shards[tag.shard(SHARDS)].table.lock()
    }

    /// Asks for the line in which the session of `tag` is, most likely.
    #[inline]
    pub(super) fn prefetch(&self, tag: SessionTag) {
        self.shards[tag.shard(SHARDS)].hint.prefetch::<Session>(tag);
    }

    /// Adds one to its table, which the caller has locked.
    pub(super) fn insert(&self, table: &mut Table<Session>, session: Session) {
        let shard = &self.shards[session.tag.shard(SHARDS)];
        table.insert(session);
        shard.hint.publish(table);
    }

    /// Whether one more may be in such a table.
    pub(super) fn has_room(table: &Table<Session>) -> bool {
        table.len() < limits::KEY_SESSIONS_MAX / SHARDS
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.table.lock().len()).sum()
    }

    /// Does one of `parts` parts of a pass: moves sessions whose lifetime (`[plain, WebTorrent]`,
    /// seconds) has passed, and that count somewhere, to `ended`, and drops the others.
    pub(super) fn sweep(
        &self,
        now: Tick,
        parts: u32,
        lifetimes_s: [u32; 2],
        ended: &mut Vec<Session>,
    ) {
        for _ in 0..SHARDS.div_ceil(parts.max(1) as usize) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = |session: &Session| {
                let [plain_s, web_s] = lifetimes_s;
                now.since(session.at) > if session.is_web { web_s } else { plain_s }
            };
            let counts =
                |session: Session| ended.extend(Some(session).filter(|it| it.place.is_some()));
            let shard = &self.shards[next % SHARDS];
            let mut table = shard.table.lock();
            table.extract(is_over, counts);
            shard.hint.publish(&table);
        }
    }
}
