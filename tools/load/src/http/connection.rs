//! A connection and its outstanding request.

use std::io::{self, ErrorKind};
use std::time::Instant;

use super::response::{CompleteResponse, ResponseReader};
use crate::population::TorrentPeer;
use crate::stream::Stream;

/// An outstanding request.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutstandingRequest {
    /// The announcing peer.
    pub(super) peer: TorrentPeer,
    /// When it was scheduled.
    pub(super) due: Instant,
}

/// A slot for a connection. Its index decides the source address and which peers announce on it.
#[derive(Default)]
pub(super) struct Connection {
    /// `None` if the connection is closed or not yet open.
    pub(super) stream: Option<Stream>,
    pub(super) request: Vec<u8>,
    /// Bytes of the request that are written.
    pub(super) sent: usize,
    pub(super) pending: Option<OutstandingRequest>,
    /// True if it waits for its turn in an open loop.
    pub(super) is_idle: bool,
    pub(super) response: ResponseReader,
}

/// Why a connection ended: a text, empty if it ended normally.
pub(super) type EndReason = String;

const CLOSED: &str = "the tracker closed the connection without a response";

impl Connection {
    /// Writes the rest of the request.
    pub(super) fn send(&mut self) -> Result<(), EndReason> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let left = self.request.get(self.sent..).unwrap_or_default();
        if !left.is_empty() || stream.is_pending() {
            self.sent += stream.write(left).map_err(describe)?;
        }
        Ok(())
    }

    /// Reads available input and passes the response to `take` once it is complete. Adds the bytes
    /// read to `bytes_in`. Returns an error if the connection has ended.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        bytes_in: &mut u64,
        take: impl FnOnce(OutstandingRequest, &CompleteResponse<'_>),
    ) -> Result<(), EndReason> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        loop {
            let read = match stream.read(buffer) {
                Ok(read) => read,
                Err(error) if is_nothing(&error) => return Ok(()),
                Err(error) => return Err(describe(error)),
            };
            *bytes_in += read as u64;
            let is_over = read == 0 || stream.is_over();
            let fresh = buffer.get(..read).unwrap_or_default();
            let Some(request) = self.pending else {
                return Err(if is_over { String::new() } else { super::response::TOO_MUCH.into() });
            };
            // Include input that was not read at once: the end of the stream may follow the
            // response.
            if let Some(whole) = self.response.read(fresh, is_over)? {
                self.pending = None;
                let stays = whole.keep_alive && !is_over;
                take(request, &whole);
                self.response.clear();
                return if stays { Ok(()) } else { Err(String::new()) };
            }
            if is_over {
                return Err(CLOSED.into());
            }
            // Continue even after a short read: readiness is edge-triggered, and the end may have
            // arrived with these bytes.
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted)
}

fn describe(error: io::Error) -> EndReason {
    error.to_string()
}
