//! What each peer of a key holder said last, so that the next announce tells what it has done since.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use types::{Event, Role, Tick, limits};

use super::{KeyName, KeyTotals, Report, middle_bits};

/// A peer of a key in a torrent.
pub(super) struct Session {
    /// A keyed hash of all three.
    pub(super) tag: u64,
    pub(super) holder: KeyName,
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    /// Torrent and address, if they are counted.
    pub(super) place: Option<(u32, u32)>,
    is_seeder: bool,
    is_web: bool,
}

const _: () = assert!(size_of::<Session>() <= 56);

/// All of them.
pub(super) struct Sessions {
    shards: Box<[Mutex<HashTable<Session>>]>,
    /// The one that the sweep comes to next.
    next: AtomicUsize,
}

/// A power of two: enough that the table of one, with ten million peers, doubles within a millisecond.
const SHARDS: usize = 1024;

impl Session {
    pub(super) fn new(tag: u64, holder: KeyName, now: Tick, report: &Report<'_>) -> Self {
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
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::default(),
        }
    }

    /// Where the session of `tag` is, if it is.
    #[inline]
    pub(super) fn lock(&self, tag: u64) -> MutexGuard<'_, HashTable<Session>> {
        self.shards[middle_bits(tag) % SHARDS].lock()
    }

    /// Whether one more may be in `table`.
    pub(super) fn has_room(&self, table: &HashTable<Session>) -> bool {
        table.len() < limits::KEY_SESSIONS_MAX / SHARDS
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
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
            let mut table = self.shards[next % SHARDS].lock();
            let is_over = |session: &mut Session| {
                let [plain_s, web_s] = lifetimes_s;
                now.since(session.at) > if session.is_web { web_s } else { plain_s }
            };
            ended.extend(table.extract_if(is_over).filter(|session| session.place.is_some()));
            if table.capacity() > 64 && table.len() < table.capacity() / 8 {
                let len = table.len();
                table.shrink_to(2 * len, |session| session.tag);
            }
        }
    }
}
