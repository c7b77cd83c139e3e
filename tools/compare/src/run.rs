//! One run: a freshly started tracker under one load.

use serde::Serialize;

use crate::generator::LoadResult;

/// What a run measures.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "part", rename_all = "lowercase")]
pub(crate) enum Part {
    /// Maximum throughput.
    Throughput,
    /// Latencies at a percentage of the maximum throughput.
    Latency {
        /// Percentage of the maximum throughput.
        percent: u32,
        /// Requests per second.
        rate: f64,
    },
    /// Memory with a known number of peers.
    Memory {
        /// Name of the fill's definition.
        fill: String,
        /// Number of peers.
        peers: u64,
        /// Whether every peer has a connection and announces; otherwise each announce draws a
        /// random one.
        all: bool,
    },
}

/// A measurement to make.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Task {
    /// The tracker's name.
    pub(crate) tracker: String,
    /// Number of tracker cores.
    pub(crate) cores: usize,
    #[serde(flatten)]
    pub(crate) part: Part,
}

impl Task {
    /// Returns a title for progress output.
    pub(crate) fn title(&self) -> String {
        let cores = if self.cores == 1 { "1 core".into() } else { format!("{} cores", self.cores) };
        let what = match &self.part {
            Part::Throughput => String::new(),
            Part::Latency { percent, .. } => format!(", {percent} % of its throughput"),
            Part::Memory { fill, .. } => format!(", {fill}"),
        };
        format!("{}, {cores}{what}", self.tracker)
    }
}

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) task: Task,
    pub(crate) round: u32,
    /// Fraction of the CPU time that other processes used.
    pub(crate) noise: f64,
    /// Whether a less noisy repetition replaces this run.
    pub(crate) is_set_aside: bool,
    /// Seconds of warm-up.
    pub(crate) warm_up: u32,
    /// Growth of the tracker's resident memory from its start to the end, in bytes.
    pub(crate) grown_bytes: u64,
    /// Peak resident memory in bytes.
    pub(crate) peak_bytes: u64,
    pub(crate) result: LoadResult,
}

impl Run {
    /// Returns the responses per second of the tracker's CPU time, if known.
    pub(crate) fn per_cpu_s(&self) -> Option<f64> {
        let used = self.result.tracker?;
        let cpu_s = used.user_s + used.sys_s;
        (cpu_s > 0.0).then(|| self.responses() / cpu_s)
    }

    /// Returns the tracker's CPU time per response in microseconds: user space and kernel.
    pub(crate) fn us_each(&self) -> Option<(f64, f64)> {
        let used = self.result.tracker?;
        let each = |seconds: f64| seconds / self.responses() * 1e6;
        Some((each(used.user_s), each(used.sys_s)))
    }

    /// Returns the load's own requests answered per second, without messages relayed from other
    /// peers and without
    /// responses to messages that are not requests.
    pub(crate) fn answered_per_s(&self) -> f64 {
        self.result.sent.saturating_sub(self.result.lost) as f64 / self.result.seconds
    }

    /// Returns the number of distinct peers that have announced in a [`Part::Memory`]. Of randomly
    /// drawn peers,
    /// some may not have been drawn yet.
    pub(crate) fn peers(&self) -> Option<f64> {
        let Part::Memory { peers, all, .. } = self.task.part else { return None };
        let peers = peers as f64;
        if all {
            return Some(self.result.connections_kept() as f64);
        }
        let announces = *self.result.responses.get("announce")? as f64;
        let announces = announces * (1.0 + f64::from(self.warm_up) / self.result.seconds);
        Some(peers * (1.0 - (-announces / peers).exp()))
    }

    /// Returns the memory per peer, including its share of the torrents.
    pub(crate) fn bytes_per_peer(&self) -> Option<f64> {
        Some(self.grown_bytes as f64 / self.peers()?)
    }

    fn responses(&self) -> f64 {
        self.result.responses_per_s * self.result.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::WebTorrentResult;

    #[test]
    fn computes_figures_per_cpu_second() {
        let text = crate::generator::tests::FIGURES;
        let result: LoadResult = serde_json::from_str(text).unwrap();
        let task =
            Task { tracker: "a".into(), cores: 2, part: Part::Latency { percent: 50, rate: 1.0 } };
        assert_eq!(task.title(), "a, 2 cores, 50 % of its throughput");
        let mut run = Run {
            task,
            round: 1,
            noise: 0.0,
            is_set_aside: false,
            warm_up: 0,
            grown_bytes: 0,
            peak_bytes: 0,
            result,
        };
        assert_eq!(run.per_cpu_s(), Some(200_000.0));
        assert_eq!(run.us_each(), Some((1.0, 4.0)));
        assert_eq!(run.answered_per_s(), 100_000.0);
        run.result.responses.insert("offer".into(), 1_000_000);
        assert_eq!(run.answered_per_s(), 100_000.0);
        let json = serde_json::to_value(&run).unwrap();
        assert_eq!((json["tracker"].as_str(), json["percent"].as_u64()), (Some("a"), Some(50)));
        run.task.part = Part::Memory { fill: "f".into(), peers: 590_000, all: false };
        // As many announces as peers: one of e has not been drawn.
        assert!((run.peers().unwrap() / 590_000.0 - 0.632).abs() < 0.001);
        run.warm_up = 1000;
        run.grown_bytes = 5_900_000;
        assert!((run.bytes_per_peer().unwrap() - 10.0).abs() < 1e-6);
        run.task.part = Part::Memory { fill: "f".into(), peers: 10_001, all: true };
        run.result.web = Some(WebTorrentResult { joined: 10_001, connections_lost: 1 });
        assert_eq!((run.peers(), run.bytes_per_peer()), (Some(10_000.0), Some(590.0)));
        run.result.tracker = None;
        assert!(run.per_cpu_s().is_none() && run.us_each().is_none());
    }
}
