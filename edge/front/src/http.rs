//! HTTP, and the way to WebTorrent: one worker is one thread with its own runtime, listeners and
//! connections.
//!
//! ```text
//! accept ─▶ read at once ─▶ Desk (bytes -> wire::http -> tracker -> bytes) ─▶ write at once ─▶ close
//!                              ▲                                                │ kept alive, or incomplete
//!                              └─────────── a task per connection ◀─────────────┘
//!                                                     └─ an upgrade: to `web`
//! ```
//!
//! Most clients open a connection for a single announce. Where the kernel can wait for the request
//! before it wakes us (TCP_DEFER_ACCEPT), such a connection is served between accept and close
//! without the reactor ever hearing of it. Buffers are shared by the worker's connections: an idle
//! one keeps no bytes. Deadlines are kept by one scan a second, not by a timer each.

mod challenges;
mod connection;
mod desk;
mod greeting;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::tls::TlsConfig;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{Instant, interval, sleep};
use tracker::counters::{DropReason, WorkerMetrics};
use tracker::{ConnectionPermit, ListenerPolicyId, Networks, Random, Tracker};

use crate::client::Caller;
use crate::stream::{Socket, reason};
use crate::web::{Place, Upgraded, Web, WebListener, WebOptions, WebParts};
use crate::{Clock, reject_log};
use connection::{Connection, Connections};
use desk::{Client, Desk, DeskListener, Next, Turn};

pub use challenges::Challenges;
pub use wire::http::ForwardedHeader;

/// How HTTP is served at a listener.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// What is decided for the listener.
    pub listener_policy: ListenerPolicyId,
    /// Connections that one worker holds at the listener; more are closed as they come. At all of
    /// its listeners together it holds no more than at the one that may have most.
    pub connections_max: usize,
    /// Seconds from a request's first byte to its last.
    pub head_timeout_s: u32,
    /// Seconds that a connection may be silent between requests.
    pub idle_timeout_s: u32,
    /// Seconds that a client may take to read an answer.
    pub write_timeout_s: u32,
    /// Who is believed about whom they speak for.
    pub trusted_proxies: Networks,
    /// Whether their connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// The header in which they say so in requests.
    pub forwarded_header: ForwardedHeader,
    /// Whether `compact=0` is honoured with the dict model (BEP 3); the store must keep peer ids.
    pub non_compact: bool,
    /// Seconds that answers may take to leave once the worker shall stop; of several listeners' the
    /// longest time counts for all.
    pub shutdown_timeout_s: u32,
    /// How WebTorrent is served, if it is.
    pub web: Option<WebOptions>,
    /// Answers to an ACME authority; shared by all clones.
    pub challenges: Arc<Challenges>,
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
            challenges: Arc::default(),
        }
    }
}

/// All that a worker needs.
pub struct HttpWorker {
    /// Where requests are decided.
    pub tracker: Arc<Tracker>,
    /// What it listens on.
    pub listeners: Vec<HttpListener>,
    /// The process's clock.
    pub clock: Clock,
    /// Seeds the choice of peers.
    pub seed: u64,
    /// The way to the other workers' WebTorrent clients.
    pub place: Place,
}

/// A listener of one worker.
pub struct HttpListener {
    /// Bound and listening.
    pub socket: TcpListener,
    /// How it speaks TLS, if it does.
    pub tls: Option<TlsConfig>,
    /// How to serve there.
    pub options: HttpOptions,
    /// The account of its HTTP requests.
    pub http: WorkerMetrics,
    /// The account of its WebSockets.
    pub web: WorkerMetrics,
}

/// How often deadlines are looked at and figures published.
const SCAN_PERIOD: Duration = Duration::from_millis(250);
/// Connections accepted before others get their turn.
const ACCEPT_BATCH: usize = 64;
/// How long a listener rests when the process has no descriptors left.
const EXHAUSTED_REST: Duration = Duration::from_millis(100);

/// Serves on this thread until `stop` becomes true, and then until answers under way have left, for
/// [`HttpOptions::shutdown_timeout_s`] at most. An error means that the runtime or a listener could not be set up.
pub fn serve(worker: HttpWorker, stop: watch::Receiver<bool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(worker, stop))
}

