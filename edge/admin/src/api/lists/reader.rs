//! Parses info hashes from a body that arrives in pieces: a JSON array of strings, or lines of text. Holds 20
//! bytes for each hash, and the partial one at the end of a piece.

use types::InfoHash;

/// An incremental parser. Public for the fuzz target.
pub struct Reader {
    format: Format,
    hashes: Vec<InfoHash>,
    /// The start of a hash or line that continues in the next piece.
    partial: Vec<u8>,
    /// The number of the current line, from 1.
    line: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// Text, within a comment.
    Comment,
    Json(JsonState),
}

/// Position in the array: what may come next.
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

/// Digits of a v2 hash, the longest.
const HASH_MAX: usize = 64;
/// Maximum length of a line in bytes, without its comment.
const LINE_MAX: usize = 1024;

impl Reader {
    /// Reads one hash per line.
    pub fn text() -> Self {
        Self { format: Format::Text, hashes: Vec::new(), partial: Vec::new(), line: 1 }
    }

    /// Reads an array of strings.
    pub fn json() -> Self {
        Self { format: Format::Json(JsonState::Start), ..Self::text() }
    }

    /// Returns the number of hashes so far.
    #[expect(clippy::len_without_is_empty, reason = "nothing asks")]
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Parses the next piece.
    ///
    /// # Errors
    ///
    /// If the piece is malformed: a sentence that names the line or item.
    pub fn read(&mut self, piece: &[u8]) -> Result<(), String> {
        piece.iter().try_for_each(|byte| self.byte(*byte))
    }

    /// Returns all hashes.
    ///
    /// # Errors
    ///
    /// If the body is incomplete.
    pub fn end(mut self) -> Result<Vec<InfoHash>, String> {
        match self.format {
            Format::Json(JsonState::End) => {}
            Format::Json(_) => return Err("expected `]` at the end of the array".into()),
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
            (Format::Text, byte) => self.push_byte(byte, LINE_MAX)?,
            (Format::Json(place), byte) => self.format = Format::Json(self.json_byte(place, byte)?),
        }
        Ok(())
    }

    fn json_byte(&mut self, place: JsonState, byte: u8) -> Result<JsonState, String> {
        Ok(match (place, byte) {
            (JsonState::Inside, b'"') => {
                self.finish_hash()?;
                JsonState::Behind
            }
            (JsonState::Inside, byte) => {
                self.push_byte(byte, HASH_MAX)?;
                JsonState::Inside
            }
            (place, b' ' | b'\t' | b'\r' | b'\n') => place,
            (JsonState::Start, b'[') => JsonState::First,
            (JsonState::First | JsonState::Next, b'"') => JsonState::Inside,
            (JsonState::First | JsonState::Behind, b']') => JsonState::End,
            (JsonState::Behind, b',') => JsonState::Next,
            _ => {
                let at = self.hashes.len() + 1;
                return Err(format!("item {at}: expected an array of strings"));
            }
        })
    }

    fn push_byte(&mut self, byte: u8, len_max: usize) -> Result<(), String> {
        if self.partial.len() == len_max {
            return Err(format!("{}: longer than {len_max} bytes", self.location()));
        }
        self.partial.push(byte);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), String> {
        let hash = InfoHash::from_line(&self.partial);
        self.hashes.extend(hash.map_err(|error| format!("{}: {error}", self.location()))?);
        self.partial.clear();
        Ok(())
    }

    fn finish_hash(&mut self) -> Result<(), String> {
        let hash = InfoHash::from_hex(&self.partial);
        self.hashes.push(hash.map_err(|error| format!("{}: {error}", self.location()))?);
        self.partial.clear();
        Ok(())
    }

    fn location(&self) -> String {
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

    /// Parses it whole, and cut at every byte: the outcome must be the same.
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
    fn parses_lines_of_text() {
        let v2 = "ab".repeat(32);
        let text = |body: &str| read(Reader::text, body);
        assert_eq!(text(&format!("{A}\n\n# all of it\n  {v2} # v2\r\n{A} a note\t# x")), Ok(3));
        assert_eq!(text(""), Ok(0));
        let bad = text(&format!("{A}\nnonsense\n")).unwrap_err();
        assert!(bad.starts_with("line 2: expected 40 or 64 hex digits, found 8"), "{bad}");
        let two = text(&format!("{A} {A}\n")).unwrap_err();
        assert_eq!(two, "line 1: expected one info hash per line, found two");
        assert!(text(&"a".repeat(10_000)).unwrap_err().contains("longer than"));
    }

    #[test]
    fn parses_an_array_of_strings() {
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
