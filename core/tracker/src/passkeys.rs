//! Users' passkeys: who may use private listeners, within which quota, and how much each has transferred.
//!
//! Plain form: a map from key to rules and totals, and a map from (key, torrent, peer id) to that
//! peer's last report; each announce adds the difference between two reports to the totals. Departures:
//! 1. Both maps are sharded by a keyed hash ([`table`]): thousands of keys come and go while announces
//!    pass, no shard is large enough for its growth to be noticed, and clients cannot aim at a shard, or
//!    learn from the time of a lookup how close a guess is.
//! 2. A key is known by 128 bits of a keyed hash; its text is not stored. A key and all that is counted
//!    for it are one cache line, and comparing it takes the same time whatever it is compared with.
//! 3. Only keys with a quota have a [`QuotaState`], where their torrents and addresses are counted.
//!
//! Peers are distinguished by peer id here, not by address as in the store: a client that announces over
//! both families, or two protocols, has transferred its bytes once.

mod quota;
mod sessions;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use hashbrown::HashTable;
use parking_lot::Mutex;
use primitives::siphash::{siphash, siphash_128, siphash_ip};
use types::{Event, InfoHash, PeerId, Refusal, Role, Tick, UserKey, limits};

use crate::RequestKind;
use quota::QuotaState;
use sessions::{QuotaEntries, QuotaEntry, Session, Sessions};
use table::{LockedShard, Row, RowIndex, RowKey, ShardedTable};

pub(crate) use sessions::SessionTag;

/// The number of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// Ids from this one on belong to keys of files, which have no record.
    pub const FILE_FIRST: u32 = 1 << 31;
}

/// What a key allows. 0 = unlimited.
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

/// What the peers of a key have transferred since the totals were last taken.
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
}

/// Identifies a key: a keyed hash, long enough that another text with the same one cannot be found. Its
/// first word is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash([u64; 2]);

/// What a peer of a key reports.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) info_hash: &'a InfoHash,
    /// The prefix of its address.
    pub(crate) prefix: IpAddr,
    pub(crate) event: Event,
    pub(crate) role: Role,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    /// Whether it is a WebTorrent peer.
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

/// What a shard of keys has beside its rows.
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

/// A key.
#[derive(Clone, Copy)]
struct KeyRecord {
    hash: KeyHash,
    id: KeyId,
    /// When the key expires, or [`NEVER`].
    expires: Tick,
    uploaded: u64,
    downloaded: u64,
    seeding_s: u64,
    /// Saturates, in case the totals are never taken.
    announces: u32,
    /// Whether the key is in the shard's `changed`.
    is_changed: bool,
    is_used: bool,
    /// Whether the key is in the shard's `quotas`.
    has_quota: bool,
}

/// 136 years after the start.
const NEVER: Tick = Tick(u32::MAX);

impl PasskeyStore {
    /// Returns an empty store. `secret` keeps clients from aiming at shards.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self {
            secret,
            keys: ShardedTable::new(),
            hashes: Mutex::default(),
            sessions: Sessions::new(),
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
            retire(&mut self.keys.lock(old), old);
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
        retire(&mut self.keys.lock(hash), hash);
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

    /// Returns the number of peers with a key that are remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
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
    ) -> SessionTag {
        let tag = SessionTag::new(&self.secret, key, info_hash, peer_id);
        self.sessions.prefetch(tag);
        tag
    }

    /// Does one of `parts` parts of a pass that forgets peers whose lifetime has passed.
    pub(crate) fn sweep(&self, now: Tick, parts: u32, plain_s: u32, web_s: u32) {
        let mut ended = Vec::new();
        self.sessions.sweep(now, parts, [plain_s, web_s], &mut ended);
        for (hash, entry) in ended {
            let mut keys = self.keys.lock(hash);
            if let Some((_, record)) = keys.find(hash) {
                record.remove_peer(keys.aux_mut(), entry);
            }
        }
        self.keys.collapse_huge_pages();
    }

    /// Returns what a peer counts as in a quota, if the quota counts peers.
    fn quota_entry(&self, quota: &QuotaState, report: &Report<'_>) -> Option<QuotaEntry> {
        if !quota.counts_peers() {
            return None;
        }
        let torrent = siphash::<1, 3>(&self.secret, &report.info_hash.0) as u32;
        Some((torrent, siphash_ip::<1, 3>(&self.secret, report.prefix) as u32))
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

impl Row<8> for KeyRecord {
    type Key = KeyHash;
    /// With 100,000 keys, 400 in each.
    const SHARDS: usize = 256;

    #[inline]
    fn key(&self) -> KeyHash {
        self.hash
    }

    #[inline]
    fn to_words(self) -> [u64; 8] {
        let Self { hash: KeyHash([first, second]), uploaded, downloaded, seeding_s, .. } = self;
        let flags = [self.is_changed, self.is_used, self.has_quota].map(u64::from);
        let flags = flags[0] | flags[1] << 1 | flags[2] << 2;
        let numbers = u64::from(self.announces) | u64::from(self.id.0) << 32;
        let rest = u64::from(self.expires.0) | flags << 32;
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, 0]
    }

    #[inline]
    fn from_words(
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, _]: [u64; 8],
    ) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        Self {
            hash: KeyHash([first, second]),
            id: KeyId((numbers >> 32) as u32),
            expires: Tick(rest as u32),
            uploaded,
            downloaded,
            seeding_s,
            announces: numbers as u32,
            is_changed: has(0),
            is_used: has(1),
            has_quota: has(2),
        }
    }
}

