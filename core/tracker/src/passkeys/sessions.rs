//! The last report of each peer of a key, so that the next announce shows its progress since.
//!
//! A session belongs to its peer, which is distinguished as in the store: by address and port, or by its
//! connection. Sessions with the same peer id have the same home row, so that a client that announces
//! from several addresses is recognized as one client.
//!
//! A session is half a cache line, and a batch prefetches all of its sessions before it needs the first.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use hashbrown::HashTable;
use primitives::siphash::siphash;
use types::{Event, InfoHash, PeerId, PeerKey, Role, Tick, WebPeer, limits};

use super::table::{LockedShard, Row, RowIndex, RowKey, ShardedTable};
use super::{KeyHash, KeyTotals, Report};

/// Identifies a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionTag {
    /// A keyed hash of the key, the torrent and the peer id. Never 0.
    pub(super) client: u64,
    /// A keyed hash of the peer's identity, of [`ENDPOINT_BITS`] bits.
    pub(super) endpoint: u64,
}

/// The identity that distinguishes a peer from all others in its torrent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerIdentity {
    /// Its address and port.
    Socket(PeerKey),
    /// Its connection. One connection may have several peers, by their peer ids.
    Web(WebPeer),
}

/// A peer of a key in a torrent.
#[derive(Clone, Copy)]
pub(super) struct Session {
    tag: SessionTag,
    /// At most [`BYTES_MAX`], as `downloaded`.
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    is_seeder: bool,
    is_web: bool,
    /// True if the peer counts against the key's quota: then its shard has an entry for it.
    has_quota_entry: bool,
    /// True if there were other sessions of the same client.
    has_siblings: bool,
}

/// The last report of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) at: Tick,
    pub(super) is_seeder: bool,
    pub(super) uploaded: u64,
    pub(super) downloaded: u64,
}

/// The reports of the other sessions of a client.
#[derive(Clone, Copy, Default)]
pub(super) struct Siblings {
    uploaded: u64,
    downloaded: u64,
    /// When one of them last reported as a seeder.
    seeder_at: Tick,
}

/// The entry of a peer in its key's quota: torrent and address, as keyed hashes.
pub(super) type QuotaEntry = (u32, u32);

/// A key, and the entry of a peer in its quota.
pub(super) type OfKey = (KeyHash, QuotaEntry);

/// The entries of a shard's sessions that have one, with their keys.
pub(super) type QuotaEntries = HashTable<(SessionTag, KeyHash, QuotaEntry)>;

pub(super) type LockedSessions<'a> = LockedShard<'a, Session, QuotaEntries, 4>;

/// All sessions.
pub(super) struct Sessions {
    table: ShardedTable<Session, QuotaEntries, 4>,
    /// The shard that the sweep visits next.
    next: AtomicUsize,
    /// Sessions of a shard, and of a key, at most.
    shard_max: AtomicU32,
    key_max: AtomicU32,
}

/// Why there is no room for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The key, or the client, has as many as it may have.
    OfKey,
    /// There are too many of all keys.
    OfAll,
}

/// When sessions end without an announce, in seconds after the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) plain_s: u32,
    pub(super) web_s: u32,
}

/// 44 bits: all that a row has left. With the secret unknown, a second address and port with the same
/// ones would take 2^44 announces to find.
pub(super) const ENDPOINT_BITS: u32 = 44;
/// The largest count of bytes that is kept, 72 PB: it leaves a byte for the endpoint.
pub(super) const BYTES_MAX: u64 = (1 << 56) - 1;

/// The tag of clients without a key, whose session does not exist.
impl Default for SessionTag {
    fn default() -> Self {
        Self { client: 1, endpoint: 0 }
    }
}