async fn run(worker: HttpWorker, mut stop: watch::Receiver<bool>) -> io::Result<()> {
    let (mut sockets, mut tls) = (Vec::new(), Vec::new());
    let (mut at_desk, mut at_web, mut options) = (Vec::new(), Vec::new(), Vec::new());
    for listener in worker.listeners {
        sockets.push(listener.socket);
        tls.push(listener.tls);
        at_web.push(WebListener {
            metrics: listener.web,
            listener_policy: listener.options.listener_policy,
            options: listener.options.web.clone().unwrap_or_default(),
        });
        let own = Rc::new(listener.options);
        at_desk.push(DeskListener { metrics: listener.http, options: Rc::clone(&own) });
        options.push(own);
    }
    let mut random = Random::new(worker.seed);
    let web = Rc::new(Web::new(WebParts {
        tracker: Arc::clone(&worker.tracker),
        clock: worker.clock,
        random: Random::new(random.next()),
        listeners: at_web,
        place: worker.place,
    }));
    tokio::task::spawn_local(Rc::clone(&web).flush_all());
    tokio::task::spawn_local(Rc::clone(&web).receive_all());
    let shared = Rc::new(Shared {
        desk: RefCell::new(Desk::new(worker.tracker, worker.clock, random, at_desk)),
        web,
        tls,
        connections: Connections::default(),
        connections_max: options.iter().map(|options| options.connections_max).max().unwrap_or(0),
        options,
        stopping: Cell::new(false),
    });
    let mut acceptors = Vec::new();
    for (listener, socket) in sockets.into_iter().enumerate() {
        #[expect(
            deprecated,
            reason = "only the unsafe `register` is not; std's listener keeps its descriptor open"
        )]
        let socket = AsyncFd::new(socket)?;
        let accepting = accept_all(Rc::clone(&shared), listener, socket);
        acceptors.push(tokio::task::spawn_local(accepting));
    }
    let mut tick = interval(SCAN_PERIOD);
    // A dropped sender stops the worker as well: nobody could stop it later.
    while !*stop.borrow_and_update() {
        tokio::select! {
            _ = tick.tick() => shared.scan(),
            changed = stop.changed() => if changed.is_err() { break },
        }
    }
    acceptors.iter().for_each(tokio::task::JoinHandle::abort);
    shared.stopping.set(true);
    shared.web.close_all();
    let shutdown_timeout_s =
        shared.options.iter().map(|options| options.shutdown_timeout_s).max().unwrap_or(0);
    let deadline = Instant::now() + Duration::from_secs(shutdown_timeout_s.into());
    while shared.held() > 0 && Instant::now() < deadline {
        shared.connections.close_idle();
        shared.scan();
        sleep(Duration::from_millis(10)).await;
    }
    shared.scan();
    Ok(())
}

/// What a worker's connections have in common.
struct Shared {
    desk: RefCell<Desk>,
    web: Rc<Web>,
    /// How each listener speaks TLS, if it does.
    tls: Vec<Option<TlsConfig>>,
    connections: Connections,
    /// The most that are held at all listeners together.
    connections_max: usize,
    /// How each listener serves.
    options: Vec<Rc<HttpOptions>>,
    /// Whether each answer is its connection's last.
    stopping: Cell<bool>,
}

impl Shared {
    /// Ends what is overdue, and publishes the figures.
    fn scan(&self) {
        let mut desk = self.desk.borrow_mut();
        let now = desk.clock.now();
        self.connections.close_overdue(now, |listener| {
            desk.metrics(listener).counters.drop(DropReason::TimedOut);
        });
        desk.publish();
        self.web.scan();
    }

    /// Connections held, of both kinds.
    fn held(&self) -> usize {
        self.connections.len() + self.web.len()
    }

    /// Whether there is no room for one more connection at a listener.
    fn is_full(&self, listener: usize) -> bool {
        let own = || self.desk.borrow().held(listener) + self.web.held(listener);
        self.held() >= self.connections_max
            || own() >= self.options[listener].connections_max as u64
    }

    fn tls(&self, listener: usize) -> Option<&TlsConfig> {
        self.tls.get(listener).and_then(Option::as_ref)
    }

