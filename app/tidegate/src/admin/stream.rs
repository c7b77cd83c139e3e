//! Server-sent events (HTML Living Standard), as the API sends them.

use std::time::Duration;

use hyper::body::Incoming;

use super::api::{Api, Stop};

/// How long a stream is silent at most: the API says something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Bytes of a line. A day of figures has some 200 kB.
const LINE_MAX: usize = 16 << 20;

/// A stream of events.
pub(crate) struct Stream<'a> {
    api: &'a Api,
    body: Incoming,
    reader: Reader,
}

/// An event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Which kind it is.
    pub(crate) name: String,
    pub(crate) data: String,
}

impl<'a> Stream<'a> {
    pub(super) fn new(api: &'a Api, body: Incoming) -> Self {
        Self { api, body, reader: Reader::default() }
    }

    /// The next event, waited for as long as it takes; nothing once the tracker has ended the stream.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Stop> {
        loop {
            if let Some(message) = self.reader.next() {
                return Ok(Some(message));
            }
            let piece = self.api.next_piece(&mut self.body, SILENCE)?;
            let Some(piece) = piece else { return Ok(None) };
            if !self.reader.take(&piece) {
                let url = self.api.url();
                return Err(Stop::Failed(format!("{url} sends a line without end")));
            }
        }
    }
}

/// Makes events of bytes that come in pieces.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
    /// Where the bytes begin that are not read yet.
    at: usize,
    begun: Message,
}

impl Reader {
    /// Takes the next piece. False if a line is too long.
    fn take(&mut self, piece: &[u8]) -> bool {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(piece);
        self.bytes.len() <= LINE_MAX + piece.len()
    }

    fn next(&mut self) -> Option<Message> {
        loop {
            let rest = self.bytes.get(self.at..)?;
            let len = rest.iter().position(|byte| *byte == b'\n')?;
            let line = String::from_utf8_lossy(rest.get(..len)?);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            self.at += len + 1;
            if line.is_empty() {
                let whole = std::mem::take(&mut self.begun);
                if !whole.data.is_empty() {
                    return Some(whole);
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.begun.name = value.into(),
                "data" => {
                    if !self.begun.data.is_empty() {
                        self.begun.data.push('\n');
                    }
                    self.begun.data.push_str(value);
                }
                // A comment, which shows that somebody is there; or a number.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, data: &str) -> Message {
        Message { name: name.into(), data: data.into() }
    }

    #[test]
    fn events_are_the_same_wherever_they_are_cut() {
        let text = ":\n\nevent: ban\nid: 7\ndata: {\"a\": 1}\n\nid: 8\n\ndata:x\r\ndata: y\r\n\r\nevent: z\n";
        let due = [message("ban", "{\"a\": 1}"), message("", "x\ny")];
        for cut in 0..=text.len() {
            let (mut reader, mut found) = (Reader::default(), Vec::new());
            let (one, two) = text.as_bytes().split_at(cut);
            for piece in [one, two] {
                assert!(reader.take(piece));
                found.extend(std::iter::from_fn(|| reader.next()));
            }
            assert_eq!(found, due, "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut reader = Reader::default();
        let piece = vec![b'x'; 1 << 20];
        let taken = (0..100).take_while(|_| reader.take(&piece) && reader.next().is_none());
        assert!((16..=18).contains(&taken.count()));
    }
}
