//! Use of a tracker's management API while the tracker is under load. The thread that sends the requests shares the
//! load's processors.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use super::api::{Api, authorization};
use super::cores;
use crate::record::Figures;

/// Requests that are sent to the management API during a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiUse {
    /// Metrics, once a second.
    Metrics,
    /// Ten dashboards that show the overview.
    Dashboards,
}

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
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let loading = scope.spawn(|| {
                let result = load();
                is_over.store(true, Ordering::Relaxed);
                result
            });
            let figures = cores::on(processors, || self.repeat(admin, &is_over))?;
            let result = loading.join().map_err(|_| anyhow!("the load panicked"))?;
            Ok((result, figures?))
        })
    }

    /// Sends requests until it is over.
    fn repeat(self, admin: SocketAddr, is_over: &AtomicBool) -> Result<Figures> {
        match self {
            Self::Metrics => read_metrics(admin, is_over),
            Self::Dashboards => show_dashboards(admin, is_over),
        }
    }
}

/// Reads the metrics again and again.
fn read_metrics(admin: SocketAddr, is_over: &AtomicBool) -> Result<Figures> {
    let mut api = Api::open(admin)?;
    while !is_over.load(Ordering::Relaxed) {
        api.ask(200, "GET /metrics", "")?;
        sleep(METRICS_PERIOD);
    }
    Ok(Figures::default())
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
