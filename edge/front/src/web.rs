//! WebTorrent: clients hand each other offers and answers over the WebSockets they keep open here.
//!
//! ```text
//! HTTP request for an upgrade ─▶ Connection (a task) ─▶ Session (frames -> messages -> tracker)
//!                                                          │ replies, offers, answers
//!                   socket ◀─ flush, once a turn ◀─ Hub (a mailbox for each connection)
//!                                                          │ for another worker's connections
//!                                                          ▼
//!                                                       Exchange
//! ```
//!
//! The connections live on the HTTP workers' threads and runtimes. An idle one holds no buffers. What
//! a turn of the reactor brings for a connection, from however many others, leaves in one write.
//!
//! A WebTorrent peer is a connection and a peer id: the same id on a second connection is another
//! peer, so that nobody can take over, or end, what is somebody else's. An answer goes to the
//! connection that made the offer, and only if the offer was given to the one that answers.

mod connection;
mod exchange;
mod hub;
mod session;

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tracker::counters::WorkerMetrics;
use tracker::{ConnectionPermit, ListenerPolicyId, Random, Tracker};
use types::{UserKey, limits};
use wire::http::RequestHead;
use wire::url::{Target, query_key};
use wire::ws::CloseCode;

use crate::Clock;
use crate::clock::Sampling;
use crate::stream::Socket;
use exchange::Packet;
use hub::{Hub, Written};

pub use exchange::Place;

/// How WebTorrent is served.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Paths on which WebSockets are made. None means any that is not HTTP's.
    pub paths: Vec<String>,
    /// The sites whose pages may connect, as in `https://example.org`; none means all. An empty one
    /// stands for clients that are no pages.
    pub origins_allow: Vec<String>,
    /// The sites whose pages may not.
    pub origins_deny: Vec<String>,
    /// Bytes that a message may have.
    pub message_max: usize,
    /// Messages and control frames looked at in a second, of one connection; 0 is no bound. What is
    /// more waits.
    pub messages_per_s: u32,
    /// Torrents that one connection may be in.
    pub torrents_max: usize,
    /// Bytes that may wait for a client that does not read.
    pub unread_max: usize,
    /// Seconds that a client may take to read anything.
    pub write_timeout_s: u32,
    /// Seconds of silence after which a client is pinged.
    pub ping_s: u32,
    /// Seconds of silence after which a client is gone.
    pub idle_timeout_s: u32,
}

impl Default for WebOptions {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            origins_allow: Vec::new(),
            origins_deny: Vec::new(),
            message_max: limits::WS_MESSAGE_MAX,
            messages_per_s: 1000,
            torrents_max: 10_000,
            unread_max: 256 * 1024,
            write_timeout_s: 20,
            ping_s: 45,
            idle_timeout_s: 110,
        }
    }
}

impl WebOptions {
    /// Whether the request's path is one for WebSockets, at a door that is private or not. `/announce`
    /// with a key is: no announce over HTTP asks for an upgrade.
    pub(crate) fn serves(&self, request: &RequestHead<'_>, is_private: bool) -> bool {
        if self.paths.is_empty() {
            let is_free = request.target == Target::Unknown || request.key.is_some();
            (is_free || is_private) && !request.path.starts_with(b"/health")
        } else {
            let is_own = |path: &String| behind(path, request.path).is_some_and(<[u8]>::is_empty);
            self.paths.iter().any(is_own) || (is_private && self.key_in_path(request).is_some())
        }
    }

    /// Whether the request's path is there for WebSockets, and not only taken for want of another
    /// meaning.
    pub(crate) fn names(&self, request: &RequestHead<'_>, is_private: bool) -> bool {
        self.serves(request, is_private) && (request.path == b"/" || !self.paths.is_empty())
    }

    /// The key that a request for a WebSocket has: `/KEY`, or behind another path for WebSockets;
    /// `/announce/KEY` and `/KEY/announce`; at a private door in the query, too.
    pub(crate) fn user_key<'a>(
        &self,
        request: &RequestHead<'a>,
        is_private: bool,
    ) -> Option<&'a [u8]> {
        if !is_private {
            return request.key;
        }
        self.key_in_path(request).or(request.key).or_else(|| query_key(request.query))
    }

    fn key_in_path<'a>(&self, request: &RequestHead<'a>) -> Option<&'a [u8]> {
        let any = [String::from("/")];
        let paths = if self.paths.is_empty() { &any } else { self.paths.as_slice() };
        let mut rests = paths.iter().filter_map(|path| behind(path, request.path));
        rests.find(|rest| UserKey::parse(rest).is_ok())
    }

    /// Whether a page of this site may connect, or what is no page.
    pub(crate) fn admits(&self, origin: Option<&[u8]>) -> bool {
        let origin = origin.unwrap_or_default();
        let lists = |list: &[String]| {
            list.iter().any(|entry| entry.as_bytes().eq_ignore_ascii_case(origin))
        };
        let is_allowed = self.origins_allow.is_empty() || lists(&self.origins_allow);
        is_allowed && !lists(&self.origins_deny)
    }
}

