//! Sockets that never wait.

use std::future::poll_fn;
use std::io::{self, Read, Write};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// A connected socket that never waits.
pub(crate) trait Stream {
    /// Bytes that have come; `WouldBlock` when there are none, 0 when none will come.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// How many of `bytes` the socket took; `WouldBlock` when it is full.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;
}

/// Waits until there is input, or its end. For one task of a stream: its own `readable` serves any
/// number, but takes tens of bytes more in each idle task.
pub(crate) fn readable(stream: &TcpStream) -> impl Future<Output = io::Result<()>> {
    poll_fn(|context| stream.poll_read_ready(context))
}

/// Waits until there is room for output. For one task of a stream.
pub(crate) fn writable(stream: &TcpStream) -> impl Future<Output = io::Result<()>> {
    poll_fn(|context| stream.poll_write_ready(context))
}

impl Stream for TcpStream {
    /// A short read means that the socket is empty: saying so spares the read that would only find
    /// that out.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut short = None;
        let read = self.try_io(Interest::READABLE, || {
            let len = net::receive(self, buffer)?;
            if (1..buffer.len()).contains(&len) {
                short = Some(len);
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(len)
        });
        short.map_or(read, Ok)
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

impl Stream for std::net::TcpStream {
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buffer)
    }

    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }
}
