//! A TCP listener with a limit on connections, each with an idle timeout.
//!
//! A connection above the limit is accepted, and [another one is closed](connections). Every connection is
//! closed that gets no response within the timeout: sending a request head byte by byte does not extend it,
//! nor does leaving a response unread.

mod connections;
mod socket;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use rustls::ServerConfig;
use socket::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep};

use crate::wait_for_stop;

pub(crate) use connections::{ConnectionHandle, Connections, host};

/// Limits of all admin listeners together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    /// From one IPv4 address or IPv6 /64, loopback included.
    pub(crate) per_host: usize,
    /// Longest time from the accept, or from the last bytes sent, to the next bytes sent.
    pub(crate) idle_timeout: Duration,
}

/// Enough for several scrapers, health checks and all streams, which may come from one proxy; the timeout is
/// longer than the usual intervals of scrapes.
pub(crate) const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { connections: 128, per_host: 64, idle_timeout: Duration::from_secs(75) };

/// Accepts connections and limits how many are open. Listeners with the same `connections` share the limits.
pub(crate) struct LimitedListener {
    pub(crate) listener: TcpListener,
    pub(crate) connections: Arc<Connections>,
    pub(crate) idle_timeout: Duration,
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// When true, no more connections are accepted: in an upgrade, those that wait are the new process's.
    pub(crate) stop: watch::Receiver<bool>,
}

/// The address of a client, and its connection.
#[derive(Clone)]
pub(crate) struct ClientAddr(pub(crate) SocketAddr, pub(crate) ConnectionHandle);

impl Connected<IncomingStream<'_, LimitedListener>> for ClientAddr {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr(), stream.io().handle.clone())
    }
}

/// A connection with an idle timeout.
pub(crate) struct TimedStream {
    stream: Socket,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    handle: ConnectionHandle,
    /// Completes when the connection is closed to make room for another. `None` = it has.
    closed: Option<oneshot::Receiver<()>>,
}

impl axum::serve::Listener for LimitedListener {
    type Io = TimedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TimedStream, SocketAddr) {
        let (stream, from) = tokio::select! {
            biased;
            () = wait_for_stop(self.stop.clone()) => pending().await,
            accepted = axum::serve::Listener::accept(&mut self.listener) => accepted,
        };
        let (handle, closed) = self.connections.admit(from.ip());
        let deadline = Box::pin(sleep(self.idle_timeout));
        let stream = Socket::new(stream, self.tls.as_ref());
        let (idle_timeout, closed) = (self.idle_timeout, Some(closed));
        (TimedStream { stream, idle_timeout, deadline, handle, closed }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl TimedStream {
    /// Returns `Pending` until the deadline, then `TimedOut`; `ConnectionAborted` if the connection is closed
    /// before.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Some(closed) = &mut self.closed else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        if Pin::new(closed).poll(context).is_ready() {
            self.closed = None;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for TimedStream {
    fn drop(&mut self) {
        self.handle.remove();
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.wait(context),
            ready => ready,
        }
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.wait(context),
            ready => {
                let next = Instant::now() + self.idle_timeout;
                self.deadline.as_mut().reset(next);
                self.handle.sent();
                ready
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
