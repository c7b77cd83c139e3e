//! A request body with a list of info hashes, validated line by line while it is sent.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io::{BufRead, Read as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::Notify;
use types::InfoHash;

use super::error::ApiError;

/// Longest wait for the server's `100 Continue`, which some servers never send.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a line in bytes, including note and comment.
const LINE_MAX: u64 = 4096;
/// Minimum size of a chunk in bytes.
const CHUNK_MIN: usize = 64 * 1024;

/// The list as the body of a request. It breaks off at the first invalid line; then the API, which has
/// not received the end, changes nothing.
pub(super) struct Upload {
    source: Box<dyn BufRead + Send>,
    name: String,
    line: usize,
    error: SharedError,
    continue_signal: Arc<Notify>,
    /// Waits until sending may start.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// Error in a list, if there is one. The body that finds it shares this value.
type SharedError = Arc<Mutex<Option<ApiError>>>;

impl Upload {
    /// Sends the contents of `source`: one hash per line, optionally followed by a note; `#` starts
    /// a comment. `name` is for messages.
    pub(super) fn new(name: String, source: Box<dyn BufRead + Send>) -> Self {
        let continue_signal = Arc::new(Notify::new());
        let signal = Arc::clone(&continue_signal);
        let wait = async move {
            let _ = tokio::time::timeout(CONTINUE_TIMEOUT, signal.notified()).await;
        };
        let wait: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(wait);
        Self {
            source,
            name,
            line: 0,
            error: SharedError::default(),
            continue_signal,
            wait: Some(wait),
        }
    }

    pub(super) fn error(&self) -> SharedError {
        Arc::clone(&self.error)
    }

    /// Returns what to notify when the server wants the list.
    pub(super) fn continue_signal(&self) -> Arc<Notify> {
        Arc::clone(&self.continue_signal)
    }

    /// Returns the next lines; nothing at the end.
    fn chunk(&mut self) -> Result<String, String> {
        let (mut chunk, mut line) = (String::with_capacity(CHUNK_MIN + 41), Vec::new());
        while chunk.len() < CHUNK_MIN {
            line.clear();
            let read = (&mut self.source).take(LINE_MAX).read_until(b'\n', &mut line);
            self.line += 1;
            let bad = |why: &dyn std::fmt::Display| format!("{}:{}: {why}", self.name, self.line);
            if read.map_err(|error| bad(&format_args!("cannot read the line: {error}")))? == 0 {
                break;
            }
            if line.len() as u64 == LINE_MAX && !line.ends_with(b"\n") {
                return Err(bad(&"line too long: expected at most 4096 bytes"));
            }
            if let Some(hash) = InfoHash::from_line(&line).map_err(|error| bad(&error))? {
                // Writing to a string cannot fail.
                let _ = writeln!(chunk, "{hash}");
            }
        }
        Ok(chunk)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    /// Reads the source, which blocks the runtime: it has nothing else to do.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        Poll::Ready(match self.chunk() {
            Ok(chunk) if chunk.is_empty() => None,
            Ok(chunk) => Some(Ok(Frame::data(Bytes::from(chunk)))),
            Err(error) => {
                let fault = ApiError::Failed(format!("{error} (nothing was changed)"));
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                Some(Err(error.into()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_limit() {
        let line = std::io::Cursor::new("f".repeat(5000));
        let long = Upload::new("x".into(), Box::new(line)).chunk().unwrap_err();
        assert_eq!(long, "x:1: line too long: expected at most 4096 bytes");
    }
}
