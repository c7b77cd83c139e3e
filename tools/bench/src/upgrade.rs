//! `tidegate-bench upgrade`: upgrades under load. No request stays unanswered, the new process knows every
//! peer that the old one knew, and answers do not take much longer meanwhile. New programs that do not
//! work change nothing.

mod broken;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ::load::udp::{Roster, RosterTask};
use ::load::{Counters, Latencies, LoopMode};
use anyhow::Result;
use clap::{Args, value_parser};
use harness::{Directory, Tracker, UpgradeTimes};

use crate::figures::{count, mib, micros};
use crate::lab::Api;
use crate::program::ProgramArgs;
use crate::record::Figures;
use crate::report::{Content, Runs};
use crate::session::{ResultArgs, RunKey, Session, print_line};
use crate::swarms::{self, RosterArgs, SwarmComparison, figure};

/// Upgrade a tracker repeatedly under load, and compare its swarms with what it has acknowledged.
#[derive(Args)]
pub(crate) struct Upgrade {
    /// Upgrades.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u32).range(0..=1000))]
    runs: u32,
    /// Peers.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = value_parser!(u32).range(100..=50_000_000))]
    peers: u32,
    /// Load, in percent of what the machine serves. 0 = none.
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = value_parser!(u32).range(0..=100))]
    load: u32,
    /// Announces per second instead. How long answers take is not judged then.
    #[arg(long, value_name = "N", conflicts_with = "load")]
    rate: Option<u32>,
    /// Seconds of load before each upgrade.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u32).range(0..=3600))]
    seconds: u32,
    /// Torrents whose peers are compared one by one after each upgrade. The counts of all are compared.
    #[arg(long, value_name = "N", default_value_t = 3000)]
    sample: u32,
    /// Also upgrade to programs that crash, hang, or do not take the swarms (needs python3).
    #[arg(long)]
    broken: bool,
    #[command(flatten)]
    roster: RosterArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// Time for which full speed is measured.
const CAPACITY_TIME: Duration = Duration::from_secs(5);
/// The load continues for this long after the old process has ended.
const AFTER: Duration = Duration::from_millis(500);
/// Factor by which the p99 of response times may rise during upgrades.
const P99_MAX: f64 = 2.0;

/// A tracker under load that is upgraded.
struct Upgraded {
    tracker: Tracker,
    roster: Roster,
    task: Option<RosterTask>,
    /// Response times before upgrades, and during them.
    latencies: [Latencies; 2],
    unanswered: u64,
    total: SwarmComparison,
}

/// Outcome of an upgrade.
struct Outcome {
    times: UpgradeTimes,
    found: SwarmComparison,
    /// Torrents with other counts than expected, and peers of all torrents.
    different: u64,
    peers: u64,
    counters: Vec<Counters>,
}

