//! Incremental parsing of responses.

use client::codec::http::{
    Chunk, Length, ParsedResponse, ResponseHead as Headers, read_chunk, read_head,
};

/// Collects a response that arrives in pieces.
#[derive(Default)]
pub(super) struct ResponseReader {
    bytes: Vec<u8>,
    /// The decoded body, if chunked.
    body: Vec<u8>,
}

/// A complete response.
#[derive(Debug, PartialEq)]
pub(super) struct CompleteResponse<'a> {
    pub(super) status: u16,
    pub(super) keep_alive: bool,
    pub(super) body: &'a [u8],
}

/// Limits above the size of any tracker's response head and body.
const HEAD_MAX: usize = 16 * 1024;
const BODY_MAX: u64 = 4 << 20;

/// Errors of invalid responses.
pub(super) const NO_HTTP: &str = "the response is not HTTP";
pub(super) const TOO_LONG: &str = "the response is too long";
pub(super) const TOO_MUCH: &str = "unexpected bytes after the response";

impl ResponseReader {
    /// Discards collected input.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds input. Returns the response once it is complete. `is_over` means that no more input
    /// follows.
    pub(super) fn read<'a>(
        &'a mut self,
        fresh: &'a [u8],
        is_over: bool,
    ) -> Result<Option<CompleteResponse<'a>>, &'static str> {
        if self.bytes.is_empty() && !is_over {
            // Usually a response arrives in one piece, which needs no copy.
            if let Some((head, at)) = whole(fresh, false)? {
                return body(head, fresh, at, &mut self.body).map(Some);
            }
        }
        self.bytes.extend_from_slice(fresh);
        match whole(&self.bytes, is_over)? {
            Some((head, at)) => body(head, &self.bytes, at, &mut self.body).map(Some),
            None => Ok(None),
        }
    }
}

/// Returns the head and the end of the response if all of it has arrived.
fn whole(input: &[u8], is_over: bool) -> Result<Option<(Headers<'_>, usize)>, &'static str> {
    let head = match read_head(input) {
        ParsedResponse::Complete(head) => head,
        ParsedResponse::Partial if input.len() < HEAD_MAX => return Ok(None),
        ParsedResponse::Partial => return Err(TOO_LONG),
        ParsedResponse::Invalid => return Err(NO_HTTP),
    };
    let start = head.consumed;
    match head.length {
        Length::Bytes(len) if len > BODY_MAX => Err(TOO_LONG),
        Length::Bytes(len) => {
            let end = start + len as usize;
            Ok((input.len() >= end).then_some((head, end)))
        }
        Length::Connection if input.len() as u64 > BODY_MAX => Err(TOO_LONG),
        Length::Connection => Ok(is_over.then_some((head, input.len()))),
        Length::Chunked => {
            let mut at = start;
            loop {
                match read_chunk(input.get(at..).unwrap_or_default()) {
                    Chunk::Partial if input.len() as u64 > BODY_MAX => return Err(TOO_LONG),
                    Chunk::Partial => return Ok(None),
                    Chunk::Data { consumed, .. } => at += consumed,
                    Chunk::End { consumed } => return Ok(Some((head, at + consumed))),
                    Chunk::Invalid => return Err(NO_HTTP),
                }
            }
        }
    }
}

/// Returns the response that ends at `end`. Fails if more bytes follow.
fn body<'a>(
    head: Headers<'_>,
    input: &'a [u8],
    end: usize,
    room: &'a mut Vec<u8>,
) -> Result<CompleteResponse<'a>, &'static str> {
    let Headers { status, keep_alive, length, consumed, .. } = head;
    if input.len() > end {
        return Err(TOO_MUCH);
    }
    let body = input.get(consumed..end).unwrap_or_default();
    if length != Length::Chunked {
        return Ok(CompleteResponse { status, keep_alive, body });
    }
    room.clear();
    let mut at = 0;
    while let Chunk::Data { bytes, consumed } = read_chunk(body.get(at..).unwrap_or_default()) {
        room.extend_from_slice(bytes);
        at += consumed;
    }
    Ok(CompleteResponse { status, keep_alive, body: room })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `text` in pieces of `piece` bytes.
    fn read(text: &[u8], piece: usize) -> Result<(u16, bool, Vec<u8>), &'static str> {
        let mut response = ResponseReader::default();
        let pieces: Vec<&[u8]> = text.chunks(piece).collect();
        for (at, fresh) in pieces.iter().enumerate() {
            if let Some(whole) = response.read(fresh, false)? {
                assert_eq!(at + 1, pieces.len(), "whole before its end");
                return Ok((whole.status, whole.keep_alive, whole.body.to_vec()));
            }
        }
        match response.read(b"", true)? {
            Some(whole) => Ok((whole.status, whole.keep_alive, whole.body.to_vec())),
            None => Err("cut short"),
        }
    }

    #[test]
    fn responses_are_complete_at_their_last_byte() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-LENGTH:  5 \r\n\r\nd1:xe", (200, true)),
            (
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nd1:xe",
                (200, false),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nd1\r\n3\r\n:xe\r\n0\r\n\r\n",
                (200, true),
            ),
            ("HTTP/1.0 404 No\r\n\r\nd1:xe", (404, false)),
        ] {
            for piece in [1, 2, 7, 1000] {
                let found = read(text.as_bytes(), piece).unwrap();
                assert_eq!(found, (expected.0, expected.1, b"d1:xe".to_vec()), "{text}");
            }
        }
    }

    #[test]
    fn rejects_invalid_responses() {
        assert_eq!(read(b"220 mail.test ESMTP\r\n\r\n", 1000), Err(NO_HTTP));
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", 9), Err(TOO_LONG));
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; HEAD_MAX]].concat();
        assert_eq!(read(&endless, 1000), Err(TOO_LONG));
        assert_eq!(read(b"HTTP/1.1 204 OK\r\n\r\nmore", 1000), Err(TOO_MUCH));
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nd1", 9), Err("cut short"));
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert_eq!(read(chunks, 1000), Err(NO_HTTP));
    }
}
