//! Users' passkeys: who may use private listeners, within which quota, and how much each has transferred.
//!
//! Plain form: a map from key to rules and totals, and a map from (key, torrent, peer, peer id) to that
//! peer's last report; each announce adds the difference between two reports to the totals. Departures:
//! 1. Both maps are sharded by a keyed hash ([`table`]): thousands of keys come and go while announces
//!    pass, no shard is large enough for its growth to be noticed, and clients cannot aim at a shard, or
//!    learn from the time of a lookup how close a guess is.
//! 2. A key is known by 128 bits of a keyed hash; its text is not stored. A key and all that is counted
//!    for it are one cache line, and comparing it takes the same time whatever it is compared with.
//! 3. Only keys with a quota have a [`QuotaState`], where their torrents and addresses are counted.
//!
//! A session belongs to its peer, which is its address and port or its connection, as in the store: only
//! that peer can renew, end or replace it. A peer id proves nothing; but a client that announces over both
//! families, or two protocols, has transferred its bytes once. So of the sessions of one key with the same
//! peer id in one torrent, a report counts only as far as it exceeds those of all others.

mod changes;
mod credit;
mod export;
mod import;
mod quota;
mod record;
mod sessions;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashTable;
use parking_lot::Mutex;
use primitives::siphash::{siphash, siphash_128, siphash_ip};
use types::{Event, InfoHash, PeerId, Refusal, Role, Tick, UserKey, limits};

use crate::RequestKind;
use changes::SessionChanges;
use credit::{CreditRule, bytes_per_ms};
use import::FirstReports;
use quota::QuotaState;
use record::KeyRecord;
use sessions::{Lifetimes, LockedSessions, NoRoom, QuotaEntry, Session, Sessions};
use table::{LockedShard, Row, RowIndex, RowKey, ShardedTable};

pub use export::{BadSessions, SessionWalk};
pub use import::ImportedSessions;
pub(crate) use sessions::{PeerIdentity, SessionTag};

/// The number of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// Ids from this one on belong to keys of files, which have no record.
    pub const FILE_FIRST: u32 = 1 << 31;
}

/// The limits of a key. 0 = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// When the key expires; `None` = never.
    pub expires: Option<Tick>,
    /// Peers in one torrent. A peer counts until it stops or its lifetime has passed.
    pub peers_per_torrent: u16,
    /// Torrents at a time.
    pub torrents: u32,
    /// Addresses at a time, by the prefixes of [`crate::Limits`]: an IPv6 network counts once.
    pub addresses: u16,
    /// Announces per minute, of all its peers together.
    pub announces_per_minute: u16,
}

/// The totals of a key's peers since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTotals {
    /// Bytes sent, as the clients claim.
    pub uploaded: u64,
    /// Bytes received, as the clients claim.
    pub downloaded: u64,
    /// Seconds as a seeder, summed over peers and torrents.
    pub seeding_s: u64,
    /// Announces served.
    pub announces: u64,
}

/// All keys, and the last report of each of their peers.
pub struct PasskeyStore {
    secret: [u8; 16],
    keys: ShardedTable<KeyRecord, TableAux, 8>,
    /// The hash of each key.
    hashes: Mutex<BTreeMap<KeyId, KeyHash>>,
    sessions: Sessions,
    first_reports: FirstReports,
    changes: SessionChanges,
    /// The longest lifetime of a session, seconds.
    lifetime_max_s: AtomicU32,
    /// Bytes of a key in a millisecond; 0 = unlimited.
    bytes_per_ms: AtomicU64,
    /// The tick after that at which sessions were imported last; 0 = never.
    imported_at: AtomicU32,
    /// Reports that were credited in part, since the start.
    excessive: AtomicU64,
}

/// Identifies a key: a keyed hash, long enough that another text with the same one cannot be found. Its
/// first word is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash([u64; 2]);

/// The report of a peer of a key.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) info_hash: &'a InfoHash,
    /// The prefix of its address.
    pub(crate) prefix: IpAddr,
    pub(crate) event: Event,
    pub(crate) role: Role,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    /// True if it is a WebTorrent peer.
    pub(crate) is_web: bool,
}

/// A key that is good for a request, with its shard locked.
pub(crate) struct LockedKey<'a> {
    store: &'a PasskeyStore,
    keys: LockedKeys<'a>,
    row: RowIndex,
    record: KeyRecord,
}

type LockedKeys<'a> = LockedShard<'a, KeyRecord, TableAux, 8>;