impl Upgrade {
    /// Upgrades it and reports what that did.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (folder, mut session) =
            (Directory::new()?, Session::start("upgrade", &self.output, Path::new("."))?);
        let program = folder.path("tidegate");
        std::os::unix::fs::symlink(self.program.path()?, &program)?;
        let configuration = swarms::configuration(folder.root(), "swarms_restore_wait_s = 60\n");
        let mut upgraded = Upgraded {
            tracker: ProgramArgs::start_by(&program, folder.root(), &configuration)?,
            roster: self.roster.roster(self.peers)?,
            task: None,
            latencies: Default::default(),
            unanswered: 0,
            total: SwarmComparison::default(),
        };
        swarms::connect(&mut upgraded.roster, &upgraded.tracker)?;
        swarms::fill(&mut upgraded.roster)?;
        upgraded.task = self.task(&mut upgraded.roster)?;
        for round in 1..=self.runs {
            if session.is_stopped() {
                break;
            }
            let outcome = self.upgrade(&mut upgraded, round)?;
            self.report_upgrade(&mut session, &mut upgraded, outcome, round)?;
        }
        if self.runs > 0 {
            print_line(&format!("all: {}", upgraded.total));
        }
        if upgraded.task.is_some() && self.runs > 0 {
            self.judge(&mut session, &upgraded);
        }
        if self.broken {
            broken::try_all(self, &mut upgraded, &mut session, &program)?;
        }
        session.finish()
    }

    /// Returns the load, which may be a part of what the machine serves.
    fn task(&self, roster: &mut Roster) -> Result<Option<RosterTask>> {
        let rate = match (self.rate, self.load) {
            (Some(rate), _) => f64::from(rate),
            (None, 0) => return Ok(None),
            (None, percent) => {
                let full = RosterTask::Announce(LoopMode::Closed { outstanding: 0 });
                let (counters, ()) =
                    swarms::announce_while(roster, full, 1, swarms::PATIENT, |_| {
                        thread::sleep(CAPACITY_TIME);
                        Ok(())
                    })?;
                let answers: u64 = counters.iter().map(Counters::all_responses).sum();
                let full = answers as f64 / CAPACITY_TIME.as_secs_f64();
                print_line(&format!("{} answers/s at full speed", count(full)));
                full * f64::from(percent) / 100.0
            }
        };
        Ok(Some(RosterTask::Announce(LoopMode::Open { rate })))
    }

    fn upgrade(&self, upgraded: &mut Upgraded, round: u32) -> Result<Outcome> {
        let Upgraded { tracker, roster, task, .. } = upgraded;
        let before = Duration::from_secs(self.seconds.into());
        let (counters, times) = match *task {
            None => (vec![Counters::default(); 2], tracker.upgrade()?),
            Some(task) => swarms::announce_while(roster, task, 2, swarms::PATIENT, |phase| {
                thread::sleep(before);
                phase.store(1, Ordering::Relaxed);
                let times = tracker.upgrade()?;
                thread::sleep(AFTER);
                Ok(times)
            })?,
        };
        swarms::check_present(roster)?;
        let (different, peers) = swarms::compare_counts(roster)?;
        let found = self.compare(tracker, roster, round)?;
        Ok(Outcome { times, found, different, peers, counters })
    }

    /// Compares the peers of some torrents, others in each round.
    fn compare(
        &self,
        tracker: &Tracker,
        roster: &mut Roster,
        round: u32,
    ) -> Result<SwarmComparison> {
        let torrents = roster.torrents();
        let step = (torrents / self.sample.max(1)).max(1);
        let is_sampled = |torrent: u32| self.sample > 0 && (torrent + round).is_multiple_of(step);
        swarms::compare(roster, swarms::api(tracker)?, Instant::now(), is_sampled)
    }

    fn report_upgrade(
        &self,
        session: &mut Session,
        upgraded: &mut Upgraded,
        outcome: Outcome,
        round: u32,
    ) -> Result<()> {
        let Outcome { times, found, different, peers, counters } = outcome;
        let lost: u64 = counters.iter().map(|phase| phase.lost).sum();
        let p99 = |phase: usize| p99_us(counters.get(phase).map(|phase| &phase.latencies));
        let mut api = Api::open(swarms::api(&upgraded.tracker)?)?;
        let sent = api.metric("tidegate_upgrade_swarms_bytes", &[])?;
        let figures = Figures::default()
            .with(figure::READY_S, times.ready.as_secs_f64())
            .with(figure::ENDED_S, times.ended.as_secs_f64())
            .with(figure::SENT_BYTES, sent)
            .with(figure::UNANSWERED, lost as f64)
            .with(figure::KEPT, found.kept_percent())
            .with(figure::LOST, (found.lost + different) as f64)
            .with(figure::P99_BEFORE_US, p99(0))
            .with(figure::P99_US, p99(1));
        let case = format!("{} peers, {}", count(self.peers.into()), self.load_name());
        let text = format!(
            "the new one serves after {:.2} s, the old one ends after {:.2} s, {} sent; {lost} of {} \
             unanswered{}; {} peers, {different} torrents with other counts; {found}",
            times.ready.as_secs_f64(),
            times.ended.as_secs_f64(),
            mib(sent),
            counters.iter().map(|phase| phase.sent).sum::<u64>(),
            upgraded.task.map_or_else(String::new, |_| format!(
                "; p99 {} before, {} meanwhile",
                micros(p99(0)),
                micros(p99(1))
            )),
            count(peers as f64),
        );
        session.add(RunKey::tidegate(&case, 2, round), figures, &text)?;
        for (sum, phase) in upgraded.latencies.iter_mut().zip(&counters) {
            sum.merge(&phase.latencies);
        }
        upgraded.unanswered += lost;
        upgraded.total.add(&found);
        if different > 0 || !found.is_equal() {
            session
                .fail(format!("upgrade {round}: {different} torrents have other counts; {found}"));
        }
        for (error, times) in counters.iter().flat_map(|phase| &phase.errors) {
            session.fail(format!("upgrade {round}: {times} × {error}"));
        }
        Ok(())
    }

    fn load_name(&self) -> String {
        match (self.rate, self.load) {
            (Some(rate), _) => format!("{rate} announces/s"),
            (None, 0) => "no load".to_owned(),
            (None, percent) => format!("{percent} % load"),
        }
    }

    /// Adds what all upgrades together must not have done.
    fn judge(&self, session: &mut Session, upgraded: &Upgraded) {
        let unanswered = upgraded.unanswered;
        if unanswered > 0 {
            session.fail(format!("{unanswered} announces were not answered"));
        }
        let [before, meanwhile] = upgraded.latencies.each_ref().map(|all| p99_us(Some(all)));
        let text = format!("p99 {} before, {} meanwhile", micros(before), micros(meanwhile));
        print_line(&text);
        if self.rate.is_none() && meanwhile > P99_MAX * before {
            session.fail(format!("upgrades delay answers: {text} (≤ {P99_MAX} ×)"));
        }
    }
}

fn p99_us(latencies: Option<&Latencies>) -> f64 {
    let p99 = latencies.and_then(|latencies| latencies.quantile(0.99));
    p99.map_or(f64::NAN, |p99| p99.as_secs_f64() * 1e6)
}

/// Reports the upgrades.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    let text = "A tracker is upgraded by SIGUSR2 under load. Compared is what the new process knows with \
                what was acknowledged: the counts of all torrents, and the peers of some.";
    swarms::report("Upgrades", text, runs)
}
