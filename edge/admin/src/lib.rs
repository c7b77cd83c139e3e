//! Management of a tracker: Prometheus metrics, health checks, the HTTP API, its dashboard and the durable
//! records, all on the admin listeners.
//!
//! Metrics are read from copies that the workers publish and from totals that the store keeps anyway, so a
//! scrape never delays an announce. A change made through the API is committed to the [`records`] first and
//! applied to the tracker then.
#![forbid(unsafe_code)]

mod annotation;
mod announce_url;
mod api;
mod clients;
mod clock;
mod control;
#[cfg(feature = "dashboard")]
mod dashboard;
mod events;
mod json;
mod listener;
mod live;
mod log_levels;
mod log_tail;
mod metrics;
mod named;
mod outbound;
mod public_address;
mod recorder;
pub mod records;
mod restore;
mod site;
mod sources;
mod torrent_list;
mod torrent_names;
mod webhooks;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::watch;
use tokio::time::sleep;

pub use annotation::{Annotation, AnnotationKind};
pub use announce_url::AnnounceUrl;
#[doc(hidden)]
pub use api::ListReader;
pub use api::{Api, ApiDeps, ApiOptions, FirstTokenDisplay, StartError, is_token};
pub use clock::{ClockReading, UnixTime};
pub use control::{
    Command, ReloadOutcome, SecretStep, Setting, SettingKind, SettingSection, Settings,
};
pub use events::{Event, EventHub, EventKind};
pub use live::Live;
pub use log_levels::{AUDIT, LogLevels, area_of};
pub use log_tail::{LOG_TAIL, LogLine, LogTail};
pub use outbound::{PostRequest, SendPost};
pub use public_address::is_public_address;
pub use records::{OpenError, Records};
pub use restore::{ignored_nodes, restore};
pub use site::{FeedBatch, FeedError, SiteSource};
pub use sources::{
    AcmeAttempts, MetricSources, ProcessStats, ReloadFailure, Status, UpgradeStats, is_renewal_late,
};
pub use torrent_names::{TorrentLabel, TorrentNames};

use listener::{CONNECTION_LIMITS, ClientAddr, ConnectionLimits, Connections, LimitedListener};

/// The service of the admin listeners.
pub struct Service {
    /// For `/metrics` and `/health/…`.
    pub sources: Arc<MetricSources>,
    /// For `/api/v1/…` and the dashboard.
    pub api: Option<Arc<Api>>,
    /// Host names that requests may name, besides those of certificates and of loopback; `*` = any.
    pub hosts: Vec<String>,
    /// True if `/metrics` requires a token with the scope `stats:read`.
    pub metrics_token: bool,
    /// The TLS configuration of listeners that use TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Called first by each thread that does slow work: listing torrents, reading the records.
    pub lower_priority: fn(),
}

/// Threads for slow work, such as reads of the records that may wait for the disk.
const BLOCKING_THREADS_MAX: usize = 4;

/// Time after a stop in which requests still arrive at connections that were accepted before. hyper closes connections at
/// once that are idle when it drains.
const ARRIVAL_MAX: Duration = Duration::from_millis(100);
/// Longest time after a stop for requests in progress. Streams of events last as long.
const DRAIN_MAX: Duration = Duration::from_millis(500);

/// Serves `listeners` on this thread until `stop` becomes true, and the requests of open connections are answered.
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
    let connections = Connections::new(limits);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .on_thread_start(service.lower_priority);
    let runtime = runtime.build()?;
    let served = runtime.block_on(async {
        let mut servers = tokio::task::JoinSet::new();
        for listener in listeners {
            let listener = LimitedListener {
                listener: tokio::net::TcpListener::from_std(listener)?,
                connections: Arc::clone(&connections),
                idle_timeout: limits.idle_timeout,
                tls: service.tls.clone(),
                stop: stop.clone(),
            };
            let router = router(service).into_make_service_with_connect_info::<ClientAddr>();
            let last_requests = wait_for_last_requests(stop.clone(), Arc::clone(&connections));
            let server = axum::serve(listener, router).with_graceful_shutdown(last_requests);
            servers.spawn(server.into_future());
        }
        if let Some(api) = &service.api {
            tokio::spawn(api::run_background(Arc::clone(api)));
        }
        let late = async {
            wait_for_stop(stop).await;
            sleep(DRAIN_MAX).await;
        };
        let all_ended = async {
            while let Some(ended) = servers.join_next().await {
                ended.map_err(io::Error::other)??;
            }
            Ok(())
        };
        tokio::select! {
            ended = all_ended => ended,
            () = late => Ok(()),
        }
    });
    // Without waiting: a blocking read may be stuck on a disk that does not answer.
    runtime.shutdown_background();
    served
}

/// Waits until `stop` is true, or its sender gone.
async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits for the stop, and for requests that are on their way at an open connection.
async fn wait_for_last_requests(stop: watch::Receiver<bool>, connections: Arc<Connections>) {
    wait_for_stop(stop).await;
    if !connections.are_none() {
        sleep(ARRIVAL_MAX).await;
    }
}

