//! Rows as simple as they can be: a map whose values only grow, in the same kinds and ranges as real ones.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};

use tidegate_cluster::{BoxFuture, Rows, RowsError, RowsPart};

/// Rows of which the last writer wins: the value is a stamp.
pub(crate) const STAMPS: u8 = 0;
/// Counters, one for each node.
pub(crate) const COUNTERS: u8 = 1;
const KINDS: usize = 2;
const RANGES: usize = 16;
/// Rows of a part: few, so that there are many parts.
const PART: usize = 3;
const ROW_LEN: usize = 14;

/// Identity of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) kind: u8,
    pub(crate) id: u32,
    /// 0 for [`STAMPS`].
    pub(crate) node: u8,
}

impl Key {
    fn range(self) -> u16 {
        (self.id as usize % RANGES) as u16
    }

    fn write(self, value: u64, body: &mut Vec<u8>) {
        body.push(self.kind);
        body.extend_from_slice(&self.id.to_be_bytes());
        body.push(self.node);
        body.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) type Map = BTreeMap<Key, u64>;

/// The rows of a node.
#[derive(Default)]
pub(crate) struct TestRows {
    node: u8,
    map: Mutex<Map>,
    /// The digests of the ranges of each kind.
    digests: Mutex<[[u64; RANGES]; KINDS]>,
    unsent: Mutex<Vec<u8>>,
}

impl TestRows {
    pub(crate) fn new(node: u8, map: Map) -> Self {
        let rows = Self { node, ..Self::default() };
        map.into_iter().for_each(|(key, value)| rows.raise(key, value));
        rows
    }

    /// Changes a row. Returns its stamp.
    pub(crate) fn put(&self, id: u32, unix_ms: u64) -> u64 {
        let key = Key { kind: STAMPS, id, node: 0 };
        let last = self.map().get(&key).copied().unwrap_or_default();
        let stamp = (unix_ms << 8).max(((last >> 8) + 1) << 8) | u64::from(self.node);
        self.set(key, stamp);
        stamp
    }

    /// Counts a download.
    pub(crate) fn count(&self, id: u32) {
        let key = Key { kind: COUNTERS, id, node: self.node };
        let value = self.map().get(&key).copied().unwrap_or_default() + 1;
        self.set(key, value);
    }

    fn set(&self, key: Key, value: u64) {
        self.raise(key, value);
        key.write(value, &mut self.unsent.lock().unwrap());
    }

    /// Raises a value. A smaller one changes nothing.
    fn raise(&self, key: Key, value: u64) {
        let mut map = self.map();
        let before = map.get(&key).copied();
        if before >= Some(value) {
            return;
        }
        let mut digests = self.digests.lock().unwrap();
        let digest = &mut digests[usize::from(key.kind)][usize::from(key.range())];
        *digest = digest.wrapping_sub(before.map_or(0, |before| hash((key, before))));
        *digest = digest.wrapping_add(hash((key, value)));
        map.insert(key, value);
    }

    /// Takes what was changed since the last call.
    pub(crate) fn take_changes(&self) -> Vec<u8> {
        std::mem::take(&mut *self.unsent.lock().unwrap())
    }

    /// Returns the downloads that all nodes counted.
    pub(crate) fn counted(&self, id: u32) -> u64 {
        let map = self.map();
        let counts = map.iter().filter(|(key, _)| key.kind == COUNTERS && key.id == id);
        counts.map(|(_, count)| count).sum()
    }

    pub(crate) fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap()
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Rows for TestRows {
    fn digests(&self) -> Vec<u64> {
        self.digests.lock().unwrap().map(hash).into()
    }

    fn range_digests(&self, kind: u8) -> Vec<u64> {
        let digests = self.digests.lock().unwrap();
        digests.get(usize::from(kind)).map(|digests| digests.to_vec()).unwrap_or_default()
    }

    fn next_changes(&self) -> BoxFuture<'_, Vec<u8>> {
        unreachable!("the simulation takes them itself")
    }

    fn read_ranges(
        &self,
        kind: u8,
        ranges: Vec<u16>,
        cursor: Vec<u8>,
    ) -> BoxFuture<'_, Result<RowsPart, RowsError>> {
        let skipped = cursor.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let map = self.map();
        let rows = map
            .iter()
            .filter(|(key, _)| key.kind == kind && ranges.binary_search(&key.range()).is_ok());
        let rows: Vec<_> = rows.skip(skipped as usize).take(PART + 1).collect();
        let mut body = Vec::new();
        rows.iter().take(PART).for_each(|(key, value)| key.write(**value, &mut body));
        let next = (rows.len() > PART).then(|| (skipped + PART as u32).to_le_bytes().into());
        Box::pin(std::future::ready(Ok(RowsPart { body, next })))
    }

    fn merge(&self, _: u8, body: Vec<u8>) -> BoxFuture<'_, Result<(), RowsError>> {
        for row in body.as_chunks::<ROW_LEN>().0 {
            let [kind, a, b, c, d, node, value @ ..] = *row;
            let key = Key { kind, id: u32::from_be_bytes([a, b, c, d]), node };
            let value = u64::from_be_bytes(value);
            if usize::from(kind) < KINDS {
                self.raise(key, value);
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }
}
