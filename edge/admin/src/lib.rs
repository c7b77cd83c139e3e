//! What the operator looks at and commands: Prometheus metrics, health, the management API and its
//! durable records, on a listener of its own.
//!
//! Metrics read copies that the workers publish, and totals that the store keeps anyway: a scrape makes
//! no announce wait. What the API changes is recorded first ([`records`]) and then put in force.
#![forbid(unsafe_code)]

mod api;
mod clients;
mod control;
mod dashboard;
mod events;
mod listener;
mod log_levels;
mod log_tail;
mod metrics;
mod recorder;
pub mod records;
mod restore;
pub mod torrent_list;
mod traces;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use axum::extract::State;
use axum::extract::connect_info::Connected;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::serve::IncomingStream;
use tokio::sync::{Semaphore, watch};
use tracker::Tracker;
use tracker::counters::MetricsRegistry;
use types::Tick;

pub use api::{Api, ApiDeps, ApiOptions, PostRequest, SendPost, is_token};
pub use control::{Command, ReloadOutcome, Setting};
pub use events::{Event, EventHub, EventKind};
pub use log_levels::{AUDIT, LogLevels, area_of};
pub use log_tail::{LOG_TAIL, LogLine, LogTail};
pub use records::{OpenError, Records};
pub use restore::{ClockReading, CountCollector, restore};
pub use traces::TraceOptions;

use listener::{CONNECTION_LIMITS, ConnectionLimits, LimitedListener};

/// What can be looked at.
pub struct MetricSources {
    /// The tracker itself.
    pub tracker: Arc<Tracker>,
    /// The workers' accounts.
    pub registry: Arc<MetricsRegistry>,
    /// What the application knows about itself.
    pub status: Status,
    /// What the process has used; asked at each look.
    pub process: fn() -> ProcessStats,
    /// The tracker's time, which goes on across upgrades; uptime does not.
    pub clock: Box<dyn Fn() -> Tick + Send + Sync>,
    /// Every host name with the end of its certificate; asked at each look.
    pub certificates: Box<dyn Fn() -> BTreeMap<String, SystemTime> + Send + Sync>,
    /// What came of asking an ACME authority for certificates.
    pub acme: AcmeAttempts,
    /// The version, as `1.2.3`.
    pub version: &'static str,
}

/// What the application tells about itself.
#[derive(Debug, Default)]
pub struct Status {
    /// Whether every listener serves, and nothing is being shut down.
    pub ready: AtomicBool,
    /// Configuration and lists put in force since the start.
    pub reloads: AtomicU64,
    /// Attempts at that which failed, so that the old ones stayed.
    pub reload_failures: AtomicU64,
}

/// Attempts to obtain a certificate, by what came of them.
#[derive(Debug, Default)]
pub struct AcmeAttempts {
    /// A certificate.
    pub obtained: AtomicU64,
    /// Nothing: the server could not be reached, or was not well.
    pub unreachable: AtomicU64,
    /// Nothing: the server refused.
    pub refused: AtomicU64,
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessStats {
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Seconds of CPU time, user and system.
    pub cpu_s: f64,
    /// Bytes resident in memory.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub open_fds: u64,
}

/// What the admin listeners serve, and how.
pub struct Service {
    /// For `/metrics` and `/health/…`.
    pub sources: Arc<MetricSources>,
    /// For `/api/v1/…`.
    pub api: Option<Arc<Api>>,
    /// TLS, if they speak it.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// What threads do first that are started for work that takes long: lists of torrents, looks at the
    /// records.
    pub lower_priority: fn(),
}

/// Threads for looks at the records, which may wait for the disk.
const BLOCKING_THREADS_MAX: usize = 4;

/// Serves `listeners` on this thread until `stop` becomes true.
pub fn serve(
    listeners: Vec<TcpListener>,
    service: &Service,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    serve_within(CONNECTION_LIMITS, listeners, service, stop)
}

fn serve_within(
    limits: ConnectionLimits,
    listeners: Vec<TcpListener>,
    service: &Service,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .on_thread_start(service.lower_priority);
    let runtime = runtime.build()?;
    let served = runtime.block_on(async {
        let mut servers = tokio::task::JoinSet::new();
        for listener in listeners {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let listener = LimitedListener::new(
                listener,
                Arc::clone(&permits),
                limits.idle_timeout,
                service.tls.clone(),
            );
            let router = router(service).into_make_service_with_connect_info::<api::From>();
            servers.spawn(axum::serve(listener, router).into_future());
        }
        if let Some(api) = &service.api {
            tokio::spawn(Arc::clone(api).work());
        }
        // Answers are short and nobody's announce: they need no draining.
        let mut stop = stop;
        let stopped = stop.wait_for(|stop| *stop);
        tokio::select! {
            _ = stopped => Ok(()),
            Some(ended) = servers.join_next() => ended.map_err(io::Error::other)?,
        }
    });
    // A look may wait for a disk that does not answer.
    runtime.shutdown_background();
    served
}

fn router(service: &Service) -> axum::Router {
    let pages = PageState { sources: Arc::clone(&service.sources), api: service.api.clone() };
    let pages = axum::Router::new()
        .route("/metrics", get(metrics_page))
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready_page))
        .with_state(pages);
    match &service.api {
        Some(api) => pages.merge(dashboard::router()).merge(api::router(api)),
        None => pages,
    }
}

#[derive(Clone)]
struct PageState {
    sources: Arc<MetricSources>,
    api: Option<Arc<Api>>,
}

impl Connected<IncomingStream<'_, LimitedListener>> for api::From {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

async fn metrics_page(State(pages): State<PageState>) -> impl IntoResponse {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics::render(&pages.sources, pages.api.as_deref()))
}

async fn ready_page(State(pages): State<PageState>) -> (StatusCode, &'static str) {
    if pages.sources.status.ready.load(Ordering::Relaxed) {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs `test` beside a listener with two places.
    fn with_two_places(idle_timeout: Duration, test: impl FnOnce(SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let sources = Arc::new(metrics::tests::sources());
        let limits = ConnectionLimits { connections: 2, idle_timeout };
        let service = Service { sources, api: None, tls: None, lower_priority: || {} };
        let server = thread::spawn(move || serve_within(limits, vec![listener], &service, stopped));
        test(address);
        stop.send_replace(true);
        server.join().unwrap().unwrap();
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What comes until the server closes, in whatever way.
    fn rest(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn who_says_nothing_makes_room() {
        with_two_places(Duration::from_millis(300), |address| {
            let silent = [(); 6].map(|()| connect(address));
            let mut client = connect(address);
            client.write_all(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            // It is not closed by itself either, but ends like the others.
            assert!(rest(client).ends_with("live\n"));
            assert!(silent.into_iter().all(|stream| rest(stream).is_empty()));
        });
    }

    #[test]
    fn a_head_that_dribbles_in_has_one_deadline() {
        with_two_places(Duration::from_millis(300), |address| {
            let mut client = connect(address);
            let start = Instant::now();
            while client.write_all(b"G").is_ok() {
                assert!(start.elapsed() < PATIENCE, "it goes on for ever");
                thread::sleep(Duration::from_millis(10));
            }
        });
    }

    #[test]
    fn above_the_bound_others_wait_until_one_leaves() {
        with_two_places(PATIENCE, |address| {
            let held = [(); 2].map(|()| connect(address));
            let mut client = connect(address);
            client
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .unwrap();
            client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            assert!(client.read(&mut [0]).is_err(), "nobody has left");
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            drop(held);
            assert!(rest(client).contains("tidegate_build_info"));
        });
    }
}
