//! Use of a tracker's management API while the tracker is under load.
//!
//! The thread that sends the requests shares the load's processors and has a higher priority there, if the system
//! permits: response times of the API are then not those of a busy processor of the load.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ::load::Latencies;
use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

use super::api::{Api, authorization};
use super::cores;
use crate::record::Figures;
use crate::session::print_line;

/// Requests that are sent to the management API during a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiUse {
    /// Metrics, once a second.
    Metrics,
    /// Pages of 100 torrents, sorted by their leechers, 50 times a second.
    Pages,
    /// Statistics, 50 times a second.
    Statistics,
    /// Ten dashboards that show the overview.
    Dashboards,
}

/// The time between two requests for pages or for statistics.
const PAUSE: Duration = Duration::from_millis(20);
/// The time between two requests for metrics.
const METRICS_PERIOD: Duration = Duration::from_secs(1);
const DASHBOARDS: usize = 10;
/// The overview asks for the status and for the largest torrents at these intervals.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
const TORRENTS_PERIOD: Duration = Duration::from_secs(15);
/// A dashboard looks this often for the time of its next request.
const TURN: Duration = Duration::from_millis(200);

impl ApiUse {
    /// Uses the API at `admin` while `load` runs. Returns the load's result, and figures of the API.
    ///
    /// # Errors
    ///
    /// Returns an error if a request is not answered as expected.
    pub(crate) fn during<T: Send>(
        self,
        admin: SocketAddr,
        processors: &[usize],
        load: impl FnOnce() -> T + Send,
    ) -> Result<(T, Figures)> {
        raise_priority();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let result = load();
                is_over.store(true, Ordering::Relaxed);
                result
            });
            // Requests are sent by this thread, which has the higher priority.
            let figures = cores::on(processors, || self.repeat(admin, &is_over))?;
            let result = loading.join().map_err(|_| anyhow!("the load panicked"))?;
            Ok((result, figures?))
        })
    }

    /// Sends requests until it is over.
    fn repeat(self, admin: SocketAddr, is_over: &AtomicBool) -> Result<Figures> {
        match self {
            Self::Metrics => ask(admin, "GET /metrics", METRICS_PERIOD, is_over),
            Self::Pages => {
                ask(admin, "GET /api/v1/torrents?sort=leechers&limit=100", PAUSE, is_over)
            }
            Self::Statistics => ask(admin, "GET /api/v1/stats", PAUSE, is_over),
            Self::Dashboards => show_dashboards(admin, is_over),
        }
    }
}

/// Gives this thread a higher priority, but not the programs and threads that it starts.
fn raise_priority() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let own = std::process::id().to_string();
        let status =
            Command::new("chrt").args(["--fifo", "--reset-on-fork", "--pid", "1", &own]).status();
        if !status.is_ok_and(|status| status.success()) {
            print_line(
                "requests to the API wait for the load's core: only root may raise priorities",
            );
        }
    });
}

/// Sends a request again and again. Returns the response times; where answers are pages, all pages are requested in
/// turn.
fn ask(admin: SocketAddr, request: &str, pause: Duration, is_over: &AtomicBool) -> Result<Figures> {
    let mut api = Api::open(admin)?;
    let mut times = Latencies::default();
    let mut cursor = String::new();
    // The first response waits until the list of all torrents exists.
    let mut is_first = true;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let answer = api.ask(200, &format!("{request}{cursor}"), "")?;
        if !is_first {
            times.record(begun.elapsed());
        }
        is_first = false;
        // Metrics are not JSON, and have no further page.
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        cursor = answer["next"].as_str().map_or_else(String::new, |it| format!("&cursor={it}"));
        sleep(pause);
    }
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let part = |part| us(times.quantile(part).unwrap_or_default());
    Ok(Figures::default()
        .with("api_p50_us", part(0.5))
        .with("api_p99_us", part(0.99))
        .with("api_max_us", us(times.max())))
}

/// Keeps dashboards open. Returns the bytes that they receive.
fn show_dashboards(admin: SocketAddr, is_over: &AtomicBool) -> Result<Figures> {
    let bytes = AtomicU64::new(0);
    let begun = Instant::now();
    thread::scope(|scope| {
        let open = |_| scope.spawn(|| show_overview(admin, is_over, &bytes));
        let pages: Vec<_> = (0..DASHBOARDS).map(open).collect();
        for page in pages {
            page.join().map_err(|_| anyhow!("a page panicked"))??;
        }
        let per_s = bytes.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        Ok(Figures::default().with("api_bytes_s", per_s))
    })
}

/// Requests what an open overview requests: its files and the last ten minutes once, the stream of statistics, the
/// status and the largest torrents again and again.
fn show_overview(admin: SocketAddr, is_over: &AtomicBool, bytes: &AtomicU64) -> Result<()> {
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
    let head = "GET /api/v1/stats/stream HTTP/1.1\r\nHost: localhost";
    write!(stream, "{head}\r\n{}\r\n\r\n", authorization())?;
    let begun = Instant::now();
    let (mut statuses, mut lists) = (0, 0);
    let mut buffer = [0; 16 * 1024];
    while !is_over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => bail!("the stream of statistics has ended"),
            Ok(length) => {
                bytes.fetch_add(length as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
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
    Ok(())
}