impl SessionTag {
    /// Returns the tag of a peer of a key in a torrent. `secret` keeps clients from choosing peers with
    /// equal tags.
    #[inline]
    pub(super) fn new(
        secret: &[u8; 16],
        key: KeyHash,
        hash: &InfoHash,
        id: &PeerId,
        identity: &PeerIdentity,
    ) -> Self {
        let mut message = [0; 48];
        let (head, rest) = message.split_at_mut(8);
        let (torrent, peer) = rest.split_at_mut(20);
        head.copy_from_slice(&key.hash().to_le_bytes());
        torrent.copy_from_slice(&hash.0);
        peer.copy_from_slice(&id.0);
        let client = siphash::<1, 3>(secret, &message).max(1);
        Self { client, endpoint: identity.hash(secret) >> (64 - ENDPOINT_BITS) }
    }
}

impl PeerIdentity {
    /// Returns a keyed hash. Kinds and families differ in length, so none is hashed as another.
    #[inline]
    fn hash(&self, secret: &[u8; 16]) -> u64 {
        match self {
            Self::Socket(PeerKey::V4(key)) => siphash::<1, 3>(secret, key),
            Self::Socket(PeerKey::V6(key)) => siphash::<1, 3>(secret, key),
            Self::Web(WebPeer { connection, peer_id }) => {
                let mut message = [0; 28];
                let (head, rest) = message.split_at_mut(8);
                head.copy_from_slice(&connection.0.to_le_bytes());
                rest.copy_from_slice(&peer_id.0);
                siphash::<1, 3>(secret, &message)
            }
        }
    }
}

impl RowKey for SessionTag {
    #[inline]
    fn hash(self) -> u64 {
        self.client
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
        let Self { tag: SessionTag { client, endpoint }, uploaded, downloaded, at, .. } = self;
        let flags = u64::from(self.is_seeder)
            | u64::from(self.is_web) << 1
            | u64::from(self.has_quota_entry) << 2
            | u64::from(self.has_siblings) << 3;
        // The endpoint's bits: 28 beside the flags, 8 above each count.
        [
            client,
            uploaded | endpoint >> 36 << 56,
            downloaded | endpoint >> 28 << 56,
            u64::from(at.0) | flags << 32 | endpoint << 36,
        ]
    }

