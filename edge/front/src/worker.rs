//! What the connections of one TCP worker share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Notify;
use tracker::Tracker;
use types::{ConnectionKey, Tick};

use crate::Clock;
use crate::connection_error::ConnectionError;
use crate::connections::{Connections, readable};
use crate::http::http_service::HttpService;
use crate::listener::Listener;
use crate::stream::{ReadOutcome, Stream};
use crate::tasks::Tasks;
use crate::webtorrent::relay::Relay;

/// The most that one read takes.
const READ_MAX: usize = 64 * 1024;

/// One worker: a thread with its listeners and connections.
pub(crate) struct Worker {
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) clock: Clock,
    pub(crate) tasks: Rc<Tasks>,
    pub(crate) listeners: Vec<Rc<Listener>>,
    pub(crate) connections: RefCell<Connections>,
    pub(crate) service: RefCell<HttpService>,
    /// What WebSockets share besides the connections.
    pub(crate) relay: RefCell<Relay>,
    /// Notified when a WebSocket has output, or another worker's has.
    pub(crate) flush: Notify,
    /// Where input is read to. Empty between two reads: an idle connection has no buffer.
    pub(crate) read_buffer: RefCell<Box<[u8]>>,
    /// The most connections at all listeners together.
    pub(crate) connections_max: usize,
    /// Whether the worker stops: each response is then its connection's last.
    pub(crate) stopping: Cell<bool>,
}

pub(crate) fn new_read_buffer() -> RefCell<Box<[u8]>> {
    RefCell::new(vec![0; READ_MAX].into())
}

impl Worker {
    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Whether there is no room for one more connection at a listener.
    pub(crate) fn is_full(&self, listener: &Listener) -> bool {
        self.connections.borrow().len() >= self.connections_max || listener.is_full()
    }

    /// Acts on deadlines, and publishes the counters.
    pub(crate) fn scan(&self) {
        self.connections.borrow_mut().scan(self.now());
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
    pub(crate) async fn discard_input(&self, key: ConnectionKey) -> Result<(), ConnectionError> {
        loop {
            readable(&self.connections, key).await?;
            let connections = self.connections.borrow();
            // The shared buffer: a buffer of its own would enlarge every connection's task.
            let read = connections.socket(key)?.read_now(&mut self.read_buffer.borrow_mut())?;
            if read == ReadOutcome::End {
                return Ok(());
            }
        }
    }

    /// Peeks at input that has not been read yet, and waits for it if there is none.
    pub(crate) async fn peek(
        &self,
        key: ConnectionKey,
        buffer: &mut [u8],
    ) -> Result<usize, ConnectionError> {
        let peek = poll_fn(|context| match self.connections.borrow().socket(key) {
            Ok(socket) => socket.poll_peek(context, buffer),
            Err(error) => Poll::Ready(Err(error)),
        });
        Ok(peek.await?)
    }
}
