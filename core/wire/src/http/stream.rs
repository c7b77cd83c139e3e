//! Responses whose length is not known when they begin.

use super::Method;

/// The framing of such a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFraming {
    /// The request's method: HEAD gets no body.
    pub method: Method,
    /// True if the body comes in chunks: the client speaks HTTP/1.1. If not, it ends with the connection.
    pub chunked: bool,
    /// True if the connection stays open, which is possible only after a body in chunks.
    pub keep_alive: bool,
    /// True if the body is compressed.
    pub gzip: bool,
}

impl StreamFraming {
    /// Appends the head of a 200 response.
    pub fn head(self, out: &mut Vec<u8>, content_type: &str) {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\nVary: Accept-Encoding\r\nX-Content-Type-Options: nosniff");
        if self.gzip {
            out.extend_from_slice(b"\r\nContent-Encoding: gzip");
        }
        if self.chunked {
            out.extend_from_slice(b"\r\nTransfer-Encoding: chunked");
        }
        if !self.keep_alive {
            out.extend_from_slice(b"\r\nConnection: close");
        }
        out.extend_from_slice(b"\r\n\r\n");
    }

    /// Appends a part of the body.
    pub fn part(self, out: &mut Vec<u8>, part: &[u8]) {
        // An empty chunk would end the body.
        if part.is_empty() {
            return;
        }
        if self.chunked {
            let digits = format!("{:x}\r\n", part.len());
            out.extend_from_slice(digits.as_bytes());
        }
        out.extend_from_slice(part);
        if self.chunked {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the end of the body.
    pub fn end(self, out: &mut Vec<u8>) {
        if self.chunked {
            out.extend_from_slice(b"0\r\n\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_chunks_unless_the_client_is_too_old() {
        for chunked in [true, false] {
            let framing =
                StreamFraming { method: Method::Get, chunked, keep_alive: chunked, gzip: false };
            let mut out = Vec::new();
            framing.head(&mut out, "text/plain");
            let head = String::from_utf8(out).unwrap();
            assert_eq!(head.contains("Transfer-Encoding: chunked\r\n"), chunked);
            assert_eq!(head.contains("Connection: close\r\n"), !chunked);
            let mut out = Vec::new();
            framing.part(&mut out, b"");
            framing.part(&mut out, &[b'x'; 300]);
            framing.end(&mut out);
            let part = [b'x'; 300];
            match chunked {
                true => assert_eq!(out, [b"12c\r\n", &part[..], b"\r\n0\r\n\r\n"].concat()),
                false => assert_eq!(out, part),
            }
        }
    }
}