    #[inline]
    fn from_words([client, uploaded, downloaded, rest]: [u64; 4]) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        let endpoint = uploaded >> 56 << 36 | downloaded >> 56 << 28 | rest >> 36;
        Self {
            tag: SessionTag { client, endpoint },
            uploaded: uploaded & BYTES_MAX,
            downloaded: downloaded & BYTES_MAX,
            at: Tick(rest as u32),
            is_seeder: has(0),
            is_web: has(1),
            has_quota_entry: has(2),
            has_siblings: has(3),
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
            has_siblings: false,
        };
        session.update(now, report);
        session
    }

    /// Returns a session that has reported elsewhere.
    pub(super) fn imported(tag: SessionTag, reported: Reported) -> Self {
        let Reported { at, is_seeder, uploaded, downloaded } = reported;
        Self {
            tag,
            uploaded,
            downloaded,
            at,
            is_seeder,
            is_web: false,
            has_quota_entry: false,
            has_siblings: false,
        }
    }

    pub(super) fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Returns the last report.
    pub(super) fn reported(&self) -> Reported {
        let Self { at, is_seeder, uploaded, downloaded, .. } = *self;
        Reported { at, is_seeder, uploaded, downloaded }
    }

    /// Replaces the last report.
    pub(super) fn set_reported(&mut self, reported: Reported) {
        let Reported { at, is_seeder, uploaded, downloaded } = reported;
        *self = Self { at, is_seeder, uploaded, downloaded, ..*self };
    }

    /// Returns whether the peer counts against its key's quota.
    pub(super) fn has_quota_entry(&self) -> bool {
        self.has_quota_entry
    }

    /// Returns whether it is a WebTorrent peer's.
    pub(super) fn is_web(&self) -> bool {
        self.is_web
    }

    /// Returns when the peer announced last.
    pub(super) fn at(&self) -> Tick {
        self.at
    }

    /// Returns the peer's progress since its last announce, without what its siblings have reported
    /// already: a client reports the same counts from all of its addresses. Clients count from their
    /// start: an announce with `started` begins a new count and has no progress.
    pub(super) fn progress(
        &self,
        now: Tick,
        siblings: &Siblings,
        report: &Report<'_>,
    ) -> KeyTotals {
        if report.event == Event::Started {
            return KeyTotals::default();
        }
        self.progress_to(now, siblings, (report.uploaded, report.downloaded))
    }

    /// Returns the progress to these counts of bytes.
    pub(super) fn progress_to(
        &self,
        now: Tick,
        siblings: &Siblings,
        (uploaded, downloaded): (u64, u64),
    ) -> KeyTotals {
        let progress = |reported: u64, own: u64, of_others: u64| {
            reported.min(BYTES_MAX).saturating_sub(own.max(of_others))
        };
        KeyTotals {
            uploaded: progress(uploaded, self.uploaded, siblings.uploaded),
            downloaded: progress(downloaded, self.downloaded, siblings.downloaded),
            seeding_s: self.seeding_s(now, siblings),
            announces: 0,
        }
    }

    /// Returns the seconds as a seeder since the last announce of the client.
    pub(super) fn seeding_s(&self, now: Tick, siblings: &Siblings) -> u64 {
        if self.is_seeder { now.since(self.at.max(siblings.seeder_at)).into() } else { 0 }
    }

    /// Remembers a report.
    pub(super) fn update(&mut self, now: Tick, report: &Report<'_>) {
        self.uploaded = report.uploaded.min(BYTES_MAX);
        self.downloaded = report.downloaded.min(BYTES_MAX);
        self.at = now;
        self.is_seeder = report.role == Role::Seeder;
    }

    /// Returns what the other sessions of the client have reported.
    #[inline]
    pub(super) fn siblings(&self, shard: &LockedSessions<'_>) -> Siblings {
        if self.has_siblings { self.read_siblings(shard) } else { Siblings::default() }
    }

    #[cold]
    fn read_siblings(&self, shard: &LockedSessions<'_>) -> Siblings {
        let others = shard.rows_of(self.tag.client).filter(|(_, it)| it.tag != self.tag);
        Siblings::of(others.map(|(_, other)| other.reported()))
    }

    /// Returns whether the session has ended without an announce.
    fn is_over(&self, now: Tick, lifetimes: Lifetimes) -> bool {
        let Lifetimes { plain_s, web_s } = lifetimes;
        now.since(self.at) > if self.is_web { web_s } else { plain_s }
    }

    /// Returns the session's entry in its key's quota.
    pub(super) fn quota_entry(&self, entries: &QuotaEntries) -> Option<QuotaEntry> {
        self.of_key(entries).map(|(_, entry)| entry)
    }

    /// Returns the same, and the key.
    pub(super) fn of_key(&self, entries: &QuotaEntries) -> Option<OfKey> {
        if !self.has_quota_entry {
            return None;
        }
        let found = entries.find(self.tag.client, |(tag, ..)| *tag == self.tag);
        debug_assert!(found.is_some(), "a session lost its quota entry");
        found.map(|(_, key, entry)| (*key, *entry))
    }

    /// Sets the session's entry in its key's quota.
    pub(super) fn set_quota_entry(
        &mut self,
        entries: &mut QuotaEntries,
        key: KeyHash,
        entry: QuotaEntry,
    ) {
        self.take_quota_entry(entries);
        entries.insert_unique(self.tag.client, (self.tag, key, entry), |(tag, ..)| tag.client);
        self.has_quota_entry = true;
    }

    /// Removes and returns the session's entry.
    pub(super) fn take_quota_entry(&mut self, entries: &mut QuotaEntries) -> Option<QuotaEntry> {
        if !std::mem::take(&mut self.has_quota_entry) {
            return None;
        }
        let found = entries.find_entry(self.tag.client, |(tag, ..)| *tag == self.tag);
        debug_assert!(found.is_ok(), "a session lost its quota entry");
        let ((.., entry), _) = found.ok()?.remove();
        Some(entry)
    }
}

