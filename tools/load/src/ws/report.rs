//! What a run has found.

use std::fmt;

use crate::{Latencies, Usage};

/// What was sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Replies to announces.
    pub replies: u64,
    /// Replies to answers, which some trackers send.
    pub acknowledgements: u64,
    /// Other peers' offers.
    pub offers: u64,
    /// Other peers' answers.
    pub answers: u64,
    /// Answers to scrapes.
    pub scrapes: u64,
    /// Refusals.
    pub failures: u64,
    /// Messages that are none of the protocol.
    pub unreadable: u64,
    /// Pings received; all are answered.
    pub pings: u64,
    /// Pongs received.
    pub pongs: u64,
    /// Announces sent.
    pub announces: u64,
    /// Scrapes sent.
    pub scrape_requests: u64,
    /// Answers sent.
    pub answers_sent: u64,
    /// Answers not sent, because the tracker took in too little of what was sent before, or because
    /// an offer had no names in it.
    pub answers_withheld: u64,
    /// Requests without an answer for five seconds.
    pub unanswered: u64,
    /// Connections that ended, or could not be made.
    pub lost: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
}

impl Tally {
    /// All messages that were delivered.
    pub fn messages(&self) -> u64 {
        self.replies
            + self.acknowledgements
            + self.offers
            + self.answers
            + self.scrapes
            + self.failures
    }
}

/// Bytes of the tracker's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Before the first connection.
    pub before: u64,
    /// When all peers had joined.
    pub joined: u64,
    /// At the end.
    pub at_end: u64,
}

/// What a run has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Peers whose first announce was answered.
    pub joined: usize,
    /// Seconds until they all were.
    pub open_s: f64,
    /// Seconds that all below is about.
    pub seconds: f64,
    /// What was sent and received in them.
    pub tally: Tally,
    /// How long requests waited for their answers.
    pub latencies: Latencies,
    /// What the load itself has used, where the system tells.
    pub own: Option<Usage>,
    /// What the tracker has used, if its process is known.
    pub tracker: Option<Usage>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// The first reason for a failure or a lost connection.
    pub complaint: Option<String>,
}

impl Report {
    /// Messages delivered in each second of the tracker's CPU time, if it has used any.
    pub fn messages_per_cpu_s(&self) -> Option<f64> {
        let cpu_s = self.tracker?.cpu_s();
        (cpu_s > 0.0).then(|| self.tally.messages() as f64 / cpu_s)
    }

    /// Bytes by which the tracker grew for each peer that joined.
    pub fn bytes_per_connection(&self) -> Option<f64> {
        let memory = self.memory?;
        Some((memory.joined as f64 - memory.before as f64) / self.joined as f64)
    }
}

/// One line for each figure, its name in front: people and programs read it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally, seconds, .. } = self;
        let rate = |count: u64| count as f64 / seconds;
        writeln!(f, "measured: {seconds:.2} s with {} peers, {} lost", self.joined, tally.lost)?;
        writeln!(f, "messages per second: {:.1}", rate(tally.messages()))?;
        for (name, count) in [
            ("replies to announces", tally.replies),
            ("replies to answers", tally.acknowledgements),
            ("offers", tally.offers),
            ("answers", tally.answers),
            ("scrapes", tally.scrapes),
            ("failures", tally.failures),
            ("unreadable", tally.unreadable),
            ("pings", tally.pings),
            ("pongs", tally.pongs),
        ] {
            if count > 0 {
                writeln!(f, "  {name}: {count}")?;
            }
        }
        writeln!(
            f,
            "sent: {} announces, {} answers ({} withheld), {} scrapes; {} unanswered",
            tally.announces,
            tally.answers_sent,
            tally.answers_withheld,
            tally.scrape_requests,
            tally.unanswered
        )?;
        let megabytes = |bytes: u64| rate(bytes) / 1e6;
        let (received, sent) = (megabytes(tally.bytes_received), megabytes(tally.bytes_sent));
        writeln!(f, "megabytes per second: {received:.1} received, {sent:.1} sent")?;
        if self.latencies.quantile(0.5).is_some() {
            writeln!(f, "latency: {}", self.latencies)?;
        }
        let share = |usage: Usage| 100.0 * usage.cpu_s() / seconds;
        if let Some(own) = self.own {
            writeln!(f, "load's CPU: {:.2} % of a core", share(own))?;
        }
        if let Some(tracker) = self.tracker {
            writeln!(f, "tracker's CPU: {:.2} % of a core", share(tracker))?;
            writeln!(f, "tracker's user seconds: {:.2}", tracker.user_s)?;
            writeln!(f, "tracker's system seconds: {:.2}", tracker.system_s)?;
        }
        if let Some(figure) = self.messages_per_cpu_s() {
            writeln!(f, "messages per tracker CPU second: {figure:.0}")?;
        }
        if let Some(Memory { before, joined, at_end }) = self.memory {
            let mebibytes = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
            let [before, joined, at_end] = [before, joined, at_end].map(mebibytes);
            writeln!(
                f,
                "tracker's MiB: {before:.1} before, {joined:.1} joined, {at_end:.1} at the end"
            )?;
        }
        if let Some(figure) = self.bytes_per_connection() {
            writeln!(f, "tracker's bytes per connection: {figure:.0}")?;
        }
        match &self.complaint {
            Some(complaint) => writeln!(f, "first trouble: {complaint}"),
            None => Ok(()),
        }
    }
}