    fn count_drop(&self, listener: usize, reason: DropReason) {
        self.desk.borrow_mut().metrics(listener).counters.drop(reason);
    }
}

/// Accepts from one listener for ever.
async fn accept_all(shared: Rc<Shared>, listener: usize, socket: AsyncFd<TcpListener>) {
    loop {
        let Ok(mut ready) = socket.readable().await else { return };
        let mut rest = None;
        for _ in 0..ACCEPT_BATCH {
            match net::accept(socket.get_ref()) {
                Ok((stream, from)) => welcome(&shared, listener, stream, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                    break;
                }
                Err(error) if net::is_out_of_descriptors(&error) => {
                    rest = Some(EXHAUSTED_REST);
                    shared.count_drop(listener, DropReason::ConnectionLimit);
                    break;
                }
                // The client is gone already, or the kernel refuses this one: the next may do.
                Err(_) => shared.count_drop(listener, DropReason::Reset),
            }
        }
        drop(ready);
        match rest {
            Some(rest) => sleep(rest).await,
            None => yield_now().await,
        }
    }
}

/// Serves what a new connection has sent already, and keeps it only if there may be more.
fn welcome(shared: &Rc<Shared>, listener: usize, stream: std::net::TcpStream, from: SocketAddr) {
    if shared.is_full(listener) {
        shared.count_drop(listener, DropReason::ConnectionLimit);
        return;
    }
    let local = || stream.local_addr().ok().map(|address| address.ip());
    let options = &shared.options[listener];
    let announced = options.proxy_protocol.then_some(&options.trusted_proxies);
    let caller = Caller::new(from.ip(), local, announced);
    let mut client = Client { listener, caller, may_stay: !shared.stopping.get() };
    let greeted = greeting::take(&mut client.caller, &stream);
    let permit = shared.desk.borrow().permit(listener, client.caller.ip());
    let permit = match permit {
        Ok(permit) => permit,
        Err(reason) => return shared.count_drop(listener, reason),
    };
    shared.desk.borrow_mut().metrics(listener).counters.connections_opened += 1;
    let first = greeted.and_then(|()| {
        // A handshake takes several turns anyway, and a header that has not come must be waited for.
        if client.caller.is_announced() || shared.tls(listener).is_some() {
            return Ok(Turn::first());
        }
        shared.desk.borrow_mut().turn(client, Turn::first(), &stream)
    });
    let goes_on = first.and_then(|turn| go_on(shared, stream, client, permit, turn));
    if let Err(error) = &goes_on {
        reject_log::broken("http", client.caller.ip(), error);
        shared.count_drop(listener, reason(error));
    }
    if !goes_on.unwrap_or(false) {
        shared.desk.borrow_mut().metrics(listener).counters.connections_closed += 1;
    }
}

/// What becomes of a connection after its first turn. Gives whether it goes on as HTTP.
fn go_on(
    shared: &Rc<Shared>,
    stream: std::net::TcpStream,
    client: Client,
    permit: ConnectionPermit,
    turn: Turn,
) -> io::Result<bool> {
    if turn.is_over() {
        return Ok(false);
    }
    let listener = client.listener;
    let stream = Socket::new(TcpStream::from_std(stream)?, shared.tls(listener))?;
    if matches!(turn.next, Next::Upgrade(_)) {
        drop(permit);
        upgrade(shared, listener, stream, turn);
        return Ok(false);
    }
    Connection::start(shared, stream, client, permit, turn);
    Ok(true)
}

/// Hands a connection over to WebTorrent: for HTTP it has ended, and given up its seat. The one that
/// it takes is the client's, whoever brought the connection here.
fn upgrade(shared: &Shared, listener: usize, stream: Socket, turn: Turn) {
    let Turn { next: Next::Upgrade(newcomer), unsent, rest, .. } = turn else { return };
    let permit = shared.desk.borrow().permit(listener, newcomer.ip);
    match permit {
        Ok(permit) => {
            shared.web.start(Upgraded { stream, listener, newcomer, permit, unsent, rest })
        }
        Err(reason) => shared.count_drop(listener, reason),
    }
}