/// Removes a key, and keeps its totals until they are taken.
fn retire(keys: &mut LockedKeys<'_>, hash: KeyHash) {
    let Some(mut record) = keys.remove(hash) else {
        debug_assert!(false, "a numbered key has no record");
        return;
    };
    let aux = keys.aux_mut();
    if let Ok(quota) = aux.quotas.find_entry(hash.hash(), |(of, _)| *of == hash) {
        quota.remove();
    }
    if record.is_changed {
        aux.changed.retain(|changed| *changed != hash);
        // Bounded, in case the totals are never taken.
        if aux.retired.len() < limits::USER_KEYS_MAX / KeyRecord::SHARDS {
            aux.retired.push((record.id, record.take_totals()));
        }
    }
}

impl LockedKey<'_> {
    /// Counts an announce for the key, unless its quota is exceeded.
    #[inline]
    pub(crate) fn account(
        self,
        now: Tick,
        tag: SessionTag,
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        let Self { store, mut keys, row, mut record } = self;
        // 1. Lock the session, too. Everywhere: keys before sessions.
        let mut sessions = store.sessions.lock(tag);
        let mut progress = KeyTotals::default();
        // 2. Move the session and the quota on.
        if report.event == Event::Stopped {
            if let Some((at, mut session)) = sessions.find(tag) {
                progress = session.progress(now, report);
                if let Some((_, entry)) = session.take_quota_entry(sessions.aux_mut()) {
                    record.remove_peer(keys.aux_mut(), entry);
                }
                sessions.remove_at(at);
            }
        } else if let Some((at, mut session)) = sessions.find(tag) {
            record.charge(store, keys.aux_mut(), (&mut session, sessions.aux_mut()), report)?;
            progress = session.progress(now, report);
            session.update(now, report);
            sessions.set(at, session);
        } else if Sessions::has_room(&sessions) {
            let mut session = Session::new(tag, now, report);
            record.charge(store, keys.aux_mut(), (&mut session, sessions.aux_mut()), report)?;
            sessions.insert(session);
        }
        // 3. Add the peer's progress to the key's totals.
        record.add(&progress);
        if !std::mem::replace(&mut record.is_changed, true) {
            keys.aux_mut().changed.push(record.hash);
        }
        keys.set(row, record);
        Ok(())
    }
}

impl KeyRecord {
    fn new(hash: KeyHash, id: KeyId) -> Self {
        Self {
            hash,
            id,
            expires: NEVER,
            uploaded: 0,
            downloaded: 0,
            seeding_s: 0,
            announces: 0,
            is_changed: false,
            is_used: false,
            has_quota: false,
        }
    }

    fn set_rules(&mut self, aux: &mut TableAux, rules: KeyRules) {
        self.expires = rules.expires.unwrap_or(NEVER);
        if !self.has_quota && rules.has_quota() {
            let quota = (self.hash, QuotaState::default());
            aux.quotas.insert_unique(self.hash.hash(), quota, |(hash, _)| hash.hash());
            self.has_quota = true;
        }
        // Keep the counts: the key's peers are still there under the new rules.
        if let Some(quota) = self.quota(aux) {
            quota.rules = rules;
        }
    }

    /// Returns the key's quota, if it has or had one.
    #[inline]
    fn quota<'a>(&self, aux: &'a mut TableAux) -> Option<&'a mut QuotaState> {
        if !self.has_quota {
            return None;
        }
        let found = aux.quotas.find_mut(self.hash.hash(), |(hash, _)| *hash == self.hash);
        debug_assert!(found.is_some(), "a key lost its quota");
        found.map(|(_, quota)| quota)
    }

    /// Adds an announce and a peer's progress to the totals.
    #[inline]
    fn add(&mut self, progress: &KeyTotals) {
        self.uploaded = self.uploaded.saturating_add(progress.uploaded);
        self.downloaded = self.downloaded.saturating_add(progress.downloaded);
        self.seeding_s = self.seeding_s.saturating_add(progress.seeding_s);
        self.announces = self.announces.saturating_add(1);
    }

    /// Returns the totals, and resets them.
    fn take_totals(&mut self) -> KeyTotals {
        self.is_changed = false;
        KeyTotals {
            uploaded: std::mem::take(&mut self.uploaded),
            downloaded: std::mem::take(&mut self.downloaded),
            seeding_s: std::mem::take(&mut self.seeding_s),
            announces: std::mem::take(&mut self.announces).into(),
        }
    }

    /// Charges the quota for a peer that is new or has changed its address.
    #[inline]
    fn charge(
        &self,
        store: &PasskeyStore,
        aux: &mut TableAux,
        (session, entries): (&mut Session, &mut QuotaEntries),
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        let Some(quota) = self.quota(aux) else { return Ok(()) };
        let Some((torrent, address)) = store.quota_entry(quota, report) else { return Ok(()) };
        match session.quota_entry(entries) {
            Some((_, old)) if old == address => return Ok(()),
            Some((_, old)) => quota.change_address(old, address)?,
            None => quota.add_peer(torrent, address)?,
        }
        session.set_quota_entry(entries, self.hash, (torrent, address));
        Ok(())
    }

    /// Removes a peer from the quota.
    fn remove_peer(&self, aux: &mut TableAux, (torrent, address): QuotaEntry) {
        if let Some(quota) = self.quota(aux) {
            quota.remove_peer(torrent, address);
        }
    }
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
