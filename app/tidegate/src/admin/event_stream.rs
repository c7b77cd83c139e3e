//! Parses server-sent events (HTML Living Standard).

/// Maximum length of a line in bytes. A day of statistics has some 200 kB.
const LINE_MAX: usize = 16 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseMessage {
    pub(crate) name: String,
    pub(crate) data: String,
}

#[derive(Default)]
pub(super) struct SseParser {
    bytes: Vec<u8>,
    /// The index of the first byte that has not been parsed.
    at: usize,
    begun: SseMessage,
}

impl SseParser {
    /// Appends a chunk. Returns false if a line is too long.
    pub(super) fn push(&mut self, chunk: &[u8]) -> bool {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(chunk);
        self.bytes.len() <= LINE_MAX + chunk.len()
    }

    pub(super) fn next(&mut self) -> Option<SseMessage> {
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
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str, data: &str) -> SseMessage {
        SseMessage { name: name.into(), data: data.into() }
    }

    #[test]
    fn parses_events_split_anywhere() {
        let text = ":\n\nevent: ban\nid: 7\ndata: {\"a\": 1}\n\nid: 8\n\ndata:x\r\ndata: y\r\n\r\nevent: z\n";
        let due = [message("ban", "{\"a\": 1}"), message("", "x\ny")];
        for cut in 0..=text.len() {
            let (mut parser, mut found) = (SseParser::default(), Vec::new());
            let (one, two) = text.as_bytes().split_at(cut);
            for chunk in [one, two] {
                assert!(parser.push(chunk));
                found.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(found, due, "cut at {cut}");
        }
    }

    #[test]
    fn refuses_endless_line() {
        let mut parser = SseParser::default();
        let chunk = vec![b'x'; 1 << 20];
        let taken = (0..100).take_while(|_| parser.push(&chunk) && parser.next().is_none());
        assert!((16..=18).contains(&taken.count()));
    }
}
