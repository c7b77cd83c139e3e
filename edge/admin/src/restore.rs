//! Restores the tracker's memory from the records at the start: keys, bans, access lists, frozen torrents,
//! reasons of torrents and download counts.

use rusqlite::Connection;
use tracing::warn;
use tracker::{IpPrefix, KeyId, KeyRules, SiteKeyRule, Tracker, UserKey};
use types::InfoHash;

use crate::clock::ClockReading;
use crate::records::Writer;
use crate::records::tables;
use crate::records::tables::bans::{self, BanFilter, BanRow};
use crate::records::tables::counts;
use crate::records::tables::keys::{self, KeyFilter, KeyRow};
use crate::records::tables::lists::{self, List};
use crate::records::tables::torrent_reasons::{self, ReasonRow};

/// Rows that are read at a time.
const PAGE: u32 = 50_000;

/// Loads everything recorded into `tracker`. With `counts_downloads`, download counts are loaded and counted
/// on from there.
pub fn restore(
    tracker: &Tracker,
    writer: &Writer,
    now: ClockReading,
    counts_downloads: bool,
) -> Result<(), rusqlite::Error> {
    let connection = writer.connection();
    let all_keys = KeyFilter::default();
    let keys = |last: Option<&KeyRow>| {
        keys::page(connection, &all_keys, last.map_or(0, |row| row.id), PAGE)
    };
    each_page(keys, |page| page.iter().for_each(|row| apply_key(tracker, row, now)))?;
    restore_bans(tracker, connection, now)?;
    for list in [List::Allow, List::Deny, List::Frozen] {
        let entries = |last: Option<&InfoHash>| lists::page(connection, list, last.copied(), PAGE);
        each_page(entries, |page| edit_list(tracker, list, page, true))?;
    }
    let reasons = |last: Option<&ReasonRow>| {
        torrent_reasons::page(connection, last.map(|row| row.info_hash), PAGE)
    };
    each_page(reasons, |page| put_reasons(tracker, page))?;
    if counts_downloads {
        tracker.downloads().enable();
        let mut page = Vec::new();
        counts::read_downloads(connection, |hash, count| {
            page.push((hash, count));
            if page.len() >= PAGE as usize {
                tracker.downloads().add(page.drain(..));
            }
        })?;
        tracker.downloads().add(page.into_iter());
    }
    Ok(())
}

/// Takes over what another process has written since [`restore`]: the last counts and automatic bans of the process that
/// this one replaces in an upgrade. Counts that have been taken from `tracker` must be recorded before.
pub(crate) fn take_over(
    tracker: &Tracker,
    connection: &Connection,
    now: ClockReading,
) -> Result<(), rusqlite::Error> {
    restore_bans(tracker, connection, now)?;
    if tracker.downloads().is_on() {
        counts::read_downloads(connection, |hash, count| {
            tracker.downloads().raise_to(hash, count)
        })?;
    }
    Ok(())
}

/// Returns the nodes of the cluster that are ignored, by the records.
pub fn ignored_nodes(writer: &Writer) -> Result<Vec<u8>, rusqlite::Error> {
    tables::ignored_nodes::all(writer.connection())
}

/// Applies a recorded key to the tracker. A key that cannot be applied is logged and skipped.
pub(crate) fn apply_key(tracker: &Tracker, row: &KeyRow, now: ClockReading) {
    let rules = KeyRules {
        expires: row.expires.map(|time| now.tick_at(time)),
        peers_per_torrent: row.peers_per_torrent,
        torrents: row.torrents,
        addresses: row.addresses,
        announces_per_minute: row.announces_per_minute,
        seed_only: row.seed_only,
    };
    if let Some(site) = tracker.site() {
        let rule = SiteKeyRule { download_slots: row.download_slots };
        site.set_key_rule(KeyId(row.id), rule);
    }
    let key = row.id;
    let Ok(user_key) = UserKey::parse(&row.key) else {
        return warn!(key, "recorded key is malformed and was not loaded");
    };
    if !tracker.passkeys().put(KeyId(key), user_key, rules) {
        warn!(key, "recorded key was not loaded: too many keys");
    }
}

/// Adds entries to a list in the tracker's memory, or removes them.
pub(crate) fn edit_list(tracker: &Tracker, list: List, hashes: &[InfoHash], is_added: bool) {
    match list.live_list(tracker) {
        Some(live) if is_added => {
            live.insert(hashes);
        }
        Some(live) => {
            live.remove(hashes);
        }
        None => {
            for hash in hashes {
                tracker.freeze(hash, is_added);
            }
        }
    }
}

/// Applies recorded reasons to the tracker.
pub(crate) fn put_reasons(tracker: &Tracker, rows: &[ReasonRow]) {
    let put = |row: &ReasonRow| tracker.torrent_reasons().put(row.info_hash, &row.reason);
    let left_out = rows.iter().filter(|row| !put(row)).count();
    if left_out > 0 {
        warn!(left_out, "recorded reasons of torrents were not applied: too many");
    }
}

fn restore_bans(
    tracker: &Tracker,
    connection: &Connection,
    now: ClockReading,
) -> Result<(), rusqlite::Error> {
    let mut all = Vec::new();
    let filter = BanFilter { now: now.time, text: String::new() };
    let bans = |last: Option<&BanRow>| {
        bans::page(connection, &filter, last.map_or("", |row| row.network.as_str()), PAGE)
    };
    each_page(bans, |page| {
        for row in page {
            match row.network.parse::<IpPrefix>() {
                Ok(network) => all.push((network, row.expires.map(|time| now.tick_at(time)))),
                Err(_) => warn!(network = row.network, "recorded ban is malformed and was ignored"),
            }
        }
    })?;
    tracker.bans().put(&all);
    Ok(())
}

/// Calls `see` with all rows, page by page. `read` returns those after the last row of the page before.
fn each_page<T>(
    read: impl Fn(Option<&T>) -> Result<Vec<T>, rusqlite::Error>,
    mut see: impl FnMut(&[T]),
) -> Result<(), rusqlite::Error> {
    let mut page = read(None)?;
    while !page.is_empty() {
        see(&page);
        page = read(page.last())?;
    }
    Ok(())
}
