//! Counts from the hot path: downloads of torrents, totals of keys.

use std::collections::BTreeMap;
use std::time::Instant;

use rusqlite::{Connection, params};
use tracker::KeyTotals as Totals;
use types::InfoHash;

use super::bans::{self, BanRow};

/// Counts to be written.
#[derive(Debug, Default)]
pub struct PendingCounts {
    /// Current download counts, in the order of their changes; 0 removes a torrent's count. If a torrent
    /// has several, the last is written.
    pub downloads: Vec<(InfoHash, u32)>,
    /// Amounts to add to the totals of keys, by key id.
    pub totals: BTreeMap<u32, Totals>,
    /// Keys used for the first time since the start, with the Unix time.
    pub first_uses: Vec<(u32, i64)>,
    /// Automatic bans.
    pub(crate) bans: Vec<BanRow>,
    since: Option<Instant>,
}

impl PendingCounts {
    /// Adds to a key's totals.
    pub fn add(&mut self, key: u32, delta: Totals) {
        let totals = self.totals.entry(key).or_default();
        totals.uploaded = totals.uploaded.saturating_add(delta.uploaded);
        totals.downloaded = totals.downloaded.saturating_add(delta.downloaded);
        totals.seeding_s = totals.seeding_s.saturating_add(delta.seeding_s);
        totals.announces = totals.announces.saturating_add(delta.announces);
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of rows to write.
    pub fn len(&self) -> usize {
        self.downloads.len() + self.totals.len() + self.first_uses.len() + self.bans.len()
    }

    /// Sorts and deduplicates download counts, for fast insertion. Returns since when the oldest count is
    /// pending.
    pub(in super::super) fn sort_and_dedup(&mut self) -> Instant {
        // Stable: the counts of a torrent stay in their order.
        self.downloads.sort_by_key(|(hash, _)| *hash);
        self.downloads.dedup_by(|(hash, count), (kept, last)| {
            if hash == kept {
                *last = *count;
            }
            hash == kept
        });
        *self.since.get_or_insert_with(Instant::now)
    }
}

/// Writes all counts. Returns the keys that were used for the first time ever.
pub(in super::super) fn write(
    connection: &Connection,
    pending: &PendingCounts,
) -> Result<Vec<u32>, rusqlite::Error> {
    // The process from which this one took over may have written a higher count.
    let mut download = connection.prepare(
        "INSERT INTO downloads (hash, count) VALUES (?1, ?2)
         ON CONFLICT (hash) DO UPDATE SET count = max(count, excluded.count)",
    )?;
    let mut removal = connection.prepare("DELETE FROM downloads WHERE hash = ?1")?;
    for (hash, count) in &pending.downloads {
        if *count == 0 {
            removal.execute(params![hash.0])?;
        } else {
            download.execute(params![hash.0, count])?;
        }
    }
    let mut total = connection.prepare(
        "UPDATE keys SET uploaded = min(uploaded + ?2, ?6), downloaded = min(downloaded + ?3, ?6),
             seeding_s = min(seeding_s + ?4, ?6), announces = min(announces + ?5, ?6) WHERE id = ?1",
    )?;
    for (key, totals) in &pending.totals {
        let Totals { uploaded, downloaded, seeding_s, announces } = *totals;
        let [up, down, seeding, announces] =
            [uploaded, downloaded, seeding_s, announces].map(bounded);
        total.execute(params![key, up, down, seeding, announces, TOTAL_MAX])?;
    }
    let mut first = connection
        .prepare("UPDATE keys SET first_used = ?2 WHERE id = ?1 AND first_used IS NULL")?;
    let mut firsts = Vec::new();
    for (key, at) in &pending.first_uses {
        if first.execute(params![key, at])? > 0 {
            firsts.push(*key);
        }
    }
    bans::put(connection, &pending.bans)?;
    Ok(firsts)
}

/// The largest total: the sum of two still fits an integer of SQLite.
const TOTAL_MAX: i64 = i64::MAX / 2;

fn bounded(total: u64) -> i64 {
    i64::try_from(total).map_or(TOTAL_MAX, |total| total.min(TOTAL_MAX))
}

/// Calls `take` with the count of every torrent.
pub(crate) fn read_downloads(
    connection: &Connection,
    mut take: impl FnMut(InfoHash, u32),
) -> Result<(), rusqlite::Error> {
    let mut rows = connection.prepare("SELECT hash, count FROM downloads")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        take(super::hash(row, 0)?, row.get(1)?);
    }
    Ok(())
}
