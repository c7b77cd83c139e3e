//! Tokens: signed permissions to announce one torrent, which a client has in its announce URL.
//!
//! Plain form: verify the signature of each announce's token. That takes tens of microseconds, a hundred
//! times as long as the rest of an announce. Departures:
//! 1. A verified token is remembered, by a keyed hash of its bytes, until it expires: clients announce with
//!    the same token again and again. The table has a fixed size, and the token that expires first makes
//!    room.
//! 2. Verifications are limited: for each second, over all workers, and for each [`View`](crate::View), so
//!    that a batch does not wait for more than a few.
//! 3. Refused tokens are not remembered, because anyone can invent them. Prefixes that sent too many are
//!    refused without verification until some time has passed.
//!
//! Signatures and claims are for a [`TokenVerifier`]: this module knows neither algorithms nor the time of
//! day.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use primitives::siphash::{siphash_128, siphash_ip};
use types::{InfoHash, Refusal, Tick, limits};

use crate::limiter::{Buckets, Rate};

/// Verifies tokens.
pub trait TokenVerifier: Send + Sync {
    /// Verifies the signature and the claims of a token, and returns what it permits.
    ///
    /// # Errors
    ///
    /// Says why the token permits nothing.
    fn verify(&self, token: &[u8]) -> Result<VerifiedToken, TokenFault>;
}

/// The permission that a token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The torrent that its holder may announce.
    pub info_hash: InfoHash,
    /// Seconds until it expires.
    pub valid_s: u32,
}

/// Why a token permits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// Its form, its signature or one of its claims is wrong.
    Invalid,
    /// It was valid, and has expired.
    Expired,
}

/// Bounds on what verifying tokens costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// Verifications a second, over all workers.
    pub verifications_per_s: u32,
    /// Refused tokens a minute of one prefix; further ones are refused unseen.
    pub failures_per_min: u32,
}

/// Counts of tokens since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenStats {
    /// Tokens that were verified and are valid.
    pub valid: u64,
    /// Tokens that were verified and are not valid, or no more.
    pub refused: u64,
    /// Tokens that were not verified because there were too many.
    pub deferred: u64,
    /// Verified tokens that are remembered.
    pub remembered: u64,
}

/// The tokens of a tracker. Without a verifier, every token is refused.
pub struct Tokens {
    key: [u8; 16],
    verifier: ArcSwapOption<Verifier>,
    /// Allocated with the first verifier.
    tables: OnceLock<Tables>,
    rate: AtomicU64,
    failures_per_min: AtomicU64,
    /// The present second, and the verifications in it.
    window: AtomicU64,
    valid: AtomicU64,
    refused: AtomicU64,
    deferred: AtomicU64,
}

/// A verifier, as one word that can be replaced.
struct Verifier {
    verifier: Box<dyn TokenVerifier>,
    /// The number of the verifier, from 1.
    number: u32,
}

struct Tables {
    /// As many as a power of two.
    shards: Box<[Mutex<Vec<Entry>>]>,
    failures: Buckets,
    /// The number of the verifier in use. Entries of others do not count.
    in_use: AtomicU32,
}

/// A verified token.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Keyed hash of the token; zeros are a free entry.
    tag: [u64; 2],
    info_hash: InfoHash,
    until: Tick,
    /// The number of the verifier that verified it.
    verifier: u32,
}

/// Entries of the table: 48 MiB. A tracker with 500,000 peers in as many pairs of peer and torrent has as many
/// tokens.
const ENTRIES: usize = 1 << 20;
/// Parts of the table, each with its own lock.
const SHARDS: usize = 1 << 8;
/// Entries that a token may take; the one that expires first makes room.
const WAYS: usize = 8;
/// Prefixes remembered for refused tokens: half a megabyte.
const FAILURE_BUCKETS: u32 = 1 << 16;

impl Default for TokenRules {
    fn default() -> Self {
        Self { verifications_per_s: 2000, failures_per_min: 60 }
    }
}

