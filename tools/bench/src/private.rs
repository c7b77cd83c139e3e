//! `tidegate-bench private`: what passkeys, access lists, bans, metrics, records and logging cost.
//!
//! Three trackers take turns (A B C A B C) under announces. The first is bare: open, without admin
//! listener, logging only warnings. The second has metrics, which are read once a second, records on
//! disk, a million denied torrents, 100,000 banned networks and 10,000 passkeys, one for each peer. It
//! gets all of these by the management API. The third is the first with log level info.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use primitives::Random;

use crate::figures::count;
use crate::lab::{
    Api, Lab, LabArgs, LoadResult, LoadRun, Protocol, RunningTracker, SEED, Split, Subject,
    TOKEN_VARIABLES, free_address,
};
use crate::report::{
    Block, CASE, Column, Content, PAIRS, PER_CPU_S, RELATIVE, RESPONSES_S, Runs, SUBJECT, table,
};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session, print_line};

const DENIED: u32 = 1_000_000;
const BANS: u32 = 100_000;
const KEYS: u32 = 10_000;
const BARE: &str = "bare";
const PRIVATE: &str = "private, with everything";
const LOGGING: &str = "bare, log level info";

/// Measure what passkeys, access lists, bans, metrics, records and logging cost.
#[derive(Args)]
pub(crate) struct Private {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// The measured trackers.
struct Trackers<'a> {
    lab: &'a Lab,
    subject: Subject,
    split: Split,
    /// Where the private one has its API.
    admin: SocketAddr,
}

impl Private {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let (subject, split, admin) = (lab.tidegate()?, lab.split(1)?, free_address()?);
        let trackers = Trackers { lab: &lab, subject, split, admin };
        // An interrupt from here on ends the trackers, too.
        let mut session = Session::start("private", &self.output, &self.lab.definitions)?;
        trackers.fill(&session)?;
        for round in 1..=self.run.runs {
            for name in [BARE, PRIVATE, LOGGING] {
                if session.is_stopped() {
                    break;
                }
                let tracker = trackers.start(name)?;
                for protocol in [Protocol::Udp, Protocol::Http] {
                    let result =
                        trackers.measure(name, &tracker, protocol, (&self.run, &session))?;
                    let Some(result) = result else { continue };
                    let key = RunKey {
                        subject: name,
                        version: &trackers.subject.version(),
                        case: protocol.name(),
                        cores: 1,
                        round,
                    };
                    let per_s = format!("{} responses/s", count(result.responses_per_s));
                    session.add(key, result.figures(), &per_s)?;
                }
            }
        }
        session.finish(Vec::new())
    }
}

