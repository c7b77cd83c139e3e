//! An answer as it comes.

use anyhow::{Context, Result, ensure};

/// What has come of an answer.
#[derive(Default)]
pub(super) struct Response {
    bytes: Vec<u8>,
    /// How long it is, once its head has come.
    len: Option<usize>,
}

/// More than any head of a tracker's answer has.
const HEAD_MAX: usize = 16 * 1024;

impl Response {
    /// Takes what comes next, and says whether the answer is whole. An error if it is none.
    pub(super) fn read(&mut self, fresh: &[u8]) -> Result<bool> {
        self.bytes.extend_from_slice(fresh);
        if self.len.is_none() {
            self.len = whole_len(&self.bytes)?;
        }
        match self.len {
            Some(len) => {
                ensure!(self.bytes.len() <= len, "more than an answer has come");
                Ok(self.bytes.len() == len)
            }
            None => Ok(false),
        }
    }

    /// Bytes so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Why the tracker refused the announce, if it did.
    pub(super) fn refusal(&self) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = self.bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        if !line.starts_with(b"HTTP/1.1 200") {
            return Some(text(line));
        }
        let at = memchr::memmem::find(&self.bytes, b"14:failure reason")?;
        Some(text(self.bytes.get(at..).unwrap_or_default()))
    }
}

/// The length of head and body together, if the head has come.
fn whole_len(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else {
        ensure!(bytes.len() < HEAD_MAX, "an answer without an end of its head");
        return Ok(None);
    };
    let head = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).context("no HTTP")?;
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, len) = lengths.next().context("an answer without Content-Length")?;
    let len: usize = len.trim().parse().context("Content-Length is no number")?;
    Ok(Some(end + 4 + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_at_its_last_byte() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-LENGTH:  5 \r\n\r\nd1:xe";
        let mut response = Response::default();
        for (at, byte) in text.iter().enumerate() {
            assert_eq!(response.read(&[*byte]).unwrap(), at + 1 == text.len());
        }
        assert_eq!((response.len(), response.refusal()), (text.len(), None));
        assert!(response.read(b"x").is_err());
    }

    #[test]
    fn refusals_are_told() {
        let refusal = |text: &str| {
            let mut response = Response::default();
            response.read(text.as_bytes()).unwrap();
            response.refusal()
        };
        let body = "d14:failure reason4:nopee";
        let said = refusal(&format!("HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{body}"));
        assert_eq!(said.as_deref(), Some("14:failure reason4:nopee"));
        let said = refusal("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(said.as_deref(), Some("HTTP/1.1 404 Not Found"));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(Response::default().read(b"\r\n\r\n").is_err());
        assert!(Response::default().read(b"a\r\nContent-Length: x\r\n\r\n").is_err());
        assert!(Response::default().read(&[b'x'; HEAD_MAX]).is_err());
    }
}
