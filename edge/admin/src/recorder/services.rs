//! Traffic and uptime of each service, by hours of the last day and by days of the last 90.
//!
//! Time is served if all workers of the service made progress, and down if one of them did not, or if no process served
//! between the last row in the records and the start. All else is unknown: the time before a service was configured,
//! and what a set clock skips. A process measures time by the monotonic clock; only between two processes the wall
//! clock does. Rows are rows of the history with longer steps, so the same records keep them.

use std::collections::VecDeque;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracker::counters::{Counters, DayUptime, Listener, ServiceSummary, ServicesReport};
use tracker::{RequestKind, SERVICES, Service};

use crate::records::tables::history::{PendingHistory, StoredRow};

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// Hours and days that are kept, the present one included.
const HOURS: usize = 24;
const DAYS: usize = 90;
/// Longest time without a process that counts as down. Longer ones are unknown: a clock was wrong.
const GAP_MAX_MS: u64 = DAYS as u64 * DAY_S * 1000;

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Unix time, milliseconds.
    pub(super) unix_ms: u64,
    pub(super) at: Instant,
}

/// The state of a service at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceReading {
    /// True if all its workers made progress since the last reading.
    is_alive: bool,
    traffic: Traffic,
}

/// Counters since the start of the process, or over a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Traffic {
    announces: u64,
    requests: u64,
    bytes_out: u64,
}

/// Sums over a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Tally {
    served_ms: u64,
    down_ms: u64,
    #[serde(flatten)]
    traffic: Traffic,
}

/// The sums of all services over a step.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// The end of the step, Unix time in seconds.
    end: u64,
    tallies: [Tally; SERVICES],
}

/// Rows with the same step, the oldest first.
struct Tier {
    step_s: u64,
    rows_max: usize,
    rows: VecDeque<Row>,
}

/// Hours and days of all services.
pub(super) struct Services {
    tiers: [Tier; 2],
    /// When each service was read last, and its counters then.
    last: [Option<(Instant, Traffic)>; SERVICES],
    /// The times that each worker had published at the last reading.
    published: Vec<u64>,
    /// The last moment of which rows say something: Unix time in milliseconds.
    seen_ms: u64,
    /// The part of `seen_ms` that was handed to the records.
    written_ms: u64,
    /// True if another process served from `seen_ms` until this one did.
    is_handed_over: bool,
}

impl Default for Services {
    fn default() -> Self {
        let tier = |step_s, rows_max| Tier { step_s, rows_max, rows: VecDeque::new() };
        Self {
            tiers: [tier(HOUR_S, HOURS), tier(DAY_S, DAYS)],
            last: [None; SERVICES],
            published: Vec::new(),
            seen_ms: 0,
            written_ms: 0,
            is_handed_over: false,
        }
    }
}

impl Services {
    /// Returns the state of each service. `published` says how often each worker has published its counters.
    pub(super) fn read(
        &mut self,
        listeners: &[(Listener, Counters)],
        published: &[(Listener, u64)],
    ) -> [Option<ServiceReading>; SERVICES] {
        let mut readings = [None; SERVICES];
        for (listener, counters) in listeners {
            let reading = readings[listener.service().index()].get_or_insert_with(|| {
                ServiceReading { is_alive: true, traffic: Traffic::default() }
            });
            let [v4, v6] = &counters.responses;
            let announces = RequestKind::Announce.index();
            reading.traffic.announces += v4[announces] + v6[announces];
            reading.traffic.requests += counters.requests.as_flattened().iter().sum::<u64>();
            reading.traffic.bytes_out += counters.bytes_out;
        }
        for (worker, (listener, times)) in published.iter().enumerate() {
            let is_stuck = self.published.get(worker).is_some_and(|before| before == times);
            if let Some(reading) = &mut readings[listener.service().index()] {
                reading.is_alive &= !is_stuck;
            }
        }
        self.published = published.iter().map(|(_, times)| *times).collect();
        readings
    }

