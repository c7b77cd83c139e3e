//! Counts from the hot path: downloads of torrents, totals of keys.

use std::collections::BTreeMap;
use std::time::Instant;

use rusqlite::{Connection, params};
use tracker::KeyTotals as Totals;
use types::InfoHash;

use super::super::replication::StreamPosition;
use super::bans::{self, BanRow};
use super::history::{self, PendingHistory};
use super::{cluster, keys};

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
    /// Statistics for the dashboard's charts. They are no counts: see `len`.
    pub(crate) history: PendingHistory,
    /// The place in the log of peers up to which the downloads are counted; `None` outside clusters.
    pub(crate) position: Option<StreamPosition>,
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

    /// Returns the totals as they are written and replicated.
    pub(in super::super) fn totals(&self) -> Vec<keys::TotalsRow> {
        let row = |(key, totals): (&u32, &Totals)| {
            let Totals { uploaded, downloaded, seeding_s, announces } = *totals;
            (*key, uploaded, downloaded, seeding_s, announces)
        };
        self.totals.iter().map(row).collect()
    }

    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.history.is_empty()
    }

    /// Returns the number of counts to write.
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
    keys::add_totals(connection, &pending.totals())?;
    let mut first = connection
        .prepare("UPDATE keys SET first_used = ?2 WHERE id = ?1 AND first_used IS NULL")?;
    let mut firsts = Vec::new();
    for (key, at) in &pending.first_uses {
        if first.execute(params![key, at])? > 0 {
            firsts.push(*key);
        }
    }
    bans::put(connection, &pending.bans)?;
    history::write(connection, &pending.history)?;
    if let Some(position) = pending.position {
        cluster::set_position(connection, cluster::PEERS, position)?;
    }
    Ok(firsts)
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

/// Adds totals to those that wait until other nodes can get them.
pub(in super::super) fn keep_unsent(
    connection: &Connection,
    totals: &[keys::TotalsRow],
) -> Result<(), rusqlite::Error> {
    let mut keep = connection.prepare(
        "INSERT INTO unsent_totals (id, uploaded, downloaded, seeding_s, announces)
         VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (id) DO UPDATE SET
             uploaded = min(uploaded + excluded.uploaded, ?6),
             downloaded = min(downloaded + excluded.downloaded, ?6),
             seeding_s = min(seeding_s + excluded.seeding_s, ?6),
             announces = min(announces + excluded.announces, ?6)",
    )?;
    for (id, uploaded, downloaded, seeding_s, announces) in totals {
        let [up, down, seeding, announces] =
            [*uploaded, *downloaded, *seeding_s, *announces].map(keys::bounded);
        keep.execute(params![id, up, down, seeding, announces, keys::TOTAL_MAX])?;
    }
    Ok(())
}

/// Removes the totals that wait, and returns them.
pub(in super::super) fn take_unsent(
    connection: &Connection,
) -> Result<Vec<keys::TotalsRow>, rusqlite::Error> {
    let totals = unsent(connection)?;
    connection.execute("DELETE FROM unsent_totals", [])?;
    Ok(totals)
}

/// Returns the totals that wait.
pub(in super::super) fn unsent(
    connection: &Connection,
) -> Result<Vec<keys::TotalsRow>, rusqlite::Error> {
    let mut rows = connection.prepare(
        "SELECT id, uploaded, downloaded, seeding_s, announces FROM unsent_totals ORDER BY id",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let total = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok((row.get(0)?, total(1)?, total(2)?, total(3)?, total(4)?))
    };
    rows.query_map([], read)?.collect()
}

/// Returns whether totals wait.
pub(in super::super) fn has_unsent(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let sql = "SELECT EXISTS (SELECT 1 FROM unsent_totals)";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Returns up to `limit` download counts of torrents after `after`, sorted.
pub(in super::super) fn page(
    connection: &Connection,
    after: Option<InfoHash>,
    limit: u32,
) -> Result<Vec<(InfoHash, u32)>, rusqlite::Error> {
    // An empty blob sorts before every hash.
    let after = after.map_or_else(Vec::new, |hash| hash.0.to_vec());
    let sql = "SELECT hash, count FROM downloads WHERE hash > ?1 ORDER BY hash LIMIT ?2";
    let mut page = connection.prepare(sql)?;
    let rows = page.query_map(params![after, limit], |row| Ok((super::hash(row, 0)?, row.get(1)?)));
    rows?.collect()
}

/// Raises download counts to at least these.
pub(in super::super) fn raise(
    connection: &Connection,
    counts: &[(InfoHash, u32)],
) -> Result<(), rusqlite::Error> {
    let mut raise = connection.prepare(
        "INSERT INTO downloads (hash, count) VALUES (?1, ?2)
         ON CONFLICT (hash) DO UPDATE SET count = max(count, excluded.count)",
    )?;
    counts.iter().try_for_each(|(hash, count)| raise.execute(params![hash.0, count]).map(drop))
}

/// The same; returns how many are higher now.
pub(in super::super) fn raise_counted(
    connection: &Connection,
    counts: &[(InfoHash, u32)],
) -> Result<usize, rusqlite::Error> {
    let mut raise = connection.prepare(
        "INSERT INTO downloads (hash, count) VALUES (?1, ?2)
         ON CONFLICT (hash) DO UPDATE SET count = excluded.count WHERE excluded.count > count",
    )?;
    counts.iter().try_fold(0, |sum, (hash, count)| Ok(sum + raise.execute(params![hash.0, count])?))
}
