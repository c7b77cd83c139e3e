//! WebTorrent: clients exchange offers and answers over the WebSockets that they keep open here.
//!
//! ```text
//! HTTP request for an upgrade ─▶ WsConnection (a task) ─▶ Session (frames -> messages -> tracker)
//!                                                            │ replies, offers, answers
//!          socket ◀─ flush, once a turn ◀─ Connections ◀─ WsContext
//!                                                            │ to another worker's connections
//!                                                            ▼
//!                                                       WorkerMailboxes
//! ```
//!
//! The connections live on the threads and runtimes of the HTTP workers. An idle one holds no buffers.
//! What a turn of the reactor brings for a connection, from any number of others, leaves in one write.
//!
//! A WebTorrent peer is a connection and a peer id: the same id on a second connection is another
//! peer, so that a client cannot take over, or end, the peer of another. An answer goes to the
//! connection that made the offer, and only if the offer was given to the connection that answers.

mod connection;
mod context;
mod mailboxes;
mod session;
use std::net::IpAddr;
use std::rc::Rc;

use tracker::counters::DropReason;
use tracker::{ConnectionPermit, Random};
use types::{ConnectionKey, UserKey, limits};
use wire::http::RequestHead;
use wire::url::{Target, query_key};

use crate::buffer::{InputBuffer, WriteOutcome};
use crate::clock::Sampling;
use crate::connections::writable;
use crate::listener::Listener;
use crate::worker::Worker;
use context::WsContext;
use mailboxes::MessageBatch;

pub(crate) use connection::start;
pub use mailboxes::WorkerLink;

/// The settings of WebTorrent at a listener.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Paths that accept WebSockets. Empty = every path that HTTP does not serve.
    pub paths: Vec<String>,
    /// Origins whose pages may connect, such as `https://example.org`. Empty = all. An empty string
    /// stands for clients that send no origin, because they are not browsers.
    pub origins_allow: Vec<String>,
    /// Origins whose pages may not connect.
    pub origins_deny: Vec<String>,
    /// The maximum length of a message, in bytes.
    pub message_max: usize,
    /// Messages and control frames processed per second and connection; further ones wait.
    /// 0 = unlimited.
    pub messages_per_s: u32,
    /// The most torrents that one connection may announce.
    pub torrents_max: usize,
    /// The most bytes that may wait for a client that does not read.
    pub unread_max: usize,
    /// Seconds in which a client must read something.
    pub write_timeout_s: u32,
    /// Seconds of silence after which a client is pinged.
    pub ping_s: u32,
    /// Seconds of silence after which a connection is ended.
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
    /// Whether the request's path accepts WebSockets at a listener that is private or not. `/announce`
    /// with a key does: no announce over HTTP asks for an upgrade.
    pub(crate) fn serves(&self, request: &RequestHead<'_>, is_private: bool) -> bool {
        if self.paths.is_empty() {
            let is_free = request.target == Target::Unknown || request.key.is_some();
            (is_free || is_private) && !request.path.starts_with(b"/health")
        } else {
            let is_own = |path: &String| behind(path, request.path).is_some_and(<[u8]>::is_empty);
            self.paths.iter().any(is_own) || (is_private && self.key_in_path(request).is_some())
        }
    }

    /// Whether the request's path is meant for WebSockets, and does not only accept them because HTTP
    /// has no use for it.
    pub(crate) fn names(&self, request: &RequestHead<'_>, is_private: bool) -> bool {
        self.serves(request, is_private) && (request.path == b"/" || !self.paths.is_empty())
    }

    /// The passkey of a request for a WebSocket: `/KEY`, or `PATH/KEY` with a path for WebSockets;
    /// `/announce/KEY` and `/KEY/announce`; at a private listener in the query, too.
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

    /// Whether a page of this origin may connect; `None` is a client that is not a browser.
    pub(crate) fn admits(&self, origin: Option<&[u8]>) -> bool {
        let origin = origin.unwrap_or_default();
        let lists = |list: &[String]| {
            list.iter().any(|entry| entry.as_bytes().eq_ignore_ascii_case(origin))
        };
        let is_allowed = self.origins_allow.is_empty() || lists(&self.origins_allow);
        is_allowed && !lists(&self.origins_deny)
    }
}

