//! `tidegate-bench api`: the management API of a busy tracker.
//!
//! 1. A million entries are imported into an empty allow list, in one request.
//! 2. Single torrents are allowed one by one. As soon as such a change is acknowledged, every worker
//!    must serve the torrent: it is announced to all of them at once.
//! 3. A million torrents are announced. Then a load keeps the tracker at 80 % of its maximum, with and
//!    without requests for pages of 100 torrents and for statistics. The share of announces that take
//!    longer than a millisecond shows the cost of a page to other clients.
//!
//! The maximum is the rate of responses under an overload with fixed send times, like the later load. A
//! load that waits for responses would measure a higher maximum: it fills every batch, and queues stay
//! short.
//!
//! Everything but the tracker shares the load's processors. The thread that requests pages has a higher
//! priority there, if the system permits. Not all delays are the tracker's: the figures also have the
//! share of requests that the load tester sent late, and the CPU time of others.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ::load::Latencies;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, value_parser};
use primitives::Random;
use serde_json::Value;

use crate::datagrams::{ANNOUNCED, announce, connect};
use crate::figures::{count, micros, percent};
use crate::lab::{
    Api, Lab, LabArgs, LoadResult, LoadRun, NoiseMonitor, Protocol, RunningTracker, SEED, Split,
    Subject, TOKEN_VARIABLES, children_cpu_s, free_address, on,
};
use crate::private::hash_lines;
use crate::record::Figures;
use crate::report::{Block, CASE, Column, Content, Runs, table};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session, print_line};

const ENTRIES: u32 = 1_000_000;
/// The number of torrents that are allowed one by one.
const CHANGES: u32 = 200;
/// The number of sockets that announce allowed torrents. The kernel distributes them over the workers.
const SOCKETS: usize = 32;
/// The load while pages are requested, as a part of the maximum.
const LOAD: f64 = 0.8;
/// Seconds that each crowd announces, until there are enough torrents.
const FILL_S: u32 = 15;
const FILLS_MAX: u32 = 40;
/// The time between two requests for pages or for statistics.
const PAUSE: Duration = Duration::from_millis(20);
/// The overload that measures the maximum, relative to the rate of a load that waits for responses.
const TOO_MUCH: f64 = 1.3;

/// Measure imports, changes and pages of torrents of the management API while the tracker is busy.
#[derive(Args)]
pub(crate) struct ApiCommand {
    /// Number of torrents when pages are requested.
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = value_parser!(u32).range(1000..=10_000_000))]
    torrents: u32,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// A benchmark under way.
struct Bench<'a> {
    lab: &'a Lab,
    run: &'a RoundArgs,
    torrents: u32,
    session: Session,
    subject: Subject,
    split: Split,
    admin: SocketAddr,
}

impl ApiCommand {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let (subject, split, admin) = (lab.tidegate()?, lab.split(1)?, free_address()?);
        let session = Session::start("api", &self.output, &self.lab.definitions)?;
        let load = split.load.clone();
        let (lab, run, torrents) = (&lab, &self.run, self.torrents);
        let mut bench = Bench { lab, run, torrents, session, subject, split, admin };
        on(&load, || {
            go_first();
            for round in 1..=self.run.runs {
                if bench.session.is_stopped() {
                    break;
                }
                bench.change(round)?;
            }
            bench.pages()?;
            bench.session.finish(Vec::new())
        })?
    }
}

/// Gives this thread a higher priority, but not the programs and threads that it starts.
fn go_first() {
    let own = std::process::id().to_string();
    let status =
        Command::new("chrt").args(["--fifo", "--reset-on-fork", "--pid", "1", &own]).status();
    if !status.is_ok_and(|status| status.success()) {
        print_line("requests for pages wait for the load's core: only root may raise priorities");
    }
}

