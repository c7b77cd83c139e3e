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
pub(crate) struct Bounds {
    pub(crate) connections: usize,
    /// From the beginning, or the last output, to the next.
    pub(crate) silence: Duration,
}

/// Several who scrape metrics or look at health, and longer than they pause between.
pub(crate) const BOUNDS: Bounds = Bounds { connections: 64, silence: Duration::from_secs(75) };

pub(crate) struct Bounded {
    listener: TcpListener,
    free: Arc<Semaphore>,
    silence: Duration,
    tls: Option<Arc<ServerConfig>>,
}

/// A connection of such a listener.
pub(crate) struct Guarded {
    stream: Socket,
    silence: Duration,
    deadline: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    /// Listeners with the same `free` share its places.
    pub(crate) fn new(
        listener: TcpListener,
        free: Arc<Semaphore>,
        silence: Duration,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        Self { listener, free, silence, tls }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Guarded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guarded, SocketAddr) {
        // Fails only for a closed semaphore, and nobody closes it.
        let place = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, from) = axum::serve::Listener::accept(&mut self.listener).await;
        let deadline = Box::pin(sleep(self.silence));
        let stream = Socket::new(stream, self.tls.as_ref());
        (Guarded { stream, silence: self.silence, deadline, _place: place }, from)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Guarded {
    /// For what has to wait: an error, once it has waited too long.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Guarded {
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

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.wait(context),
            ready => {
                let next = Instant::now() + self.silence;
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