impl Siblings {
    /// Returns what these sessions have reported together.
    pub(super) fn of(sessions: impl Iterator<Item = Reported>) -> Self {
        let mut all = Self::default();
        for other in sessions {
            all.uploaded = all.uploaded.max(other.uploaded);
            all.downloaded = all.downloaded.max(other.downloaded);
            if other.is_seeder {
                all.seeder_at = all.seeder_at.max(other.at);
            }
        }
        all
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        let sessions = Self {
            table: ShardedTable::new(),
            next: AtomicUsize::default(),
            shard_max: AtomicU32::default(),
            key_max: AtomicU32::default(),
        };
        sessions.set_limits(limits::KEY_SESSIONS_MAX, limits::KEY_SESSIONS_OF_ONE_MAX);
        sessions
    }

    /// Sets how many sessions there may be, of all keys and of each.
    pub(super) fn set_limits(&self, all: usize, of_key: u32) {
        let of_shard = all.min(limits::KEY_SESSIONS_MAX) / Session::SHARDS;
        self.shard_max.store(of_shard as u32, Ordering::Relaxed);
        self.key_max.store(of_key.min(limits::KEY_SESSIONS_OF_ONE_MAX), Ordering::Relaxed);
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

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Checks whether a new session has room. `of_key` is how many its key has.
    pub(super) fn check_room(
        &self,
        shard: &LockedSessions<'_>,
        tag: SessionTag,
        of_key: u32,
    ) -> Result<(), NoRoom> {
        let of_client = shard.rows_of(tag.client).count();
        if of_key >= self.key_max.load(Ordering::Relaxed)
            || of_client >= limits::KEY_SESSIONS_OF_CLIENT_MAX
        {
            return Err(NoRoom::OfKey);
        }
        if shard.len() >= self.shard_max.load(Ordering::Relaxed) as usize {
            return Err(NoRoom::OfAll);
        }
        Ok(())
    }

    /// Inserts a session that is new and for which there is room.
    pub(super) fn insert(shard: &mut LockedSessions<'_>, mut session: Session) {
        if shard.rows_of(session.tag.client).next().is_some() {
            session.has_siblings = true;
            mark_siblings(shard, session.tag.client);
        }
        shard.insert(session);
    }

    /// Appends copies of a shard's sessions to `into`, without those of WebTorrent peers. Returns false if
    /// there is no such shard.
    pub(super) fn copy_shard(
        &self,
        number: usize,
        into: &mut Vec<(Session, Option<OfKey>)>,
    ) -> bool {
        if number >= Session::SHARDS {
            return false;
        }
        let mut shard = self.table.lock_shard(number);
        into.extend(shard.rows().filter(|it| !it.is_web).map(|it| (it, None)));
        let entries = shard.aux_mut();
        for (session, of_key) in into {
            *of_key = session.of_key(entries);
        }
        true
    }

    /// Ends a session, if it exists.
    pub(super) fn end(&self, tag: SessionTag) {
        let mut shard = self.lock(tag);
        if let Some((at, mut session)) = shard.find(tag) {
            session.take_quota_entry(shard.aux_mut());
            shard.remove_at(at);
        }
    }

    /// Ends a session if its lifetime has passed. Returns its quota entry.
    pub(super) fn expire(
        &self,
        tag: SessionTag,
        now: Tick,
        lifetimes: Lifetimes,
    ) -> Option<QuotaEntry> {
        let mut shard = self.lock(tag);
        let (at, mut session) = shard.find(tag)?;
        if !session.is_over(now, lifetimes) {
            return None;
        }
        let entry = session.take_quota_entry(shard.aux_mut());
        shard.remove_at(at);
        entry
    }

    /// Does one of `parts` parts of a pass: removes sessions that are older than their lifetime, and
    /// returns memory that is not needed any more. Sessions that count against a quota stay: calls
    /// `expire` for each, which must lock its key before it ends the session.
    pub(super) fn sweep(
        &self,
        now: Tick,
        parts: u32,
        lifetimes: Lifetimes,
        mut expire: impl FnMut(KeyHash, SessionTag),
    ) {
        let mut counted = Vec::new();
        for _ in 0..Session::SHARDS.div_ceil(parts.max(1) as usize) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let mut shard = self.table.lock_shard(next);
            shard.remove_if(|session| {
                let is_over = session.is_over(now, lifetimes);
                if is_over && session.has_quota_entry {
                    counted.push(session.tag);
                }
                is_over && !session.has_quota_entry
            });
            let entries = shard.aux_mut();
            let key_of = |tag: &SessionTag| {
                let found = entries.find(tag.client, |(other, ..)| other == tag);
                found.map(|(_, key, _)| (*key, *tag))
            };
            let keys: Vec<_> = counted.drain(..).filter_map(|tag| key_of(&tag)).collect();
            drop(shard);
            keys.into_iter().for_each(|(key, tag)| expire(key, tag));
            let mut shard = self.table.lock_shard(next);
            shard.shrink_if_sparse();
            let entries = shard.aux_mut();
            if entries.len() * 8 < entries.capacity() {
                entries.shrink_to(entries.len() * 2, |(tag, ..)| tag.client);
            }
        }
        self.table.adjust_huge_pages();
    }
}

