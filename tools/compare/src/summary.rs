//! Summarizes runs: medians by tracker and number of cores.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::comparison::{Comparison, SHARES};
use crate::figures::Figure;
use crate::generator::Latency;
use crate::noise::NOISE_MAX;
use crate::run::{Part, Run};

/// A tracker's throughput with a number of cores.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Throughput {
    pub(crate) tracker: String,
    pub(crate) cores: usize,
    pub(crate) runs: usize,
    /// Runs that stayed noisy despite repetitions.
    pub(crate) noisy: usize,
    pub(crate) responses_s: Figure,
    pub(crate) per_cpu_s: Option<Figure>,
    /// CPU time per response in microseconds, in user space and in the kernel.
    pub(crate) user_us: Option<f64>,
    pub(crate) sys_us: Option<f64>,
    pub(crate) peers_per_response: f64,
    pub(crate) lost_part: f64,
    pub(crate) peak_bytes: f64,
    /// Whether the load tester was the limit in most runs: the tracker could have answered more.
    pub(crate) is_load_limit: bool,
}

/// A tracker's latencies at a percentage of its throughput.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latencies {
    pub(crate) tracker: String,
    pub(crate) cores: usize,
    pub(crate) percent: u32,
    pub(crate) rate: f64,
    pub(crate) noisy: usize,
    pub(crate) lost_part: f64,
    /// Medians of each percentile.
    pub(crate) us: Latency,
}

/// A tracker's memory with a known number of peers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) tracker: String,
    pub(crate) fill: String,
    /// Peers at the end.
    pub(crate) peers: f64,
    pub(crate) bytes_per_peer: f64,
    pub(crate) peak_bytes: f64,
}

/// All results, in the trackers' order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Trackers that were measured or should have been.
    pub(crate) trackers: Vec<String>,
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) latencies: Vec<Latencies>,
    pub(crate) memory: Vec<Memory>,
}

impl Summary {
    /// Summarizes the runs so far.
    pub(crate) fn of(comparison: &Comparison<'_>) -> Self {
        let names: Vec<String> = comparison.subjects.iter().map(|one| one.name()).collect();
        let runs: Vec<&Run> = comparison.counted_runs().collect();
        Self::of_runs(&names, &comparison.counts(), &runs)
    }

    fn of_runs(names: &[String], counts: &[usize], runs: &[&Run]) -> Self {
        let mut summary = Self { trackers: names.to_vec(), ..Self::default() };
        for name in names {
            let own: Vec<&Run> =
                runs.iter().copied().filter(|run| run.task.tracker == *name).collect();
            for cores in counts {
                let is_one =
                    |run: &&Run| run.task.part == Part::Throughput && run.task.cores == *cores;
                let own: Vec<&Run> = own.iter().copied().filter(is_one).collect();
                summary.throughput.extend(Throughput::of(&own));
            }
            for share in SHARES {
                let is_one = |run: &&Run| matches!(run.task.part, Part::Latency { percent, .. } if percent == share);
                let own: Vec<&Run> = own.iter().copied().filter(is_one).collect();
                summary.latencies.extend(Latencies::of(&own));
            }
            summary.memory.extend(own.iter().filter_map(|run| Memory::of(run)));
        }
        summary
    }

    /// Returns the result of the first tracker, with which others are compared.
    pub(crate) fn first(&self, cores: usize) -> Option<&Throughput> {
        self.throughput.iter().find(|one| one.cores == cores)
    }

    /// Returns the most responses per second with this number of cores.
    pub(crate) fn best(&self, cores: usize) -> f64 {
        let those = self.throughput.iter().filter(|one| one.cores == cores);
        those.map(|one| one.responses_s.median).fold(0.0, f64::max)
    }

    /// Returns all fills with the memory of each tracker.
    pub(crate) fn fills(&self) -> BTreeMap<&str, Vec<&Memory>> {
        let mut fills: BTreeMap<&str, Vec<&Memory>> = BTreeMap::new();
        for memory in &self.memory {
            fills.entry(&memory.fill).or_default().push(memory);
        }
        fills
    }
}

fn median(runs: &[&Run], figure: impl Fn(&Run) -> f64) -> f64 {
    Figure::of(runs.iter().map(|run| figure(run))).map_or(0.0, |figure| figure.median)
}

fn noisy(runs: &[&Run]) -> usize {
    runs.iter().filter(|run| run.noise > NOISE_MAX).count()
}