    /// Adds what happened since the last call.
    pub(super) fn add(&mut self, now: Moment, readings: &[Option<ServiceReading>; SERVICES]) {
        if now.unix_ms < self.seen_ms {
            // The clock was set back, so rows of later steps are of a future that did not come.
            self.tiers.iter_mut().for_each(|tier| tier.remove_after(now.unix_ms));
            (self.seen_ms, self.written_ms) = (0, self.written_ms.min(now.unix_ms));
        }
        for (index, reading) in readings.iter().enumerate() {
            let Some(reading) = reading else { continue };
            let before = self.last[index].replace((now.at, reading.traffic));
            let (elapsed_ms, is_served, old) = match before {
                Some((at, traffic)) => {
                    let elapsed = now.at.duration_since(at).as_millis();
                    (u64::try_from(elapsed).unwrap_or(u64::MAX), reading.is_alive, traffic)
                }
                None => (self.gap_ms(index, now), self.is_handed_over, Traffic::default()),
            };
            self.spread(index, now.unix_ms, elapsed_ms, is_served);
            for tier in &mut self.tiers {
                let Some(row) = tier.row_at(now.unix_ms) else { continue };
                row.tallies[index].traffic.add(&reading.traffic, &old);
            }
        }
        self.seen_ms = now.unix_ms;
    }

    /// Returns the time since the last row that another process wrote, if the service was there then.
    fn gap_ms(&self, index: usize, now: Moment) -> u64 {
        let [_, days] = &self.tiers;
        let was_there = days.rows.back().is_some_and(|row| row.tallies[index].known_ms() > 0);
        let gap_ms = now.unix_ms.saturating_sub(self.seen_ms);
        if was_there && gap_ms <= GAP_MAX_MS { gap_ms } else { 0 }
    }

    /// Distributes the time that ends at `end_ms` over the steps in which it lies.
    fn spread(&mut self, index: usize, end_ms: u64, elapsed_ms: u64, is_served: bool) {
        for tier in &mut self.tiers {
            let step_ms = tier.step_s * 1000;
            let oldest_ms = (end_ms / step_ms + 1).saturating_sub(tier.rows_max as u64) * step_ms;
            let mut at_ms = end_ms.saturating_sub(elapsed_ms).max(oldest_ms);
            while at_ms < end_ms {
                let step_end_ms = (at_ms / step_ms + 1) * step_ms;
                let part_ms = step_end_ms.min(end_ms) - at_ms;
                if let Some(row) = tier.row_at(at_ms) {
                    let tally = &mut row.tallies[index];
                    let time = if is_served { &mut tally.served_ms } else { &mut tally.down_ms };
                    *time += part_ms;
                }
                at_ms += part_ms;
            }
        }
    }

    /// Adds the rows that changed to `pending`. What a crash loses of them counts as down though the service served.
    pub(super) fn collect(&mut self, pending: &mut PendingHistory) {
        if self.seen_ms <= self.written_ms {
            return;
        }
        let rows = self.stored(self.written_ms);
        pending.append(&mut PendingHistory { rows, annotations: Vec::new() });
        self.written_ms = self.seen_ms;
    }

    /// Returns all rows as the records have them.
    pub(super) fn rows(&self) -> Vec<StoredRow> {
        self.stored(0)
    }

    fn stored(&self, after_ms: u64) -> Vec<StoredRow> {
        let stored = |tier: &Tier| {
            let changed = tier.rows.iter().filter(|row| row.end * 1000 > after_ms);
            changed.map(|row| row.to_stored(tier.step_s, self.seen_ms)).collect::<Vec<_>>()
        };
        self.tiers.iter().flat_map(stored).collect()
    }

    /// Adds rows of the records, or of the process that hands over to this one: it serves until this one does. Call
    /// before the first reading.
    pub(super) fn restore(&mut self, stored: &[StoredRow], is_handed_over: bool) {
        for stored in stored {
            let Some(tier) = self.tiers.iter_mut().find(|tier| tier.step_s == stored.step_s) else {
                continue;
            };
            let Some((row, seen_ms)) = Row::from_stored(stored) else { continue };
            if let Some(known) = tier.row_at((row.end - 1) * 1000) {
                *known = row;
                self.seen_ms = self.seen_ms.max(seen_ms);
                self.is_handed_over |= is_handed_over;
            }
        }
        self.written_ms = self.seen_ms;
    }