/// The data of a shard of keys beside its rows.
#[derive(Default)]
struct TableAux {
    /// Keys with totals that were not taken yet.
    changed: Vec<KeyHash>,
    /// Keys used for the first time, which were not taken yet.
    first_uses: Vec<KeyId>,
    /// Totals of removed keys, which were not taken yet.
    retired: Vec<(KeyId, KeyTotals)>,
    /// The quotas of keys that have, or had, one.
    quotas: HashTable<(KeyHash, QuotaState)>,
}

impl PasskeyStore {
    /// Returns an empty store. `secret` keeps clients from aiming at shards. Sessions can be imported by
    /// processes that have the same one.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            keys: ShardedTable::new(),
            hashes: Mutex::default(),
            sessions: Sessions::new(),
            first_reports: FirstReports::default(),
            changes: SessionChanges::default(),
            lifetime_max_s: AtomicU32::new(limits::PEER_LIFETIME_S_MAX),
            bytes_per_ms: AtomicU64::new(bytes_per_ms(limits::KEY_MBIT_PER_S)),
            imported_at: AtomicU32::default(),
            excessive: AtomicU64::default(),
        }
    }

    /// Adds a key with number `id`, in force when this returns. Removes the key that had the number
    /// before; if it is the same key, replaces its rules and keeps everything else.
    ///
    /// Returns false, and does nothing, if there are [`limits::USER_KEYS_MAX`] keys.
    pub fn put(&self, id: KeyId, key: UserKey, rules: KeyRules) -> bool {
        let hash = self.hash(key.as_bytes());
        let mut hashes = self.hashes.lock();
        if hashes.len() >= limits::USER_KEYS_MAX && !hashes.contains_key(&id) {
            return false;
        }
        if let Some(old) = hashes.insert(id, hash)
            && old != hash
        {
            self.retire(old);
        }
        let mut keys = self.keys.lock(hash);
        if let Some((row, mut record)) = keys.find(hash) {
            record.set_rules(keys.aux_mut(), rules);
            let old_id = std::mem::replace(&mut record.id, id);
            keys.set(row, record);
            if old_id != id {
                hashes.remove(&old_id);
            }
        } else {
            let mut record = KeyRecord::new(hash, id);
            record.set_rules(keys.aux_mut(), rules);
            keys.insert(record);
        }
        true
    }

    /// Removes a key, in force when this returns. Returns whether it existed. Its totals can still be
    /// taken.
    pub fn remove(&self, id: KeyId) -> bool {
        let mut hashes = self.hashes.lock();
        let Some(hash) = hashes.remove(&id) else { return false };
        self.retire(hash);
        true
    }

    /// Returns the number of keys, expired ones included.
    pub fn len(&self) -> usize {
        self.hashes.lock().len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of peers with a key that are remembered. Locks each of many shards in turn.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Lowers the bounds of sessions, of all keys together ([`limits::KEY_SESSIONS_MAX`]; rounded down to
    /// a multiple of 1024) and of each ([`limits::KEY_SESSIONS_OF_ONE_MAX`]).
    pub fn set_session_limits(&self, all: usize, of_key: u32) {
        self.sessions.set_limits(all, of_key);
    }

    /// Sets the rate in Mbit/s above which what the peers of a key report is not credited; 0 = unlimited.
    pub(crate) fn set_rate(&self, mbit_per_s: u32) {
        self.bytes_per_ms.store(bytes_per_ms(mbit_per_s), Ordering::Relaxed);
    }

    /// Returns how many reports exceeded that rate and were credited in part, since the start.
    pub fn excessive_reports(&self) -> u64 {
        self.excessive.load(Ordering::Relaxed)
    }

    /// Appends what the peers of each key have transferred since the last call to `into`, and resets it.
    /// A key appears once for each time that it was added.
    pub fn take_totals(&self, into: &mut Vec<(KeyId, KeyTotals)>) {
        for mut keys in self.keys.lock_each() {
            into.append(&mut keys.aux_mut().retired);
            let mut changed = std::mem::take(&mut keys.aux_mut().changed);
            for hash in changed.drain(..) {
                if let Some((row, mut record)) = keys.find(hash) {
                    into.push((record.id, record.take_totals()));
                    keys.set(row, record);
                }
            }
            // Put it back for its memory.
            keys.aux_mut().changed = changed;
        }
    }

    /// Appends the keys that were used for the first time to `into`, each once, counted from when they
    /// were added or the tracker started.
    pub fn take_first_uses(&self, into: &mut Vec<KeyId>) {
        self.keys.lock_each().for_each(|mut keys| into.append(&mut keys.aux_mut().first_uses));
    }

    /// Returns the hash of a key, whether the key exists or not, and prefetches what
    /// [`PasskeyStore::admit`] reads.
    #[inline]
    pub(crate) fn hash_and_prefetch(&self, text: &[u8]) -> KeyHash {
        // No key is longer: a longer text is unknown by its beginning already.
        let text = text.get(..=limits::USER_KEY_LEN_MAX).unwrap_or(text);
        let hash = self.hash(text);
        self.keys.prefetch(hash);
        hash
    }

    /// Locks the key's shard, then checks that the key exists, has not expired, and is within its rate
    /// of announces.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Tick,
        hash: KeyHash,
        kind: RequestKind,
    ) -> Result<LockedKey<'_>, Refusal> {
        let mut keys = self.keys.lock(hash);
        let (row, mut record) = keys.find(hash).ok_or(Refusal::KeyUnknown)?;
        if now >= record.expires {
            return Err(Refusal::KeyExpired);
        }
        if kind == RequestKind::Announce
            && let Some(quota) = record.quota(keys.aux_mut())
        {
            quota.check_rate(now)?;
        }
        if !std::mem::replace(&mut record.is_used, true) {
            keys.set(row, record);
            keys.aux_mut().first_uses.push(record.id);
        }
        Ok(LockedKey { store: self, keys, row, record })
    }

    /// Returns the tag of a peer's session, and prefetches what [`LockedKey::account`] reads.
    #[inline]
    pub(crate) fn prefetch_session(
        &self,
        key: KeyHash,
        info_hash: &InfoHash,
        peer_id: &PeerId,
        identity: &PeerIdentity,
    ) -> SessionTag {
        let tag = SessionTag::new(&self.secret, key, info_hash, peer_id, identity);
        self.sessions.prefetch(tag);
        tag
    }

    /// Ends the session of a peer whose connection has ended. Does nothing if it has none.
    pub(crate) fn leave(&self, now: Tick, key: KeyHash, tag: SessionTag) {
        let mut keys = self.keys.lock(key);
        let Some((row, mut record)) = keys.find(key) else { return };
        record.sessions.advance(now, self.lifetime_max_s());
        let mut sessions = self.sessions.lock(tag);
        let Some((at, session)) = sessions.find(tag) else { return };
        let seeding_s = session.seeding_s(now, &session.siblings(&sessions));
        record.add(&KeyTotals { seeding_s, ..KeyTotals::default() });
        self.end(now, (&mut record, keys.aux_mut()), (&mut sessions, at, session));
        keys.set_changed(row, record);
    }

    /// Does one of `parts` parts of a pass that forgets peers whose lifetime has passed, and returns
    /// memory to the system.
    pub(crate) fn sweep(&self, now: Tick, parts: u32, plain_s: u32, web_s: u32) {
        self.lifetime_max_s.store(plain_s.max(web_s), Ordering::Relaxed);
        let lifetimes = Lifetimes { plain_s, web_s };
        self.sessions.sweep(now, parts, lifetimes, |hash, tag| {
            // The key is locked, so that session and quota change together.
            let mut keys = self.keys.lock(hash);
            if let Some(entry) = self.sessions.expire(tag, now, lifetimes)
                && let Some((_, record)) = keys.find(hash)
            {
                record.remove_peer(keys.aux_mut(), tag, entry);
            }
        });
        self.keys.adjust_huge_pages();
    }

    /// Removes a key, and keeps its totals until they are taken. Ends the sessions that count against its
    /// quota; others expire.
    fn retire(&self, hash: KeyHash) {
        let quota = remove(&mut self.keys.lock(hash), hash);
        // Nothing renews them, now that the key is unknown.
        for tag in quota.into_iter().flat_map(QuotaState::into_sessions) {
            self.sessions.end(tag);
        }
    }

    /// Ends a session, and its part in the key's quota and count.
    fn end(
        &self,
        now: Tick,
        (record, aux): (&mut KeyRecord, &mut TableAux),
        (sessions, at, mut session): (&mut LockedSessions<'_>, RowIndex, Session),
    ) {
        if let Some(entry) = session.take_quota_entry(sessions.aux_mut()) {
            record.remove_peer(aux, session.tag(), entry);
        }
        sessions.remove_at(at);
        record.sessions.remove(now, self.lifetime_max_s(), session.at());
    }

    /// Returns the part of a peer's progress since `since` that is credited to its key.
    #[inline]
    fn credit(
        &self,
        now: Tick,
        since: Tick,
        record: &mut KeyRecord,
        progress: &KeyTotals,
    ) -> KeyTotals {
        let window_s = self.lifetime_max_s();
        let imported_at = self.imported_at.load(Ordering::Relaxed);
        let rule = CreditRule {
            bytes_per_ms: self.bytes_per_ms.load(Ordering::Relaxed),
            window_s,
            begins_full: self.first_reports.are_kept()
                || imported_at > 0 && now.since(Tick(imported_at)) <= window_s,
        };
        let credited = record.credit.take(now, since, rule, progress);
        if credited != *progress {
            self.excessive.fetch_add(1, Ordering::Relaxed);
        }
        credited
    }

    /// Keeps the end of a session for other nodes, before it ends.
    #[inline]
    fn keep_end(&self, now: Tick, session: Session, sessions: &mut LockedSessions<'_>) {
        if self.changes.are_kept() {
            let of_key = session.of_key(sessions.aux_mut());
            self.changes.ended(now, session, of_key);
        }
    }

    /// Returns what a peer counts as in a quota.
    fn quota_entry(&self, report: &Report<'_>) -> QuotaEntry {
        let torrent = siphash::<1, 3>(&self.secret, &report.info_hash.0) as u32;
        (torrent, siphash_ip::<1, 3>(&self.secret, report.prefix) as u32)
    }

    fn lifetime_max_s(&self) -> u32 {
        self.lifetime_max_s.load(Ordering::Relaxed)
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> KeyHash {
        let [first, second] = siphash_128::<1, 3>(&self.secret, key);
        KeyHash([first.max(1), second])
    }
}

impl RowKey for KeyHash {
    #[inline]
    fn hash(self) -> u64 {
        self.0[0]
    }
}

/// Removes a key, and keeps its totals until they are taken. Returns its quota.
fn remove(keys: &mut LockedKeys<'_>, hash: KeyHash) -> Option<QuotaState> {
    let Some(mut record) = keys.remove(hash) else {
        debug_assert!(false, "a numbered key has no record");
        return None;
    };
    let aux = keys.aux_mut();
    if record.is_changed {
        aux.changed.retain(|changed| *changed != hash);
        // Bounded, in case the totals are never taken.
        if aux.retired.len() < limits::USER_KEYS_MAX / KeyRecord::SHARDS {
            aux.retired.push((record.id, record.take_totals()));
        }
    }
    let quota = aux.quotas.find_entry(hash.hash(), |(of, _)| *of == hash);
    quota.ok().map(|quota| quota.remove().0.1)
}

impl LockedKeys<'_> {
    /// Replaces a record by one with other totals.
    #[inline]
    fn set_changed(&mut self, row: RowIndex, mut record: KeyRecord) {
        if !std::mem::replace(&mut record.is_changed, true) {
            self.aux_mut().changed.push(record.hash);
        }
        self.set(row, record);
    }
}

