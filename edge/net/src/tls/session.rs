//! The TLS session of a connection over a non-blocking socket.
//!
//! Uses rustls' unbuffered interface: received records are decrypted in the caller's buffer, and sent
//! records are encrypted in another one. A session allocates only for an incomplete record, and for
//! bytes that the socket did not accept.

use std::io::{self, ErrorKind, Write};
use std::mem::take;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    AppDataRecord, ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadTraffic,
    UnbufferedStatus, WriteTraffic,
};

use super::{ACME_PROTOCOL, TlsConfig};

/// A TLS session, including its handshake.
pub struct TlsSession {
    rustls: UnbufferedServerConnection,
    /// Input that ends within a record, or within a handshake message.
    rest: Vec<u8>,
    /// Encrypted bytes that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// True if the client has sent close_notify, or has finished the handshake of a challenge (RFC 8737).
    is_over: bool,
    /// True if this side has sent close_notify or an alert, or has refused a message that is too long. rustls is
    /// not called any more then.
    is_done: bool,
}

/// Maximum plaintext bytes of a record (RFC 8446, section 5.1; RFC 5246, section 6.2.1).
const RECORD_MAX: usize = 16 * 1024;
/// Maximum plaintext bytes that are encrypted and written together. Not more, so that a slow socket is
/// seen to make progress; not a single record, which takes less time than its system call.
const CLEAR_MAX: usize = 4 * RECORD_MAX;
/// The size of a buffer for encrypting them, including the records' headers and tags.
pub const SEALED_MAX: usize = CLEAR_MAX + 1024;
/// Maximum bytes of an incomplete handshake message. A ClientHello has less than 3 KB, even with
/// post-quantum keys; rustls alone would accept 64 KiB.
const HELLO_MAX: usize = 16 * 1024;
/// Maximum bytes of an incomplete record.
const REST_MAX: usize = 5 + RECORD_MAX + 2048;

impl TlsSession {
    /// Creates a session for a new connection.
    ///
    /// # Errors
    ///
    /// If rustls refuses the configuration.
    pub fn new(config: &TlsConfig) -> io::Result<Self> {
        let rustls = UnbufferedServerConnection::new(config.0.clone()).map_err(io::Error::other)?;
        Ok(Self { rustls, rest: Vec::new(), unsent: Vec::new(), is_over: false, is_done: false })
    }

