//! `tidegate-bench dashboards`: what open dashboards cost the tracker.
//!
//! Torrents are announced first. Then the tracker's CPU time is read over some time without pages, and with pages
//! that ask as the overview does: they load its files and the last ten minutes once, follow the stream of
//! statistics, and ask for the status every 10 s and for the largest torrents every 15 s. No client announces
//! meanwhile, so that the difference is the cost of the pages.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, value_parser};

use crate::figures::count;
use crate::lab::{
    Api, Lab, LabArgs, LoadRun, Protocol, RunningTracker, SEED, TOKEN_VARIABLES, authorization,
    free_address, on,
};
use crate::record::Figures;
use crate::report::{CASE, Column, Content, Runs, table};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session};

/// How long torrents are announced.
const FILL_S: u32 = 5;
/// As the overview asks.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
const TORRENTS_PERIOD: Duration = Duration::from_secs(15);
/// How often a page looks whether it is time to ask, or to end.
const TURN: Duration = Duration::from_millis(200);

/// Measure what open dashboards cost the tracker.
#[derive(Args)]
pub(crate) struct Dashboards {
    /// Number of pages that are open at once.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=30))]
    pages: u32,
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

impl Dashboards {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let (subject, split, admin) = (lab.tidegate()?, lab.split(1)?, free_address()?);
        let mut session = Session::start("dashboards", &self.output, &self.lab.definitions)?;
        let load = split.load.clone();
        on(&load, || {
            let listen = admin.to_string();
            let more = [
                ("TIDEGATE_ADMIN__LISTEN", &*listen),
                ("TIDEGATE_ADMIN__REQUESTS_PER_S", "0"),
                TOKEN_VARIABLES[0],
            ];
            let tracker = lab.start(&subject, Protocol::Udp, &split.tracker, &more)?;
            Api::open(admin)?;
            let fill = LoadRun {
                protocol: Protocol::Udp,
                tracker: &tracker,
                path: None,
                seed: SEED,
                seconds: FILL_S,
                warm_up: 0,
                processors: &split.load,
                stop: &session.stop,
            };
            lab.load(fill, &["--torrents".into(), "100000".into()])?;
            let time = Duration::from_secs(self.run.seconds.into());
            let version = subject.version();
            for round in 1..=self.run.runs {
                for pages in [0, self.pages] {
                    if session.is_stopped() {
                        break;
                    }
                    let (percent, bytes) = cost(&tracker, admin, pages, time)?;
                    let case = format!("{pages} pages");
                    let figures = Figures::default()
                        .with("cpu_percent", percent)
                        .with("bytes_s", bytes as f64 / time.as_secs_f64());
                    let summary = format!("{percent:.3} % of a core");
                    let key = RunKey {
                        subject: "tidegate",
                        version: &version,
                        case: &case,
                        cores: 1,
                        round,
                    };
                    session.add(key, figures, &summary)?;
                }
            }
            session.finish(Vec::new())
        })?
    }
}

/// Returns the percent of a core that the tracker takes while pages are open, and the bytes they receive.
fn cost(
    tracker: &RunningTracker,
    admin: SocketAddr,
    pages: u32,
    time: Duration,
) -> Result<(f64, u64)> {
    let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let open = |_| scope.spawn(|| page(admin, &is_over, &bytes));
        let pages: Vec<_> = (0..pages).map(open).collect();
        // Until all have loaded what they load once.
        sleep(Duration::from_secs(2));
        let (before, begun) = (tracker.usage()?, Instant::now());
        bytes.store(0, Ordering::Relaxed);
        sleep(time);
        let used = tracker.usage()?.since(&before).cpu_s();
        let percent = 100.0 * used / begun.elapsed().as_secs_f64();
        let received = bytes.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        for page in pages {
            page.join().map_err(|_| anyhow::anyhow!("a page panicked"))??;
        }
        Ok((percent, received))
    })
}

/// Does what an open overview does, until it is over.
fn page(admin: SocketAddr, is_over: &AtomicBool, bytes: &AtomicU64) -> Result<()> {
    let mut api = Api::open(admin)?;
    let mut ask = |path: &str| -> Result<()> {
        let answer = api.ask(200, &format!("GET {path}"), "")?;
        bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
        Ok(())
    };
    for path in ["/", "/main.js", "/style.css", "/api/v1/names", "/api/v1/stats/history?span=10m"] {
        ask(path)?;
    }
    let mut stream = TcpStream::connect(admin)?;
    stream.set_read_timeout(Some(TURN))?;
    write!(
        stream,
        "GET /api/v1/stats/stream HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n",
        authorization()
    )?;
    let begun = Instant::now();
    let (mut statuses, mut lists, mut samples) = (0, 0, 0);
    let mut buffer = [0; 16 * 1024];
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => anyhow::bail!("the stream of statistics has ended"),
            Ok(length) => {
                samples += 1;
                bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error).context("the stream of statistics"),
        }
        if begun.elapsed() >= STATUS_PERIOD * statuses {
            statuses += 1;
            ask("/api/v1/status")?;
        }
        if begun.elapsed() >= TORRENTS_PERIOD * lists {
            lists += 1;
            ask("/api/v1/torrents?sort=seeders&limit=8")?;
        }
    }
    ensure!(samples > 1, "expected samples in the stream, found {samples}");
    Ok(())
}

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        ("percent of a core", |row| row.cell("cpu_percent", |percent| format!("{percent:.3}"))),
        ("bytes/s to the pages", |row| row.cell("bytes_s", count)),
    ];
    let text = "CPU time of the tracker with its API on one core, with 100,000 torrents, while no client announces and \
                pages of the dashboard are open.";
    ("What open dashboards cost".to_owned(), text.to_owned(), vec![table(&runs.rows(), COLUMNS)])
}
