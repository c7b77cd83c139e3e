//! Changes that a batch makes to users and torrents, as the JSON arrays from which `UPDATE` statements take their rows.

use std::collections::BTreeMap;

use crate::batch::Record;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TorrentChange {
    seeders: i64,
    leechers: i64,
    completed: i64,
    /// By how much more was sent than received. Not as it is credited: UNIT3D sums `actual_uploaded` and
    /// `actual_downloaded` of all users, and what is left over was made up by somebody.
    balance: i64,
    /// True if a client came, went or became a seeder, even if the numbers stay.
    counts: bool,
}

/// Returns what each user is credited: `[user,uploaded,downloaded]`.
pub(crate) fn of_users(records: &[Record]) -> Vec<String> {
    let mut changes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in records {
        if record.credited_uploaded > 0 || record.credited_downloaded > 0 {
            let change = changes.entry(record.user).or_default();
            change.0 = change.0.saturating_add(record.credited_uploaded);
            change.1 = change.1.saturating_add(record.credited_downloaded);
        }
    }
    changes.iter().map(|(id, (up, down))| format!("[{id},{up},{down}]")).collect()
}

/// Returns the changes of each torrent that was announced. Those without a change are among them.
pub(crate) fn of_torrents(records: &[Record]) -> BTreeMap<u32, TorrentChange> {
    let mut changes: BTreeMap<u32, TorrentChange> = BTreeMap::new();
    for record in records {
        let change = changes.entry(record.torrent).or_default();
        change.seeders += i64::from(record.seeders);
        change.leechers += i64::from(record.leechers);
        change.counts |= record.seeders != 0 || record.leechers != 0;
        change.completed += i64::from(record.completions);
        let moved = signed(record.uploaded).saturating_sub(signed(record.downloaded));
        change.balance = change.balance.saturating_add(moved);
    }
    changes
}

/// Returns changes of torrents: `[torrent,seeders,leechers,completed,balance,unix_s,counts]`.
pub(crate) fn torrents_json(changes: &BTreeMap<u32, TorrentChange>, unix_s: u32) -> Vec<String> {
    let json = |(id, change): (&u32, &TorrentChange)| {
        let TorrentChange { seeders, leechers, completed, balance, counts } = change;
        let counts = u8::from(*counts);
        format!("[{id},{seeders},{leechers},{completed},{balance},{unix_s},{counts}]")
    };
    changes.iter().map(json).collect()
}

/// Returns a number of bytes as signed columns can have it.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
