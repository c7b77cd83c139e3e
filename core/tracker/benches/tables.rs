//! The crate's hand-made tables beside their plain forms, interleaved.
//!
//! `cargo bench -p tidegate-tracker --bench tables [-- keys|buckets]`. One thread; the median
//! and the fastest tenth of slices that take a fraction of a millisecond, since the machine may be busy.
//! Pin it with `taskset -c 0`. The last record is `bench/record/2026-11-22-key-tables.md`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex as StdMutex;
use std::time::Instant;

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use primitives::Random;
use types::Tick;

#[path = "../src/limiter/buckets.rs"]
#[allow(dead_code, unreachable_pub)]
mod buckets;
#[path = "../src/passkeys/table.rs"]
#[allow(dead_code, unused_imports)]
mod table;

use buckets::{Buckets, Rate};
use table::{Row, RowKey, ShardedTable};

/// Contenders take turns this often.
const ROUNDS: usize = 5;
const SLICE: usize = 1024;

fn main() {
    let parts: [(&str, fn()); 2] = [("keys", keys), ("buckets", limits)];
    let named: Vec<String> = std::env::args().skip(1).collect();
    let is_named = |name: &str| named.iter().any(|word| word == name);
    let is_any = parts.iter().any(|(name, _)| is_named(name));
    println!("{:<58} {:>8} {:>8}", "ns each", "median", "10 %");
    for (name, part) in parts {
        if !is_any || is_named(name) {
            part();
        }
    }
}

/// A name, and what runs a slice of probes.
type Contender<'a, T> = (&'a str, &'a mut dyn FnMut(&[T]));

/// Runs every contender on all of `probes`, `SLICE` at a time, in turns.
fn race<T>(what: &str, probes: &[T], contenders: &mut [Contender<'_, T>]) {
    let mut slices = vec![Vec::new(); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, run), slices) in contenders.iter_mut().zip(&mut slices) {
            for slice in probes.chunks(SLICE) {
                let start = Instant::now();
                run(slice);
                slices.push(start.elapsed().as_nanos() as f64 / slice.len() as f64);
            }
        }
    }
    for ((name, _), mut slices) in contenders.iter().zip(slices) {
        slices.sort_by(f64::total_cmp);
        let (median, fast) = (slices[slices.len() / 2], slices[slices.len() / 10]);
        println!("{:<58} {median:>8.1} {fast:>8.1}", format!("{what}: {name}"));
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Hash(u64);

impl RowKey for Hash {
    #[inline]
    fn hash(self) -> u64 {
        self.0
    }
}

/// A key's record or a session, by the number of its words and of its shards.
#[derive(Clone, Copy)]
struct Words<const WORDS: usize, const SHARDS: usize>([u64; WORDS]);

impl<const WORDS: usize, const SHARDS: usize> Row<WORDS> for Words<WORDS, SHARDS> {
    type Key = Hash;
    const SHARDS: usize = SHARDS;

    #[inline]
    fn key(&self) -> Hash {
        Hash(self.0[0])
    }

    #[inline]
    fn to_words(self) -> [u64; WORDS] {
        self.0
    }

    #[inline]
    fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }
}

/// The plain form of [`ShardedTable`].
struct Plain<R>(Box<[Shard<R>]>);

#[repr(align(64))]
struct Shard<R>(Mutex<HashTable<R>>);

impl<const WORDS: usize, const SHARDS: usize> Plain<Words<WORDS, SHARDS>> {
    fn new() -> Self {
        Self((0..SHARDS).map(|_| Shard(Mutex::new(HashTable::new()))).collect())
    }

    #[inline]
    fn shard(&self, hash: Hash) -> &Shard<Words<WORDS, SHARDS>> {
        &self.0[(hash.0 >> 40) as usize % SHARDS]
    }

    #[inline]
    fn lock(&self, hash: Hash) -> MutexGuard<'_, HashTable<Words<WORDS, SHARDS>>> {
        self.shard(hash).0.lock()
    }

    #[inline]
    fn prefetch(&self, hash: Hash) {
        primitives::prefetch(self.shard(hash));
    }

    /// Prefetches the home bucket, which takes the lock and loads a control byte.
    #[inline]
    fn prefetch_bucket(&self, hash: Hash) {
        let table = self.lock(hash);
        let mask = table.num_buckets().wrapping_sub(1);
        table.get_bucket(hash.0 as usize & mask).into_iter().for_each(primitives::prefetch);
    }

    fn insert(&self, row: Words<WORDS, SHARDS>) {
        self.lock(row.key()).insert_unique(row.0[0], row, |row| row.0[0]);
    }
}

type Record = Words<8, 256>;
type Session = Words<4, 1024>;