impl Trackers<'_> {
    fn start(&self, name: &str) -> Result<RunningTracker> {
        let state = self.lab.folder.join("state").display().to_string();
        let admin = self.admin.to_string();
        let more = match name {
            PRIVATE => vec![
                ("TIDEGATE_ADMIN__LISTEN", &*admin),
                ("TIDEGATE_ADMIN__REQUESTS_PER_S", "0"),
                ("TIDEGATE_ACCESS__MODE", "deny"),
                ("TIDEGATE_ACCESS__PRIVATE", "true"),
                ("TIDEGATE_STATE__DIR", &*state),
                // Of another run, whose peers are the same.
                ("TIDEGATE_STATE__SWARMS", "false"),
                TOKEN_VARIABLES[0],
                TOKEN_VARIABLES[1],
            ],
            LOGGING => vec![("TIDEGATE_LOG__LEVEL", "info")],
            _ => Vec::new(),
        };
        let tracker = self.lab.start(&self.subject, Protocol::Udp, &self.split.tracker, &more)?;
        if name == PRIVATE {
            Api::open(self.admin)?;
        }
        Ok(tracker)
    }

    fn keys(&self) -> PathBuf {
        self.lab.folder.join("keys.txt")
    }

    /// Adds lists, bans and passkeys, which the private tracker's records keep.
    fn fill(&self, session: &Session) -> Result<()> {
        let _tracker = self.start(PRIVATE)?;
        let mut api = Api::open(self.admin)?;
        let mut random = Random::new(1);
        api.ask(200, "POST /api/v1/lists/deny", &hash_lines(&mut random, DENIED))?;
        for _ in 0..BANS / 1000 {
            let networks: Vec<String> = (0..1000).map(|_| network(&mut random)).collect();
            let body = format!("{{\"networks\":[\"{}\"]}}", networks.join("\",\""));
            api.ask(200, "POST /api/v1/bans/bulk", &body)?;
        }
        let mut keys = String::new();
        for number in 0..KEYS {
            ensure!(!session.is_stopped(), "interrupted");
            let key = format!("{number:08x}{:016x}{:08x}", random.next(), random.next() as u32);
            api.ask(201, "POST /api/v1/keys", &format!("{{\"key\":\"{key}\"}}"))?;
            let _ = writeln!(keys, "{key}");
        }
        fs::write(self.keys(), keys)?;
        print_line(&format!("{DENIED} torrents denied, {BANS} networks banned, {KEYS} passkeys"));
        Ok(())
    }

    /// Puts a tracker under load. Returns `None` if interrupted.
    fn measure(
        &self,
        name: &str,
        tracker: &RunningTracker,
        protocol: Protocol,
        (run, session): (&RoundArgs, &Session),
    ) -> Result<Option<LoadResult>> {
        let is_private = name == PRIVATE;
        let keys = self.keys().display().to_string();
        // UDP scrapes cannot carry a passkey.
        let mut words = vec!["--mix", if protocol == Protocol::Udp { "1:100:0" } else { "1:0" }];
        if is_private {
            words.extend(["--keys", &keys]);
        }
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let load = LoadRun {
            protocol,
            tracker,
            path: Some(if is_private { "/announce/{key}" } else { "/announce" }),
            seed: SEED,
            seconds: run.seconds,
            warm_up: run.warm_up,
            processors: &self.split.load,
            stop: &session.stop,
        };
        let is_over = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            let reader = is_private.then(|| scope.spawn(|| read_metrics(self.admin, &is_over)));
            let result = self.lab.load(load, &words);
            is_over.store(true, Ordering::Relaxed);
            if let Some(reader) = reader {
                reader.join().map_err(|_| anyhow!("the reader of metrics panicked"))??;
            }
            result
        });
        let result = result.with_context(|| format!("{name}, {protocol}"))?;
        if let Some(LoadResult { errors, .. }) = &result {
            ensure!(errors.is_empty(), "{name}, {protocol}: not all was served: {errors:?}");
        }
        Ok(result)
    }
}

fn read_metrics(admin: SocketAddr, is_over: &AtomicBool) -> Result<()> {
    let mut api = Api::open(admin)?;
    while !is_over.load(Ordering::Relaxed) {
        api.ask(200, "GET /metrics", "")?;
        sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        SUBJECT,
        RESPONSES_S,
        ("relative", |row| row.relative("responses_s")),
        PER_CPU_S,
        RELATIVE,
        PAIRS,
    ];
    let text = "Three trackers take turns. The private one has metrics, which are read once a \
                second, durable records, a million denied torrents, 100,000 banned networks and \
                10,000 users' keys, one for each peer.";
    let blocks: Vec<Block> = vec![table(&runs.rows(), COLUMNS)];
    ("A private tracker".to_owned(), text.to_owned(), blocks)
}

/// Returns `count` info hashes, one on each line.
pub(crate) fn hash_lines(random: &mut Random, count: u32) -> String {
    let mut text = String::with_capacity(count as usize * 41);
    for _ in 0..count {
        let (a, b, c) = (random.next(), random.next(), random.next() as u32);
        let _ = writeln!(text, "{a:016x}{b:016x}{c:08x}");
    }
    text
}

/// Returns a network like those of real lists: single addresses and small networks of both families.
/// None contains this machine.
fn network(random: &mut Random) -> String {
    let (address, kind) = (random.next(), random.next() as usize);
    if kind.is_multiple_of(2) {
        let bits = [32, 32, 24, 24, 22, 20][kind / 2 % 6];
        // 128.0.0.0 and above.
        format!("{}/{bits}", Ipv4Addr::from_bits(address as u32 | (1 << 31)))
    } else {
        let bits = [64, 64, 48, 56, 128, 32][kind / 2 % 6];
        let address = u128::from(address >> 3 | (1 << 61)) << 64;
        format!("{}/{bits}", Ipv6Addr::from_bits(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_and_banned_is_well_written() {
        let mut random = Random::new(1);
        let lines = hash_lines(&mut random, 3);
        assert!(lines.lines().all(|line| line.len() == 40) && lines.lines().count() == 3);
        for _ in 0..1000 {
            let network = network(&mut random);
            let (address, bits) = network.split_once('/').unwrap();
            let address: std::net::IpAddr = address.parse().unwrap();
            assert!(!address.is_loopback() && bits.parse::<u8>().unwrap() >= 20, "{network}");
        }
    }
}
