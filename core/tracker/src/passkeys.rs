//! Users' passkeys: who may use private listeners, within which quota, and how much each has transferred.
//!
//! A map from key to rules and totals, and a map from (key, torrent, peer, peer id) to that peer's last report; each
//! announce adds the difference between two reports to the totals. Both are in [shards](shard), by a keyed hash of the
//! key: thousands of keys come and go while announces pass, no shard is large enough for its growth to be noticed, and
//! clients cannot aim at a shard, or learn from the time of a lookup how close a guess is. Beyond that:
//! 1. A key is known by 128 bits of a keyed hash; its text is not stored.
//! 2. Only keys with a quota have a [`QuotaState`](quota::QuotaState), where their torrents and addresses are counted.
//!
//! A session belongs to its peer, which is its address and port or its connection, as in the store: only
//! that peer can renew, end or replace it. A peer id proves nothing; but a client that announces over both
//! families, or two protocols, has transferred its bytes once. So of the sessions of one key with the same
//! peer id in one torrent, a report counts only as far as it exceeds those of all others.

mod account;
mod changes;
mod credit;
mod export;
mod import;
mod quota;
mod record;
mod session;
mod sessions;
mod shard;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use primitives::prefetch_all;
use primitives::siphash::siphash_128;
use types::{Event, InfoHash, PeerId, Refusal, Role, Tick, UserKey, limits};

use crate::RequestKind;
use credit::{Credit, CreditRule, bytes_per_ms};
use import::FirstReports;
use record::KeyRecord;
use sessions::{Lifetimes, SessionLimits};
use shard::{SHARDS, Shard, find_key, prefetch_entry, shard_of};

pub(crate) use account::LockedKey;
pub use export::{BadSessions, SessionWalk};
pub(crate) use import::ImportTime;
pub use import::SessionOrigin;
pub(crate) use session::{PeerIdentity, SessionTag};

/// The number of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// Ids from this one on belong to keys of files, which have no record.
    pub const FILE_FIRST: u32 = 1 << 31;
    /// Ids from this one up to [`KeyId::FILE_FIRST`] belong to the users of a [site](crate::Site), which have no
    /// record either.
    pub const SITE_FIRST: u32 = 1 << 30;
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
    /// True if its peers may only seed.
    pub seed_only: bool,
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
    shards: Box<[Mutex<Shard>]>,
    session_limits: Arc<SessionLimits>,
    /// The shard that the sweep visits next, modulo their number.
    swept: AtomicUsize,
    /// The hash of each key.
    hashes: Mutex<BTreeMap<KeyId, KeyHash>>,
    first_reports: FirstReports,
    keeps_changes: AtomicBool,
    /// The longest lifetime of a session, seconds.
    lifetime_max_s: AtomicU32,
    /// Bytes that a key is credited in a millisecond at most; 0 = unlimited.
    bytes_per_ms: AtomicU64,
    /// The tick of the last import of sessions, plus one; 0 = never.
    imported_at: AtomicU32,
    /// Reports that were credited in part, since the start.
    excessive: AtomicU64,
}

/// Identifies a key: a keyed hash, long enough that another text with the same one cannot be found.
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

