//! `tidegate-bench attacks`: what one hostile host can do to others.
//!
//! Each attack goes through the sockets of a tracker of its own, beside honest clients at public addresses. Where
//! what matters is inside the tracker, trusted proxy headers give these addresses, and everything stays on the
//! loopback device. Attacks on connections themselves have a network of namespaces.

mod browsers;
mod flood;
mod memory;
#[cfg(target_os = "linux")]
mod network;
mod proxied;
mod requests;
pub(crate) mod sockets;
mod swarm;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, value_parser};

use crate::figures::{count, mib, micros, percent};
use crate::lab::{
    Api, Lab, LabArgs, Place, Protocol, RunningTracker, Split, Subject, TOKEN_VARIABLES,
    free_address, named_path, on,
};
use crate::record::{Figures, Run};
use crate::report::{Block, CASE, Column, Content, Runs, SUBJECT, table};
use crate::session::{ResultArgs, RunKey, Session, print_line};

/// Measure what one hostile host can do to others.
#[derive(Args)]
pub(crate) struct Attacks {
    /// What to attack; repeatable [default: everything].
    #[arg(long = "only", value_enum, value_name = "WHAT")]
    only: Vec<Attack>,
    /// Another build of tidegate to attack in the same way, such as an earlier one; repeatable.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    beside: Vec<(String, PathBuf)>,
    /// Torrents that the attack on memory invents.
    #[arg(long, value_name = "N", default_value_t = 5_000_000, value_parser = value_parser!(u32).range(1000..))]
    invented: u32,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// What is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attack {
    /// A torrent: 20,000 peers of one IPv4 address, one /64, and one /48, beside 100 honest peers.
    Swarm,
    /// The same at two nodes of a cluster by turns. Needs a NATS server.
    Cluster,
    /// Rates: 70,000 requests of one IPv4 address behind a translator before 100 others.
    Rates,
    /// Rates: one address that floods beside 40 others, with limits and without.
    Flood,
    /// Memory: millions of invented torrents beside a real one, within a budget of 256 MiB.
    Memory,
    /// Memory: WebTorrent peers of one address, or of one /48, in torrents of their own.
    Browsers,
    /// The management API: requests without a token and with wrong ones before a valid one.
    Api,
    /// A key's bound of one torrent: peers that stop from another port.
    Key,
    /// Buffers: 2,000 WebSockets stuck inside a message.
    Buffers,
    /// Neighbours: 64 announces from the network of 40 honest peers.
    Neighbours,
    /// Visitors of a web page whose images are announces. Needs root, as all that follow.
    Pages,
    /// Browsers that answer offers after a while: offers of another host in between.
    Offers,
    /// A browser that reads 1 MB/s: offers of 5 MB/s.
    Readers,
    /// Browsers of a torrent: many small offers in each announce.
    Amplification,
    /// HTTPS: one ClientHello again and again.
    Handshakes,
    /// HTTP: connections that pipeline requests.
    Pipelining,
    /// All connections: held by one /48, and by five.
    Seats,
}

/// A tracker to attack.
struct Target<'a> {
    lab: &'a Lab,
    subject: Subject,
    split: &'a Split,
    admin: SocketAddr,
    invented: u32,
}

/// What an attack did: a case, its figures, and a summary in words.
type Outcome = (&'static str, Figures, String);

/// The part of honest clients that were served, stayed or were seen.
const HONEST: &str = "honest_part";
/// What the attacker held.
const HELD: &str = "attacker_held";
const MEMORY_MIB: &str = "memory_mib";
/// How long the attacker held it.
const HELD_S: &str = "held_s";
/// Honest connections that the tracker closed.
const CLOSED: &str = "honest_closed";
/// Bytes per second that the attacker sends, and that it or its victims receive.
const SENDS: &str = "sends_bytes_s";
const RECEIVES: &str = "receives_bytes_s";
/// Response times of an honest client: the median before the attack; median, p99 and maximum during it.
const BEFORE_US: &str = "before_us";
const LATENCIES: [&str; 3] = ["p50_us", "p99_us", "max_us"];
/// A key that attacks create.
const KEY: &str = "benchbenchbenchbenchbenchbench01";

impl Attacks {
    /// Runs the attacks and reports them.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let mut lab = Lab::new(&self.lab)?;
        let names = lab.definitions.add_builds(&self.beside, &[])?;
        lab.give(&self.beside);
        let subjects = match &*self.beside {
            [] => vec![lab.tidegate()?],
            _ => lab.subjects((Protocol::Udp, ""), &names)?.0,
        };
        let split = lab.split(1)?;
        let attacks = match &*self.only {
            [] => Attack::value_variants(),
            only => only,
        };
        let mut session = Session::start("attacks", &self.output, &self.lab.definitions)?;
        for attack in attacks {
            for subject in &subjects {
                let target = Target {
                    lab: &lab,
                    subject: subject.clone(),
                    split: &split,
                    admin: free_address()?,
                    invented: self.invented,
                };
                let outcomes = on(&split.load, || target.suffer(*attack))?;
                let outcomes =
                    outcomes.with_context(|| format!("{attack:?}, {}", subject.name()))?;
                for (case, figures, summary) in outcomes {
                    let version = &subject.version();
                    let key =
                        RunKey { subject: &subject.name(), version, case, cores: 1, round: 1 };
                    session.add(key, figures, &summary)?;
                }
                if session.is_stopped() {
                    return session.finish(Vec::new());
                }
            }
        }
        session.finish(Vec::new())
    }
}

