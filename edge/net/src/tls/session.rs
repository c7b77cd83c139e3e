//! One connection's TLS, over a socket that never waits.

use std::io::{self, Read, Write};

use rustls::ServerConnection;

use super::{TlsConfig, challenge};

/// A session, from the handshake to the end.
///
/// It keeps no buffers while nothing is on its way, but for what rustls itself keeps.
pub struct TlsSession(ServerConnection);

/// What came of sealed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Bytes in the clear.
    pub len: usize,
    /// Whether the client has said that it sends no more.
    pub is_last: bool,
}

impl TlsSession {
    /// Before the first byte.
    pub fn new(config: &TlsConfig) -> io::Result<Self> {
        let mut session = ServerConnection::new(config.0.clone()).map_err(io::Error::other)?;
        // What is written is taken as far as the socket takes it: see `write`.
        session.set_buffer_limit(None);
        Ok(Self(session))
    }

    /// Takes `sealed`, which has come from the socket, and opens it into `plain`, which must be as
    /// long as `sealed` and a record of 16 KiB together. What there is to answer, in the handshake or
    /// to its end, is written to `socket`. An error means that the client broke the protocol, of which
    /// it has been told.
    pub fn open(
        &mut self,
        mut sealed: &[u8],
        plain: &mut [u8],
        socket: &mut impl Write,
    ) -> io::Result<Opened> {
        let mut opened = Opened { len: 0, is_last: false };
        while !sealed.is_empty() {
            self.0.read_tls(&mut sealed)?;
            let processed = self.0.process_new_packets();
            if processed.is_err() {
                // The alert that says what is wrong.
                let _ = self.flush(socket);
            }
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            //= rfc8737#no-data
            if self.0.alpn_protocol() == Some(challenge::PROTOCOL) && !self.0.is_handshaking() {
                opened.is_last = true;
                break;
            }
            while let Some(room) = plain.get_mut(opened.len..).filter(|room| !room.is_empty()) {
                match self.0.reader().read(room) {
                    Ok(0) => {
                        opened.is_last = true;
                        return Ok(opened);
                    }
                    Ok(more) => opened.len += more,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(opened),
        }
    }

    /// Seals as much of `plain` as makes sense and writes it; gives how many bytes were taken.
    /// `WouldBlock` when the socket has yet to take what was sealed before. What was taken may not be
    /// out yet: see [`TlsSession::is_pending`].
    pub fn write(&mut self, plain: &[u8], socket: &mut impl Write) -> io::Result<usize> {
        // What does not fit the socket's buffer waits in plain, where it takes less.
        const SEALED_MAX: usize = 64 * 1024;
        self.flush(socket)?;
        let plain = plain.get(..SEALED_MAX).unwrap_or(plain);
        let len = self.0.writer().write(plain)?;
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(len),
        }
    }

    /// Whether something sealed has not left yet.
    pub fn is_pending(&self) -> bool {
        self.0.wants_write()
    }

    /// Whether nothing can be read or written yet.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Writes what is sealed; `WouldBlock` when the socket does not take all of it.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            if self.0.write_tls(socket)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.0.send_close_notify();
        self.flush(socket)
    }
}
