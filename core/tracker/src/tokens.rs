//! Tokens: signed permissions to announce one torrent, which a client has in its announce URL.
//!
//! Plain form: verify the signature of each announce's token. That takes tens of microseconds, a hundred
//! times as long as the rest of an announce. Departures:
//! 1. A verified token is remembered, by a keyed hash of its bytes, until it expires: clients announce with
//!    the same token again and again. Their number is bounded, and the token that expires first makes room.
//! 2. Verifications are limited: for each second, over all workers, and for each [`View`](crate::View), so
//!    that a batch does not wait for more than a few.
//! 3. Refused tokens are not remembered, because anyone can invent them. Prefixes that sent too many are
//!    refused without verification until some time has passed.
//!
//! A [`TokenVerifier`] checks signatures and claims: this module knows neither algorithms nor the time of day.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;
use hashbrown::HashTable;
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

/// Counts of tokens since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenStats {
    /// Tokens that were verified and are valid.
    pub valid: u64,
    /// Tokens that were verified and are invalid or have expired.
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
    failures: LazyLock<Buckets>,
    /// The verifications of all prefixes together, as one.
    verifications: Buckets,
    valid: AtomicU64,
    refused: AtomicU64,
    deferred: AtomicU64,
}

/// A verifier, and the tokens that it has verified.
struct Verifier {
    verifier: Box<dyn TokenVerifier>,
    shards: Box<[Mutex<HashTable<RememberedToken>>]>,
}

#[derive(Clone, Copy)]
pub(crate) struct RememberedToken {
    /// Keyed hash of the token.
    tag: [u64; 2],
    /// The torrent that it permits.
    pub(crate) info_hash: InfoHash,
    /// The last second in which it is valid.
    pub(crate) until: Tick,
}

/// Tokens verified in a second, by all workers together, at some 50 microseconds each.
const VERIFICATIONS_PER_S: u32 = 2000;
/// A power of two.
const SHARDS: usize = 256;
/// Tokens of a shard: 917,504 in all, in 42 MiB. A tracker with 500,000 peers in as many pairs of peer and torrent
/// has as many tokens.
const SHARD_MAX: usize = 3584;
/// Refused tokens a minute of one prefix. Further ones are refused without verification.
const FAILURES_PER_MIN: u32 = 60;
/// Prefixes remembered for refused tokens: half a megabyte.
const FAILURE_BUCKETS: u32 = 1 << 16;

impl Tokens {
    /// `key` keeps clients from aiming at shards and buckets.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            verifier: ArcSwapOption::empty(),
            failures: LazyLock::new(|| Buckets::new(FAILURE_BUCKETS)),
            verifications: Buckets::new(1),
            valid: AtomicU64::default(),
            refused: AtomicU64::default(),
            deferred: AtomicU64::default(),
        }
    }

    /// Replaces the verifier, and forgets all tokens: keys may have been revoked.
    pub fn set_verifier(&self, verifier: Option<Box<dyn TokenVerifier>>) {
        let shards = || (0..SHARDS).map(|_| Mutex::default()).collect();
        let new = verifier.map(|verifier| Arc::new(Verifier { verifier, shards: shards() }));
        self.verifier.store(new);
    }

    /// Returns counts.
    pub fn stats(&self) -> TokenStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TokenStats {
            valid: load(&self.valid),
            refused: load(&self.refused),
            deferred: load(&self.deferred),
            remembered: self.verifier.load().as_ref().map_or(0, |verifier| verifier.len()),
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
        let verifier = self.verifier.load();
        let Some(verifier) = &*verifier else { return Err(Refusal::TokenUnverified) };
        if token.is_empty() || token.len() > limits::TOKEN_LEN_MAX {
            return Err(Refusal::TokenInvalid);
        }
        let permitted = match verifier.find(self.tag(token)) {
            Some(known) if now <= known.until => known.info_hash,
            Some(_) => return Err(Refusal::TokenExpired),
            None => self.verify(now, verifier, token, prefix, left)?,
        };
        if permitted == *info_hash { Ok(()) } else { Err(Refusal::TokenOtherTorrent) }
    }

    /// Returns the permission of a token that is remembered, even if it has expired.
    pub(crate) fn remembered(&self, token: &[u8]) -> Option<RememberedToken> {
        self.verifier.load().as_ref()?.find(self.tag(token))
    }

    fn tag(&self, token: &[u8]) -> [u64; 2] {
        siphash_128::<2, 4>(&self.key, token)
    }

    /// Verifies a token that is not remembered.
    #[cold]
    fn verify(
        &self,
        now: Tick,
        verifier: &Verifier,
        token: &[u8],
        prefix: Option<IpAddr>,
        left: &mut u32,
    ) -> Result<InfoHash, Refusal> {
        let per_min = Rate { per_s: FAILURES_PER_MIN, burst: FAILURES_PER_MIN };
        // A bucket counts by the second; passing minutes as seconds makes it count by the minute.
        let minute = Tick(now.0 / 60);
        let prefix = prefix.map(|prefix| siphash_ip::<1, 3>(&self.key, prefix));
        let is_over = |prefix| !self.failures.is_within(prefix, minute, per_min);
        let per_s = Rate { per_s: VERIFICATIONS_PER_S, burst: VERIFICATIONS_PER_S };
        if prefix.is_some_and(is_over) || *left == 0 || !self.verifications.take(0, now, per_s) {
            self.deferred.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::TokenUnverified);
        }
        *left -= 1;
        match verifier.verifier.verify(token) {
            Ok(VerifiedToken { info_hash, valid_s }) => {
                self.valid.fetch_add(1, Ordering::Relaxed);
                let (tag, until) = (self.tag(token), now.after(valid_s));
                verifier.remember(RememberedToken { tag, info_hash, until });
                Ok(info_hash)
            }
            Err(fault) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(prefix) = prefix {
                    self.failures.take(prefix, minute, per_min);
                }
                Err(match fault {
                    TokenFault::Expired => Refusal::TokenExpired,
                    _ => Refusal::TokenInvalid,
                })
            }
        }
    }
}

impl Verifier {
    fn find(&self, tag: [u64; 2]) -> Option<RememberedToken> {
        self.shard(tag).lock().find(tag[1], |token| token.tag == tag).copied()
    }

    /// Remembers a verified token. In a full shard, the one that expires first makes room.
    fn remember(&self, new: RememberedToken) {
        let mut tokens = self.shard(new.tag).lock();
        if tokens.find(new.tag[1], |token| token.tag == new.tag).is_some() {
            // Another worker has verified it meanwhile.
            return;
        }
        if tokens.len() >= SHARD_MAX
            && let Some(first) = tokens.iter().min_by_key(|token| token.until).copied()
            && let Ok(first) = tokens.find_entry(first.tag[1], |token| token.tag == first.tag)
        {
            first.remove();
        }
        tokens.insert_unique(new.tag[1], new, |token| token.tag[1]);
    }

    fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }

    fn shard(&self, [first, _]: [u64; 2]) -> &Mutex<HashTable<RememberedToken>> {
        &self.shards[first as usize % SHARDS]
    }
}
