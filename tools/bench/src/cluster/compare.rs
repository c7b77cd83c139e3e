//! `tidegate-bench cluster compare`: tidegate beside other trackers of which two nodes are one.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use ::load::Latencies;
use ::load::udp::{self, Newcomers};
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use harness::network::Link;
use harness::network::sites::Backbone;

use super::lag::every_announce_a_change;
use super::seen;
use super::system::{NODES, SHARED, System, systems};
use crate::figures::count;
use crate::lab::{Lab, LabArgs};
use crate::record::Figures;
use crate::session::{ResultArgs, RunKey, Session};

/// Names of cases, as records have them.
pub(super) const SEEN: &str = "seen";
pub(super) const COST: &str = "cost";
pub(super) const LOSS: &str = "1 % lost for 30 s";
pub(super) const CUT: &str = "cut off for 10 s";
/// Time for the last changes to be sent.
const SETTLE: Duration = Duration::from_secs(1);
/// New peers per second that the other node must see, and how long the last of them are waited for.
const SEEN_PER_S: f64 = 20.0;
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// New peers at the first node, while its links fail.
const FAULT_PEERS: u32 = 6000;
const FAULT_PEERS_PER_S: f64 = 200.0;
/// When a cut begins after the first peer, and how long it lasts. Losses last until the last peer.
const CUT_AFTER: Duration = Duration::from_secs(10);
const CUT_FOR: Duration = Duration::from_secs(10);
const LOSSES: Link =
    Link { delay: Duration::ZERO, jitter: Duration::ZERO, loss_permille: 10, is_cut: false };
/// How long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// When missing peers are counted.
const AFTER: Duration = Duration::from_secs(60);

/// Compare tidegate with other trackers of which two nodes are one.
#[derive(Args)]
pub(super) struct ClusterComparison {
    /// New peers that the other node must see.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = value_parser!(u32).range(1..=100_000))]
    peers: u32,
    /// Seconds of load.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Runs of the load.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Measure only this system; repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Measure only this case; repeatable.
    #[arg(long, value_name = "CASE", value_parser = [SEEN, COST, LOSS, CUT])]
    case: Vec<String>,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// The figures of a case.
type Measured = Result<(String, Figures)>;

impl ClusterComparison {
    /// Runs it and reports it.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let (systems, missing) = systems(&lab, &self.only)?;
        let mut session = Session::start("cluster compare", &self.output, &self.lab.definitions)?;
        missing.into_iter().for_each(|why| session.fail(why));
        let wants = |case: &str| self.case.is_empty() || self.case.iter().any(|one| one == case);
        if wants(SEEN) {
            // Waiting takes no processor, so that all are waited for at once.
            let all = at_once(systems.iter().map(|it| || self.seen(it)));
            for (system, measured) in systems.iter().zip(all) {
                add(&mut session, (system, SEEN, 1), measured)?;
            }
        }
        for round in (1..=self.runs).filter(|_| wants(COST)) {
            for system in &systems {
                if !session.is_stopped() {
                    let measured = self.cost(system);
                    add(&mut session, (system, COST, round), measured)?;
                }
            }
        }
        let faults = [LOSS, CUT].into_iter().filter(|case| wants(case));
        let faults: Vec<(&System, &str)> =
            faults.flat_map(|case| systems.iter().map(move |system| (system, case))).collect();
        if !session.is_stopped() {
            let all = at_once(faults.iter().map(|(system, case)| || fault(system, case)));
            for ((system, case), measured) in faults.iter().zip(all) {
                add(&mut session, (system, case, 1), measured)?;
            }
        }
        session.finish(Vec::new())
    }

    fn seen(&self, system: &System) -> Measured {
        let pair = system.start(Backbone::Switch)?;
        let mut sightings = pair.sightings(1)?;
        let newcomers =
            Newcomers { node: 0, peers: self.peers, per_s: SEEN_PER_S, patience: SEEN_WITHIN };
        let times = sightings.observe_all(newcomers, 1)?;
        pair.check()?;
        let unseen = times.iter().filter(|time| time.is_none()).count();
        let mut seen = Latencies::default();
        times.iter().flatten().for_each(|time| seen.record(*time));
        let figures = seen::figures(&seen)?.with("unseen", unseen as f64);
        Ok((seen::summary(&seen), figures.with("peers", f64::from(self.peers))))
    }

