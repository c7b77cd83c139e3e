//! A listener that holds so many connections, each for so long without an answer.
//!
//! Connections above the bound wait with the kernel until one ends, and every one ends that has no
//! request answered in time: a head that dribbles in gains nothing by it, nor does an answer that is
//! not read.

mod socket;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustls::ServerConfig;
use socket::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// What the admin listeners take, together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) connections: usize,
    /// From the beginning, or the last output, to the next.
    pub(crate) idle_timeout: Duration,
}

/// Several who scrape metrics or look at health, and longer than they pause between.
pub(crate) const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { connections: 64, idle_timeout: Duration::from_secs(75) };

pub(crate) struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    idle_timeout: Duration,
    tls: Option<Arc<ServerConfig>>,
}

/// A connection of such a listener.
pub(crate) struct TimedStream {
    stream: Socket,
    idle_timeout: Duration,
    deadline: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl LimitedListener {
    /// Listeners with the same `permits` share its places.
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
        // Fails only for a closed semaphore, and nobody closes it.
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
    /// For what has to wait: an error, once it has waited too long.
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
