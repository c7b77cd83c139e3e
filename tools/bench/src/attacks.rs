//! `tidegate-bench attacks`: response times of honest clients while one address floods the tracker with announces.
//!
//! Everything goes over the loopback device, through the sockets of a tracker of its own.

mod flood;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, value_parser};

use crate::figures::{mib, micros, percent};
use crate::lab::{
    Api, Lab, LabArgs, Place, Protocol, RunningTracker, Split, Subject, TOKEN_VARIABLES,
    free_address, named_path, on,
};
use crate::record::Figures;
use crate::report::{Block, CASE, Column, Content, Runs, SUBJECT, table};
use crate::session::{ResultArgs, RunKey, Session};

/// Measure how long honest clients wait while one address floods the tracker.
#[derive(Args)]
pub(crate) struct Attacks {
    /// Another build of tidegate to attack in the same way, such as an earlier one; repeatable.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    beside: Vec<(String, PathBuf)>,
    /// Seconds of each measurement.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = value_parser!(u32).range(1..=3600))]
    seconds: u32,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// A tracker to attack.
struct Target<'a> {
    lab: &'a Lab,
    subject: Subject,
    split: &'a Split,
    admin: SocketAddr,
    /// Time for which honest clients are measured.
    during: Duration,
}

/// Outcome of an attack: a case, its figures, and a summary in words.
type Outcome = (&'static str, Figures, String);

/// The part of the requests of honest clients that were served.
const HONEST: &str = "honest_part";
/// Bytes per second that the attacker sends; in earlier entries of the record, also those that it receives.
const SENDS: &str = "sends_bytes_s";
const RECEIVES: &str = "receives_bytes_s";
/// Response times of an honest client: the median before the attack; median, p99 and maximum during it.
const BEFORE_US: &str = "before_us";
const LATENCIES: [&str; 3] = ["p50_us", "p99_us", "max_us"];

impl Attacks {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let mut lab = Lab::new(&self.lab)?;
        let names = lab.definitions.add_builds(&self.beside, &[])?;
        lab.give(&self.beside);
        let subjects = match &*self.beside {
            [] => vec![lab.tidegate()?],
            _ => lab.subjects((Protocol::Udp, ""), &names)?.0,
        };
        let split = lab.split(1)?;
        let mut session = Session::start("attacks", &self.output, &self.lab.definitions)?;
        for subject in subjects {
            let (name, version) = (subject.name(), subject.version());
            let target = Target {
                lab: &lab,
                subject,
                split: &split,
                admin: free_address()?,
                during: Duration::from_secs(self.seconds.into()),
            };
            let outcomes = on(&split.load, || flood::attack(&target))?;
            for (case, figures, summary) in outcomes.with_context(|| name.clone())? {
                let key = RunKey { subject: &name, version: &version, case, cores: 1, round: 1 };
                session.add(key, figures, &summary)?;
            }
            if session.is_stopped() {
                break;
            }
        }
        session.finish()
    }
}

impl Target<'_> {
    /// Starts the tracker with its defaults and these settings, on a core of its own.
    fn start(&self, settings: &[(&str, &str)]) -> Result<RunningTracker> {
        let listen = self.admin.to_string();
        let mut all = vec![("TIDEGATE_ADMIN__LISTEN", &*listen)];
        all.extend(TOKEN_VARIABLES);
        all.extend(settings);
        let place =
            Place { namespace: None, address: free_address()?, processors: &self.split.tracker };
        let tracker = self.lab.start_at(&self.subject, Protocol::Udp, place, &all)?;
        // It answers once the tracker is ready.
        Api::open(self.admin)?;
        Ok(tracker)
    }
}

/// Reports the runs that have response times: earlier entries of the record have others, too.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        SUBJECT,
        ("honest clients served", |row| row.cell(HONEST, percent)),
        ("p50 before", |row| row.cell(BEFORE_US, micros)),
        ("p50", |row| row.cell(LATENCIES[0], micros)),
        ("p99", |row| row.cell(LATENCIES[1], micros)),
        ("at most", |row| row.cell(LATENCIES[2], micros)),
        ("attacker sends a second", |row| row.cell(SENDS, mib)),
        ("and receives", |row| row.cell(RECEIVES, mib)),
    ];
    let text = "One host attacks a tracker through its sockets, beside honest clients.";
    let timed = runs.filter(|run| run.figures.get(BEFORE_US).is_some());
    let heading = Block::Heading("Response times of honest clients".to_owned());
    let blocks = vec![heading, table(&timed.rows(), COLUMNS)];
    ("Attacks by one host".to_owned(), text.to_owned(), blocks)
}
