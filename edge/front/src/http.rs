//! HTTP, and the requests that become WebSockets. A worker is a thread with its own runtime, listeners
//! and connections.
//!
//! ```text
//! accept ─▶ read at once ─▶ HttpService ─▶ write at once ─▶ close
//!                             ▲   (bytes -> wire::http -> tracker -> bytes)
//!                             │                 │ kept alive, or incomplete
//!                             └── a task for each connection ◀──┘
//!                                        └─ an upgrade: to `webtorrent`
//! ```
//!
//! Requests that are neither announces nor scrapes of named torrents are answered through the trait [`Pages`],
//! by a thread of its own if that takes long.
//!
//! Most clients open a connection for a single announce. Where the kernel can hold a connection back
//! until its request is here (TCP_DEFER_ACCEPT), such a connection is served between accept and close,
//! and is never registered with the reactor. Connections share the worker's buffers; an idle one holds
//! no bytes.

mod accept;
mod connection;
pub(crate) mod handshakes;
pub(crate) mod http_service;
mod long_body;
mod other;
mod proxy_header;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::tls::TlsConfig;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};
use tokio::task::LocalSet;
use tokio::time::{Instant, interval, sleep};
use tracker::counters::WorkerMetrics;
use tracker::{ListenerPolicyId, Networks, Random, Tracker};
use wire::ws::CloseCode;

use crate::Clock;
use crate::connections::Connections;
use crate::listener::Listener;
use crate::tasks::Tasks;
use crate::webtorrent::context::Relay;
use crate::webtorrent::{self, WebOptions, WorkerLink};
use crate::worker::Worker;
use handshakes::HandshakeTurns;
use http_service::HttpService;

pub use crate::connections::MemoryLimits;
pub use long_body::{LongBody, MakeBody};
pub use other::{PageAnswer, Pages};
pub use wire::http::{ForwardedHeader, host_of};

/// A worker before it is started by [`serve`].
pub struct HttpWorker {
    /// The tracker that serves the requests.
    pub tracker: Arc<Tracker>,
    /// The sockets that it listens on.
    pub listeners: Vec<HttpListener>,
    /// The process's clock.
    pub clock: Clock,
    /// Seeds the random choice of peers.
    pub seed: u64,
    /// The link to the other workers' WebTorrent clients.
    pub link: WorkerLink,
    /// The most memory that the buffers of its connections may take.
    pub memory_limits: MemoryLimits,
    /// Called first by each thread that makes long responses, so that no announce waits for it.
    pub lower_priority: fn(),
}

/// A listener of one worker.
pub struct HttpListener {
    /// The socket, bound and listening.
    pub socket: TcpListener,
    /// The TLS configuration; `None` = no TLS.
    pub tls: Option<TlsConfig>,
    /// The listener's settings.
    pub options: HttpOptions,
    /// Answers what is neither an announce nor a scrape of named torrents; `None` = not found.
    pub pages: Option<Arc<dyn Pages>>,
    /// The metrics of its HTTP requests.
    pub http: WorkerMetrics,
    /// The metrics of its WebSockets.
    pub web: WorkerMetrics,
}

/// The settings of a listener for HTTP.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The policy of the listener.
    pub listener_policy: ListenerPolicyId,
    /// The most connections that one worker holds at the listener. Further ones are closed at once.
    /// The largest value of a worker's listeners also limits their sum.
    pub connections_max: usize,
    /// Seconds from a request's first byte to its last.
    pub head_timeout_s: u32,
    /// Seconds that a connection may be idle between requests.
    pub idle_timeout_s: u32,
    /// Seconds that a client may take to read a response.
    pub write_timeout_s: u32,
    /// Proxies whose PROXY and forwarded headers name the client.
    pub trusted_proxies: Networks,
    /// True if connections of trusted proxies begin with a PROXY header.
    pub proxy_protocol: bool,
    /// The request header in which trusted proxies name the client.
    pub forwarded_header: ForwardedHeader,
    /// True if `compact=0` is answered with a list of dictionaries (BEP 3). The store must keep peer
    /// ids.
    pub non_compact: bool,
    /// Seconds that connections may take to end after the worker gets the signal to stop. The largest value
    /// of a worker's listeners counts.
    pub shutdown_timeout_s: u32,
    /// The settings of WebTorrent; `None` = not served.
    pub web: Option<WebOptions>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            listener_policy: ListenerPolicyId::default(),
            connections_max: 50_000,
            head_timeout_s: 10,
            idle_timeout_s: 60,
            write_timeout_s: 20,
            trusted_proxies: Networks::default(),
            proxy_protocol: false,
            forwarded_header: ForwardedHeader::default(),
            non_compact: false,
            shutdown_timeout_s: 5,
            web: Some(WebOptions::default()),
        }
    }
}

/// A worker's order to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The time for which connections between two requests stay open: a client that sends its next
    /// request just then would lose it if they were closed. They end shortly before
    /// [`HttpOptions::shutdown_timeout_s`] in any case.
    pub idle_grace: Duration,
}

/// The most that one read takes.
const READ_MAX: usize = 64 * 1024;
/// The time between two scans, which check deadlines and publish counters.
const SCAN_PERIOD: Duration = Duration::from_millis(250);
/// The time between two checks of a stopping worker for connections that have not ended.
const STOP_PERIOD: Duration = Duration::from_millis(10);
/// The time before the shutdown timeout in which idle connections are closed.
const IDLE_CLOSE_TIME: Duration = Duration::from_millis(200);

