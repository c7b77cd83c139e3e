//! Benchmarks a private tracker: `cargo xtask bench private [--runs N] [--seconds N] [--write]`.
//!
//! Three trackers take turns (A B C A B C), each on core 0 with one worker for UDP and one for HTTP, under
//! announces of `tidegate load` on core 1. The first is bare: open, without admin listener, logging only
//! warnings. The second has metrics, which are read once a second, records on disk, a million denied
//! torrents, 100,000 banned networks and 10,000 passkeys, one for each peer. It gets all of these by the
//! management API. The third is the first with log level info.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::api_client::ApiClient;
use super::load::{json_figure, pinned};
use super::machine;
use super::plan::{Plan, median};
use super::subject::{Running, serve};
use crate::command::output;
use crate::workspace::{release, root};

const DENIED: u32 = 1_000_000;
const BANS: u32 = 100_000;
const KEYS: u32 = 10_000;
/// The address of the private tracker's API.
const ADMIN: &str = "127.0.0.1:3013";
const PROTOCOLS: [&str; 2] = ["udp", "http"];

/// A measured tracker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Bare,
    Private,
    Logging,
}

/// One run.
struct Run {
    protocol: &'static str,
    subject: Subject,
    responses_s: f64,
    per_cpu_s: f64,
}

/// The folder of the private tracker's records and of the file of passkeys.
struct Folder(PathBuf);

pub(super) fn bench(plan: &Plan) -> Result<()> {
    let folder = Folder::new()?;
    folder.fill()?;
    let mut runs = Vec::new();
    for round in 1..=plan.runs {
        for subject in Subject::ALL {
            let tracker = subject.start(&folder)?;
            for protocol in PROTOCOLS {
                let run = measure(plan, subject, protocol, (&tracker, &folder))
                    .with_context(|| format!("{}, {protocol}, round {round}", subject.name()))?;
                println!(
                    "round {round} {protocol:<5} {:<8} {:>9.0} responses/s {:>9.0} per CPU-s",
                    subject.name(),
                    run.responses_s,
                    run.per_cpu_s
                );
                runs.push(run);
            }
        }
    }
    println!("\n{}", report(plan, &runs));
    if plan.write {
        write_record(plan, &runs)?;
    }
    Ok(())
}

impl Subject {
    const ALL: [Self; 3] = [Self::Bare, Self::Private, Self::Logging];

    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Private => "private",
            Self::Logging => "logging",
        }
    }

    /// Returns its own port, which no old connections of another tracker block.
    fn address(self) -> &'static str {
        match self {
            Self::Bare => "127.0.0.1:3010",
            Self::Private => "127.0.0.1:3011",
            Self::Logging => "127.0.0.1:3012",
        }
    }

    fn start(self, folder: &Folder) -> Result<Running> {
        let (address, state) = (self.address(), folder.state());
        let more = match self {
            Self::Bare => "[admin]\nlisten = []\n[log]\nlevel = \"warn\"\n".into(),
            Self::Logging => "[admin]\nlisten = []\n[log]\nlevel = \"info\"\n".into(),
            Self::Private => format!(
                "[admin]\nlisten = [\"{ADMIN}\"]\nrequests_per_s = 0\n[log]\nlevel = \"warn\"\n\
                 [access]\nmode = \"deny\"\nprivate = true\n[state]\ndir = {state:?}\n"
            ),
        };
        serve(address, 1, &more)
    }
}

impl Folder {
    fn new() -> Result<Self> {
        let path = root().join("target/bench/private");
        // Remove the records of an earlier run, which may differ.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn state(&self) -> PathBuf {
        self.0.join("state")
    }

    fn keys(&self) -> PathBuf {
        self.0.join("keys.txt")
    }

    /// Adds lists, bans and passkeys to a tracker.
    fn fill(&self) -> Result<()> {
        let _tracker = Subject::Private.start(self)?;
        let mut api = ApiClient::new(ADMIN)?;
        let mut numbers = Numbers(1);
        api.expect(200, "POST /api/v1/lists/deny", &hash_lines(&mut numbers, DENIED))?;
        for _ in 0..BANS / 1000 {
            let networks: Vec<String> = (0..1000).map(|_| network(&mut numbers)).collect();
            let body = format!("{{\"networks\":[\"{}\"]}}", networks.join("\",\""));
            api.expect(200, "POST /api/v1/bans/bulk", &body)?;
        }
        let mut keys = String::new();
        for number in 0..KEYS {
            let key = format!("{number:08x}{:016x}{:08x}", numbers.next(), numbers.next() as u32);
            api.expect(201, "POST /api/v1/keys", &format!("{{\"key\":\"{key}\"}}"))?;
            let _ = writeln!(keys, "{key}");
        }
        fs::write(self.keys(), keys)?;
        println!("{DENIED} torrents denied, {BANS} networks banned, {KEYS} passkeys created");
        Ok(())
    }
}