    /// Returns the traffic of 24 hours and the uptime of 90 days until `now`, Unix time in seconds.
    pub(super) fn report(&self, now: u64) -> ServicesReport {
        let [hours, days] = &self.tiers;
        let since = (now / HOUR_S + 1).saturating_sub(HOURS as u64) * HOUR_S;
        let today = now / DAY_S + 1;
        let summary = |service: Service| {
            let index = service.index();
            self.last[index]?;
            let mut sum = Traffic::default();
            for row in hours.rows.iter().filter(|row| row.end > since) {
                sum.add(&row.tallies[index].traffic, &Traffic::default());
            }
            let uptime = |day: u64| {
                let row = days.rows.iter().find(|row| row.end == day * DAY_S);
                row.map_or_else(DayUptime::default, |row| row.tallies[index].uptime())
            };
            Some(ServiceSummary {
                service,
                announces: sum.announces,
                requests: sum.requests,
                bytes_out: sum.bytes_out,
                days: (today.saturating_sub(DAYS as u64 - 1)..=today).map(uptime).collect(),
            })
        };
        ServicesReport { since, services: Service::ALL.into_iter().filter_map(summary).collect() }
    }
}

impl Tally {
    fn known_ms(&self) -> u64 {
        self.served_ms.saturating_add(self.down_ms)
    }

    fn uptime(&self) -> DayUptime {
        DayUptime { served_s: self.served_ms / 1000, down_s: self.down_ms / 1000 }
    }
}

impl Traffic {
    /// Adds what there was between two readings.
    fn add(&mut self, new: &Self, old: &Self) {
        self.announces += new.announces.saturating_sub(old.announces);
        self.requests += new.requests.saturating_sub(old.requests);
        self.bytes_out += new.bytes_out.saturating_sub(old.bytes_out);
    }
}

impl Tier {
    /// Returns the row of the step in which a moment lies. Returns `None` if it is older than all that are kept.
    fn row_at(&mut self, unix_ms: u64) -> Option<&mut Row> {
        let step_ms = self.step_s * 1000;
        let end = (unix_ms / step_ms + 1) * self.step_s;
        let mut at = self.rows.partition_point(|row| row.end < end);
        if self.rows.get(at).is_none_or(|row| row.end != end) {
            self.rows.insert(at, Row { end, tallies: Default::default() });
            if self.rows.len() > self.rows_max {
                self.rows.pop_front();
                at = at.checked_sub(1)?;
            }
        }
        self.rows.get_mut(at)
    }

    fn remove_after(&mut self, unix_ms: u64) {
        while self.rows.back().is_some_and(|row| row.end > unix_ms / 1000 + self.step_s) {
            self.rows.pop_back();
        }
    }
}

impl Row {
    fn to_stored(&self, step_s: u64, seen_ms: u64) -> StoredRow {
        let tally = |service: Service| {
            let tally = &self.tallies[service.index()];
            (*tally != Tally::default()).then(|| (service.label().to_owned(), json!(tally)))
        };
        let services: Map<String, Value> = Service::ALL.into_iter().filter_map(tally).collect();
        let data = json!({ "seen_ms": seen_ms, "services": services }).to_string();
        StoredRow { step_s, time: self.end, data }
    }

    /// Reads what [`Self::to_stored`] of this or another version wrote, and the last moment that it knew.
    fn from_stored(stored: &StoredRow) -> Option<(Self, u64)> {
        let mut data: Map<String, Value> = serde_json::from_str(&stored.data).ok()?;
        let seen_ms = data.get("seen_ms")?.as_u64()?;
        let mut services = data.remove("services")?;
        let is_aligned = stored.time > 0 && stored.time.is_multiple_of(stored.step_s);
        let mut row = Self { end: stored.time, tallies: Default::default() };
        for service in Service::ALL {
            if let Some(tally) = services.get_mut(service.label()) {
                row.tallies[service.index()] = serde_json::from_value(tally.take()).ok()?;
            }
        }
        is_aligned.then_some((row, seen_ms))
    }
}

#[cfg(test)]
mod tests;