/// Serves on this thread until `stop` has an order, or its sender is dropped. Then it waits until
/// connections have ended, for [`HttpOptions::shutdown_timeout_s`] at most. Each response is then the
/// last of its connection, and says so.
///
/// # Errors
///
/// Returns an error if the runtime or a listener cannot be set up.
///
/// # Panics
///
/// Panics if a task of the worker has panicked: the others might wait for it for ever.
pub fn serve(worker: HttpWorker, stop: watch::Receiver<Option<StopOrder>>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Blocking threads, which make lists of torrents.
        .thread_name("http-list")
        .on_thread_start(worker.lower_priority)
        .build()?;
    // In a task, so that the runtime polls it only when it has something to do, and not every turn.
    let run = async move { tokio::task::spawn_local(run(worker, stop)).await };
    long_body::joined(LocalSet::new().block_on(&runtime, run))
}

async fn run(start: HttpWorker, mut stop: watch::Receiver<Option<StopOrder>>) -> io::Result<()> {
    let (worker, sockets) = set_up(start)?;
    let tasks = Rc::clone(&worker.tasks);
    tasks.spawn(webtorrent::flush_all(Rc::clone(&worker)));
    tasks.spawn(webtorrent::receive_all(Rc::clone(&worker)));
    let shared = Rc::clone(&worker);
    tasks.spawn(async move { shared.handshakes.serve().await });
    let mut acceptors = Vec::new();
    for (listener, socket) in worker.listeners.iter().zip(sockets) {
        #[expect(
            deprecated,
            reason = "only the unsafe `register` is not; std's listener keeps its descriptor open"
        )]
        let socket = AsyncFd::new(socket)?;
        let accepting = accept::accept_all(Rc::clone(&worker), Rc::clone(listener), socket);
        acceptors.push(tasks.spawn(accepting));
    }
    let mut tick = interval(SCAN_PERIOD);
    // A dropped sender stops the worker, too: nothing could stop it later.
    while stop.borrow_and_update().is_none() {
        tokio::select! {
            _ = tick.tick() => worker.scan(),
            changed = stop.changed() => if changed.is_err() { break },
            () = tasks.panicked() => break,
        }
    }
    acceptors.iter().for_each(tokio::task::AbortHandle::abort);
    if !tasks.has_panicked() {
        let order = *stop.borrow();
        let idle_grace = order.map_or(Duration::ZERO, |order| order.idle_grace);
        drain(&worker, idle_grace).await;
    }
    assert!(!tasks.has_panicked(), "a task of this worker panicked (see the message above)");
    worker.scan();
    Ok(())
}

/// Builds the state that the worker's connections share. Returns it, and the sockets in the order of
/// its listeners.
fn set_up(start: HttpWorker) -> io::Result<(Rc<Worker>, Vec<TcpListener>)> {
    let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
    let maxima = start.listeners.iter().map(|listener| listener.options.connections_max);
    let connections_max = maxima.max().unwrap_or(0);
    for (number, listener) in start.listeners.into_iter().enumerate() {
        let (listener, socket) = Listener::new(number, listener, connections_max)?;
        listeners.push(Rc::new(listener));
        sockets.push(socket);
    }
    let mut random = Random::new(start.seed);
    let relay = Relay::new(Random::new(random.next()), start.link);
    let generation = random.next();
    let connections = Connections::new(relay.link.clone(), generation, start.memory_limits);
    let service = HttpService::new(start.clock, random);
    let worker = Worker {
        tracker: start.tracker,
        clock: start.clock,
        tasks: Rc::new(Tasks::default()),
        listeners,
        connections: RefCell::new(connections),
        service: RefCell::new(service),
        relay: RefCell::new(relay),
        flush: Notify::new(),
        read_buffer: RefCell::new(vec![0; READ_MAX].into()),
        handshakes: HandshakeTurns::default(),
        connections_max,
        seats: Cell::new(connections_max),
        stopping: Cell::new(false),
    };
    Ok((Rc::new(worker), sockets))
}

/// Ends the connections of a worker: WebSockets get a close frame, requests under way get their
/// response. Requests that come within `idle_grace` are answered, too.
async fn drain(worker: &Worker, idle_grace: Duration) {
    worker.stopping.set(true);
    let now = worker.now();
    let text = "the tracker is stopping";
    worker.connections.borrow_mut().close_websockets(now, CloseCode::GOING_AWAY, text);
    worker.notify_flush();
    let timeouts = worker.listeners.iter().map(|listener| listener.options.shutdown_timeout_s);
    let timeout = Duration::from_secs(timeouts.max().unwrap_or(0).into());
    let idle_grace = idle_grace.min(timeout.saturating_sub(IDLE_CLOSE_TIME));
    let (deadline, idle_end) = (Instant::now() + timeout, Instant::now() + idle_grace);
    while worker.connections.borrow().len() > 0
        && Instant::now() < deadline
        && !worker.tasks.has_panicked()
    {
        if Instant::now() >= idle_end {
            worker.connections.borrow_mut().close_idle();
        }
        worker.scan();
        sleep(STOP_PERIOD).await;
    }
}
