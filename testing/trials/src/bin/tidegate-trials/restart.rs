//! `tidegate-trials restart`: how long a tracker with millions of peers takes to have them again after a
//! stop or a kill, and what its journal takes on the disk.

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bench::ProgramArgs;
use bench::figures::mib;
use bench::record::Figures;
use bench::session::{ResultArgs, RunKey, Session};
use bench::swarms::{BYTES_PER_PEER, ENDED_S, KEPT, READY_S, RESIDENT_BYTES};
use clap::{Args, value_parser};
use harness::{Directory, Tracker};

use crate::swarms::{self, RosterArgs};

/// Fill a tracker with peers, stop or kill it, start it again, and measure how long it takes until it has
/// them.
#[derive(Args)]
pub(crate) struct Restart {
    /// Peers.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = value_parser!(u32).range(100..=50_000_000))]
    peers: u32,
    /// Restarts.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds between filling and the first end. A journal has been written once over after two rounds
    /// of 60 s.
    #[arg(long, value_name = "N", default_value_t = 130)]
    settle: u32,
    /// Kill it instead of stopping it.
    #[arg(long)]
    kill: bool,
    #[command(flatten)]
    roster: RosterArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Restart {
    /// Runs it and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let (folder, mut session) =
            (Directory::new()?, Session::start("restart", &self.output, Path::new("."))?);
        let mut roster = self.roster.roster(self.peers)?;
        let mut tracker = self.start(folder.root())?;
        swarms::connect(&mut roster, &tracker)?;
        swarms::fill(&mut roster)?;
        add(&mut session, ("filled", 1), self.figures(folder.root(), &tracker)?)?;
        thread::sleep(Duration::from_secs(self.settle.into()));
        add(&mut session, ("before", 1), self.figures(folder.root(), &tracker)?)?;
        for round in 1..=self.runs {
            if session.is_stopped() {
                break;
            }
            let began = Instant::now();
            if self.kill {
                tracker.kill();
            } else {
                tracker.stop()?;
            }
            let ended = began.elapsed();
            let began = Instant::now();
            tracker = self.start(folder.root())?;
            let ready = began.elapsed();
            swarms::connect(&mut roster, &tracker)?;
            let (different, found) = swarms::compare_counts(&roster, &tracker)?;
            let kept = 100.0 * found as f64 / f64::from(roster.present().max(1));
            let figures = self
                .figures(folder.root(), &tracker)?
                .with(READY_S, ready.as_secs_f64())
                .with(ENDED_S, ended.as_secs_f64())
                .with(KEPT, kept);
            let case = if self.kill { "killed" } else { "stopped" };
            add(&mut session, (case, round), figures)?;
            if different > 0 {
                session.fail(format!("{different} torrents have other counts than before"));
            }
        }
        session.finish()
    }

    /// Starts the tracker, and waits until it has restored everything.
    fn start(&self, folder: &Path) -> Result<Tracker> {
        let more = "swarms_round_s = 60\nswarms_restore_wait_s = 600\n";
        self.program.start(folder, &swarms::configuration(folder, more))
    }

    fn figures(&self, folder: &Path, tracker: &Tracker) -> Result<Figures> {
        let bytes = swarms::journal_bytes(folder)? as f64;
        Ok(Figures::default()
            .with(RESIDENT_BYTES, swarms::resident_bytes(tracker)? as f64)
            .with(BYTES_PER_PEER, bytes / f64::from(self.peers)))
    }
}

fn add(session: &mut Session, (case, round): (&str, u32), figures: Figures) -> Result<()> {
    let of = |name| figures.get(name);
    let mut text = String::new();
    if let Some((ready, ended)) = of(READY_S).zip(of(ENDED_S)) {
        text += &format!("ended after {ended:.2} s, ready {ready:.2} s after its start, ");
    }
    if let Some(kept) = of(KEPT) {
        text += &format!("{kept:.4} % of the peers kept, ");
    }
    if let Some(bytes) = of(BYTES_PER_PEER) {
        text += &format!("{bytes:.1} bytes a peer on the disk, ");
    }
    text += &format!("{} of memory", mib(of(RESIDENT_BYTES).unwrap_or_default()));
    session.add(RunKey::tidegate(case, 2, round), figures, &text)
}