impl Bench<'_> {
    fn add(&mut self, case: &str, round: u32, figures: Figures, summary: &str) -> Result<()> {
        let version = self.subject.version();
        let key = RunKey { subject: "tidegate", version: &version, case, cores: 1, round };
        self.session.add(key, figures, summary)
    }

    fn start(&self, more: &[(&str, &str)]) -> Result<(RunningTracker, Api)> {
        let admin = self.admin.to_string();
        let usual = [
            ("TIDEGATE_ADMIN__LISTEN", &*admin),
            ("TIDEGATE_ADMIN__REQUESTS_PER_S", "0"),
            TOKEN_VARIABLES[0],
            TOKEN_VARIABLES[1],
        ];
        let more = [&usual, more].concat();
        let tracker = self.lab.start(&self.subject, Protocol::Udp, &self.split.tracker, &more)?;
        Ok((tracker, Api::open(self.admin)?))
    }

    /// Imports an allow list. Then allows torrents one by one, and announces each to all workers once
    /// the change is acknowledged.
    fn change(&mut self, round: u32) -> Result<()> {
        let state = self.lab.folder.join(format!("state-{round}")).display().to_string();
        let (tracker, mut api) = self.start(&[
            ("TIDEGATE_ACCESS__MODE", "allow"),
            ("TIDEGATE_STATE__DIR", &state),
            ("TIDEGATE_UDP__WORKERS", "2"),
        ])?;
        let lines = hash_lines(&mut Random::new(1), ENTRIES);
        let begun = Instant::now();
        let answer: Value =
            serde_json::from_str(&api.ask(200, "POST /api/v1/lists/allow", &lines)?)?;
        let per_s = f64::from(ENTRIES) / begun.elapsed().as_secs_f64();
        ensure!(answer["total"] == ENTRIES, "entries are missing: {answer}");
        let figures = Figures::default().with("entries_s", per_s);
        self.add("import", round, figures, &format!("{} entries/s", count(per_s)))?;

        let clients = (0..SOCKETS).map(|_| Client::new(tracker.address));
        let clients = clients.collect::<Result<Vec<_>>>()?;
        let mut times = Latencies::default();
        for number in 0..CHANGES {
            let hash: [u8; 20] = std::array::from_fn(|at| (number >> (8 * (at % 4))) as u8 ^ 0x5a);
            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            ensure!(!clients[0].is_served(hash)?, "a torrent is served before it is allowed");
            let begun = Instant::now();
            api.ask(204, &format!("PUT /api/v1/lists/allow/{hex}"), "")?;
            times.record(begun.elapsed());
            for client in &clients {
                ensure!(client.is_served(hash)?, "a worker does not know an acknowledged change");
            }
        }
        self.add("change", round, answer_times(&times), &times.to_string())
    }

    /// Measures pages of torrents under load.
    fn pages(&mut self) -> Result<()> {
        let (tracker, mut api) = self.start(&[])?;
        let (mut torrents, wanted) = (0.0, f64::from(self.torrents));
        for seed in 1..=FILLS_MAX {
            if torrents < wanted && !self.session.is_stopped() {
                self.load(&tracker, seed, FILL_S, &[])?;
                let stats: Value = serde_json::from_str(&api.ask(200, "GET /api/v1/stats", "")?)?;
                torrents = stats["torrents"].as_f64().context("no torrents in the statistics")?;
            }
        }
        if self.session.is_stopped() {
            return Ok(());
        }
        ensure!(torrents >= wanted, "expected {wanted} torrents, found {torrents}");
        let Some(rate) = self.maximum(&tracker)? else { return Ok(()) };
        for round in 1..=self.run.runs {
            for asks in [Asks::Nothing, Asks::Pages, Asks::Statistics] {
                let Some(figures) = self.ask_under_load(asks, &tracker, rate)? else {
                    return Ok(());
                };
                let p99 = figures.get("p99_us").map_or(f64::NAN, |it| it.median);
                let summary = format!("99 % of announces within {}", micros(p99));
                self.add(asks.name(), round, figures, &summary)?;
            }
        }
        Ok(())
    }

    /// Returns the rate of the load beside requests: a part of the responses per second under
    /// overload.
    fn maximum(&mut self, tracker: &RunningTracker) -> Result<Option<f64>> {
        let seconds = self.run.seconds;
        let Some(own_pace) = self.load(tracker, SEED, seconds, &[])? else { return Ok(None) };
        let rate = (own_pace.responses_per_s * TOO_MUCH).round().to_string();
        let Some(most) = self.load(tracker, SEED, seconds, &["--rate", &rate])? else {
            return Ok(None);
        };
        let figures = Figures::default()
            .with("closed_responses_s", own_pace.responses_per_s)
            .with("responses_s", most.responses_per_s);
        let summary = format!("{} responses/s", count(most.responses_per_s));
        self.add("maximum", 1, figures, &summary)?;
        Ok(Some((most.responses_per_s * LOAD).round()))
    }

    fn load(
        &self,
        tracker: &RunningTracker,
        seed: u32,
        seconds: u32,
        more: &[&str],
    ) -> Result<Option<LoadResult>> {
        // Peers are distributed evenly, so that nearly all torrents get one.
        let (torrents, peers) = (self.torrents / 100 * 115, self.torrents * 3);
        let crowd = format!("--torrents {torrents} --peers {peers} --spread uniform");
        let words = crowd.split(' ').chain(more.iter().copied());
        let words: Vec<String> = words.map(str::to_owned).collect();
        let run = LoadRun {
            protocol: Protocol::Udp,
            tracker,
            path: None,
            seed,
            seconds,
            warm_up: self.run.warm_up,
            processors: &self.split.load,
            stop: &self.session.stop,
        };
        self.lab.load(run, &words)
    }

    /// Requests something all the time while the tracker is under load.
    fn ask_under_load(
        &self,
        asks: Asks,
        tracker: &RunningTracker,
        rate: f64,
    ) -> Result<Option<Figures>> {
        let before = (tracker.usage()?, children_cpu_s()?);
        let monitor = NoiseMonitor::start([&*self.split.tracker, &*self.split.load].concat())?;
        let is_over = AtomicBool::new(false);
        // Requested on this thread, which has the higher priority.
        let (result, times) = thread::scope(|scope| -> Result<_> {
            let loading = scope.spawn(|| {
                let result =
                    self.load(tracker, SEED, self.run.seconds, &["--rate", &rate.to_string()]);
                is_over.store(true, Ordering::Relaxed);
                result
            });
            let times = asks.repeat(self.admin, &is_over);
            let result = loading.join().map_err(|_| anyhow!("the load panicked"))?;
            Ok((result?, times?))
        })?;
        let own_s = tracker.usage()?.since(&before.0).cpu_s() + children_cpu_s()? - before.1;
        let Some(result) = result else { return Ok(None) };
        let mut figures = result.figures().with("noise", monitor.noise(own_s)?);
        if !matches!(asks, Asks::Nothing) {
            figures.extend(answer_times(&times));
        }
        Ok(Some(figures))
    }
}

