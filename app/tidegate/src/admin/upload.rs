//! A list of info hashes, checked line by line while it is sent.

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

use super::api::Stop;

/// How long a server is waited for to say that it wants the list. Some never say so.
const GO_TIME: Duration = Duration::from_secs(10);
/// Bytes of a line, with its comment.
const LINE_MAX: u64 = 4096;
/// Bytes that are sent at a time, at least.
const PIECE: usize = 64 * 1024;

/// The list as a request's body. It breaks off at the first line that is wrong, and then the API, which
/// has not seen its end, changes nothing.
pub(super) struct Upload {
    source: Box<dyn BufRead + Send>,
    name: String,
    line: usize,
    fault: Fault,
    go: Arc<Notify>,
    /// Until it may begin.
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// What is wrong with a list, once that is known.
#[derive(Clone, Default)]
pub(super) struct Fault(Arc<Mutex<Option<String>>>);

impl Fault {
    pub(super) fn take(&self) -> Option<Stop> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(Stop::Failed)
    }
}

impl Upload {
    /// Sends what `source` holds: a hash a line, with `#` before comments. `name` is for people.
    pub(super) fn new(name: String, source: Box<dyn BufRead + Send>) -> Self {
        let go = Arc::new(Notify::new());
        let told = Arc::clone(&go);
        let wait = async move {
            let _ = tokio::time::timeout(GO_TIME, told.notified()).await;
        };
        let wait: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(wait);
        Self { source, name, line: 0, fault: Fault::default(), go, wait: Some(wait) }
    }

    pub(super) fn fault(&self) -> Fault {
        self.fault.clone()
    }

    /// What is told when the server wants the list.
    pub(super) fn go(&self) -> Arc<Notify> {
        Arc::clone(&self.go)
    }

    /// The next lines; none at the end.
    fn piece(&mut self) -> Result<String, String> {
        let (mut piece, mut line) = (String::with_capacity(PIECE + 41), Vec::new());
        while piece.len() < PIECE {
            line.clear();
            let read = (&mut self.source).take(LINE_MAX).read_until(b'\n', &mut line);
            self.line += 1;
            let bad = |why: &dyn std::fmt::Display| format!("{}:{}: {why}", self.name, self.line);
            if read.map_err(|error| bad(&format_args!("cannot be read: {error}")))? == 0 {
                break;
            }
            if line.len() as u64 == LINE_MAX && !line.ends_with(b"\n") {
                return Err(bad(&"the line is too long"));
            }
            let hash = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
            if !hash.is_empty() {
                let hash = InfoHash::from_hex(hash).map_err(|error| bad(&error))?;
                // Writing to a string cannot fail.
                let _ = writeln!(piece, "{hash}");
            }
        }
        Ok(piece)
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    /// Reads while the runtime waits: there is nothing else that it could do.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        Poll::Ready(match self.piece() {
            Ok(piece) if piece.is_empty() => None,
            Ok(piece) => Some(Ok(Frame::data(Bytes::from(piece)))),
            Err(fault) => {
                let text = format!("{fault}: nothing was changed");
                *self.fault.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                Some(Err(fault.into()))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(text: &'static str) -> Result<String, String> {
        let mut upload = Upload::new("x".into(), Box::new(text.as_bytes()));
        let mut all = String::new();
        loop {
            let piece = upload.piece()?;
            if piece.is_empty() {
                return Ok(all);
            }
            all += &piece;
        }
    }

    const A: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn lines_are_sent_without_what_is_beside_them() {
        let text = "# all\n\n 0123456789ABCDEF0123456789abcdef01234567 # it\r\n";
        assert_eq!(sent(text), Ok(format!("{A}\n")));
        assert_eq!(sent("0123456789abcdef0123456789abcdef01234567"), Ok(format!("{A}\n")));
        assert_eq!(sent(""), Ok(String::new()));
        let many = format!("{A}\n").repeat(10_000);
        assert_eq!(sent(Box::leak(many.clone().into_boxed_str())), Ok(many));
    }

    #[test]
    fn wrong_lines_are_named() {
        let bad = sent("\n# x\n0123\n").unwrap_err();
        assert!(bad.starts_with("x:3: "), "{bad}");
        let long = sent(Box::leak("f".repeat(5000).into_boxed_str())).unwrap_err();
        assert_eq!(long, "x:1: the line is too long");
        assert!(sent(Box::leak(format!("{A} {A}").into_boxed_str())).is_err());
    }
}
