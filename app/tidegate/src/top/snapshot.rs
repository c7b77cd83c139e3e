//! The latest state of a tracker, from the updates received.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;

use crate::admin::SseMessage;

/// Number of seconds whose requests are kept: more than a terminal has columns.
const HISTORY_MAX: usize = 600;

pub(super) const PROTOCOLS: [&str; 5] = ["udp", "http", "https", "ws", "wss"];

pub(super) enum Update {
    Version(String),
    Snapshot(SseMessage),
    /// Meanings of names: the response to `GET /names`.
    Names(Value),
    /// Health of the tracker: the response to `GET /status`.
    Status(Value),
    /// A page of torrents, or why there is none.
    Torrents(Result<Value, String>),
    /// The stream of statistics has ended, for this reason.
    Disconnected(String),
}

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) version: String,
    /// The names of the values in a sample.
    fields: Vec<String>,
    sample: Vec<f64>,
    /// Total requests of each second, the latest last.
    pub(super) request_history: VecDeque<f64>,
    /// Values sent every five seconds, by name.
    pub(super) details: Value,
    pub(super) torrents: Vec<Torrent>,
    /// Meanings of names; null if the tracker does not report them.
    names: Value,
    /// Health of the tracker; null if the tracker does not report it.
    pub(super) status: Value,
    /// Why torrents are missing.
    pub(super) torrents_error: Option<String>,
    /// Why there are no new statistics.
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

impl Snapshot {
    pub(super) fn apply(&mut self, updates: Update) {
        match updates {
            Update::Version(version) => self.version = version,
            Update::Names(names) => self.names = names,
            Update::Status(status) => self.status = status,
            Update::Disconnected(why) => self.stream_error = Some(why),
            Update::Torrents(Ok(mut page)) => {
                let torrents = page.get_mut("torrents").map(Value::take).unwrap_or_default();
                self.torrents = serde_json::from_value(torrents).unwrap_or_default();
                self.torrents_error = None;
            }
            Update::Torrents(Err(why)) => self.torrents_error = Some(why),
            Update::Snapshot(message) => {
                self.stream_error = serde_json::from_str(&message.data)
                    .and_then(|data| self.put(&message.name, data))
                    .err()
                    .map(|error| format!("invalid `{}` from the API: {error}", message.name));
            }
        }
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
            // From a later version.
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

    /// Returns true if there is anything to show.
    pub(super) fn has_sample(&self) -> bool {
        !self.sample.is_empty()
    }

    /// Returns true if all statistics have been received.
    pub(super) fn is_complete(&self) -> bool {
        self.has_sample() && self.details.is_object()
    }

    /// Returns a value of the latest sample; 0 if the tracker does not send it.
    pub(super) fn of(&self, name: &str) -> f64 {
        let at = self.fields.iter().position(|field| field == name);
        at.and_then(|at| self.sample.get(at)).copied().unwrap_or_default()
    }

    /// Returns the requests in the latest second, over all protocols.
    pub(super) fn requests(&self) -> f64 {
        PROTOCOLS.iter().map(|protocol| self.of(&format!("{protocol}_s"))).sum()
    }

    /// Returns what a name in a table stands for, in words.
    pub(super) fn title(&self, table: &str, name: &str) -> String {
        let known = self.names[table].as_array().into_iter().flatten();
        let known = known.filter(|known| known["name"] == name).find_map(|it| it["title"].as_str());
        // Clients and networks are no names of the API.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in crate::top) fn update(name: &str, data: &Value) -> Update {
        Update::Snapshot(SseMessage { name: name.into(), data: data.to_string() })
    }

    #[test]
    fn keeps_the_latest_values() {
        let mut snapshot = Snapshot::default();
        assert!(!snapshot.has_sample());
        let history =
            json!({ "fields": ["time", "udp_s", "ws_s"], "seconds": [[1, 2, 3], [2, 4.5, 0]] });
        snapshot.apply(update("history", &history));
        assert!(snapshot.has_sample() && !snapshot.is_complete());
        assert_eq!(
            (snapshot.of("udp_s"), snapshot.of("nonsense"), snapshot.requests()),
            (4.5, 0.0, 4.5)
        );
        snapshot.apply(Update::Disconnected("x".into()));
        snapshot.apply(update("sample", &json!([3, 1, 1])));
        assert_eq!(snapshot.request_history, [5.0, 4.5, 2.0]);
        assert_eq!(snapshot.stream_error, None);
        snapshot.apply(update("details", &json!({ "drops": { "a": 1.0, "b": 2, "c": 0 } })));
        assert!(snapshot.is_complete());
        assert_eq!(snapshot.ranking("drops"), [("b", 2.0), ("a", 1.0)]);
        assert_eq!(snapshot.ranking("refusals"), []);
        for _ in 0..HISTORY_MAX {
            snapshot.apply(update("sample", &json!([3, 0, 7])));
        }
        assert_eq!(
            (snapshot.request_history.len(), snapshot.request_history[0]),
            (HISTORY_MAX, 7.0)
        );
    }
}