impl Tokens {
    /// `key` keeps clients from aiming at entries.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let rules = TokenRules::default();
        Self {
            key,
            verifier: ArcSwapOption::empty(),
            tables: OnceLock::new(),
            rate: AtomicU64::new(rules.verifications_per_s.into()),
            failures_per_min: AtomicU64::new(rules.failures_per_min.into()),
            window: AtomicU64::default(),
            valid: AtomicU64::default(),
            refused: AtomicU64::default(),
            deferred: AtomicU64::default(),
        }
    }

    /// Replaces the verifier, and forgets what others have verified: keys may have been revoked.
    pub fn set_verifier(&self, verifier: Option<Box<dyn TokenVerifier>>) {
        let Some(verifier) = verifier else {
            self.verifier.store(None);
            self.tables.get().into_iter().for_each(|tables| _ = tables.next_verifier());
            return;
        };
        let number = self.tables.get_or_init(Tables::new).next_verifier();
        self.verifier.store(Some(Arc::new(Verifier { verifier, number })));
    }

    /// Replaces the bounds.
    pub fn set_rules(&self, rules: TokenRules) {
        self.rate.store(rules.verifications_per_s.into(), Ordering::Relaxed);
        self.failures_per_min.store(rules.failures_per_min.into(), Ordering::Relaxed);
    }

    /// Returns counts.
    pub fn stats(&self) -> TokenStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TokenStats {
            valid: load(&self.valid),
            refused: load(&self.refused),
            deferred: load(&self.deferred),
            remembered: self.tables.get().map_or(0, Tables::len),
        }
    }

    /// Checks whether `token` permits `info_hash`. `prefix` is the client's, or `None` for a client without
    /// limits. `left` is how many tokens may be verified for this batch, and is counted down.
    pub(crate) fn admit(
        &self,
        now: Tick,
        token: &[u8],
        info_hash: &InfoHash,
        prefix: Option<IpAddr>,
        left: &mut u32,
    ) -> Result<(), Refusal> {
        let Some(tables) = self.tables.get() else { return Err(Refusal::TokenUnverified) };
        if token.is_empty() || token.len() > limits::TOKEN_LEN_MAX {
            return Err(Refusal::TokenInvalid);
        }
        let tag = siphash_128::<2, 4>(&self.key, token);
        let permitted = match tables.find(tag) {
            Some(entry) if now <= entry.until => entry.info_hash,
            Some(_) => return Err(Refusal::TokenExpired),
            None => self.verify(now, (tables, tag), token, prefix, left)?,
        };
        if permitted == *info_hash { Ok(()) } else { Err(Refusal::TokenOtherTorrent) }
    }

    /// Returns whether `token` is remembered as one that permits `info_hash`, or did before it expired.
    pub(crate) fn has_permitted(&self, token: &[u8], info_hash: &InfoHash) -> bool {
        self.remembered(token).is_some_and(|entry| entry.info_hash == *info_hash)
    }

    /// Returns whether a token is remembered and has expired.
    pub(crate) fn has_expired(&self, now: Tick, token: &[u8]) -> bool {
        self.remembered(token).is_some_and(|entry| now > entry.until)
    }

    fn remembered(&self, token: &[u8]) -> Option<Entry> {
        self.tables.get()?.find(siphash_128::<2, 4>(&self.key, token))
    }

    /// Verifies a token that is not remembered.
    #[cold]
    fn verify(
        &self,
        now: Tick,
        (tables, tag): (&Tables, [u64; 2]),
        token: &[u8],
        prefix: Option<IpAddr>,
        left: &mut u32,
    ) -> Result<InfoHash, Refusal> {
        let per_min = self.failures_per_min.load(Ordering::Relaxed) as u32;
        let rate = Rate { per_s: per_min, burst: per_min.clamp(1, Buckets::BURST_MAX) };
        // A bucket counts by the second; passing minutes as seconds makes it count by the minute.
        let minute = Tick(now.0 / 60);
        let prefix = prefix.map(|prefix| siphash_ip::<1, 3>(&self.key, prefix));
        let is_over = |prefix| !tables.failures.is_within(prefix, minute, rate);
        if prefix.is_some_and(is_over) || *left == 0 || !self.take(now) {
            self.deferred.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::TokenUnverified);
        }
        *left -= 1;
        let verifier = self.verifier.load();
        let Some(verifier) = &*verifier else { return Err(Refusal::TokenUnverified) };
        match verifier.verifier.verify(token) {
            Ok(VerifiedToken { info_hash, valid_s }) => {
                self.valid.fetch_add(1, Ordering::Relaxed);
                let until = now.after(valid_s);
                tables.insert(Entry { tag, info_hash, until, verifier: verifier.number });
                Ok(info_hash)
            }
            Err(fault) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(prefix) = prefix {
                    tables.failures.take(prefix, minute, rate);
                }
                Err(match fault {
                    TokenFault::Expired => Refusal::TokenExpired,
                    _ => Refusal::TokenInvalid,
                })
            }
        }
    }

    /// Takes one verification of the present second. Returns false if there is none left.
    fn take(&self, now: Tick) -> bool {
        let per_s = self.rate.load(Ordering::Relaxed);
        let second = u64::from(now.0) << 32;
        let next = |word: u64| {
            let taken = if word >> 32 == second >> 32 { word & u64::from(u32::MAX) } else { 0 };
            (taken < per_s).then_some(second | (taken + 1))
        };
        self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl Tables {
    fn new() -> Self {
        let shard = || Mutex::new(vec![Entry::default(); ENTRIES / SHARDS]);
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            failures: Buckets::new(FAILURE_BUCKETS),
            in_use: AtomicU32::default(),
        }
    }

    /// Forgets what other verifiers have verified, and returns the number of the next one.
    fn next_verifier(&self) -> u32 {
        self.in_use.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn find(&self, tag: [u64; 2]) -> Option<Entry> {
        let entries = self.shard(tag)?.lock();
        let in_use = self.in_use.load(Ordering::Relaxed);
        let is_it = |entry: &&Entry| entry.tag == tag && entry.verifier == in_use;
        set_of(&entries, tag)?.iter().find(is_it).copied()
    }

    fn insert(&self, new: Entry) {
        let Some(shard) = self.shard(new.tag) else { return };
        let mut entries = shard.lock();
        let at = set_start(entries.len(), new.tag);
        let set = entries.get_mut(at..at + WAYS).unwrap_or_default();
        // Its own entry, one of another verifier, or the one that expires first.
        let place = set.iter_mut().min_by_key(|entry| {
            (entry.tag != new.tag, entry.verifier == new.verifier, entry.until)
        });
        place.into_iter().for_each(|place| *place = new);
    }

    fn len(&self) -> u64 {
        let in_use = self.in_use.load(Ordering::Relaxed);
        let is_used = |entry: &&Entry| entry.tag != [0, 0] && entry.verifier == in_use;
        self.shards.iter().map(|shard| shard.lock().iter().filter(is_used).count() as u64).sum()
    }

    fn shard(&self, [first, _]: [u64; 2]) -> Option<&Mutex<Vec<Entry>>> {
        self.shards.get(first as usize % SHARDS)
    }
}

/// Returns the entries that a token may have.
fn set_of(entries: &[Entry], tag: [u64; 2]) -> Option<&[Entry]> {
    let at = set_start(entries.len(), tag);
    entries.get(at..at + WAYS)
}

fn set_start(len: usize, [_, second]: [u64; 2]) -> usize {
    second as usize % (len / WAYS).max(1) * WAYS
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.stats())
    }
}