impl Target<'_> {
    fn suffer(&self, attack: Attack) -> Result<Vec<Outcome>> {
        match attack {
            Attack::Swarm => swarm::attack(self),
            Attack::Cluster => swarm::attack_cluster(self),
            Attack::Rates => swarm::attack_rates(self),
            Attack::Flood => flood::attack(self),
            Attack::Memory => memory::attack(self),
            Attack::Browsers => browsers::attack(self),
            Attack::Api => requests::attack_api(self),
            Attack::Key => requests::attack_key(self),
            Attack::Buffers => sockets::attack_buffers(self),
            Attack::Neighbours => swarm::attack_neighbours(self),
            #[cfg(target_os = "linux")]
            attack => network::attack(self, attack),
            #[cfg(not(target_os = "linux"))]
            _ => anyhow::bail!("this attack needs Linux"),
        }
    }

    /// Starts the tracker with its defaults and these settings, on a core of its own.
    fn start(&self, settings: &[(&str, &str)]) -> Result<(RunningTracker, Api)> {
        self.start_at(self.admin, settings)
    }

    /// The same with its management API at `admin`.
    fn start_at(
        &self,
        admin: SocketAddr,
        settings: &[(&str, &str)],
    ) -> Result<(RunningTracker, Api)> {
        let (address, processors) = (free_address()?, &*self.split.tracker);
        let place = Place { namespace: None, address, processors };
        let tracker = self.start_in(place, Protocol::Udp, admin, settings)?;
        Ok((tracker, Api::open(admin)?))
    }

    /// Starts the tracker in a place.
    fn start_in(
        &self,
        place: Place<'_>,
        protocol: Protocol,
        admin: SocketAddr,
        settings: &[(&str, &str)],
    ) -> Result<RunningTracker> {
        let listen = admin.to_string();
        let mut all = vec![("TIDEGATE_ADMIN__LISTEN", &*listen)];
        all.extend(TOKEN_VARIABLES);
        all.extend(settings);
        self.lab.start_at(&self.subject, protocol, place, &all)
    }
}

/// Prints the progress of a long attack.
fn report_progress(text: &str) {
    print_line(&format!("  {text}"));
}

/// Reports the runs: those with response times in a table of their own.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const PARTS: &[Column] = &[
        CASE,
        SUBJECT,
        ("honest clients served", |row| row.cell(HONEST, percent)),
        ("closed", |row| row.cell(CLOSED, count)),
        ("attacker holds", |row| row.cell(HELD, count)),
        ("MiB", |row| row.cell(MEMORY_MIB, count)),
        ("for seconds", |row| row.cell(HELD_S, count)),
        ("sends a second", |row| row.cell(SENDS, mib)),
        ("victims receive", |row| row.cell(RECEIVES, mib)),
    ];
    const TIMES: &[Column] = &[
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
    let has_times = |run: &Run| run.figures.get(BEFORE_US).is_some();
    let parts = ("Honest clients served", runs.filter(|run| !has_times(run)), PARTS);
    let times = ("Response times of honest clients", runs.filter(has_times), TIMES);
    let mut blocks = Vec::new();
    for (title, runs, columns) in [parts, times] {
        if !runs.0.is_empty() {
            blocks.extend([Block::Heading(title.to_owned()), table(&runs.rows(), columns)]);
        }
    }
    ("Attacks by one host".to_owned(), text.to_owned(), blocks)
}