/// Puts a tracker under load.
fn measure(
    plan: &Plan,
    subject: Subject,
    protocol: &'static str,
    (tracker, folder): (&Running, &Folder),
) -> Result<Run> {
    let mut command = pinned();
    command.arg(release().join("tidegate")).args(["load", protocol]);
    let url = format!("{protocol}://{}/announce", subject.address());
    if subject == Subject::Private {
        command.arg(url + "/{key}").arg("--keys").arg(folder.keys());
    } else {
        command.arg(url);
    }
    // UDP scrapes cannot carry a passkey.
    let mix = if protocol == "udp" { "1:100:0" } else { "1:0" };
    let (seconds, pid) = (plan.seconds.to_string(), tracker.pid().to_string());
    command.args(["--mix", mix, "--warm-up", "2", "--seconds", &seconds, "--pid", &pid, "--json"]);
    let is_over = AtomicBool::new(false);
    let json = thread::scope(|scope| -> Result<String> {
        let reader = (subject == Subject::Private).then(|| scope.spawn(|| read_metrics(&is_over)));
        let json = output(command);
        is_over.store(true, Ordering::Relaxed);
        if let Some(reader) = reader {
            reader.join().map_err(|_| anyhow::anyhow!("the reader of metrics panicked"))??;
        }
        json
    })?;
    ensure!(json.contains("\"errors\":{}"), "some requests were not served: {json}");
    Ok(Run {
        protocol,
        subject,
        responses_s: json_figure(&json, "responses_per_s")?,
        per_cpu_s: json_figure(&json, "responses_per_cpu_s")?,
    })
}

fn read_metrics(is_over: &AtomicBool) -> Result<()> {
    let mut api = ApiClient::new(ADMIN)?;
    while !is_over.load(Ordering::Relaxed) {
        api.expect(200, "GET /metrics", "")?;
        sleep(Duration::from_secs(1));
    }
    Ok(())
}

/// Formats the medians, and their ratio to those of the bare tracker.
fn report(plan: &Plan, runs: &[Run]) -> String {
    let mut text = format!(
        "medians of {} runs of {} s\n| protocol | tracker | responses/s | of bare | per CPU-s | of bare |\n|---|---|---|---|---|---|\n",
        plan.runs, plan.seconds
    );
    for protocol in PROTOCOLS {
        let of = |subject, figure: fn(&Run) -> f64| {
            let own = runs.iter().filter(|run| (run.protocol, run.subject) == (protocol, subject));
            median(own.map(figure).collect())
        };
        for subject in Subject::ALL {
            let [rate, cpu] = [|run: &Run| run.responses_s, |run: &Run| run.per_cpu_s];
            let _ = writeln!(
                text,
                "| {protocol} | {} | {:.0} | {:.3} | {:.0} | {:.3} |",
                subject.name(),
                of(subject, rate),
                of(subject, rate) / of(Subject::Bare, rate),
                of(subject, cpu),
                of(subject, cpu) / of(Subject::Bare, cpu),
            );
        }
    }
    text
}

fn write_record(plan: &Plan, runs: &[Run]) -> Result<()> {
    let mut text = format!(
        "{}# cargo xtask bench private --runs {} --seconds {}\n\
         protocol,tracker,responses_s,responses_per_cpu_s\n",
        machine::describe()?,
        plan.runs,
        plan.seconds
    );
    for Run { protocol, subject, responses_s, per_cpu_s } in runs {
        let _ = writeln!(text, "{protocol},{},{responses_s:.0},{per_cpu_s:.0}", subject.name());
    }
    let name = format!("bench/record/{}-private.csv", machine::day()?);
    fs::write(root().join(Path::new(&name)), text)?;
    println!("written: {name}");
    Ok(())
}

/// A random generator with the same numbers in every run (splitmix64).
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// Returns `count` info hashes, one on each line.
pub(super) fn hash_lines(numbers: &mut Numbers, count: u32) -> String {
    let mut text = String::with_capacity(count as usize * 41);
    for _ in 0..count {
        let (a, b, c) = (numbers.next(), numbers.next(), numbers.next() as u32);
        let _ = writeln!(text, "{a:016x}{b:016x}{c:08x}");
    }
    text
}

/// Returns a network like those of real lists: single addresses and small networks of both families. None
/// contains this machine.
fn network(numbers: &mut Numbers) -> String {
    let (address, kind) = (numbers.next(), numbers.next() as usize);
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
        let mut numbers = Numbers(1);
        let lines = hash_lines(&mut numbers, 3);
        assert!(lines.lines().all(|line| line.len() == 40) && lines.lines().count() == 3);
        for _ in 0..1000 {
            let network = network(&mut numbers);
            let (address, bits) = network.split_once('/').unwrap();
            let address: std::net::IpAddr = address.parse().unwrap();
            assert!(!address.is_loopback() && bits.parse::<u8>().unwrap() >= 20, "{network}");
        }
    }
}