/// What stands behind `base` in `path`, without the slash between them.
fn behind<'a>(base: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base.as_bytes())?;
    match rest {
        [] => Some(rest),
        [b'/', rest @ ..] if !rest.is_empty() => Some(rest),
        _ if base.ends_with('/') => Some(rest),
        _ => None,
    }
}

/// Who comes by a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Newcomer {
    /// The client's address, as the edge established it.
    pub(crate) ip: IpAddr,
    /// The key with which it came, if it needed one: shown again with all it asks for.
    pub(crate) user: Option<Box<UserKey>>,
}

/// A connection that becomes a WebSocket.
pub(crate) struct Upgraded {
    pub(crate) stream: Socket,
    pub(crate) listener: usize,
    pub(crate) newcomer: Newcomer,
    /// Taken as long as the connection lasts.
    pub(crate) permit: ConnectionPermit,
    /// What of the answer to its request the socket did not take yet.
    pub(crate) unsent: Vec<u8>,
    /// What it has sent behind its request.
    pub(crate) rest: Vec<u8>,
}

/// What a worker's WebTorrent is made of.
pub(crate) struct WebParts {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) listeners: Vec<WebListener>,
    pub(crate) place: Place,
}

/// What WebTorrent knows of one of the worker's listeners.
pub(crate) struct WebListener {
    /// Its account.
    pub(crate) metrics: WorkerMetrics,
    /// What is decided for it.
    pub(crate) listener_policy: ListenerPolicyId,
    /// How its connections are served.
    pub(crate) options: WebOptions,
}

/// One worker's WebTorrent.
pub(crate) struct Web {
    place: Place,
    worker: RefCell<Worker>,
    /// Rung when something is to be flushed.
    due: Notify,
}

/// What a worker's sessions share.
pub(crate) struct Worker {
    tracker: Arc<Tracker>,
    clock: Clock,
    random: Random,
    sampling: Sampling,
    read_buffer: Box<[u8]>,
    hub: Hub,
}

/// What one read takes at most: some messages with offers.
const READ_MAX: usize = 64 * 1024;

impl Web {
    /// No connections yet.
    pub(crate) fn new(parts: WebParts) -> Self {
        let WebParts { tracker, clock, random, listeners, place } = parts;
        let hub = Hub::new(&place, listeners);
        let read_buffer = vec![0; READ_MAX].into();
        let worker =
            Worker { tracker, clock, random, sampling: Sampling::default(), read_buffer, hub };
        Self { place, worker: RefCell::new(worker), due: Notify::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.worker.borrow().hub.len()
    }

    /// Connections held that have come by a listener.
    pub(crate) fn held(&self, listener: usize) -> u64 {
        self.worker.borrow().hub.held(listener)
    }

    /// Serves a connection from here on.
    pub(crate) fn start(self: &Rc<Self>, upgraded: Upgraded) {
        connection::start(self, upgraded);
    }

    /// Flushes whenever that is due, for ever.
    pub(crate) async fn flush_all(self: Rc<Self>) {
        loop {
            self.due.notified().await;
            let blocked = {
                let mut worker = self.worker.borrow_mut();
                let now = worker.clock.now();
                worker.hub.flush(now, &self.place.exchange)
            };
            for (key, stream) in blocked {
                tokio::task::spawn_local(Rc::clone(&self).unblock(key, stream));
            }
        }
    }

    /// Takes in what other workers send, for ever.
    pub(crate) async fn receive_all(self: Rc<Self>) {
        let Place { number, exchange } = &self.place;
        let mut packet = Packet::default();
        loop {
            exchange.arrived(*number).await;
            packet = exchange.collect(*number, packet);
            self.turn(|worker, now| worker.hub.receive(now, &packet));
        }
    }

    /// Writes on whenever the socket takes more, until all is out.
    async fn unblock(self: Rc<Self>, key: types::ConnectionKey, stream: Rc<Socket>) {
        while stream.writable_for_any().await.is_ok() {
            let mut worker = self.worker.borrow_mut();
            let now = worker.clock.now();
            if worker.hub.write(now, key) != Written::Blocked {
                return;
            }
        }
    }

    /// Deadlines and figures, a few times a second.
    pub(crate) fn scan(&self) {
        self.turn(|worker, now| worker.hub.scan(now));
    }

    /// Tells all clients that the tracker stops.
    pub(crate) fn close_all(&self) {
        self.turn(|worker, now| {
            worker.hub.close_all(now, CloseCode::GOING_AWAY, "the tracker is stopping");
        });
    }

    /// Does something, and sees to it that what comes of it is flushed.
    fn turn<T>(&self, work: impl FnOnce(&mut Worker, types::Tick) -> T) -> T {
        let mut worker = self.worker.borrow_mut();
        let now = worker.clock.now();
        let result = work(&mut worker, now);
        if worker.hub.is_due() {
            self.due.notify_one();
        }
        result
    }
}
