//! A TCP stream, with or without TLS. The TLS handshake runs at the first read or write, in the
//! connection's own task, so that no other connection waits for it. A client that speaks plain HTTP to a
//! listener with TLS gets a response that says so.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

pub(super) enum Socket {
    Plain(TcpStream),
    /// A connection that should begin with a TLS handshake. It becomes one when its first byte is seen.
    New(Option<TcpStream>, Arc<ServerConfig>),
    Handshake(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    pub(super) fn new(stream: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Self {
        match tls {
            None => Self::Plain(stream),
            Some(tls) => Self::New(Some(stream), Arc::clone(tls)),
        }
    }

    /// Completes the TLS handshake, if there is one.
    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Self::New(new, tls) = self {
            // Only the first byte is looked at, and left in the socket.
            let (mut byte, stream) = ([0], new.as_ref().ok_or(io::ErrorKind::NotConnected)?);
            let mut buffer = ReadBuf::new(&mut byte);
            ready!(stream.poll_peek(context, &mut buffer))?;
            if buffer.filled().first().is_some_and(u8::is_ascii_uppercase) {
                refuse_plain_http(stream);
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let stream = new.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Self::Handshake(Box::new(TlsAcceptor::from(Arc::clone(tls)).accept(stream)));
        }
        if let Self::Handshake(accept) = self {
            let stream = ready!(Pin::new(accept).poll(context))?;
            *self = Self::Tls(Box::new(stream));
        }
        Poll::Ready(Ok(()))
    }
}

/// Answers a request in plain HTTP, as far as the socket takes it at once.
fn refuse_plain_http(stream: &TcpStream) {
    const BODY: &str = "this port speaks TLS: the URL must begin with https://\n";
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{BODY}",
        BODY.len()
    );
    // A request that is left unread would reset the connection, and the response with it.
    let _ = stream.try_read(&mut [0; 8192]);
    // A client that does not take the response has no use for it.
    let _ = stream.try_write(response.as_bytes());
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_handshake(context))?;
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::New(..) | Self::Handshake(_) => Poll::Pending,
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_handshake(context))?;
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::New(..) | Self::Handshake(_) => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::New(..) | Self::Handshake(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::New(..) | Self::Handshake(_) => Poll::Ready(Ok(())),
        }
    }
}
