//! Parsing of responses.

use client::codec::http::{Chunk, Length, ParsedResponse, read_chunk, read_head};

#[derive(Debug, PartialEq)]
pub(super) struct CompleteResponse<'a> {
    pub(super) status: u16,
    pub(super) keep_alive: bool,
    pub(super) body: &'a [u8],
}

/// Errors of invalid responses.
const NO_HTTP: &str = "the response is not HTTP";
pub(super) const TOO_MUCH: &str = "unexpected bytes after the response";

/// Returns the response in `input` once it is complete. `is_over` means that no more input follows. `room` is for the
/// body of a chunked response.
pub(super) fn read<'a>(
    input: &'a [u8],
    is_over: bool,
    room: &'a mut Vec<u8>,
) -> Result<Option<CompleteResponse<'a>>, &'static str> {
    let head = match read_head(input) {
        ParsedResponse::Complete(head) => head,
        ParsedResponse::Partial => return Ok(None),
        ParsedResponse::Invalid => return Err(NO_HTTP),
    };
    let rest = input.get(head.consumed..).unwrap_or_default();
    let body = match head.length {
        Length::Bytes(len) if rest.len() as u64 > len => return Err(TOO_MUCH),
        Length::Bytes(len) => (rest.len() as u64 == len).then_some(rest),
        Length::Connection => is_over.then_some(rest),
        Length::Chunked => chunks(rest, room)?,
    };
    let (status, keep_alive) = (head.status, head.keep_alive);
    Ok(body.map(|body| CompleteResponse { status, keep_alive, body }))
}

/// Returns the body of a chunked response once it is complete.
fn chunks<'a>(input: &[u8], room: &'a mut Vec<u8>) -> Result<Option<&'a [u8]>, &'static str> {
    room.clear();
    let mut at = 0;
    loop {
        match read_chunk(input.get(at..).unwrap_or_default()) {
            Chunk::Partial => return Ok(None),
            Chunk::Data { bytes, consumed } => {
                room.extend_from_slice(bytes);
                at += consumed;
            }
            Chunk::End { consumed } if at + consumed == input.len() => return Ok(Some(room)),
            Chunk::End { .. } => return Err(TOO_MUCH),
            Chunk::Invalid => return Err(NO_HTTP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a response whose last byte must complete it.
    fn parse(text: &[u8]) -> Result<(u16, bool, Vec<u8>), &'static str> {
        let mut room = Vec::new();
        for len in 0..text.len() {
            assert_eq!(read(&text[..len], false, &mut room)?, None, "complete before its end");
        }
        match read(text, true, &mut room)? {
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
            let found = parse(text.as_bytes()).unwrap();
            assert_eq!(found, (expected.0, expected.1, b"d1:xe".to_vec()), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_responses() {
        let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        for (text, expected) in [
            (&b"220 mail.test ESMTP\r\n\r\n"[..], NO_HTTP),
            (b"HTTP/1.1 204 OK\r\n\r\nmore", TOO_MUCH),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nd1", "cut short"),
            (chunks, NO_HTTP),
        ] {
            assert_eq!(
                read(text, true, &mut Vec::new()).and_then(|it| it.map(drop).ok_or("cut short")),
                Err(expected)
            );
        }
    }
}
