//! What each peer of a key reported last, so that the next announce tells its progress since.
//!
//! A session is half a cache line, and a batch prefetches all of its sessions before it needs the first.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use primitives::siphash::siphash;
use types::{Event, InfoHash, PeerId, Role, Tick, limits};

use super::table::{LockedShard, Row, RowKey, ShardedTable};
use super::{KeyHash, KeyTotals, Report};

/// Identifies a peer of a key in a torrent: a keyed hash of all three. Never 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SessionTag(u64);

/// A peer of a key in a torrent.
#[derive(Clone, Copy)]
pub(super) struct Session {
    tag: SessionTag,
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    is_seeder: bool,
    is_web: bool,
    /// Whether the peer counts against the key's quota: then its shard has an entry for it.
    has_quota_entry: bool,
}

/// What a peer counts as in its key's quota: torrent and address, as keyed hashes.
pub(super) type QuotaEntry = (u32, u32);

/// The entries of a shard's sessions that have one, with their keys.
pub(super) type QuotaEntries = HashTable<(SessionTag, KeyHash, QuotaEntry)>;

pub(super) type LockedSessions<'a> = LockedShard<'a, Session, QuotaEntries, 4>;

/// All sessions.
pub(super) struct Sessions {
    table: ShardedTable<Session, QuotaEntries, 4>,
    /// The shard that the sweep visits next.
    next: AtomicUsize,
}

/// The tag of clients without a key, whose session does not exist.
impl Default for SessionTag {
    fn default() -> Self {
        Self(1)
    }
}

impl SessionTag {
    /// Returns the tag of a peer of a key in a torrent. `secret` keeps clients from choosing peers with
    /// equal tags.
    #[inline]
    pub(super) fn new(secret: &[u8; 16], key: KeyHash, hash: &InfoHash, id: &PeerId) -> Self {
        let mut message = [0; 48];
        let (head, rest) = message.split_at_mut(8);
        let (torrent, peer) = rest.split_at_mut(20);
        head.copy_from_slice(&key.hash().to_le_bytes());
        torrent.copy_from_slice(&hash.0);
        peer.copy_from_slice(&id.0);
        Self(siphash::<1, 3>(secret, &message).max(1))
    }
}

impl RowKey for SessionTag {
    #[inline]
    fn hash(self) -> u64 {
        self.0
    }
}

impl Row<4> for Session {
    type Key = SessionTag;
    /// With 16 million sessions, 16,384 in each.
    const SHARDS: usize = 1024;

    #[inline]
    fn key(&self) -> SessionTag {
        self.tag
    }

    #[inline]
    fn to_words(self) -> [u64; 4] {
        let Self { tag, uploaded, downloaded, at, is_seeder, is_web, has_quota_entry } = self;
        let flags = u64::from(is_seeder) | u64::from(is_web) << 1 | u64::from(has_quota_entry) << 2;
        [tag.0, uploaded, downloaded, u64::from(at.0) | flags << 32]
    }

    #[inline]
    fn from_words([tag, uploaded, downloaded, rest]: [u64; 4]) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        Self {
            tag: SessionTag(tag),
            uploaded,
            downloaded,
            at: Tick(rest as u32),
            is_seeder: has(0),
            is_web: has(1),
            has_quota_entry: has(2),
        }
    }
}

impl Session {
    /// Returns the session of a peer that is new.
    pub(super) fn new(tag: SessionTag, now: Tick, report: &Report<'_>) -> Self {
        let mut session = Self {
            tag,
            uploaded: 0,
            downloaded: 0,
            at: now,
            is_seeder: false,
            is_web: report.is_web,
            has_quota_entry: false,
        };
        session.update(now, report);
        session
    }

