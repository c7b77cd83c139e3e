//! What has come of a load, counted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::Latencies;
use crate::checks::Checks;

/// What an answer is to. WebTorrent's messages from other peers are the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    /// A connection, or a connection id.
    Connect,
    /// An announce.
    Announce,
    /// A scrape.
    Scrape,
    /// Anything, in the negative.
    Error,
    /// Another peer's offer.
    Offer,
    /// Another peer's answer.
    Answer,
}

impl ResponseKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Connect, Self::Announce, Self::Scrape, Self::Error, Self::Offer, Self::Answer];
}

/// More different errors than that are counted together: a tracker that makes up ever new ones must not
/// fill the memory.
const ERRORS_MAX: usize = 32;
/// Bytes of an error's text that are kept.
const ERROR_LEN_MAX: usize = 160;

/// All counts of a piece of a run.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Requests sent.
    pub sent: u64,
    /// Requests that left more than a millisecond after they were due.
    pub overdue: u64,
    responses: [u64; ResponseKind::ALL.len()],
    /// Requests that were not answered in time.
    pub lost: u64,
    /// Answers to such requests that came later.
    pub late: u64,
    /// What went wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// How long answers took.
    pub latencies: Latencies,
    /// Payload received.
    pub bytes_in: u64,
    /// Payload sent.
    pub bytes_out: u64,
    /// Peers in all answers to announces.
    pub peers: u64,
    /// What was wrong with answers.
    pub checks: Checks,
    /// Requests of the hostile kind.
    pub hostile_sent: u64,
    /// Answers to them.
    pub hostile_answered: u64,
    /// What only WebTorrent has.
    pub web: WebTorrentCounters,
    /// How long the workers had nothing to do.
    pub waited: Duration,
}

/// Counts that only WebTorrent has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WebTorrentCounters {
    /// Connections that ended, or could not be made.
    pub connections_lost: u64,
    /// Replies to answers, which some trackers send; they count as replies to announces, too.
    pub acknowledgements: u64,
    /// Answers sent.
    pub answers_sent: u64,
    /// Answers not sent, because the tracker took in too little of what was sent before, or because
    /// an offer had no names in it.
    pub answers_withheld: u64,
    /// Pings received; all are answered.
    pub pings: u64,
    /// Pongs received.
    pub pongs: u64,
}

impl Counters {
    /// How many answers of a kind there were.
    pub fn responses(&self, kind: ResponseKind) -> u64 {
        self.responses.get(kind as usize).copied().unwrap_or(0)
    }

    /// How many answers there were in all.
    pub fn all_responses(&self) -> u64 {
        self.responses.iter().sum()
    }

    /// Counts one answer.
    pub(crate) fn count(&mut self, kind: ResponseKind) {
        if let Some(count) = self.responses.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Counts something that went wrong.
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

    /// Counts a refusal in the tracker's own words.
    pub(crate) fn refuse(&mut self, words: &[u8]) {
        self.count(ResponseKind::Error);
        let words = words.get(..ERROR_LEN_MAX).unwrap_or(words);
        // Escaped, because it goes to a terminal.
        let text: String = String::from_utf8_lossy(words).chars().flat_map(printable).collect();
        self.fail(&format!("refused: {text}"));
    }

    /// Adds all of another's.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.overdue += other.overdue;
        for (count, more) in self.responses.iter_mut().zip(other.responses) {
            *count += more;
        }
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
        self.hostile_sent += other.hostile_sent;
        self.hostile_answered += other.hostile_answered;
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
    fn errors_are_bounded_and_printable() {
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

    #[test]
    fn merged_counts_add_up() {
        let mut one =
            Counters { sent: 1, lost: 2, waited: Duration::from_secs(1), ..Counters::default() };
        one.count(ResponseKind::Scrape);
        one.fail("x");
        one.latencies.record(Duration::from_millis(1));
        let mut two = one.clone();
        two.merge(&one);
        assert_eq!((two.sent, two.lost, two.waited.as_secs()), (2, 4, 2));
        assert_eq!(
            (two.responses(ResponseKind::Scrape), two.all_responses(), two.errors["x"]),
            (2, 2, 2)
        );
    }
}