/// Marks the sessions of a client: there is another one.
#[cold]
fn mark_siblings(shard: &mut LockedSessions<'_>, client: u64) {
    let siblings: ArrayVec<(RowIndex, Session), { limits::KEY_SESSIONS_OF_CLIENT_MAX }> =
        shard.rows_of(client).collect();
    for (at, sibling) in siblings {
        shard.set(at, Session { has_siblings: true, ..sibling });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use types::ConnectionKey;

    use super::*;

    #[test]
    fn tags_depend_on_key_torrent_peer_and_secret() {
        let peer = |last| PeerIdentity::Socket(PeerKey::V4([1, 2, 3, 4, 5, last]));
        let tag = |secret, key, torrent, id| {
            let (torrent, id) = (InfoHash([torrent; 20]), PeerId([id; 20]));
            SessionTag::new(&[secret; 16], KeyHash([key, 0]), &torrent, &id, &peer(6))
        };
        let clients = [
            tag(1, 2, 3, 4),
            tag(9, 2, 3, 4),
            tag(1, 9, 3, 4),
            tag(1, 2, 9, 4),
            tag(1, 2, 3, 9),
            tag(1, 2, 4, 3),
        ];
        assert_eq!(clients.map(|tag| tag.client).into_iter().collect::<BTreeSet<_>>().len(), 6);
        assert!(clients.iter().filter(|tag| tag.endpoint == clients[0].endpoint).count() == 5);
        let [one, two] = [1, 2].map(ConnectionKey);
        let web =
            |connection, id| PeerIdentity::Web(WebPeer { connection, peer_id: PeerId([id; 20]) });
        let peers = [
            peer(6),
            peer(7),
            PeerIdentity::Socket(PeerKey::V6([0; 18])),
            web(one, 1),
            web(two, 1),
            web(one, 2),
        ];
        let endpoints: BTreeSet<_> = peers
            .iter()
            .map(|peer| {
                let (hash, id) = (InfoHash([3; 20]), PeerId([4; 20]));
                let tag = SessionTag::new(&[1; 16], KeyHash([2, 0]), &hash, &id, peer);
                assert_eq!(tag.client, clients[0].client);
                tag.endpoint
            })
            .collect();
        assert_eq!(endpoints.len(), 6);
    }

    #[test]
    fn rows_keep_sessions() {
        for (number, flags) in [(0, [true, false]), (u64::MAX, [false, true]), (77, [true, true])] {
            let endpoint = number >> (64 - ENDPOINT_BITS);
            let session = Session {
                tag: SessionTag { client: number.max(1), endpoint },
                uploaded: number & BYTES_MAX,
                downloaded: 3,
                at: Tick(number as u32),
                is_seeder: flags[0],
                is_web: flags[1],
                has_quota_entry: flags[0],
                has_siblings: flags[1],
            };
            let words = session.to_words();
            let read = Session::from_words(words);
            assert_eq!(read.to_words(), words);
            assert_eq!(
                (read.tag, read.uploaded, read.downloaded),
                (session.tag, session.uploaded, 3)
            );
            assert_eq!([read.is_seeder, read.is_web], flags);
            assert_eq!([read.has_quota_entry, read.has_siblings], flags);
        }
    }
}
