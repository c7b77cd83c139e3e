//! `tidegate-trials crash`: kills while peers come, go, complete and announce again as fast as the tracker answers.
//! Of the peers that it has acknowledged, all but those of the last moments must be there after the
//! next start, and none that had stopped.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench::ProgramArgs;
use bench::record::Figures;
use bench::session::{ResultArgs, RunKey, Session, print_line};
use bench::swarms::{GHOSTS, KEPT, LOST, OLDER_S, OLDEST_S};
use clap::{Args, value_parser};
use harness::{Directory, Tracker};
use load::LoopMode;
use load::udp::{Roster, RosterTask};
use primitives::Random;

use crate::swarms::{self, RosterArgs, SwarmComparison};

/// Kill a tracker repeatedly while peers come and go, and compare its swarms with what it has
/// acknowledged.
#[derive(Args)]
pub(crate) struct Crash {
    /// Kills.
    #[arg(default_value_t = 50, value_parser = value_parser!(u32).range(1..=100_000))]
    times: u32,
    /// Peers.
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = value_parser!(u32).range(100..=2_000_000))]
    peers: u32,
    /// Kills after more than one round of the journal. All others come within seconds.
    #[arg(long, value_name = "N", default_value_t = 1)]
    late: u32,
    /// Percentage of the peers that must be kept.
    #[arg(long, value_name = "PERCENT", default_value_t = 99.9)]
    kept: f64,
    #[command(flatten)]
    roster: RosterArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// `swarms_round_s`: the shortest that a configuration may have.
const ROUND_S: u32 = 60;
/// The shortest and the longest time until a kill, in milliseconds.
const LIFE_MS: (u32, u32) = (300, 4000);
/// The same for a late kill: more than a round and some of the next.
const LATE_MS: u32 = 1000 * ROUND_S + 15_000;
/// The unit of ages in the store, and what clocks and reading may add.
const AGE_SLACK_S: f64 = 16.0 + 4.0;
/// Answers that the tracker sent before the kill are received within this time.
const LAST_ANSWERS: Duration = Duration::from_millis(200);
/// Where the tracker serves while it restores, it does so for this long before the comparison.
const SERVE_WHILE_RESTORING: Duration = Duration::from_millis(1500);

/// A tracker that is killed and started again.
struct Victim<'a> {
    command: &'a Crash,
    folder: &'a Path,
    roster: Roster,
    /// Since when no process has lived longer than a round. Until one does, refreshes are in no journal,
    /// and ages may be too high by all of that time.
    unwritten_since: Instant,
}

impl Crash {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (folder, mut session) =
            (Directory::new()?, Session::start("crash swarms", &self.output, Path::new("."))?);
        let mut victim = Victim {
            command: self,
            folder: folder.root(),
            roster: self.roster.roster(self.peers)?,
            unwritten_since: Instant::now(),
        };
        let (mut random, mut totals) = (Random::new(7), [SwarmComparison::default(); 2]);
        let mut tracker = victim.start(false)?;
        for kill in 1..=self.times {
            let waits = kill % 2 == 0;
            let is_late = kill <= self.late;
            let (low, high) = LIFE_MS;
            let life_ms = if is_late { LATE_MS } else { low + random.below(high - low) };
            let (found, next) =
                victim.kill(tracker, Duration::from_millis(life_ms.into()), waits)?;
            tracker = next;
            let case = ["serves while it restores", "restores first"][usize::from(waits)];
            let text = format!("killed after {:.1} s: {found}", f64::from(life_ms) / 1000.0);
            session.add(RunKey::tidegate(case, 2, kill), figures(&found), &text)?;
            totals[usize::from(waits)].add(&found);
            if session.is_stopped() {
                break;
            }
        }
        let [mut total, other] = totals;
        total.add(&other);
        print_line(&format!("all: {total}"));
        self.judge(&total, &mut session);
        session.finish()
    }

    /// Adds what all kills together must not have done.
    fn judge(&self, total: &SwarmComparison, session: &mut Session) {
        let kept = total.kept_percent();
        if kept < self.kept {
            session.fail(format!("{kept:.3} % of the peers were kept, expected {} %", self.kept));
        }
        for (number, what) in [
            (total.ghosts, "had stopped more than a second before the kill, and are present"),
            (total.wrong_role, "have another role than for more than a second before the kill"),
            (total.unknown, "never announced, and are present"),
        ] {
            if number > 0 {
                session.fail(format!("{number} peers {what}"));
            }
        }
        if total.older_s > AGE_SLACK_S {
            session.fail(format!("ages are {:.0} s too high beyond a round", total.older_s));
        }
    }

    /// Starts the tracker, which serves at once or after it has restored.
    fn start(&self, folder: &Path, waits: bool) -> Result<Tracker> {
        let wait_s = if waits { 60 } else { 0 };
        let more = format!("swarms_round_s = {ROUND_S}\nswarms_restore_wait_s = {wait_s}\n");
        self.program.start(folder, &swarms::configuration(folder, &more))
    }
}

impl Victim<'_> {
    /// Starts the tracker and has all peers present.
    fn start(&mut self, waits: bool) -> Result<Tracker> {
        let tracker = self.command.start(self.folder, waits)?;
        swarms::connect(&mut self.roster, &tracker)?;
        swarms::fill(&mut self.roster)?;
        Ok(tracker)
    }

    /// Kills the tracker under load, starts it again, and compares. Returns the new one.
    fn kill(
        &mut self,
        mut tracker: Tracker,
        life: Duration,
        waits: bool,
    ) -> Result<(SwarmComparison, Tracker)> {
        let began = Instant::now();
        let full_speed = RosterTask::Announce(LoopMode::Closed { outstanding: 0 });
        let (_, ended) =
            swarms::announce_while(&mut self.roster, full_speed, LAST_ANSWERS, || {
                thread::sleep(life);
                let ended = Instant::now();
                tracker.kill();
                Ok(ended)
            })?;
        swarms::check_present(&self.roster)?;
        if began.elapsed() > Duration::from_secs(ROUND_S.into()) {
            self.unwritten_since =
                ended.checked_sub(Duration::from_secs(ROUND_S.into())).unwrap_or(began);
        }
        let tracker = self.command.start(self.folder, waits)?;
        swarms::connect(&mut self.roster, &tracker)?;
        if !waits {
            // Some peers announce and stop while the journal is being read.
            let few =
                RosterTask::Announce(LoopMode::Open { rate: f64::from(self.command.peers) / 30.0 });
            swarms::announce_while(&mut self.roster, few, swarms::PATIENT, || {
                thread::sleep(SERVE_WHILE_RESTORING);
                Ok(())
            })?;
            swarms::wait_until_restored(&tracker)?;
        }
        let mut found = swarms::compare(&mut self.roster, swarms::api(&tracker)?, ended)?;
        // Reported is what is beyond the time that no journal has.
        let unwritten_s = ended.saturating_duration_since(self.unwritten_since).as_secs_f64();
        found.older_s = (found.older_s - unwritten_s.max(ROUND_S.into())).max(0.0);
        Ok((found, tracker))
    }
}

fn figures(found: &SwarmComparison) -> Figures {
    Figures::default()
        .with(KEPT, found.kept_percent())
        .with(LOST, found.lost as f64)
        .with(OLDEST_S, found.oldest_lost_s)
        .with(GHOSTS, found.ghosts as f64)
        .with(OLDER_S, found.older_s)
}