/// The part of `path` behind `base`, without the slash between them.
fn behind<'a>(base: &str, path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base.as_bytes())?;
    match rest {
        [] => Some(rest),
        [b'/', rest @ ..] if !rest.is_empty() => Some(rest),
        _ if base.ends_with('/') => Some(rest),
        _ => None,
    }
}

/// The client of a WebSocket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WsClient {
    /// The client's address: behind a trusted proxy, the one that the proxy names.
    pub(crate) ip: IpAddr,
    /// The passkey of the request for the WebSocket, if it had one. Each message is authorized by it.
    pub(crate) user: Option<Box<UserKey>>,
}

/// A connection that becomes a WebSocket.
pub(crate) struct UpgradedConnection {
    pub(crate) listener: Rc<Listener>,
    pub(crate) key: ConnectionKey,
    pub(crate) client: WsClient,
    /// Held for as long as the connection.
    pub(crate) permit: ConnectionPermit,
    /// What the client has sent behind its request.
    pub(crate) input: InputBuffer,
}

/// What a worker's WebSockets share besides the table of connections.
pub(crate) struct Relay {
    random: Random,
    sampling: Sampling,
    link: WorkerLink,
    /// Messages that wait for the next flush, by the worker that they are for.
    outgoing: Vec<MessageBatch>,
}

impl Relay {
    pub(crate) fn new(random: Random, link: WorkerLink) -> Self {
        let outgoing = (0..link.mailboxes.workers()).map(|_| MessageBatch::default()).collect();
        Self { random, sampling: Sampling::default(), link, outgoing }
    }

    /// The number of this worker.
    pub(crate) fn worker_number(&self) -> usize {
        self.link.worker
    }

    /// Whether messages wait for another worker.
    pub(crate) fn has_messages(&self) -> bool {
        self.outgoing.iter().any(|batch| !batch.is_empty())
    }
}

/// Starts the tasks that flush output and receive messages of other workers.
pub(crate) fn spawn_tasks(worker: &Rc<Worker>) {
    worker.tasks.spawn(flush_all(Rc::clone(worker)));
    worker.tasks.spawn(receive_all(Rc::clone(worker)));
}

/// Flushes whenever there is output.
async fn flush_all(worker: Rc<Worker>) {
    loop {
        worker.flush.notified().await;
        let blocked = worker.connections.borrow_mut().flush(worker.now());
        for key in blocked {
            let writer = worker.tasks.spawn(write_blocked(Rc::clone(&worker), key));
            worker.connections.borrow_mut().set_writer(key, Some(writer));
        }
        post_messages(&worker);
    }
}

/// Moves messages for other workers to their mailboxes.
fn post_messages(worker: &Worker) {
    let mut relay = worker.relay.borrow_mut();
    let Relay { link, outgoing, .. } = &mut *relay;
    for (number, batch) in outgoing.iter_mut().enumerate() {
        if !batch.is_empty() {
            link.mailboxes.post(number, batch, |listener| count_undelivered(worker, listener));
        }
    }
}

/// Counts a message that did not fit into another worker's mailbox.
#[cold]
fn count_undelivered(worker: &Worker, listener: usize) {
    let listener = worker.listeners.get(listener);
    debug_assert!(listener.is_some(), "a message from a listener that does not exist");
    if let Some(listener) = listener {
        listener.ws().drop(DropReason::MailboxFull);
    }
}

/// Receives the messages of other workers.
async fn receive_all(worker: Rc<Worker>) {
    let WorkerLink { worker: number, mailboxes } = worker.relay.borrow().link.clone();
    let mut batch = MessageBatch::default();
    loop {
        mailboxes.arrived(number).await;
        batch = mailboxes.collect(number, batch);
        WsContext::with(&worker, |context| context.receive(&batch));
    }
}

/// Writes whenever the socket takes more, until all output has left.
async fn write_blocked(worker: Rc<Worker>, key: ConnectionKey) {
    while writable(&worker.connections, key).await.is_ok() {
        let written = worker.connections.borrow_mut().write(worker.now(), key);
        if !matches!(written, Ok(WriteOutcome::Blocked)) {
            break;
        }
    }
    worker.connections.borrow_mut().set_writer(key, None);
}
