//! State that the connections of one TCP worker share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::task::yield_now;
use tracker::{ConnectionPermit, Tracker};
use types::{ConnectionKey, Tick};

use crate::Clock;
use crate::connection_error::ConnectionResult;
use crate::connections::{Connections, Crowd};
use crate::http::handshakes::HandshakeTurns;
use crate::http::http_service::HttpService;
use crate::listener::Listener;
use crate::stream::{ReadOutcome, Socket, Stream};
use crate::tasks::Tasks;
use crate::webtorrent::context::Relay;

/// Connections closed when the process has no file descriptors left: one in this many, and 64 at most.
const EXHAUSTED_PART: usize = 8;
const EXHAUSTED_CLOSED_MAX: usize = 64;
/// Connections by which the worker tries to hold more at each scan, after that.
const RECOVERED_PER_SCAN: usize = 16;

/// One worker: a thread with its listeners and connections.
pub(crate) struct Worker {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) listeners: Vec<Rc<Listener>>,
    pub(crate) connections: RefCell<Connections>,
    pub(crate) service: RefCell<HttpService>,
    /// State that WebSockets share besides the connections.
    pub(crate) relay: RefCell<Relay>,
    /// Notified when a WebSocket has output, or another worker's has.
    pub(crate) flush: Notify,
    /// The buffer that input is read into. Empty between two reads: an idle connection has no buffer.
    pub(crate) read_buffer: RefCell<Box<[u8]>>,
    /// The TLS handshakes that have input.
    pub(crate) handshakes: HandshakeTurns,
    /// The most connections at all listeners together.
    pub(crate) connections_max: usize,
    /// The most of them while the process has no descriptors for more.
    pub(crate) seats: Cell<usize>,
    /// True if the worker stops: each response is then its connection's last.
    pub(crate) stopping: Cell<bool>,
}

impl Worker {
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Returns whether there is room for one more connection at a listener, `permit`'s. If there is none, a
    /// connection of the network that holds the most is closed, unless that is the newcomer's.
    pub(crate) fn find_room(&self, listener: &Listener, permit: &ConnectionPermit) -> bool {
        let mut connections = self.connections.borrow_mut();
        let crowd = if listener.is_full() {
            Crowd::Listener(listener)
        } else if connections.seated() >= self.seats.get() {
            Crowd::Worker
        } else {
            return true;
        };
        connections.make_room(self.now(), crowd, crowd.weight(permit).max(1))
    }

    /// Closes connections of the networks that hold the most, because the process has no descriptors left. For a
    /// while the worker then holds no more than are left: newcomers have to find room among these.
    pub(crate) fn free_descriptors(&self) {
        let (mut connections, now) = (self.connections.borrow_mut(), self.now());
        let part = connections.seated().div_ceil(EXHAUSTED_PART).min(EXHAUSTED_CLOSED_MAX);
        let closed = (0..part).filter(|_| connections.make_room(now, Crowd::Worker, 1)).count();
        if closed > 0 {
            self.seats.set(connections.seated());
        }
    }

    pub(crate) fn scan(&self) {
        self.connections.borrow_mut().scan(&self.tracker.view(self.now()));
        self.seats.set(self.connections_max.min(self.seats.get() + RECOVERED_PER_SCAN));
        self.notify_flush();
        self.listeners.iter().for_each(|listener| listener.publish());
    }

    /// Wakes the task that flushes, if there is something to flush.
    pub(crate) fn notify_flush(&self) {
        if self.connections.borrow().is_dirty() || self.relay.borrow().has_messages() {
            self.flush.notify_one();
        }
    }

    /// Reads and drops input until the client closes. A socket that is closed over unread input would
    /// be reset, and the kernel would drop output that the client has not read yet. The scan ends the
    /// connection if the client takes too long.
    pub(crate) async fn discard_input(&self, key: ConnectionKey) -> ConnectionResult<()> {
        loop {
            self.readable(key).await?;
            let connections = self.connections.borrow();
            // The shared buffer: a buffer of its own would enlarge every connection's task.
            let read = connections.socket(key).read_now(&mut self.read_buffer.borrow_mut())?;
            if read == ReadOutcome::End {
                return Ok(());
            }
        }
    }

    /// Waits until a connection has input, or its input has ended. If the socket has more than the last read
    /// took, other connections have their turn first.
    pub(crate) async fn readable(&self, key: ConnectionKey) -> io::Result<()> {
        let mut has_waited = false;
        let readable = self.ready(key, |socket, context| {
            let polled = socket.poll_readable(context);
            has_waited |= polled.is_pending();
            polled
        });
        let readable = readable.await;
        if !has_waited {
            yield_now().await;
        }
        readable
    }

    /// Waits until a connection's socket takes output.
    pub(crate) async fn writable(&self, key: ConnectionKey) -> io::Result<()> {
        self.ready(key, Socket::poll_writable).await
    }

    /// Peeks at input that has not been read yet, and waits for it if there is none.
    pub(crate) async fn peek(&self, key: ConnectionKey, buffer: &mut [u8]) -> io::Result<usize> {
        self.ready(key, |socket, context| socket.poll_peek(context, buffer)).await
    }

    fn ready<T>(
        &self,
        key: ConnectionKey,
        mut poll: impl FnMut(&Socket, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> impl Future<Output = io::Result<T>> {
        poll_fn(move |context| poll(self.connections.borrow().socket(key), context))
    }
}
