//! One run: a tracker, started anew, under one load.

use serde::Serialize;

use crate::generator::Seen;

/// What a run is for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "part", rename_all = "lowercase")]
pub(crate) enum Part {
    /// As much as the tracker can do.
    Throughput,
    /// A part of that, for how long answers take then.
    Latency {
        /// Of a hundred that it can do.
        percent: u32,
        /// Requests a second.
        rate: f64,
    },
    /// A known number of peers.
    Memory {
        /// The definition's name for it.
        fill: String,
        /// How many.
        peers: u64,
        /// Each of them has a connection and has announced; else one was drawn for every announce.
        all: bool,
    },
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Task {
    /// The subject's name.
    pub(crate) tracker: String,
    /// How many processors it has.
    pub(crate) cores: usize,
    #[serde(flatten)]
    pub(crate) part: Part,
}

impl Task {
    /// For those who watch.
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

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    #[serde(flatten)]
    pub(crate) task: Task,
    pub(crate) round: u32,
    /// The part of the processors' time that went to others.
    pub(crate) noise: f64,
    /// Another run was taken instead, because this one was noisier.
    pub(crate) is_set_aside: bool,
    /// Seconds of load before what was seen.
    pub(crate) warm_up: u32,
    /// Growth of the tracker's resident memory from its start to the end.
    pub(crate) grown_bytes: u64,
    /// The most it had.
    pub(crate) peak_bytes: u64,
    pub(crate) seen: Seen,
}

impl Run {
    /// Responses for each second of the tracker's own CPU time, if that is known.
    pub(crate) fn per_cpu_s(&self) -> Option<f64> {
        let used = self.seen.tracker?;
        let cpu_s = used.user_s + used.sys_s;
        (cpu_s > 0.0).then(|| self.responses() / cpu_s)
    }

    /// Microseconds of the tracker's time for a response: in its own code, and in the kernel.
    pub(crate) fn us_each(&self) -> Option<(f64, f64)> {
        let used = self.seen.tracker?;
        let each = |seconds: f64| seconds / self.responses() * 1e6;
        Some((each(used.user_s), each(used.sys_s)))
    }

    /// Requests of ours that were answered each second: not what other peers had it deliver, nor replies to
    /// what is no request.
    pub(crate) fn answered_per_s(&self) -> f64 {
        self.seen.sent.saturating_sub(self.seen.lost) as f64 / self.seen.seconds
    }

    /// How many different peers have announced in a [`Part::Memory`]. Of those that are drawn at random,
    /// some may not have been drawn yet.
    pub(crate) fn peers(&self) -> Option<f64> {
        let Part::Memory { peers, all, .. } = self.task.part else { return None };
        let peers = peers as f64;
        if all {
            return Some(self.seen.stayed() as f64);
        }
        let announces = *self.seen.responses.get("announce")? as f64;
        let announces = announces * (1.0 + f64::from(self.warm_up) / self.seen.seconds);
        Some(peers * (1.0 - (-announces / peers).exp()))
    }

    /// Memory that each of them took, with its share of their torrents.
    pub(crate) fn bytes_per_peer(&self) -> Option<f64> {
        Some(self.grown_bytes as f64 / self.peers()?)
    }

    fn responses(&self) -> f64 {
        self.seen.responses_per_s * self.seen.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Web;

    #[test]
    fn figures_are_for_each_cpu_second() {
        let text = crate::generator::tests::FIGURES;
        let seen: Seen = serde_json::from_str(text).unwrap();
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
            seen,
        };
        assert_eq!(run.per_cpu_s(), Some(200_000.0));
        assert_eq!(run.us_each(), Some((1.0, 4.0)));
        assert_eq!(run.answered_per_s(), 100_000.0);
        run.seen.responses.insert("offer".into(), 1_000_000);
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
        run.seen.web = Some(Web { joined: 10_001, connections_lost: 1 });
        assert_eq!((run.peers(), run.bytes_per_peer()), (Some(10_000.0), Some(590.0)));
        run.seen.tracker = None;
        assert!(run.per_cpu_s().is_none() && run.us_each().is_none());
    }
}
