//! `tidegate-bench cluster cost`: what being a node costs a tracker that answers announces.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::load::udp::{self, UdpOptions};
use anyhow::{Context, Result};
use clap::Args;
use harness::network::sites::Backbone;

use super::lag::every_announce_a_change;
use super::nodes::{Cluster, ClusterPlan};
use crate::figures::count;
use crate::lab::{Lab, LabArgs, on};
use crate::program::ProgramArgs;
use crate::record::Figures;

use crate::session::{ResultArgs, RoundArgs, RunKey, Session};

/// The subjects, of which the second is compared with the first.
const SUBJECTS: [&str; 2] = ["alone", "node of a cluster"];
/// Cases, and of a hundred announces those that start or stop a peer.
const CASES: [(&str, u8); 2] =
    [("announces that change nothing", 0), ("each announce a change", 100)];

/// Measure what being a node costs a tracker.
#[derive(Args)]
pub(super) struct Cost {
    #[command(flatten)]
    rounds: RoundArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Cost {
    /// Runs it and reports it.
    pub(super) fn run(&self) -> Result<ExitCode> {
        let mut session = Session::start("cluster cost", &self.output, Path::new("."))?;
        let processors = processors()?;
        let plan = ClusterPlan {
            hosts: 2,
            backbone: Backbone::Bridge { rate_mbit: 0 },
            servers: &[2],
            stream_mib: 4096,
        };
        // Processes that start here and are not put elsewhere run where the load does.
        let cluster = on(&[processors[1]], || Cluster::start(&self.program, plan))??;
        for round in 1..=self.rounds.runs {
            for subject in SUBJECTS {
                if session.is_stopped() {
                    break;
                }
                self.measure(&cluster, processors, (subject, round), &mut session)?;
            }
        }
        drop(cluster);
        session.finish()
    }

    fn measure(
        &self,
        cluster: &Cluster,
        processors: [usize; 2],
        (subject, round): (&str, u32),
        session: &mut Session,
    ) -> Result<()> {
        let start = || match subject == SUBJECTS[0] {
            true => cluster.node_alone(1),
            false => cluster.node(1),
        };
        let node = on(&[processors[0]], start)??;
        for (case, changes) in CASES {
            let mut options = every_announce_a_change(0.0, self.rounds.seconds)?;
            options.workload.churn_percent = changes;
            options.plan.warm_up = Duration::from_secs(self.rounds.warm_up.into());
            options.plan.pid = Some(node.process());
            let report = on(&[processors[1]], || load(cluster, &options))??;
            let per_cpu_s = report.tracker.and_then(|it| it.responses_per_cpu_s);
            let per_cpu_s = per_cpu_s.context("no CPU time of the tracker")?;
            let figures = Figures::default()
                .with("seconds", report.seconds)
                .with("warm_up_s", f64::from(self.rounds.warm_up))
                .with("responses_s", report.responses_per_s)
                .with("per_cpu_s", per_cpu_s)
                .with("lost", report.lost as f64);
            let text = format!("{} announces per CPU-s", count(per_cpu_s));
            let key = RunKey { subject, ..RunKey::tidegate(case, 1, round) };
            session.add(key, figures, &text)?;
        }
        Ok(())
    }
}

/// Runs a load where the clients are.
pub(super) fn load(cluster: &Cluster, options: &UdpOptions) -> Result<::load::Report> {
    cluster.as_client(|| udp::run(options, &AtomicBool::new(false), &mut |_| {}))
}

/// Returns the processors of tracker and load.
fn processors() -> Result<[usize; 2]> {
    let lab = Lab::new(&LabArgs {
        program: Vec::new(),
        rivals: "target/rivals".into(),
        definitions: "bench".into(),
    })?;
    let split = lab.split(1)?;
    let first = |all: &[usize]| all.first().copied().context("no processor");
    Ok([first(&split.tracker)?, first(&split.load)?])
}
