//! Between the records and the tracker's memory: what is recorded is put in force at the start, and
//! what the hot path counts is collected for the writer.

use std::sync::Arc;

use rusqlite::Connection;
use serde_json::json;
use tracing::warn;
use tracker::{IpPrefix, KeyId, KeyRules, KeyTotals, Tracker, UserKey};
use types::{InfoHash, Tick};

use crate::events::{EventHub, EventKind};
use crate::records::tables::bans::{self, BanRow};
use crate::records::tables::counts;
use crate::records::tables::keys::{self, KeyRow, Rules};
use crate::records::tables::lists::{self, List};
use crate::records::{CountSource, PendingCounts, Writer};

/// Rows that are read at a time.
const PAGE: u32 = 50_000;

/// The same moment on both clocks: seconds since 1970, and the tracker's.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// Seconds since 1970.
    pub time: i64,
    /// The tracker's time.
    pub tick: Tick,
}

impl ClockReading {
    /// When a time comes, by the tracker's clock. One that has passed is its beginning.
    pub(crate) fn tick_at(self, time: i64) -> Tick {
        match u32::try_from(time.saturating_sub(self.time)) {
            Ok(seconds) => self.tick.after(seconds),
            Err(_) if time > self.time => Tick(u32::MAX),
            Err(_) => Tick(0),
        }
    }

    /// When a tick comes, in seconds since 1970.
    fn time_at(self, tick: Tick) -> i64 {
        self.time.saturating_add(i64::from(tick.0) - i64::from(self.tick.0))
    }
}

/// Puts in force what is recorded. Durable download counts begin with it, if `counts_downloads`.
pub fn restore(
    tracker: &Tracker,
    writer: &Writer,
    clock_reading: ClockReading,
    counts_downloads: bool,
) -> Result<(), rusqlite::Error> {
    let connection = writer.connection();
    restore_keys(tracker, connection, clock_reading)?;
    restore_bans(tracker, connection, clock_reading)?;
    each_page(connection, List::Allow, |page| tracker.allowed().insert(page))?;
    each_page(connection, List::Deny, |page| tracker.denied().insert(page))?;
    each_page(connection, List::Frozen, |page| {
        page.iter().filter(|hash| tracker.freeze(hash, true)).count()
    })?;
    if counts_downloads {
        tracker.downloads().enable();
        let mut page = Vec::new();
        counts::read_downloads(connection, |hash, count| {
            page.push((hash, count));
            if page.len() >= PAGE as usize {
                tracker.downloads().load(page.drain(..));
            }
        })?;
        tracker.downloads().load(page.into_iter());
        // What was just read need not be written.
        tracker.downloads().take_changed(&mut Vec::new());
    }
    Ok(())
}

fn restore_keys(
    tracker: &Tracker,
    connection: &Connection,
    clock_reading: ClockReading,
) -> Result<(), rusqlite::Error> {
    let mut after = 0;
    loop {
        let page = keys::page(connection, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.id;
        page.iter().for_each(|row| apply_key(tracker, row, clock_reading));
    }
}

/// Puts a key in force, as it is recorded.
pub(crate) fn apply_key(tracker: &Tracker, row: &KeyRow, clock_reading: ClockReading) {
    let Rules { expires, peers_per_torrent, torrents, addresses, announces_per_minute } = row.rules;
    let expires = expires.map(|time| clock_reading.tick_at(time));
    let rules = KeyRules { expires, peers_per_torrent, torrents, addresses, announces_per_minute };
    let is_put =
        UserKey::parse(&row.key).is_ok_and(|key| tracker.passkeys().put(KeyId(row.id), key, rules));
    if !is_put {
        warn!("records: key {} is not in force: there are too many, or it is no key", row.id);
    }
}

fn restore_bans(
    tracker: &Tracker,
    connection: &Connection,
    clock_reading: ClockReading,
) -> Result<(), rusqlite::Error> {
    bans::expire(connection, clock_reading.time)?;
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let page = bans::page(connection, clock_reading.time, &after, PAGE)?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.network);
        let ban = |row: &BanRow| {
            let network: IpPrefix = row.network.parse().ok()?;
            Some((network, row.expires.map(|time| clock_reading.tick_at(time))))
        };
        all.extend(page.iter().filter_map(ban));
    }
    tracker.bans().put(&all);
    Ok(())
}

fn each_page(
    connection: &Connection,
    list: List,
    mut see: impl FnMut(&[InfoHash]) -> usize,
) -> Result<(), rusqlite::Error> {
    let mut after = None;
    loop {
        let page = lists::page(connection, list, after, PAGE)?;
        see(&page);
        after = page.last().copied();
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Takes from the tracker what has been counted, and tells of what happened to keys and networks.
pub struct CountCollector {
    tracker: Arc<Tracker>,
    hub: Arc<EventHub>,
    now: Box<dyn Fn() -> ClockReading + Send>,
}

impl CountCollector {
    /// Of this tracker; events go to `hub`.
    pub fn new(
        tracker: Arc<Tracker>,
        hub: Arc<EventHub>,
        now: impl Fn() -> ClockReading + Send + 'static,
    ) -> Self {
        Self { tracker, hub, now: Box::new(now) }
    }
}

impl CountSource for CountCollector {
    fn collect(&mut self, pending: &mut PendingCounts) {
        let clock_reading = (self.now)();
        self.tracker.downloads().take_changed(&mut pending.downloads);
        let mut totals: Vec<(KeyId, KeyTotals)> = Vec::new();
        self.tracker.passkeys().take_totals(&mut totals);
        totals.into_iter().for_each(|(KeyId(key), delta)| pending.add(key, delta));
        let mut first_uses = Vec::new();
        self.tracker.passkeys().take_first_uses(&mut first_uses);
        pending
            .first_uses
            .extend(first_uses.into_iter().map(|KeyId(key)| (key, clock_reading.time)));
        let mut banned = Vec::new();
        self.tracker.bans().take_automatic(&mut banned);
        for (network, until, reason) in banned {
            let expires = until.map(|tick| clock_reading.time_at(tick));
            let (network, reason) = (network.to_string(), reason.label());
            let data = json!({ "network": network, "reason": reason, "automatic": true, "expires": expires });
            self.hub.publish(EventKind::Ban, data);
            let (reason, created) = (reason.into(), clock_reading.time);
            pending.bans.push(BanRow { network, reason, automatic: true, created, expires });
        }
    }

    fn on_written(&mut self, first_uses: &[u32]) {
        for key in first_uses {
            self.hub.publish(EventKind::KeyFirstUsed, json!({ "key": key }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ticks() {
        let clock_reading = ClockReading { time: 1000, tick: Tick(50) };
        assert_eq!(clock_reading.tick_at(1010), Tick(60));
        assert_eq!(clock_reading.tick_at(1000), Tick(50));
        assert_eq!(clock_reading.tick_at(999), Tick(0));
        assert_eq!(clock_reading.tick_at(i64::MAX), Tick(u32::MAX));
        assert_eq!(clock_reading.tick_at(i64::MIN), Tick(0));
        assert_eq!(clock_reading.time_at(Tick(45)), 995);
        assert_eq!(clock_reading.time_at(Tick(60)), 1010);
    }
}
