//! The counters of a load.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Latencies;
use crate::checks::Checks;

/// Responses by kind.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Responses {
    /// Connection ids or connections.
    pub connect: u64,
    /// Announces.
    pub announce: u64,
    /// Scrapes.
    pub scrape: u64,
    /// Error responses.
    pub error: u64,
    /// Offers of other peers, which a WebTorrent tracker relays.
    pub offer: u64,
    /// Answers of other peers.
    pub answer: u64,
}

impl Responses {
    /// Returns the number of all responses.
    pub fn all(&self) -> u64 {
        self.connect + self.announce + self.scrape + self.error + self.offer + self.answer
    }
}

/// Distinct errors counted separately; further ones are counted together, because a tracker that
/// invents new texts must not fill the memory.
const ERRORS_MAX: usize = 32;
/// Length limit of an error's text in bytes.
const ERROR_LEN_MAX: usize = 160;

/// All counters of a part of a run. Field names are those of the JSON that is printed, and are stable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Requests sent.
    pub sent: u64,
    /// Requests sent more than a millisecond after their scheduled time.
    #[serde(skip)]
    pub overdue: u64,
    /// Responses by kind.
    pub responses: Responses,
    /// Requests that timed out.
    pub lost: u64,
    /// Responses that arrived after their timeout.
    pub late: u64,
    /// Error messages and how often each occurred.
    pub errors: BTreeMap<String, u64>,
    /// Response times.
    #[serde(skip)]
    pub latencies: Latencies,
    /// Payload bytes received.
    pub bytes_in: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
    /// Peers in all announce responses.
    #[serde(skip)]
    pub peers: u64,
    /// Results of validating responses.
    pub checks: Checks,
    /// WebTorrent's own counters.
    #[serde(skip)]
    pub web: WebTorrentCounters,
    /// Time that the workers spent waiting.
    #[serde(skip)]
    pub waited: Duration,
}

/// WebTorrent's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebTorrentCounters {
    /// Connections that were closed or could not be opened.
    pub connections_lost: u64,
    /// Responses to answers, which some trackers send. They are also counted as announce responses.
    pub acknowledgements: u64,
    /// Answers sent.
    pub answers_sent: u64,
    /// Answers not sent because the tracker did not read what was sent before, or because the offer
    /// lacked its ids.
    pub answers_withheld: u64,
    /// Pings received, all of them answered.
    pub pings: u64,
    /// Pongs received.
    pub pongs: u64,
}

impl Counters {
    /// Counts an error.
    pub(crate) fn fail(&mut self, text: &str) {
        self.fail_times(text, 1);
    }

    fn fail_times(&mut self, text: &str, times: u64) {
        if let Some(count) = self.errors.get_mut(text) {
            *count += times;
        } else if self.errors.len() < ERRORS_MAX {
            self.errors.insert(text.to_owned(), times);
        } else {
            *self.errors.entry("other errors".to_owned()).or_default() += times;
        }
    }

    /// Counts an error response with the tracker's reason.
    pub(crate) fn refuse(&mut self, words: &[u8]) {
        self.responses.error += 1;
        let words = words.get(..ERROR_LEN_MAX).unwrap_or(words);
        // Escaped because it is printed to a terminal.
        let text: String = String::from_utf8_lossy(words).chars().flat_map(printable).collect();
        self.fail(&format!("refused: {text}"));
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.overdue += other.overdue;
        self.responses.connect += other.responses.connect;
        self.responses.announce += other.responses.announce;
        self.responses.scrape += other.responses.scrape;
        self.responses.error += other.responses.error;
        self.responses.offer += other.responses.offer;
        self.responses.answer += other.responses.answer;
        self.lost += other.lost;
        self.late += other.late;
        for (text, times) in &other.errors {
            self.fail_times(text, *times);
        }
        self.latencies.merge(&other.latencies);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.peers += other.peers;
        self.checks.own_address += other.checks.own_address;
        self.checks.checked += other.checks.checked;
        self.checks.duplicates += other.checks.duplicates;
        self.checks.unknown_peers += other.checks.unknown_peers;
        self.checks.bad_counts += other.checks.bad_counts;
        self.web.connections_lost += other.web.connections_lost;
        self.web.acknowledgements += other.web.acknowledgements;
        self.web.answers_sent += other.web.answers_sent;
        self.web.answers_withheld += other.web.answers_withheld;
        self.web.pings += other.web.pings;
        self.web.pongs += other.web.pongs;
        self.waited += other.waited;
    }
}

fn printable(character: char) -> impl Iterator<Item = char> {
    let escape = character.is_control().then(|| character.escape_default());
    let plain = (!character.is_control()).then_some(character);
    escape.into_iter().flatten().chain(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_escapes_errors() {
        let mut counters = Counters::default();
        counters.refuse(b"no\x1b[31m \xff");
        assert_eq!(counters.errors.keys().next().unwrap(), "refused: no\\u{1b}[31m \u{fffd}");
        for number in 0..1000 {
            counters.fail(&number.to_string());
        }
        counters.refuse(&[b'x'; 5000]);
        assert_eq!(counters.errors.len(), ERRORS_MAX + 1);
        assert_eq!(counters.errors.values().sum::<u64>(), 1002);
        assert!(counters.errors.keys().all(|text| text.len() < 200));
    }
}