    /// Loads the first node with announces each of which starts or stops a peer.
    fn cost(&self, system: &System) -> Measured {
        let pair = system.start(Backbone::Bridge { rate_mbit: 0 })?;
        let options = every_announce_a_change(0.0, self.seconds)?;
        let before = pair.usage()?;
        let run = || udp::run(&options, &AtomicBool::new(false), &mut |_| {});
        let report = pair.sites().clients().run(run)?;
        // What waits to be sent belongs to it.
        thread::sleep(SETTLE);
        let after = pair.usage()?;
        pair.check()?;
        // The warm-up counts, too.
        let seconds = self.seconds as f64 + options.plan.warm_up.as_secs_f64();
        let announces = report.responses_per_s * seconds;
        let nodes_s = after.nodes_s - before.nodes_s;
        let all_s = nodes_s + after.shared_s - before.shared_s;
        let figures = Figures::default()
            .with("seconds", self.seconds.into())
            .with("responses_s", report.responses_per_s)
            .with("per_cpu_s", announces / all_s)
            .with("nodes_part", nodes_s / all_s)
            .with("bytes", (after.bytes - before.bytes) / announces)
            .with("lost", report.lost as f64)
            .with("errors", report.responses.error as f64);
        let show = |name: &str| figures.get(name).map_or(f64::NAN, |it| it.median);
        let text = format!(
            "{} announces/s, {} per CPU-s of all processes, {:.1} B each",
            count(show("responses_s")),
            count(show("per_cpu_s")),
            show("bytes")
        );
        Ok((text, figures))
    }
}

/// Announces new peers at the first node while its links fail, and counts those that the other node misses a
/// minute later.
fn fault(system: &System, case: &str) -> Measured {
    let pair = system.start(Backbone::Switch)?;
    let [mut client, mut counter] = [pair.sightings(1)?, pair.sightings(2)?];
    let set = |link: Link| {
        let [first, second] = NODES;
        pair.sites().set_link(first, second, link);
        pair.sites().set_link(first, SHARED, link);
    };
    if case == LOSS {
        pair.sites().set_links(LOSSES);
    }
    let newcomers =
        Newcomers { node: 0, peers: FAULT_PEERS, per_s: FAULT_PEERS_PER_S, patience: PATIENCE };
    let announced = thread::scope(|scope| {
        let announcing = scope.spawn(|| client.announce_all(newcomers));
        if case == CUT {
            thread::sleep(CUT_AFTER);
            set(Link::CUT);
            thread::sleep(CUT_FOR);
            set(Link::default());
        }
        announcing.join().ok().context("the client panicked")?
    });
    pair.sites().set_links(Link::default());
    let (torrents, unanswered) = announced?;
    thread::sleep(AFTER);
    let missing = counter.missing(1, &torrents)?;
    pair.check()?;
    let figures = Figures::default()
        .with("peers", f64::from(FAULT_PEERS))
        .with("missing", missing as f64)
        .with("unanswered", unanswered as f64);
    Ok((format!("{missing} of {FAULT_PEERS} missing, {unanswered} unanswered"), figures))
}

/// Does all of them on threads of their own.
fn at_once<T: Send>(
    tasks: impl Iterator<Item = impl FnOnce() -> Result<T> + Send>,
) -> Vec<Result<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().ok().context("a panic")?);
        joined.collect()
    })
}

fn add(
    session: &mut Session,
    (system, case, round): (&System, &str, u32),
    measured: Measured,
) -> Result<()> {
    match measured {
        Err(error) => session.fail(format!("{}, {case}: {error:#}", system.name())),
        Ok((text, figures)) => {
            let version = system.version();
            let key = RunKey { subject: system.name(), version: &version, case, cores: 2, round };
            session.add(key, figures, &text)?;
        }
    }
    Ok(())
}