impl Throughput {
    fn of(runs: &[&Run]) -> Option<Self> {
        let first = runs.first()?;
        let us = |pick: fn((f64, f64)) -> f64| {
            Figure::of(runs.iter().filter_map(|run| run.us_each().map(pick))).map(|us| us.median)
        };
        Some(Self {
            tracker: first.task.tracker.clone(),
            cores: first.task.cores,
            runs: runs.len(),
            noisy: noisy(runs),
            responses_s: Figure::of(runs.iter().map(|run| run.result.responses_per_s))?,
            per_cpu_s: Figure::of(runs.iter().filter_map(|run| run.per_cpu_s())),
            user_us: us(|(user, _)| user),
            sys_us: us(|(_, sys)| sys),
            peers_per_response: median(runs, |run| run.result.peers_per_response),
            lost_part: median(runs, |run| run.result.lost_part()),
            peak_bytes: median(runs, |run| run.peak_bytes as f64),
            is_load_limit: runs.iter().filter(|run| run.result.generator.is_limit).count() * 2
                > runs.len(),
        })
    }
}

impl Latencies {
    fn of(runs: &[&Run]) -> Option<Self> {
        let first = runs.first()?;
        let Part::Latency { percent, rate } = first.task.part else { return None };
        let us = |pick: fn(&Latency) -> f64| median(runs, |run| pick(&run.result.latency_us));
        Some(Self {
            tracker: first.task.tracker.clone(),
            cores: first.task.cores,
            percent,
            rate,
            noisy: noisy(runs),
            lost_part: median(runs, |run| run.result.lost_part()),
            us: Latency {
                mean: us(|us| us.mean),
                p50: us(|us| us.p50),
                p90: us(|us| us.p90),
                p99: us(|us| us.p99),
                p99_9: us(|us| us.p99_9),
                p99_99: us(|us| us.p99_99),
                max: us(|us| us.max),
            },
        })
    }
}

impl Memory {
    fn of(run: &Run) -> Option<Self> {
        let Part::Memory { fill, .. } = &run.task.part else { return None };
        Some(Self {
            tracker: run.task.tracker.clone(),
            fill: fill.clone(),
            peers: run.peers()?,
            bytes_per_peer: run.bytes_per_peer()?,
            peak_bytes: run.peak_bytes as f64,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::generator::{LoadResult, tests::FIGURES};
    use crate::run::Task;

    /// A run whose figures are those of the load tester's example, times `factor`.
    pub(crate) fn run(tracker: &str, cores: usize, part: Part, factor: f64) -> Run {
        let mut result: LoadResult = serde_json::from_str(FIGURES).unwrap();
        result.responses_per_s *= factor;
        result.latency_us.p50 *= factor;
        result.latency_us.p99 *= factor;
        Run {
            task: Task { tracker: tracker.into(), cores, part },
            round: 1,
            noise: if factor == 2.0 { 0.5 } else { 0.0 },
            is_set_aside: false,
            warm_up: 0,
            grown_bytes: 80_000_000,
            peak_bytes: 100_000_000,
            result,
        }
    }

    #[test]
    fn medians_are_of_one_tracker_with_one_number_of_cores() {
        let one = |tracker, cores, factor| run(tracker, cores, Part::Throughput, factor);
        let runs = [
            one("a", 1, 1.0),
            one("b", 1, 0.1),
            one("a", 1, 3.0),
            one("a", 1, 2.0),
            one("a", 2, 4.0),
            run("b", 2, Part::Latency { percent: 80, rate: 8.0 }, 1.0),
            run("b", 2, Part::Latency { percent: 80, rate: 8.0 }, 5.0),
            run("b", 2, Part::Latency { percent: 80, rate: 8.0 }, 3.0),
            run("a", 2, Part::Memory { fill: "full".into(), peers: 1000, all: false }, 1.0),
        ];
        let names = ["a", "b", "c"].map(str::to_owned);
        let summary = Summary::of_runs(&names, &[1, 2], &runs.iter().collect::<Vec<_>>());
        let rows: Vec<_> =
            summary.throughput.iter().map(|one| (&*one.tracker, one.cores)).collect();
        assert_eq!(rows, [("a", 1), ("a", 2), ("b", 1)]);
        let a = &summary.throughput[0];
        assert_eq!((a.runs, a.noisy, a.is_load_limit), (3, 1, true));
        assert_eq!(a.responses_s, Figure { median: 2e5, low: 1e5, high: 3e5 });
        assert_eq!(a.per_cpu_s.unwrap().median, 4e5);
        assert_eq!((a.user_us, a.sys_us), (Some(0.5), Some(2.0)));
        assert_eq!((summary.best(1), summary.best(9)), (2e5, 0.0));
        assert_eq!(summary.first(2).unwrap().responses_s.median, 4e5);
        let [latency] = &*summary.latencies else { panic!("{:?}", summary.latencies) };
        assert_eq!((latency.percent, latency.us.p50, latency.us.p90), (80, 300.0, 150.0));
        assert_eq!(summary.fills()["full"][0].bytes_per_peer, 80_000.0);
    }
}
