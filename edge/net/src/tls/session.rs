//! One connection's TLS, over a socket that never waits.
//!
//! rustls keeps no bytes for us: what has come is opened in the caller's buffer, what leaves is
//! sealed in another one. A session has memory only for the beginning of a record whose end has not
//! come, and for what the socket did not take.

use std::io::{self, ErrorKind, Write};
use std::mem::take;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    AppDataRecord, ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadTraffic,
    UnbufferedStatus, WriteTraffic,
};

use super::{TlsConfig, challenge};

/// A session, from the handshake to the end.
pub struct TlsSession {
    rustls: UnbufferedServerConnection,
    /// Input that ends within a record, or within a message of the handshake.
    rest: Vec<u8>,
    /// Sealed bytes that the socket has yet to take.
    unsent: Vec<u8>,
    /// Whether the client has said that it sends no more.
    is_over: bool,
    /// Whether this side has said so, or broken off: rustls is not asked any more.
    is_done: bool,
}

/// Bytes in the clear of a record, by RFC 8446 (section 5.1) and RFC 5246 (section 6.2.1).
const RECORD_MAX: usize = 16 * 1024;
/// Bytes in the clear that are sealed and written together: not too many, so that a socket which
/// takes little is seen to take something, nor a single record, which takes less time than its call.
const CLEAR_MAX: usize = 4 * RECORD_MAX;
/// A buffer for sealing them, with room for the records' heads and tags.
pub const SEALED_MAX: usize = CLEAR_MAX + 1024;
/// Input of a handshake that is not understood yet. A client says hello in less than 3 KB, even with
/// keys that withstand quantum computers; rustls alone would keep 64 KiB.
const HELLO_MAX: usize = 16 * 1024;
/// Input that ends within a record, which is never longer.
const REST_MAX: usize = 5 + RECORD_MAX + 2048;

impl TlsSession {
    /// Before the first byte.
    pub fn new(config: &TlsConfig) -> io::Result<Self> {
        let rustls = UnbufferedServerConnection::new(config.0.clone()).map_err(io::Error::other)?;
        Ok(Self { rustls, rest: Vec::new(), unsent: Vec::new(), is_over: false, is_done: false })
    }

    /// Takes `sealed`, which has come from the socket and is overwritten, and opens it into `plain`,
    /// which must be as long as `sealed` and a record of 16 KiB together. Gives how many bytes there
    /// are in the clear. What there is to answer, in the handshake or to its end, is written to
    /// `socket`. An error of the kind `InvalidData` means that the client broke the protocol, of which
    /// it has been told.
    pub fn open(
        &mut self,
        sealed: &mut [u8],
        plain: &mut [u8],
        socket: &mut impl Write,
    ) -> io::Result<usize> {
        if self.is_done {
            return Ok(0);
        }
        let opened = if self.rest.is_empty() {
            let (consumed, opened) = self.process(sealed, plain);
            self.rest.extend_from_slice(sealed.get(consumed..).unwrap_or_default());
            opened
        } else {
            let mut input = take(&mut self.rest);
            input.extend_from_slice(sealed);
            let (consumed, opened) = self.process(&mut input, plain);
            if consumed < input.len() {
                input.drain(..consumed);
                self.rest = input;
            }
            opened
        };
        if opened.is_err() {
            self.queue_alert();
        }
        //= rfc8737#no-data
        let is_proof = self.rustls.alpn_protocol() == Some(challenge::PROTOCOL);
        let opened = if is_proof && !self.is_handshaking() {
            self.is_over = true;
            opened.map(|_| 0)
        } else {
            opened
        };
        if self.is_over {
            // Whatever comes behind the last word means nothing.
            self.rest = Vec::new();
        }
        let flushed = self.flush(socket);
        let len = opened?;
        let rest_max = if self.is_handshaking() { HELLO_MAX } else { REST_MAX };
        if self.rest.len() > rest_max {
            self.is_done = true;
            return Err(invalid("a message of the handshake without an end"));
        }
        ignore_would_block(flushed).map(|()| len)
    }