    /// Returns the peer's progress since its last announce. Clients count from their start: an announce
    /// with `started` begins a new count and has no progress.
    pub(super) fn progress(&self, now: Tick, report: &Report<'_>) -> KeyTotals {
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

    /// Remembers a report.
    pub(super) fn update(&mut self, now: Tick, report: &Report<'_>) {
        self.uploaded = report.uploaded;
        self.downloaded = report.downloaded;
        self.at = now;
        self.is_seeder = report.role == Role::Seeder;
    }

    /// Returns the session's entry in its key's quota.
    pub(super) fn quota_entry(&self, entries: &QuotaEntries) -> Option<QuotaEntry> {
        if !self.has_quota_entry {
            return None;
        }
        let found = entries.find(self.tag.0, |(tag, ..)| *tag == self.tag);
        debug_assert!(found.is_some(), "a session lost its quota entry");
        found.map(|(.., entry)| *entry)
    }

    /// Sets the session's entry in its key's quota.
    pub(super) fn set_quota_entry(
        &mut self,
        entries: &mut QuotaEntries,
        key: KeyHash,
        entry: QuotaEntry,
    ) {
        self.take_quota_entry(entries);
        entries.insert_unique(self.tag.0, (self.tag, key, entry), |(tag, ..)| tag.0);
        self.has_quota_entry = true;
    }

    /// Removes and returns the session's entry and its key.
    pub(super) fn take_quota_entry(
        &mut self,
        entries: &mut QuotaEntries,
    ) -> Option<(KeyHash, QuotaEntry)> {
        if !std::mem::take(&mut self.has_quota_entry) {
            return None;
        }
        let found = entries.find_entry(self.tag.0, |(tag, ..)| *tag == self.tag);
        debug_assert!(found.is_ok(), "a session lost its quota entry");
        let ((_, key, entry), _) = found.ok()?.remove();
        Some((key, entry))
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { table: ShardedTable::new(), next: AtomicUsize::default() }
    }

    /// Locks the shard of the session `tag`.
    #[inline]
    pub(super) fn lock(&self, tag: SessionTag) -> LockedSessions<'_> {
        self.table.lock(tag)
    }

    /// Prefetches the home row of the session `tag`.
    #[inline]
    pub(super) fn prefetch(&self, tag: SessionTag) {
        self.table.prefetch(tag);
    }

    /// Returns whether a shard has room for one more session.
    pub(super) fn has_room(shard: &LockedSessions<'_>) -> bool {
        shard.len() < limits::KEY_SESSIONS_MAX / Session::SHARDS
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Does one of `parts` parts of a pass: removes sessions that are older than their lifetime
    /// (`[plain, WebTorrent]`, seconds), and appends the quota entries of those to `ended`.
    pub(super) fn sweep(
        &self,
        now: Tick,
        parts: u32,
        lifetimes_s: [u32; 2],
        ended: &mut Vec<(KeyHash, QuotaEntry)>,
    ) {
        let is_over = |session: &Session| {
            let [plain_s, web_s] = lifetimes_s;
            now.since(session.at) > if session.is_web { web_s } else { plain_s }
        };
        for _ in 0..Session::SHARDS.div_ceil(parts.max(1) as usize) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let mut shard = self.table.lock_shard(next);
            shard.extract_if(is_over, |entries, mut session| {
                ended.extend(session.take_quota_entry(entries));
            });
        }
        self.table.collapse_huge_pages();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_depend_on_key_torrent_peer_and_secret() {
        let tag = |secret, key, torrent, peer| {
            let (torrent, peer) = (InfoHash([torrent; 20]), PeerId([peer; 20]));
            SessionTag::new(&[secret; 16], KeyHash([key, 0]), &torrent, &peer).0
        };
        let tags = [tag(1, 2, 3, 4), tag(9, 2, 3, 4), tag(1, 9, 3, 4), tag(1, 2, 9, 4)];
        let all: std::collections::BTreeSet<u64> =
            tags.into_iter().chain([tag(1, 2, 3, 9), tag(1, 2, 4, 3)]).collect();
        assert_eq!(all.len(), 6);
    }
}
