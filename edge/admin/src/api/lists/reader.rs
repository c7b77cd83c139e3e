//! Reads info hashes from a body that comes in pieces: a JSON array of strings, or lines of text. What
//! is kept is 20 bytes for each, and the one that a piece ends within.

use types::InfoHash;

/// What is read so far.
pub(super) struct Reader {
    format: Format,
    hashes: Vec<InfoHash>,
    /// A hash, or a line, that goes on in the next piece.
    partial: Vec<u8>,
    /// From 1.
    line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// Within a comment.
    Comment,
    Json(JsonState),
}

/// What may come next in the array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonState {
    Start,
    /// The first string, or the end.
    First,
    Inside,
    /// A comma, or the end.
    Behind,
    /// A string.
    Next,
    End,
}

/// A v2 hash has 64 digits; what is longer is none.
const HASH_MAX: usize = 64;

/// Bytes of the first line, its end included.
fn line_len(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1)
}

impl Reader {
    pub(super) fn text() -> Self {
        Self { format: Format::Text, hashes: Vec::new(), partial: Vec::new(), line: 1 }
    }

    pub(super) fn json() -> Self {
        Self { format: Format::Json(JsonState::Start), ..Self::text() }
    }

    /// How many hashes there are.
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Takes the next piece, or says what is wrong with it.
    pub(super) fn read(&mut self, piece: &[u8]) -> Result<(), String> {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.plain_line(rest) {
                Some(behind) => behind,
                None => {
                    let (line, behind) = rest.split_at(line_len(rest));
                    line.iter().try_for_each(|byte| self.byte(*byte))?;
                    behind
                }
            };
        }
        Ok(())
    }

    /// Takes a line that is a v1 hash and nothing else, as most are; gives what is behind it.
    fn plain_line<'a>(&mut self, text: &'a [u8]) -> Option<&'a [u8]> {
        if self.format != Format::Text || !self.partial.is_empty() {
            return None;
        }
        let (line, rest) = text.split_first_chunk::<40>()?;
        let rest = rest.strip_prefix(b"\n")?;
        self.hashes.push(InfoHash::from_hex(line).ok()?);
        self.line += 1;
        Some(rest)
    }

    /// All hashes, if the body may end here.
    pub(super) fn end(mut self) -> Result<Vec<InfoHash>, String> {
        match self.format {
            Format::Json(JsonState::End) => {}
            Format::Json(_) => return Err("the array does not end".into()),
            Format::Text | Format::Comment => self.end_line()?,
        }
        Ok(self.hashes)
    }

    fn byte(&mut self, byte: u8) -> Result<(), String> {
        match (self.format, byte) {
            (Format::Text | Format::Comment, b'\n') => {
                self.end_line()?;
                self.line += 1;
                self.format = Format::Text;
            }
            (Format::Comment, _) => {}
            (Format::Text, b'#') => self.format = Format::Comment,
            (Format::Text, byte) => {
                // Blanks around a hash do not count; those within it make it none.
                let is_blank = byte.is_ascii_whitespace();
                if !is_blank || !self.partial.is_empty() {
                    self.keep(byte)?;
                }
            }
            (Format::Json(place), byte) => self.format = Format::Json(self.json_byte(place, byte)?),
        }
        Ok(())
    }

    fn json_byte(&mut self, place: JsonState, byte: u8) -> Result<JsonState, String> {
        Ok(match (place, byte) {
            (JsonState::Inside, b'"') => {
                self.take()?;
                JsonState::Behind
            }
            (JsonState::Inside, byte) => {
                self.keep(byte)?;
                JsonState::Inside
            }
            (place, b' ' | b'\t' | b'\r' | b'\n') => place,
            (JsonState::Start, b'[') => JsonState::First,
            (JsonState::First | JsonState::Next, b'"') => JsonState::Inside,
            (JsonState::First | JsonState::Behind, b']') => JsonState::End,
            (JsonState::Behind, b',') => JsonState::Next,
            _ => {
                let at = self.hashes.len() + 1;
                return Err(format!("an array of strings is due, but not so at item {at}"));
            }
        })
    }

    fn keep(&mut self, byte: u8) -> Result<(), String> {
        // Room for blanks behind a hash.
        if self.partial.len() > 4 * HASH_MAX {
            return Err(format!("{}: too long for an info hash", self.place()));
        }
        self.partial.push(byte);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), String> {
        let len = self.partial.trim_ascii_end().len();
        self.partial.truncate(len);
        if self.partial.is_empty() { Ok(()) } else { self.take() }
    }

    fn take(&mut self) -> Result<(), String> {
        let hash = InfoHash::from_hex(&self.partial);
        self.hashes.push(hash.map_err(|error| format!("{}: {error}", self.place()))?);
        self.partial.clear();
        Ok(())
    }

    fn place(&self) -> String {
        match self.format {
            Format::Json(_) => format!("item {}", self.hashes.len() + 1),
            _ => format!("line {}", self.line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0123456789abcdefABCDEF0123456789abcdef01";

    /// Reads it whole, and cut at every byte: the outcome must be the same.
    fn read(new: fn() -> Reader, body: &str) -> Result<usize, String> {
        let cut = |at: usize| {
            let mut reader = new();
            let (one, two) = body.as_bytes().split_at(at);
            reader.read(one)?;
            reader.read(two)?;
            reader.end().map(|hashes| hashes.len())
        };
        let whole = cut(0);
        for at in 0..body.len() {
            assert_eq!(cut(at), whole, "cut at {at}");
        }
        whole
    }

    #[test]
    fn lines_of_text() {
        let v2 = "ab".repeat(32);
        let text = |body: &str| read(Reader::text, body);
        assert_eq!(text(&format!("{A}\n\n# all of it\n  {v2} # v2\r\n{A}")), Ok(3));
        assert_eq!(text(""), Ok(0));
        let bad = text(&format!("{A}\nnonsense\n")).unwrap_err();
        assert!(bad.starts_with("line 2: 8 characters"), "{bad}");
        assert!(text(&format!("{A} {A}\n")).is_err());
        assert!(text(&"a".repeat(10_000)).unwrap_err().contains("too long"));
    }

    #[test]
    fn an_array_of_strings() {
        let json = |body: &str| read(Reader::json, body);
        assert_eq!(json(&format!(" [ \"{A}\" ,\n\"{A}\"] ")), Ok(2));
        assert_eq!(json("[]"), Ok(0));
        for bad in ["", "[", "{}", "[,]", "null", "[1]", "[\"x\"]", "[[]]"] {
            assert!(json(bad).is_err(), "{bad}");
        }
        for bad in ["[\"A\"", "[\"A\",]", "[\"A\" \"A\"]", "[\"A\"]]", "[\"A\\u0061\"]"] {
            assert!(json(&bad.replace('A', A)).is_err(), "{bad}");
        }
    }
}