    /// Opens what is whole in `input`. Gives how much of it is done with, and how many bytes are in
    /// `plain`.
    fn process(&mut self, input: &mut [u8], plain: &mut [u8]) -> (usize, io::Result<usize>) {
        let (mut at, mut len) = (0, 0);
        let end = input.len();
        loop {
            let input = input.get_mut(at..).unwrap_or_default();
            let UnbufferedStatus { discard, state } = self.rustls.process_tls_records(input);
            at += discard;
            let step = match state {
                Ok(ConnectionState::ReadTraffic(traffic)) => {
                    copy_plaintext(traffic, plain, &mut len).map(|discard| at += discard)
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(&mut message, &mut self.unsent)
                }
                // It has gone to where it is sent from.
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_over = true;
                    Ok(())
                }
                // More must come.
                Ok(_) => return (at, Ok(len)),
                Err(error) => Err(invalid(error)),
            };
            if let Err(error) = step {
                return (at, Err(error));
            }
            if at == end && len > 0 && !self.rustls.wants_write() {
                // As most often. Asking would only say that more must come.
                return (at, Ok(len));
            }
        }
    }

    /// Takes out the alert that tells the client what it did. There is no more of the input for rustls
    /// to look at: it would break over that a second time.
    fn queue_alert(&mut self) {
        self.is_done = true;
        while self.rustls.wants_write() {
            match self.rustls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut alert)) => {
                    // It has room.
                    let _ = encode(&mut alert, &mut self.unsent);
                }
                _ => return,
            }
        }
    }

    /// Seals as much of `plain` as makes sense in `buffer`, which should have [`SEALED_MAX`] bytes, and
    /// writes it; gives how many bytes were taken. `WouldBlock` when the socket has yet to take what was
    /// sealed before. What was taken may not be out yet: see [`TlsSession::is_pending`].
    pub fn write(
        &mut self,
        plain: &[u8],
        buffer: &mut [u8],
        socket: &mut impl Write,
    ) -> io::Result<usize> {
        self.flush(socket)?;
        let plain = plain.get(..CLEAR_MAX).unwrap_or(plain);
        if plain.is_empty() {
            return Ok(0);
        }
        let sealed = self.seal(buffer, |traffic, buffer| traffic.encrypt(plain, buffer))?;
        self.send(buffer.get(..sealed).unwrap_or_default(), socket)?;
        Ok(plain.len())
    }

    /// Says that nothing more will be sent, by way of `buffer`, as in [`TlsSession::write`]. What comes
    /// from now on is not looked at. Before the handshake is done there is no way to say it.
    pub fn finish(&mut self, buffer: &mut [u8], socket: &mut impl Write) -> io::Result<()> {
        if self.is_handshaking() || self.is_done {
            return Ok(());
        }
        let sealed = self.seal(buffer, |traffic, buffer| traffic.queue_close_notify(buffer))?;
        self.is_done = true;
        self.send(buffer.get(..sealed).unwrap_or_default(), socket)
    }

    /// Whether something sealed has not left yet.
    pub fn is_pending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether nothing can be written yet, and nothing has been read.
    pub fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    /// Whether the client has said that it sends no more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Seals by `seal`, as soon as rustls has given out what goes before.
    fn seal(
        &mut self,
        buffer: &mut [u8],
        seal: impl FnOnce(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        while !self.is_done {
            // What is left of the input is shown again, since rustls remembers how far it is.
            match self.rustls.process_tls_records(&mut self.rest).state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    return seal(&mut traffic, buffer).map_err(io::Error::other);
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => {
                    encode(&mut message, &mut self.unsent)?;
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => self.is_over = true,
                _ => break,
            }
        }
        Err(ErrorKind::NotConnected.into())
    }

    /// Writes what is sealed; `WouldBlock` when the socket does not take all of it.
    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let (sent, end) = write_all(&self.unsent, socket);
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        end
    }

    /// Writes `sealed`, behind what is sealed already, and keeps what the socket does not take.
    fn send(&mut self, sealed: &[u8], socket: &mut impl Write) -> io::Result<()> {
        let (sent, end) = match self.flush(socket) {
            Ok(()) => write_all(sealed, socket),
            Err(error) => (0, Err(error)),
        };
        self.unsent.extend_from_slice(sealed.get(sent..).unwrap_or_default());
        ignore_would_block(end)
    }
}

/// Copies what was opened to `plain` from `len` on; gives how many bytes of the input that makes
/// superfluous.
fn copy_plaintext<T>(
    mut traffic: ReadTraffic<'_, '_, T>,
    plain: &mut [u8],
    len: &mut usize,
) -> io::Result<usize> {
    let mut done = 0;
    while let Some(record) = traffic.next_record() {
        let AppDataRecord { discard, payload } = record.map_err(invalid)?;
        let room = plain.get_mut(*len..*len + payload.len());
        room.ok_or(ErrorKind::OutOfMemory)?.copy_from_slice(payload);
        *len += payload.len();
        done += discard;
    }
    Ok(done)
}

/// Puts a message of rustls' own behind `out`.
fn encode<T>(message: &mut EncodeTlsData<'_, T>, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
        out.resize(start + needed.required_size, 0);
    }
    message.encode(out.get_mut(start..).unwrap_or_default()).map_err(io::Error::other)?;
    Ok(())
}

/// Writes as much as the socket takes: how much that is, and why not all, if so.
fn write_all(bytes: &[u8], socket: &mut impl Write) -> (usize, io::Result<()>) {
    let mut sent = 0;
    while let Some(left) = bytes.get(sent..).filter(|left| !left.is_empty()) {
        match socket.write(left) {
            Ok(0) => return (sent, Err(ErrorKind::WriteZero.into())),
            Ok(len) => sent += len,
            Err(error) => return (sent, Err(error)),
        }
    }
    (sent, Ok(()))
}

/// A socket that is full is no failure where what it did not take is kept.
fn ignore_would_block(end: io::Result<()>) -> io::Result<()> {
    end.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
