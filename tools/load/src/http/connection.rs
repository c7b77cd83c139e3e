//! A connection, and the request on it.

use std::io::{self, ErrorKind};
use std::time::Instant;

use super::response::{CompleteResponse, ResponseReader};
use crate::mix::RequestKind;
use crate::population::TorrentPeer;
use crate::stream::Stream;

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) kind: RequestKind,
    /// Who announces.
    pub(super) peer: TorrentPeer,
    /// When it was due.
    pub(super) due: Instant,
}

/// A place for a connection. Its number decides where it comes from, and who announces on it.
#[derive(Default)]
pub(super) struct Connection {
    /// Nothing if it has ended, or is still to be opened.
    pub(super) stream: Option<Stream>,
    pub(super) request: Vec<u8>,
    /// How much of the request was taken.
    pub(super) sent: usize,
    pub(super) pending: Option<PendingRequest>,
    pub(super) response: ResponseReader,
}

/// How a connection came to its end.
pub(super) type EndReason = String;

const CLOSED: &str = "the tracker closed the connection without an answer";

impl Connection {
    /// Sends what there is to send.
    pub(super) fn send(&mut self) -> Result<(), EndReason> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let left = self.request.get(self.sent..).unwrap_or_default();
        if !left.is_empty() || stream.is_pending() {
            self.sent += stream.write(left).map_err(describe)?;
        }
        Ok(())
    }

    /// Reads what has come, and gives the answer to `take` once it is whole: with it, how many bytes came
    /// in all now, and whether the connection has ended.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        bytes_in: &mut u64,
        take: impl FnOnce(PendingRequest, &CompleteResponse<'_>),
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
            // What was not read at once is asked for, too: an end may stand behind the answer.
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
            // Read on even after few bytes: readiness is told once, and the end may have come with them.
        }
    }
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted)
}

fn describe(error: io::Error) -> EndReason {
    error.to_string()
}