impl PasskeyStore {
    /// Returns an empty store. `secret` keeps clients from aiming at shards. Sessions can be imported by
    /// processes that have the same one.
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self::with_limits(secret, SessionLimits::default())
    }

    fn with_limits(secret: [u8; 16], session_limits: SessionLimits) -> Self {
        let session_limits = Arc::new(session_limits);
        let shard = |_| Mutex::new(Shard::new(Arc::clone(&session_limits)));
        Self {
            secret,
            shards: (0..SHARDS).map(shard).collect(),
            session_limits,
            swept: AtomicUsize::default(),
            hashes: Mutex::default(),
            first_reports: FirstReports::default(),
            keeps_changes: AtomicBool::default(),
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
            self.lock(old.short()).remove_key(old);
        }
        let mut shard = self.lock(hash.short());
        if let Some(record) = find_key(&mut shard.keys, hash) {
            record.set_rules(rules);
            let old_id = std::mem::replace(&mut record.id, id);
            if old_id != id {
                hashes.remove(&old_id);
            }
        } else {
            let mut record = KeyRecord::new(hash, id);
            record.set_rules(rules);
            shard.keys.insert_unique(hash.short(), record, |key| key.hash.short());
        }
        true
    }

    /// Removes a key, in force when this returns. Returns whether it existed. Its totals can still be
    /// taken.
    pub fn remove(&self, id: KeyId) -> bool {
        let mut hashes = self.hashes.lock();
        let Some(hash) = hashes.remove(&id) else { return false };
        self.lock(hash.short()).remove_key(hash);
        true
    }

    /// Returns the number of keys, expired ones included.
    pub fn keys(&self) -> usize {
        self.hashes.lock().len()
    }

    /// Returns the number of sessions of all keys.
    pub fn sessions(&self) -> usize {
        self.session_limits.count.load(Ordering::Relaxed)
    }

    /// Keeps sessions that change from now on for [`SessionWalk::of_changes`].
    pub fn keep_session_changes(&self) {
        self.keeps_changes.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn keeps_changes(&self) -> bool {
        self.keeps_changes.load(Ordering::Relaxed)
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
    /// A key whose text was replaced may appear twice.
    pub fn take_totals(&self, into: &mut Vec<(KeyId, KeyTotals)>) {
        self.shards.iter().for_each(|shard| shard.lock().totals.take(into));
    }

    /// Appends the keys that were used for the first time to `into`, each once, counted from when they
    /// were added or the tracker started.
    pub fn take_first_uses(&self, into: &mut Vec<KeyId>) {
        self.shards.iter().for_each(|shard| into.append(&mut shard.lock().first_uses));
    }

    /// Returns the hash of a key, whether the key exists or not, and prefetches the shard for
    /// [`PasskeyStore::prefetch_session`].
    #[inline]
    pub(crate) fn hash_and_prefetch(&self, text: &[u8]) -> KeyHash {
        // No key is longer: a longer text is unknown by its beginning already.
        let text = text.get(..=limits::USER_KEY_LEN_MAX).unwrap_or(text);
        let hash = self.hash(text);
        prefetch_all(&self.shards[shard_of(hash.short())]);
        hash
    }

    /// Locks the key's shard and checks the key.
    ///
    /// # Errors
    ///
    /// If the key does not exist, has expired, or exceeds its rate of announces.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Tick,
        hash: KeyHash,
        kind: RequestKind,
    ) -> Result<LockedKey<'_>, Refusal> {
        let mut shard = self.lock(hash.short());
        let Shard { keys, first_uses, .. } = &mut *shard;
        let found = keys.find_bucket_index(hash.short(), |key| key.hash == hash);
        let bucket = found.ok_or(Refusal::KeyUnknown)?;
        let key = keys.get_bucket_mut(bucket).ok_or(Refusal::KeyUnknown)?;
        if now >= key.expires {
            return Err(Refusal::KeyExpired);
        }
        if kind == RequestKind::Announce
            && let Some(quota) = &mut key.quota
        {
            quota.check_rate(now)?;
        }
        if !key.is_used {
            key.is_used = true;
            first_uses.push(key.id);
        }
        Ok(LockedKey { store: self, shard, bucket })
    }

    /// Returns the tag of a peer's session, and prefetches what [`PasskeyStore::admit`] and
    /// [`LockedKey::account`] read.
    #[inline]
    pub(crate) fn prefetch_session(
        &self,
        key: KeyHash,
        info_hash: &InfoHash,
        peer_id: &PeerId,
        identity: &PeerIdentity,
    ) -> SessionTag {
        let tag = SessionTag::new(&self.secret, key, info_hash, peer_id, identity);
        // Another thread that holds the lock has the shard in use already.
        if let Some(shard) = self.shards[shard_of(tag.client)].try_lock() {
            prefetch_entry(&shard.keys, key.short());
            shard.sessions.prefetch(tag);
        }
        tag
    }

    /// Does one of `parts` parts of a pass that forgets peers whose lifetime has passed, and returns
    /// memory to the system.
    pub(crate) fn sweep(&self, now: Tick, parts: u32, plain_s: u32, web_s: u32) {
        self.lifetime_max_s.store(plain_s.max(web_s), Ordering::Relaxed);
        let lifetimes = Lifetimes { plain_s, web_s };
        for _ in 0..SHARDS.div_ceil(parts.max(1) as usize) {
            let next = self.swept.fetch_add(1, Ordering::Relaxed) % SHARDS;
            self.shards[next].lock().expire(now, lifetimes);
        }
    }

    /// Locks the shard of a key or session, by its hash.
    #[inline]
    fn lock(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(hash)].lock()
    }

    /// Returns the part of a peer's progress since `since` that is credited to its key.
    #[inline]
    fn credit(
        &self,
        now: Tick,
        since: Tick,
        credit: &mut Credit,
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
        let credited = credit.take(now, since, rule, progress);
        if credited != *progress {
            self.excessive.fetch_add(1, Ordering::Relaxed);
        }
        credited
    }

    fn lifetime_max_s(&self) -> u32 {
        self.lifetime_max_s.load(Ordering::Relaxed)
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(siphash_128::<1, 3>(&self.secret, key))
    }
}

impl KeyHash {
    /// Returns the half that chooses the shard, and where in its table the key is.
    #[inline]
    fn short(self) -> u64 {
        self.0[0]
    }
}

impl KeyRules {
    /// Returns whether they bound the key's peers.
    fn bound_peers(&self) -> bool {
        self.peers_per_torrent > 0 || self.torrents > 0 || self.addresses > 0
    }

    /// Returns whether they bound anything but the key's lifetime.
    fn are_bounds(&self) -> bool {
        self.bound_peers() || self.announces_per_minute > 0 || self.seed_only
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
