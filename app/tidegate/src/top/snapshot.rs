//! The latest state of a tracker.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::Value;

use crate::admin::{ApiError, Sort, SseMessage};

/// Number of seconds whose requests are kept: more than a terminal has columns.
const HISTORY_MAX: usize = 600;

pub(super) const PROTOCOLS: [&str; 5] = ["udp", "http", "https", "ws", "wss"];

#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) sort: Sort,
    pub(super) version: String,
    fields: Vec<String>,
    sample: Vec<f64>,
    /// Total requests of each second, the latest last.
    pub(super) request_history: VecDeque<f64>,
    /// Values sent every five seconds, by name.
    pub(super) details: Value,
    pub(super) torrents: Vec<Torrent>,
    /// Meanings of names; null if the tracker does not report them.
    pub(super) names: Value,
    /// Health of the tracker; null if the tracker does not report it.
    pub(super) status: Value,
    pub(super) torrents_error: Option<String>,
    pub(super) stream_error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Torrent {
    pub(super) info_hash: String,
    /// Its name, where the tracker knows it.
    pub(super) name: Option<String>,
    pub(super) seeders: u64,
    pub(super) leechers: u64,
    pub(super) downloads: u64,
    pub(super) age_s: u64,
}

pub(super) fn locked(snapshot: &Mutex<Snapshot>) -> MutexGuard<'_, Snapshot> {
    snapshot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Snapshot {
    pub(super) fn sorted_by(sort: Sort) -> Self {
        Self {
            sort,
            version: String::new(),
            fields: Vec::new(),
            sample: Vec::new(),
            request_history: VecDeque::new(),
            details: Value::Null,
            torrents: Vec::new(),
            names: Value::Null,
            status: Value::Null,
            torrents_error: None,
            stream_error: None,
        }
    }

    /// Takes a page of torrents, or why there is none.
    pub(super) fn set_torrents(&mut self, page: Result<Value, ApiError>) {
        match page {
            Ok(mut page) => {
                let torrents = page.get_mut("torrents").map(Value::take).unwrap_or_default();
                self.torrents = serde_json::from_value(torrents).unwrap_or_default();
                self.torrents_error = None;
            }
            Err(error) => self.torrents_error = Some(error.to_string()),
        }
    }

    pub(super) fn apply(&mut self, message: &SseMessage) {
        let taken = serde_json::from_str(&message.data)
            .and_then(|data| self.put(&message.name, data))
            .map_err(|error| format!("invalid `{}` from the API: {error}", message.name));
        self.stream_error = taken.err();
    }

    fn put(&mut self, name: &str, mut data: Value) -> serde_json::Result<()> {
        match name {
            "history" => {
                self.fields = serde_json::from_value(data["fields"].take())?;
                self.request_history.clear();
                let rows: Vec<Vec<Option<f64>>> = serde_json::from_value(data["seconds"].take())?;
                rows.iter().for_each(|row| self.add(row));
            }
            "sample" => self.add(&serde_json::from_value::<Vec<_>>(data)?),
            "details" => self.details = data,
            _ => {}
        }
        Ok(())
    }

    /// Adds the values of another second. Unknown ones (null) count as 0.
    fn add(&mut self, row: &[Option<f64>]) {
        self.sample = row.iter().map(|value| value.unwrap_or(0.0)).collect();
        if self.request_history.len() >= HISTORY_MAX {
            self.request_history.pop_front();
        }
        self.request_history.push_back(self.requests());
    }

    pub(super) fn has_sample(&self) -> bool {
        !self.sample.is_empty()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.has_sample() && self.details.is_object()
    }

    /// Returns a value of the latest sample; 0 if the tracker does not send it.
    pub(super) fn of(&self, name: &str) -> f64 {
        let at = self.fields.iter().position(|field| field == name);
        at.and_then(|at| self.sample.get(at)).copied().unwrap_or_default()
    }

    pub(super) fn requests(&self) -> f64 {
        PROTOCOLS.iter().map(|protocol| self.of(&format!("{protocol}_s"))).sum()
    }

    pub(super) fn title(&self, table: &str, name: &str) -> String {
        let known = self.names[table].as_array().into_iter().flatten();
        let known = known.filter(|known| known["name"] == name).find_map(|it| it["title"].as_str());
        known.map_or_else(|| name.replace('_', " "), String::from)
    }

    /// Returns the entries of a table, the largest first.
    pub(super) fn ranking(&self, table: &str) -> Vec<(&str, f64)> {
        let pairs = self.details[table].as_object().into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_f64().unwrap_or_default()));
        let mut pairs: Vec<_> = pairs.filter(|(_, value)| *value > 0.0).collect();
        pairs.sort_by(|(_, one), (_, two)| two.total_cmp(one));
        pairs
    }
}
