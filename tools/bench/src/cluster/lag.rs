//! `tidegate-bench cluster lag`: what a node takes for the changes of another one, at a rate.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::load::udp::UdpOptions;
use ::load::{LoopMode, Mix, RunPlan, Tester, TrackerUrl, Workload};
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use harness::network::sites::{Backbone, site_client};
use harness::wait_for;

use super::arrangement::{ClusterPlan, TestCluster};
use super::usage::{Traffic, process_times, thread_times, time_of};
use crate::figures::{count, percent};
use crate::program::ProgramArgs;
use crate::record::Figures;
use crate::session::{ResultArgs, RunKey, Session};

/// Period at which the lag is read.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time for the receiver to catch up after the load.
const CATCH_UP_MAX: Duration = Duration::from_secs(60);
/// Addresses of clients.
const SOURCES: u8 = 16;
/// The names of a node's threads for the cluster begin so.
const THREADS: &str = "cluster";
/// The node that answers announces, the one that is observed, and the one that starts afterwards.
const PUBLISHER: u8 = 1;
const RECEIVER: u8 = 2;
const FRESH: u8 = 3;
/// Room for all that is announced.
const PLAN: ClusterPlan =
    ClusterPlan { backbone: Backbone::Bridge, stream_mib: 4096, queue_mib: 64 };

/// Measure what a node takes for the changes of another one: lag, CPU time, bytes.
#[derive(Args)]
pub(super) struct Lag {
    /// Announces per second at the first node, each of which is a change.
    #[arg(long, value_name = "N", default_value_t = 265_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
    /// Seconds of load.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u32).range(2..=3600))]
    seconds: u32,
    /// Runs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=100))]
    runs: u32,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// Resources used so far.
struct Used {
    at: Instant,
    publisher: f64,
    publisher_cluster: f64,
    receiver: f64,
    receiver_cluster: f64,
    receiver_apply: f64,
    nats: f64,
    sent: Traffic,
    received: Traffic,
    announces: f64,
}

impl Lag {
    /// Runs it and reports it.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut session = Session::start("cluster lag", &self.output, Path::new("."))?;
        for round in 1..=self.runs {
            if session.is_stopped() {
                break;
            }
            let figures = self.measure()?;
            let show = |name: &str| figures.get(name).unwrap_or(f64::NAN);
            let text = format!(
                "{} announces/s, lag at most {:.2} s, receiver {} of a core, {:.1} B a record",
                count(show("responses_s")),
                show("lag_max_s"),
                percent(show("receiver_part")),
                show("received_bytes")
            );
            let case = format!("{} announces/s", count(self.rate.into()));
            session.add(RunKey::tidegate(&case, 2, round), figures, &text)?;
        }
        session.finish()
    }