impl LockedKey<'_> {
    /// Counts an announce for the key, unless its quota is exceeded. Returns whether the peer is the key's: a stop
    /// may be that of a peer which the key does not have.
    #[inline]
    pub(crate) fn account(
        self,
        now: Tick,
        tag: SessionTag,
        report: &Report<'_>,
    ) -> Result<bool, Refusal> {
        let Self { store, mut keys, row, mut record } = self;
        record.sessions.advance(now, store.lifetime_max_s());
        // 1. Lock the session, too. Everywhere: keys before sessions.
        let mut sessions = store.sessions.lock(tag);
        let mut found = sessions.find(tag);
        let mut is_own = found.is_some() || report.event != Event::Stopped;
        // 2. A peer that comes back with another peer id ends its old session. Only a quota matters.
        if found.is_none_or(|(_, session)| !session.has_quota_entry())
            && let Some(old) = predecessor(store, (&record, keys.aux_mut()), tag, report)
        {
            is_own = true;
            // Locked one by one: the old session may be in any shard.
            drop(sessions);
            sessions = store.sessions.lock(old);
            if let Some((at, session)) = sessions.find(old) {
                store.keep_end(now, session, &mut sessions);
                let of_key = (&mut record, keys.aux_mut());
                store.end(now, of_key, (&mut sessions, at, session));
            }
            drop(sessions);
            sessions = store.sessions.lock(tag);
            found = sessions.find(tag);
        }
        let key = record.hash;
        let is_first = store.first_reports.add(now, (key, tag), &sessions, report);
        // 3. Move the session and the quota on.
        let since = found.map_or(now, |(_, session)| session.at());
        let of_key = (&mut record, keys.aux_mut());
        let moved = match (found, report.event) {
            (None, Event::Stopped) => Ok(KeyTotals::default()),
            (Some((at, session)), Event::Stopped) => {
                let progress = session.progress(now, &session.siblings(&sessions), report);
                let mut last = session;
                last.update(now, report);
                store.keep_end(now, last, &mut sessions);
                store.end(now, of_key, (&mut sessions, at, session));
                Ok(progress)
            }
            (Some(found), _) => renew(store, now, of_key, (&mut sessions, found), report),
            (None, _) => {
                let session = Session::new(tag, now, report);
                begin(store, of_key, (&mut sessions, session), report)
            }
        };
        let progress = moved.inspect_err(|_| {
            if is_first {
                store.first_reports.forget(tag);
            }
            keys.set(row, record);
        })?;
        if store.changes.are_kept() && !report.is_web && report.event != Event::Stopped {
            store.changes.renewed(tag);
        }
        // 4. Add the peer's progress to the key's totals.
        let progress = if is_first { KeyTotals::default() } else { progress };
        let credited = store.credit(now, since, &mut record, &progress);
        record.add_announce(&credited);
        keys.set_changed(row, record);
        Ok(is_own)
    }
}

