//! Torrents that were refused for the first time some minutes ago.
//!
//! Uploaders announce a torrent before the site has put it on the allow list. A wait of an hour makes them think that
//! the upload has failed; a minute for every client, with torrents that are never allowed, costs sixty times the
//! requests. So only torrents that were not refused during the last day get the short time, for some minutes.
//!
//! Clients choose what they announce, so the number of torrents is bounded. In a full table, a torrent that is not
//! there gets the long time.

use std::collections::HashMap;

use parking_lot::Mutex;
use primitives::siphash::siphash;
use types::{InfoHash, Tick};

/// Seconds during which a torrent is new.
const NEW_S: u32 = 900;
/// Seconds without a refusal after which a torrent is forgotten.
const KNOWN_S: u32 = 24 * 3600;
/// A power of two: mostly more than workers.
const SHARDS: usize = 64;
/// Torrents of a shard: 262,144 in all, some 8 MiB.
const SHARD_MAX: usize = 4096;

/// The torrents that were refused.
pub(crate) struct FirstRefusals {
    key: [u8; 16],
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    /// By keyed hashes.
    torrents: HashMap<u64, Refused>,
    /// When old torrents were last forgotten.
    swept: Tick,
}

/// When a torrent was refused.
struct Refused {
    first: Tick,
    last: Tick,
}

impl FirstRefusals {
    /// Returns an empty set. `key` keeps those who choose torrents from choosing shards.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// Notes that a torrent is refused, and returns true if that happened first a short time ago.
    pub(crate) fn is_new(&self, now: Tick, hash: &InfoHash) -> bool {
        let hash = siphash::<1, 3>(&self.key, &hash.0);
        let mut shard = self.shards[hash as usize % SHARDS].lock();
        if let Some(known) = shard.torrents.get_mut(&hash)
            && now.since(known.last) < KNOWN_S
        {
            known.last = now;
            return now.since(known.first) < NEW_S;
        }
        if shard.torrents.len() >= SHARD_MAX && now.since(shard.swept) >= NEW_S {
            shard.torrents.retain(|_, known| now.since(known.last) < KNOWN_S);
            shard.swept = now;
        }
        let has_room = shard.torrents.len() < SHARD_MAX || shard.torrents.contains_key(&hash);
        if has_room {
            shard.torrents.insert(hash, Refused { first: now, last: now });
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> InfoHash {
        let mut hash = [0; 20];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        InfoHash(hash)
    }

    #[test]
    fn torrents_are_new_for_some_minutes_and_known_for_a_day() {
        let refusals = FirstRefusals::new([1; 16]);
        let is_new = |s: u32| refusals.is_new(Tick(s), &hash(1));
        assert!((0..NEW_S).step_by(60).all(is_new));
        assert!((NEW_S..KNOWN_S).step_by(3600).all(|s| !is_new(s)));
        // As long as it is announced, it stays known.
        assert!((KNOWN_S..5 * KNOWN_S).step_by(12 * 3600).all(|s| !is_new(s)));
        assert!(is_new(8 * KNOWN_S));
        assert!(refusals.is_new(Tick(8 * KNOWN_S), &hash(2)));
    }

    #[test]
    fn too_many_torrents_get_the_long_time_until_there_is_room() {
        let refusals = FirstRefusals::new([1; 16]);
        let new = |s: u32, numbers: std::ops::Range<u32>| {
            numbers.filter(|number| refusals.is_new(Tick(s), &hash(*number))).count()
        };
        let most = SHARDS * SHARD_MAX;
        assert_eq!(new(NEW_S, 0..100_000), 100_000);
        assert!((100_000..=most).contains(&new(NEW_S, 0..2_000_000)));
        assert_eq!(new(NEW_S, 2_000_000..2_010_000), 0);
        assert_eq!(new(2 * NEW_S, 0..100_000), 0, "known");
        assert_eq!(new(2 * NEW_S + KNOWN_S, 3_000_000..3_010_000), 10_000);
    }
}