    fn measure(&self) -> Result<Figures> {
        let mut cluster = TestCluster::start(&self.program, PLAN)?;
        let clients = Arc::clone(cluster.sites.clients());
        let _inside = clients.enter()?;
        cluster.stop_node(FRESH)?;
        cluster.forget(FRESH)?;
        cluster.wait_until_settled()?;
        let is_done = AtomicBool::new(false);
        let before = used(&cluster)?;
        let (report, lag) = thread::scope(|scope| {
            let watching = scope.spawn(|| watch(&cluster, &is_done));
            let options = every_announce_a_change(f64::from(self.rate), self.seconds);
            let report = options.and_then(|it| it.run(&AtomicBool::new(false), &mut |_| {}));
            is_done.store(true, Ordering::Relaxed);
            let lag = watching.join().ok().context("the observer panicked")?;
            anyhow::Ok((report?, lag?))
        })?;
        let ended = Instant::now();
        wait_until_equal(&cluster)?;
        let equal_s = ended.elapsed().as_secs_f64();
        let after = used(&cluster)?;
        let began = Instant::now();
        cluster.start_node(FRESH)?;
        let ready_s = began.elapsed().as_secs_f64();
        let seconds = (after.at - before.at).as_secs_f64();
        let records = after.announces - before.announces;
        let part = |of: fn(&Used) -> f64| (of(&after) - of(&before)) / seconds;
        let ns = |of: fn(&Used) -> f64| (of(&after) - of(&before)) / records * 1e9;
        Ok(Figures::default()
            .with("seconds", f64::from(self.seconds))
            .with("responses_s", report.responses_per_s)
            .with("lost", report.counts.lost as f64)
            .with("records", records)
            .with("lag_max_s", lag)
            .with("equal_s", equal_s)
            .with("ready_s", ready_s)
            .with("receiver_part", part(|it| it.receiver_cluster))
            .with("receiver_ns", ns(|it| it.receiver_cluster))
            .with("apply_ns", ns(|it| it.receiver_apply))
            .with("receiver_all_part", part(|it| it.receiver))
            .with("publisher_ns", ns(|it| it.publisher_cluster))
            .with("publisher_part", part(|it| it.publisher))
            .with("nats_part", part(|it| it.nats))
            .with("nats_ns", ns(|it| it.nats))
            .with("sent_bytes", after.sent.since(before.sent).sent / records)
            .with("received_bytes", after.received.since(before.received).received / records))
    }
}

/// A load whose every announce starts or stops a peer: each of them is a record at once. A refresh is the same
/// record, and costs a receiver less.
fn every_announce_a_change(rate: f64, seconds: u32) -> Result<UdpOptions> {
    let url = TrackerUrl::udp(&format!("udp://{}", TestCluster::udp(PUBLISHER)[0]))?;
    let workload =
        Workload { torrents: 100_000, peers: 500_000, churn_percent: 100, ..Workload::default() };
    Ok(UdpOptions {
        workload,
        loop_mode: LoopMode::Open { rate },
        plan: RunPlan { duration: Duration::from_secs(seconds.into()), ..RunPlan::default() },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        sources: (1..=SOURCES).map(|number| site_client(number).into()).collect(),
        ..UdpOptions::of(url)
    })
}

/// Returns the largest lag behind the first node that a node has seen until `is_done`, in seconds.
fn watch(cluster: &TestCluster, is_done: &AtomicBool) -> Result<f64> {
    let mut most = 0_f64;
    while !is_done.load(Ordering::Relaxed) {
        let lag = cluster.metric(RECEIVER, "tidegate_cluster_lag_seconds", &[("node", "1")])?;
        most = most.max(lag);
        thread::sleep(LOOK_EVERY);
    }
    Ok(most)
}

/// Waits until both nodes have the same number of peers.
fn wait_until_equal(cluster: &TestCluster) -> Result<()> {
    let peers = |node| cluster.metric(node, "tidegate_peers", &[]);
    wait_for(CATCH_UP_MAX, "the nodes to have the same peers", || {
        Ok(peers(PUBLISHER)? == peers(RECEIVER)?)
    })
}

fn used(cluster: &TestCluster) -> Result<Used> {
    let ours = thread_times(cluster.tracker(PUBLISHER)?.pid())?;
    let theirs = thread_times(cluster.tracker(RECEIVER)?.pid())?;
    let servers = cluster.nats.running().filter_map(|server| cluster.nats.process(server));
    let requests = [("kind", "announce")];
    Ok(Used {
        publisher: time_of(&ours, ""),
        publisher_cluster: time_of(&ours, THREADS),
        receiver: time_of(&theirs, ""),
        receiver_cluster: time_of(&theirs, THREADS),
        receiver_apply: time_of(&theirs, "cluster-apply"),
        nats: process_times(&servers.collect::<Vec<_>>())?,
        sent: Traffic::of(cluster.sites.host(PUBLISHER))?,
        received: Traffic::of(cluster.sites.host(RECEIVER))?,
        announces: cluster.metric(PUBLISHER, "tidegate_requests_total", &requests)?,
        at: Instant::now(),
    })
}
