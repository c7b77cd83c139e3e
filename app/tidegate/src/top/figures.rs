//! What is known of a tracker, kept as news come in.

use std::collections::VecDeque;

use serde_json::Value;

use super::feed::News;

/// Seconds that are kept for the course of requests: more than a terminal has columns.
const COURSE_MAX: usize = 600;

/// What requests come over.
pub(super) const PROTOCOLS: [&str; 5] = ["udp", "http", "https", "ws", "wss"];

/// The latest figures.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) version: String,
    /// The names of the figures in a sample.
    fields: Vec<String>,
    sample: Vec<f64>,
    /// All requests of each second, the latest last.
    pub(super) course: VecDeque<f64>,
    /// What is told every five seconds, by name.
    pub(super) tables: Value,
    pub(super) torrents: Vec<Torrent>,
    /// Why there are no torrents.
    pub(super) no_torrents: Option<String>,
    /// Why there are no new figures.
    pub(super) lost: Option<String>,
}

/// A torrent in the list.
#[derive(Debug)]
pub(super) struct Torrent {
    pub(super) info_hash: String,
    pub(super) seeders: u64,
    pub(super) leechers: u64,
    pub(super) downloads: u64,
    pub(super) age_s: u64,
}

impl Figures {
    pub(super) fn take(&mut self, news: News) {
        match news {
            News::Version(version) => self.version = version,
            News::Lost(why) => self.lost = Some(why),
            News::Torrents(Ok(page)) => {
                let torrents = page["torrents"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.torrents = torrents.iter().map(torrent).collect();
                self.no_torrents = None;
            }
            News::Torrents(Err(why)) => self.no_torrents = Some(why),
            News::Figures(message) => {
                self.lost = None;
                let data = serde_json::from_str(&message.data).unwrap_or_default();
                self.put(&message.name, data);
            }
        }
    }

    fn put(&mut self, name: &str, mut data: Value) {
        match name {
            "history" => {
                let fields = serde_json::from_value(data["fields"].take());
                self.fields = fields.unwrap_or_default();
                self.course.clear();
                let rows = data["seconds"].as_array().map(Vec::as_slice).unwrap_or_default();
                rows.iter().for_each(|row| self.add(row));
            }
            "sample" => self.add(&data),
            "details" => self.tables = data,
            // Of a later version.
            _ => {}
        }
    }

    /// Takes the figures of another second.
    fn add(&mut self, row: &Value) {
        let numbers = row.as_array().map(Vec::as_slice).unwrap_or_default();
        self.sample = numbers.iter().map(|number| number.as_f64().unwrap_or_default()).collect();
        if self.course.len() >= COURSE_MAX {
            self.course.pop_front();
        }
        self.course.push_back(self.requests());
    }

    /// Whether there is anything to show.
    pub(super) fn is_known(&self) -> bool {
        !self.sample.is_empty()
    }

    /// Whether there is nothing more to wait for.
    pub(super) fn is_whole(&self) -> bool {
        self.is_known() && self.tables.is_object()
    }

    /// A figure of the latest sample; 0 if it is not known.
    pub(super) fn of(&self, name: &str) -> f64 {
        let at = self.fields.iter().position(|field| field == name);
        at.and_then(|at| self.sample.get(at)).copied().unwrap_or_default()
    }

    /// Requests in the latest second, over all protocols.
    pub(super) fn requests(&self) -> f64 {
        PROTOCOLS.iter().map(|protocol| self.of(&format!("{protocol}_s"))).sum()
    }

    /// A table's pairs, the largest first.
    pub(super) fn ranking(&self, table: &str) -> Vec<(&str, f64)> {
        let pairs = self.tables[table].as_object().into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_f64().unwrap_or_default()));
        let mut pairs: Vec<_> = pairs.filter(|(_, value)| *value > 0.0).collect();
        pairs.sort_by(|(_, one), (_, two)| two.total_cmp(one));
        pairs
    }
}

fn torrent(row: &Value) -> Torrent {
    let count = |name: &str| row[name].as_u64().unwrap_or_default();
    Torrent {
        info_hash: row["info_hash"].as_str().unwrap_or_default().into(),
        seeders: count("seeders"),
        leechers: count("leechers"),
        downloads: count("downloads"),
        age_s: count("age_s"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::admin::Message;
    use serde_json::json;

    pub(in crate::top) fn told(name: &str, data: &Value) -> News {
        News::Figures(Message { name: name.into(), data: data.to_string() })
    }

    #[test]
    fn figures_are_the_latest() {
        let mut figures = Figures::default();
        assert!(!figures.is_known());
        let history =
            json!({ "fields": ["time", "udp_s", "ws_s"], "seconds": [[1, 2, 3], [2, 4.5, 0]] });
        figures.take(told("history", &history));
        assert!(figures.is_known() && !figures.is_whole());
        assert_eq!(
            (figures.of("udp_s"), figures.of("nonsense"), figures.requests()),
            (4.5, 0.0, 4.5)
        );
        figures.take(News::Lost("x".into()));
        figures.take(told("sample", &json!([3, 1, 1])));
        assert_eq!(figures.course, [5.0, 4.5, 2.0]);
        assert_eq!(figures.lost, None);
        figures.take(told("details", &json!({ "drops": { "a": 1.0, "b": 2, "c": 0 } })));
        assert!(figures.is_whole());
        assert_eq!(figures.ranking("drops"), [("b", 2.0), ("a", 1.0)]);
        assert_eq!(figures.ranking("refusals"), []);
        for _ in 0..COURSE_MAX {
            figures.take(told("sample", &json!([3, 0, 7])));
        }
        assert_eq!((figures.course.len(), figures.course[0]), (COURSE_MAX, 7.0));
    }
}