/// Returns response times of the API as figures.
fn answer_times(times: &Latencies) -> Figures {
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let part = |part| us(times.quantile(part).unwrap_or_default());
    Figures::default()
        .with("api_p50_us", part(0.5))
        .with("api_p99_us", part(0.99))
        .with("api_max_us", us(times.max()))
}

/// A UDP client that waits for each response.
struct Client {
    socket: UdpSocket,
    connection_id: u64,
}

impl Client {
    fn new(tracker: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(tracker)?;
        let connection_id = connect(&socket)?;
        Ok(Self { socket, connection_id })
    }

    /// Returns whether an announce is answered and not refused.
    fn is_served(&self, hash: [u8; 20]) -> Result<bool> {
        self.socket.send(&announce(self.connection_id, 0, hash))?;
        let mut response = [0; 2048];
        match self.socket.recv(&mut response) {
            Ok(4..) => Ok(response[..4] == ANNOUNCED),
            Ok(_) => bail!("a response is cut short"),
            Err(error) => Err(error).context("an announce was not answered"),
        }
    }
}

/// What is requested of the API.
#[derive(Clone, Copy)]
enum Asks {
    Nothing,
    Pages,
    Statistics,
}

impl Asks {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no API requests",
            Self::Pages => "pages of 100 torrents",
            Self::Statistics => "statistics",
        }
    }

    /// Sends requests until the end. Returns the response times.
    fn repeat(self, admin: SocketAddr, is_over: &AtomicBool) -> Result<Latencies> {
        let mut api = Api::open(admin)?;
        let (mut times, mut cursor) = (Latencies::default(), String::new());
        // The first page waits until the list of all torrents exists.
        let mut is_first = true;
        while !is_over.load(Ordering::Relaxed) {
            let request = match self {
                Self::Nothing => return Ok(times),
                Self::Pages => format!("GET /api/v1/torrents?sort=leechers&limit=100{cursor}"),
                Self::Statistics => "GET /api/v1/stats".into(),
            };
            let begun = Instant::now();
            let answer = api.ask(200, &request, "")?;
            if !std::mem::take(&mut is_first) {
                times.record(begun.elapsed());
            }
            let answer: Value = serde_json::from_str(&answer)?;
            cursor = answer["next"].as_str().map_or_else(String::new, |it| format!("&cursor={it}"));
            sleep(PAUSE);
        }
        Ok(times)
    }
}

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const REQUESTS: &[Column] = &[
        CASE,
        ("entries/s", |row| row.cell("entries_s", count)),
        ("50 %", |row| row.cell("api_p50_us", micros)),
        ("99 %", |row| row.cell("api_p99_us", micros)),
        ("longest", |row| row.cell("api_max_us", micros)),
    ];
    const ANNOUNCES: &[Column] = &[
        CASE,
        ("50 %", |row| row.cell("p50_us", micros)),
        ("99 %", |row| row.cell("p99_us", micros)),
        ("99.9 %", |row| row.cell("p99_9_us", micros)),
        ("longest", |row| row.cell("max_us", micros)),
        ("over 1 ms", |row| row.cell("over_1_ms_part", percent)),
        ("sent over 1 ms late", |row| row.cell("sent_late_part", percent)),
        ("CPU time of others", |row| row.cell("noise", percent)),
    ];
    let with = |names: [&str; 2]| {
        runs.filter(|run| names.iter().any(|name| run.figures.get(name).is_some())).rows()
    };
    let maximum = runs.filter(|run| run.case == "maximum").median("responses_s");
    let text = format!(
        "A million entries are imported into an allow list; torrents are allowed one by one, and all \
         workers serve each as soon as the change is acknowledged. Then there are more than a million \
         torrents, and an open loop keeps the tracker at 80 % of its maximum, {} announces per \
         second. The tracker with its API has one core.",
        maximum.map_or_else(|| "?".to_owned(), count)
    );
    let blocks = vec![
        Block::Heading("Response times of the API".into()),
        table(&with(["entries_s", "api_p50_us"]), REQUESTS),
        Block::Heading("Response times of announces".into()),
        table(&with(["p50_us", "over_1_ms_part"]), ANNOUNCES),
    ];
    ("The management API of a busy tracker".to_owned(), text, blocks)
}