    /// Decrypts `sealed`, the bytes from the socket, into `plain`, and returns the number of plaintext
    /// bytes. `sealed` is overwritten. `plain` must be as long as `sealed` plus a record of 16 KiB.
    /// Handshake messages and alerts are written to `socket`.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the client broke the protocol; an alert was sent then. Otherwise those of `socket`, but not
    /// `WouldBlock`.
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
        let is_proof = self.rustls.alpn_protocol() == Some(ACME_PROTOCOL);
        let opened = if is_proof && !self.is_handshaking() {
            self.is_over = true;
            opened.map(|_| 0)
        } else {
            opened
        };
        if self.is_over {
            // Bytes after close_notify are ignored.
            self.rest = Vec::new();
        }
        let flushed = self.flush(socket);
        let len = opened?;
        let rest_max = if self.is_handshaking() { HELLO_MAX } else { REST_MAX };
        if self.rest.len() > rest_max {
            self.is_done = true;
            return Err(invalid("handshake message too long"));
        }
        ignore_would_block(flushed).map(|()| len)
    }

    /// Decrypts the complete records in `input`. Returns the number of consumed bytes, and the number of
    /// bytes in `plain`.
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
                // It is in `unsent` already.
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    Ok(())
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_over = true;
                    Ok(())
                }
                // More input is needed.
                Ok(_) => return (at, Ok(len)),
                Err(error) => Err(invalid(error)),
            };
            if let Err(error) = step {
                return (at, Err(error));
            }
            if at == end && len > 0 && !self.rustls.wants_write() {
                // The usual case. Calling rustls again would only report that it needs more input.
                return (at, Ok(len));
            }
        }
    }

    /// Queues the alert about an error. rustls gets no more input, since it would fail again.
    fn queue_alert(&mut self) {
        self.is_done = true;
        while self.rustls.wants_write() {
            match self.rustls.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut alert)) => {
                    // Cannot fail: `unsent` grows as needed.
                    let _ = encode(&mut alert, &mut self.unsent);
                }
                _ => return,
            }
        }
    }

    /// Encrypts a part of `plain` in `buffer`, which should have [`SEALED_MAX`] bytes, and writes it.
    /// Returns the number of bytes taken from `plain`; they may not have left yet, see
    /// [`TlsSession::is_pending`].
    ///
    /// # Errors
    ///
    /// `WouldBlock` while the socket does not accept earlier bytes, `NotConnected` outside of a session; otherwise
    /// those of `socket`.
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
        debug_assert!(sealed <= buffer.len());
        self.send(buffer.get(..sealed).unwrap_or_default(), socket)?;
        Ok(plain.len())
    }

    /// Sends close_notify, using `buffer` as in [`TlsSession::write`]. Later input is ignored. Does
    /// nothing before the handshake is complete.
    ///
    /// # Errors
    ///
    /// Those of `socket`, but not `WouldBlock`.
    pub fn finish(&mut self, buffer: &mut [u8], socket: &mut impl Write) -> io::Result<()> {
        if self.is_handshaking() || self.is_done {
            return Ok(());
        }
        let sealed = self.seal(buffer, |traffic, buffer| traffic.queue_close_notify(buffer))?;
        debug_assert!(sealed <= buffer.len());
        self.is_done = true;
        self.send(buffer.get(..sealed).unwrap_or_default(), socket)
    }

    /// Returns whether encrypted bytes wait for the socket.
    pub fn is_pending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the bytes of memory that hold an incomplete record or handshake message.
    pub fn held_bytes(&self) -> usize {
        self.rest.capacity()
    }

    /// Returns the bytes of memory that hold encrypted output.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent.capacity()
    }

    /// Returns whether the handshake is still in progress, so that no data can be sent.
    pub fn is_handshaking(&self) -> bool {
        self.rustls.is_handshaking()
    }

    /// Returns whether the client has ended its side of the session.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Calls `seal` to encrypt a message, after rustls has produced all messages before it.
    fn seal(
        &mut self,
        buffer: &mut [u8],
        seal: impl FnOnce(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> io::Result<usize> {
        while !self.is_done {
            // Pass the incomplete input again, because rustls remembers its position in it.
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

    /// Writes pending bytes. Fails with `WouldBlock` if the socket does not accept all of them.
    fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let (sent, end) = write_all(&self.unsent, socket);
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent = Vec::new();
        }
        end
    }

    /// Writes `sealed` after the pending bytes, and keeps what the socket does not accept.
    fn send(&mut self, sealed: &[u8], socket: &mut impl Write) -> io::Result<()> {
        let (sent, end) = match self.flush(socket) {
            Ok(()) => write_all(sealed, socket),
            Err(error) => (0, Err(error)),
        };
        self.unsent.extend_from_slice(sealed.get(sent..).unwrap_or_default());
        ignore_would_block(end)
    }
}

/// Copies decrypted data to `plain` from `len` on. Returns the number of input bytes to discard.
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

/// Appends a handshake message or an alert to `out`.
fn encode<T>(message: &mut EncodeTlsData<'_, T>, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(needed)) = message.encode(&mut []) {
        out.resize(start + needed.required_size, 0);
    }
    message.encode(out.get_mut(start..).unwrap_or_default()).map_err(io::Error::other)?;
    Ok(())
}

/// Writes as much as the socket accepts. Returns the number of bytes, and the error that stopped it.
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

/// A full socket is not an error where the remaining bytes are kept.
fn ignore_would_block(end: io::Result<()>) -> io::Result<()> {
    end.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(()) } else { Err(error) })
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