/// Measures an announce with a key: it finds the key's record and the session, and updates both. A batch
/// prefetches first.
fn keys() {
    for (keys, sessions, batch) in
        [(1_000_000, 100_000, 64), (1_000_000, 1_000_000, 64), (1_000_000, 1_000_000, 1)]
    {
        let mut random = Random::new(1);
        let users: Vec<u64> = (0..keys).map(|_| random.next().max(1)).collect();
        let probes: Vec<(Hash, Hash)> = (0..sessions)
            .map(|_| {
                let user = users[random.below(keys) as usize];
                (Hash(user), Hash(random.next().max(1)))
            })
            .collect();
        let hand = (ShardedTable::<Record, (), 8>::new(), ShardedTable::<Session, (), 4>::new());
        let plain = (Plain::<Record>::new(), Plain::<Session>::new());
        for user in &users {
            let record = Words([*user, 0, 0, 0, 0, 0, 0, 0]);
            hand.0.lock(Hash(*user)).insert(record);
            plain.0.insert(record);
        }
        for (_, tag) in &probes {
            let session = Words([tag.0, 0, 0, 0]);
            hand.1.lock(*tag).insert(session);
            plain.1.insert(session);
        }
        hand.0.adjust_huge_pages();
        hand.1.adjust_huge_pages();
        let what = format!("{keys} keys, {sessions} sessions, batches of {batch}");
        race(
            &what,
            &probes,
            &mut [
                ("ShardedTable", &mut |probes| {
                    for batch in probes.chunks(batch) {
                        batch.iter().for_each(|(user, _)| hand.0.prefetch(*user));
                        batch.iter().for_each(|(_, tag)| hand.1.prefetch(*tag));
                        batch.iter().for_each(|probe| announce_hand(&hand, *probe));
                    }
                }),
                ("HashTable", &mut |probes| {
                    for batch in probes.chunks(batch) {
                        batch.iter().for_each(|(user, _)| plain.0.prefetch(*user));
                        batch.iter().for_each(|(_, tag)| plain.1.prefetch(*tag));
                        batch.iter().for_each(|probe| announce_plain(&plain, *probe));
                    }
                }),
                ("HashTable, prefetched under the lock", &mut |probes| {
                    for batch in probes.chunks(batch) {
                        batch.iter().for_each(|(user, _)| plain.0.prefetch_bucket(*user));
                        batch.iter().for_each(|(_, tag)| plain.1.prefetch_bucket(*tag));
                        batch.iter().for_each(|probe| announce_plain(&plain, *probe));
                    }
                }),
            ],
        );
    }
}

#[inline]
fn announce_hand(
    (keys, sessions): &(ShardedTable<Record, (), 8>, ShardedTable<Session, (), 4>),
    (user, tag): (Hash, Hash),
) {
    let (mut keys, mut sessions) = (keys.lock(user), sessions.lock(tag));
    if let (Some((at, mut record)), Some((place, mut session))) =
        (keys.find(user), sessions.find(tag))
    {
        record.0[2] += session.0[1];
        session.0[1] += 3;
        sessions.set(place, session);
        keys.set(at, record);
    }
}

#[inline]
fn announce_plain((keys, sessions): &(Plain<Record>, Plain<Session>), (user, tag): (Hash, Hash)) {
    let (mut keys, mut sessions) = (keys.lock(user), sessions.lock(tag));
    let record = keys.find_mut(user.0, |row| row.0[0] == user.0);
    let session = sessions.find_mut(tag.0, |row| row.0[0] == tag.0);
    if let (Some(record), Some(session)) = (record, session) {
        record.0[2] += session.0[1];
        session.0[1] += 3;
    }
}

/// Rates of many prefixes.
fn limits() {
    const SHARDS: usize = 256;
    let rate = Rate { per_s: 1000, burst: 1000 };
    for prefixes in [10_000, 1_000_000] {
        let mut random = Random::new(1);
        let probes: Vec<u64> = (0..prefixes).map(|_| random.next()).collect();
        let hand = Buckets::new(1 << 21);
        type Debts = StdMutex<HashMap<u64, (u32, u32)>>;
        let plain: Vec<Debts> = (0..SHARDS).map(|_| Debts::default()).collect();
        race(
            &format!("{prefixes} prefixes"),
            &probes,
            &mut [
                ("Buckets", &mut |probes| {
                    for hash in probes {
                        black_box(hand.take(*hash, Tick(5), rate));
                    }
                }),
                ("sharded HashMap", &mut |probes| {
                    for hash in probes {
                        let shard = &plain[(hash >> 40) as usize % SHARDS];
                        let mut shard = shard.lock().unwrap_or_else(|_| unreachable!());
                        let (debt, at) = shard.entry(*hash).or_default();
                        *debt = debt.saturating_sub((5 - *at).saturating_mul(rate.per_s));
                        *at = 5;
                        *debt += u32::from(*debt < rate.burst);
                        black_box(*debt);
                    }
                }),
            ],
        );
    }
}