/// Returns the session that a peer has under another peer id, if that counts against the key's quota.
#[inline]
fn predecessor(
    store: &PasskeyStore,
    (record, aux): (&KeyRecord, &mut TableAux),
    tag: SessionTag,
    report: &Report<'_>,
) -> Option<SessionTag> {
    let quota = record.peer_quota(aux)?;
    let (torrent, _) = store.quota_entry(report);
    quota.predecessor(torrent, tag)
}

/// Moves a session on. Returns the progress of its peer.
#[inline]
fn renew(
    store: &PasskeyStore,
    now: Tick,
    (record, aux): (&mut KeyRecord, &mut TableAux),
    (sessions, (at, mut session)): (&mut LockedSessions<'_>, (RowIndex, Session)),
    report: &Report<'_>,
) -> Result<KeyTotals, Refusal> {
    record.charge(store, aux, (&mut session, sessions.aux_mut()), report)?;
    let progress = session.progress(now, &session.siblings(sessions), report);
    record.sessions.renew(now, store.lifetime_max_s(), session.at());
    session.update(now, report);
    sessions.set(at, session);
    Ok(progress)
}

/// Begins a session, if there is room for it. Without room, the peer of a key with bounds is refused,
/// since it could not be counted; others are served without a session.
fn begin(
    store: &PasskeyStore,
    (record, aux): (&mut KeyRecord, &mut TableAux),
    (sessions, mut session): (&mut LockedSessions<'_>, Session),
    report: &Report<'_>,
) -> Result<KeyTotals, Refusal> {
    // The first report counts nothing: the bytes were transferred elsewhere, or before.
    let none = KeyTotals::default();
    if let Err(reason) = store.sessions.check_room(sessions, session.tag(), record.sessions.len()) {
        return match (record.peer_quota(aux), reason) {
            (None, _) => Ok(none),
            (Some(_), NoRoom::OfKey) => Err(Refusal::KeySessions),
            (Some(_), NoRoom::OfAll) => Err(Refusal::KeyTableFull),
        };
    }
    record.charge(store, aux, (&mut session, sessions.aux_mut()), report)?;
    Sessions::insert(sessions, session);
    record.sessions.add();
    Ok(none)
}

impl KeyRules {
    fn has_quota(&self) -> bool {
        let Self { peers_per_torrent, torrents, addresses, announces_per_minute, .. } = *self;
        peers_per_torrent > 0 || torrents > 0 || addresses > 0 || announces_per_minute > 0
    }
}

impl KeyTotals {
    /// Returns the sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            uploaded: self.uploaded.saturating_add(other.uploaded),
            downloaded: self.downloaded.saturating_add(other.downloaded),
            seeding_s: self.seeding_s.saturating_add(other.seeding_s),
            announces: self.announces.saturating_add(other.announces),
        }
    }
}
