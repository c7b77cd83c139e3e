//! A TCP listener with a limit on connections, each with an idle timeout.
//!
//! Connections above the limit wait in the kernel's accept queue until one closes. Every connection is
//! closed that gets no response within the timeout: sending a request head byte by byte does not extend it,
//! nor does leaving a response unread.

mod socket;

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Limits of all admin listeners together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    /// Longest time from the accept, or from the last bytes sent, to the next bytes sent.
    pub(crate) idle_timeout: Duration,
}

/// Enough for several scrapers and health checks; the timeout is longer than their usual intervals.
pub(crate) const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { connections: 64, idle_timeout: Duration::from_secs(75) };

/// Accepts connections while there are permits.
pub(crate) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
    tls: Option<Arc<ServerConfig>>,
}

/// The address of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddr(pub(crate) SocketAddr);

impl Connected<IncomingStream<'_, LimitedListener>> for ClientAddr {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A connection with an idle timeout.
pub(crate) struct TimedStream {
    stream: Socket,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl LimitedListener {
    /// Listeners with the same `permits` share the limit.
    pub(crate) fn new(
        listener: TcpListener,
        permits: Arc<Semaphore>,
        idle_timeout: Duration,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        Self { listener, permits, idle_timeout, tls }
    }
}

impl axum::serve::Listener for LimitedListener {
    type Io = TimedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TimedStream, SocketAddr) {
        // Fails only if the semaphore is closed, which never happens.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        let deadline = Box::pin(sleep(self.idle_timeout));
        let stream = Socket::new(stream, self.tls.as_ref());
        (TimedStream { stream, idle_timeout: self.idle_timeout, deadline, _permit: permit }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl TimedStream {
    /// Returns `Pending` until the deadline, then `TimedOut`.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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
