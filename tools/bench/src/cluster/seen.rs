//! `tidegate-bench cluster seen`: how long it takes until the other nodes know a new peer.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use ::load::Latencies;
use ::load::udp::Sightings;
use anyhow::{Context, Result};
use clap::{Args, value_parser};
use harness::network::Link;
use harness::network::sites::{Backbone, site_client};
use primitives::Random;

use super::nodes::{Cluster, ClusterPlan, wait_until_joined};
use crate::figures::micros;
use crate::program::ProgramArgs;
use crate::record::Figures;
use crate::session::{ResultArgs, RunKey, Session};

/// Longest wait for a peer to be known.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest pause between two peers. Pauses are random, so that peers do not come in step with blocks.
const PAUSE_MAX_US: u32 = 100_000;
/// Peers that are not counted: the first ones open connections and windows.
const WARM_UP: u32 = 10;
/// Links, by the names of cases.
const CASES: [(&str, Link); 2] = [
    (
        "LAN",
        Link { delay: Duration::ZERO, jitter: Duration::ZERO, loss_permille: 0, is_cut: false },
    ),
    (
        "150 ± 30 ms, 1 % lost",
        Link {
            delay: Duration::from_millis(75),
            jitter: Duration::from_millis(15),
            loss_permille: 10,
            is_cut: false,
        },
    ),
];

/// Measure how long it takes until the other nodes know a new peer.
#[derive(Args)]
pub(super) struct Seen {
    /// New peers per case.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u32).range(1..=100_000))]
    peers: u32,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Seen {
    /// Runs it and reports it.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut session = Session::start("cluster seen", &self.output, Path::new("."))?;
        let plan = ClusterPlan {
            hosts: 3,
            backbone: Backbone::Switch,
            servers: &[1, 2, 3],
            stream_mib: 256,
        };
        let cluster = Cluster::start(&self.program, plan)?;
        let nodes = [cluster.node(1)?, cluster.node(2)?, cluster.node(3)?];
        wait_until_joined(&nodes.each_ref())?;
        let addresses = [1, 2, 3].map(Cluster::address);
        for (case, link) in CASES {
            if session.is_stopped() {
                break;
            }
            cluster.sites.set_links(link);
            let open = || Sightings::new(&addresses, site_client(1).into(), 1);
            let mut sightings = cluster.as_client(open)?;
            let (seen, figures) = observe(&mut sightings, &[1, 2], self.peers, &session)?;
            if figures.get("unseen").is_some_and(|unseen| unseen.median > 0.0) {
                session.fail(format!("{case}: some peers were not seen within {PATIENCE:?}"));
            }
            session.add(RunKey::tidegate(case, 2, 1), figures, &summary(&seen))?;
        }
        session.finish()
    }
}

/// Has new peers announced at the first node, and waits until the others know them. The first ones are not
/// counted.
fn observe(
    sightings: &mut Sightings,
    others: &[usize],
    peers: u32,
    session: &Session,
) -> Result<(Latencies, Figures)> {
    let (mut seen, mut unseen, mut random) = (Latencies::default(), 0, Random::new(7));
    for number in 0..WARM_UP + peers {
        if session.is_stopped() {
            break;
        }
        thread::sleep(Duration::from_micros(random.below(PAUSE_MAX_US).into()));
        for time in sightings.observe(0, others, PATIENCE)? {
            match time {
                _ if number < WARM_UP => {}
                Some(time) => seen.record(time),
                None => unseen += 1,
            }
        }
    }
    let figures = figures(&seen)?.with("unseen", f64::from(unseen));
    Ok((seen, figures.with("peers", f64::from(peers))))
}

/// Returns the figures of times.
fn figures(seen: &Latencies) -> Result<Figures> {
    let us = |part| -> Result<f64> {
        Ok(seen.quantile(part).context("no peer was seen")?.as_secs_f64() * 1e6)
    };
    Ok(Figures::default()
        .with("p50_us", us(0.5)?)
        .with("p90_us", us(0.9)?)
        .with("p99_us", us(0.99)?)
        .with("max_us", seen.max().as_secs_f64() * 1e6))
}

/// Describes times.
fn summary(seen: &Latencies) -> String {
    let at =
        |part| seen.quantile(part).map_or_else(String::new, |it| micros(it.as_secs_f64() * 1e6));
    format!("p50 {}, p99 {}, max {}", at(0.5), at(0.99), at(1.0))
}