fn router(service: &Service) -> axum::Router {
    let state = PageState { sources: Arc::clone(&service.sources), api: service.api.clone() };
    let metrics = match &service.api {
        Some(api) if service.metrics_token => api::guard_page(api, get(metrics_page)),
        _ => get(metrics_page),
    };
    let pages = axum::Router::new()
        .route("/metrics", metrics)
        .route("/health/live", get(|| async { "live\n" }))
        .route("/health/ready", get(ready_page))
        .with_state(state);
    let pages = match &service.api {
        Some(api) => {
            #[cfg(feature = "dashboard")]
            let pages = pages.merge(dashboard::router());
            pages.merge(api::router(api))
        }
        None => pages,
    };
    let sources = Arc::clone(&service.sources);
    let names = Arc::new(api::HostNames { allowed: service.hosts.clone(), sources });
    // Runs before all others.
    pages.layer(from_fn_with_state(names, api::check_host))
}

#[derive(Clone)]
struct PageState {
    sources: Arc<MetricSources>,
    api: Option<Arc<Api>>,
}

async fn metrics_page(State(state): State<PageState>) -> impl IntoResponse {
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    let page = metrics::render(&state.sources, state.api.as_deref());
    ([(header::CONTENT_TYPE, content_type)], page)
}

async fn ready_page(State(state): State<PageState>) -> (StatusCode, &'static str) {
    let are_ready = state.sources.subsystems.read_all().iter().all(|it| it.is_ready());
    if state.sources.status.ready.load(Ordering::Relaxed) && are_ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpStream};
    use std::thread;
    use std::time::Instant;

    use harness::PATIENCE;
    use harness::http::Connection;

    use super::*;

    /// Runs `test` against a listener that takes two connections.
    fn with_two_connections(idle_timeout: Duration, test: impl FnOnce(SocketAddr)) {
        with_limits(ConnectionLimits { connections: 2, per_host: 2, idle_timeout }, test);
    }

    fn with_limits(limits: ConnectionLimits, test: impl FnOnce(SocketAddr)) {
        with_stop(limits, |address, _| test(address));
    }

    /// Runs `test` against a listener, with what stops it.
    fn with_stop(limits: ConnectionLimits, test: impl FnOnce(SocketAddr, &watch::Sender<bool>)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let sources = Arc::new(metrics::tests::sources());
        let service = Service {
            sources,
            api: None,
            hosts: Vec::new(),
            metrics_token: false,
            tls: None,
            lower_priority: || {},
        };
        let server = thread::spawn(move || serve_within(limits, vec![listener], &service, stopped));
        test(address, &stop);
        stop.send_replace(true);
        server.join().unwrap().unwrap();
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Reads until the server closes the connection, cleanly or not.
    fn rest(mut stream: TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn closes_idle_connections_to_make_room() {
        with_two_connections(Duration::from_millis(300), |address| {
            let silent = [(); 6].map(|()| connect(address));
            let mut client = connect(address);
            client.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            // The answered connection stays open until it is idle, too.
            assert!(rest(client).ends_with("live\n"));
            assert!(silent.into_iter().all(|stream| rest(stream).is_empty()));
        });
    }

    #[test]
    fn a_connection_accepted_before_a_stop_gets_its_response() {
        with_stop(CONNECTION_LIMITS, |address, stop| {
            let mut first = connect(address);
            // Connections are accepted in their order.
            assert!(is_answered(&mut Connection::new(connect(address)), "/health/live"));
            stop.send_replace(true);
            // Meanwhile the server has seen the stop.
            thread::sleep(ARRIVAL_MAX / 5);
            first.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            assert!(rest(first).ends_with("live\n"));
        });
    }

    #[test]
    fn a_slowly_sent_request_head_does_not_extend_the_deadline() {
        with_two_connections(Duration::from_millis(300), |address| {
            let mut client = connect(address);
            let start = Instant::now();
            while client.write_all(b"G").is_ok() {
                assert!(start.elapsed() < PATIENCE, "the connection is never closed");
                // A client at a slow pace: without it, the head would soon be too long.
                thread::sleep(Duration::from_millis(10));
            }
        });
    }

    /// Connects from an address of this machine.
    pub(crate) fn connect_from(from: IpAddr, address: SocketAddr) -> TcpStream {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = match from {
                IpAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
                IpAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
            };
            let socket = socket.unwrap();
            socket.bind((from, 0).into()).unwrap();
            socket.connect(address).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Opens an HTTP connection from 127.0.`network`.`host`.
    fn open_from([network, host]: [u8; 2], address: SocketAddr) -> Connection {
        Connection::new(connect_from([127, 0, network, host].into(), address))
    }

    fn is_answered(connection: &mut Connection, target: &str) -> bool {
        let response = connection.ask(&format!("GET {target}"), "Host: localhost\r\n", b"");
        response.is_ok_and(|response| response.status == 200)
    }

    #[test]
    fn idle_and_slow_connections_of_one_address_lock_no_one_out() {
        let limits = ConnectionLimits { connections: 16, per_host: 8, idle_timeout: PATIENCE };
        with_limits(limits, |address| {
            let mut scraper = open_from([0, 2], address);
            assert!(is_answered(&mut scraper, "/metrics"));
            // Half of them are silent, and half send an unfinished head.
            let mut held = Vec::new();
            for number in 0..200 {
                let mut stream = connect(address);
                if number % 2 == 0 {
                    stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: ").unwrap();
                }
                held.push(stream);
            }
            // Neither another address waits, nor does a connection that it keeps, nor the same address.
            assert!(is_answered(&mut open_from([0, 3], address), "/health/live"));
            assert!(is_answered(&mut scraper, "/metrics"));
            let mut probe = Connection::open(address).unwrap();
            assert!(is_answered(&mut probe, "/health/live"));
            // All but the last are closed, though none was idle for long.
            held.drain(..190).for_each(|stream| drop(rest(stream)));
        });
    }
}
