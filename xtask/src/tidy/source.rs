//! A lexer with as much of Rust's grammar as the rules need: which bytes are code, comments or
//! literals, and where inline test modules are. The text must compile; macros count as code.

use std::ops::Range;

/// A Rust text, split by kind. In each part every byte keeps its position: bytes of other kinds are
/// replaced by blanks, newlines are kept.
#[derive(Debug)]
pub(super) struct Source {
    /// The code, without comments and literals.
    pub(super) code: String,
    /// The comments.
    pub(super) comments: String,
    /// The literals, with their quotes.
    pub(super) literals: String,
}

impl Source {
    /// Splits a Rust text.
    pub(super) fn new(text: &str) -> Self {
        let mut lexer = Lexer { text: text.as_bytes(), at: 0, parts: Vec::new() };
        lexer.run();
        let part = |wanted: Part| -> String {
            let mut bytes: Vec<u8> = text.bytes().map(blank).collect();
            for (range, kind) in &lexer.parts {
                if *kind == wanted {
                    bytes[range.clone()].copy_from_slice(&text.as_bytes()[range.clone()]);
                }
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let [code, comments, literals] = [Part::Code, Part::Comment, Part::Literal].map(part);
        Self { code, comments, literals }
    }

    /// Returns the byte ranges of all `#[cfg(test)] mod name { ... }`.
    pub(super) fn test_modules(&self) -> Vec<Range<usize>> {
        let mark = "#[cfg(test)]";
        let mut found = Vec::new();
        for (start, _) in self.code.match_indices(mark) {
            let rest = &self.code[start + mark.len()..];
            let Some(open) = rest.find(['{', ';']) else { continue };
            let head = rest[..open].trim_start();
            if head.starts_with("mod ") && rest[open..].starts_with('{') {
                let open = start + mark.len() + open;
                found.push(start..closing(&self.code, open));
            }
        }
        found
    }

    /// Returns the code with inline test modules blanked. Positions and lines are kept.
    pub(super) fn code_without_tests(&self) -> String {
        let mut bytes = self.code.clone().into_bytes();
        for range in self.test_modules() {
            bytes[range].iter_mut().for_each(|byte| *byte = blank(*byte));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Returns the line of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the positions of `word` in `text`, where it is not part of a longer name.
pub(super) fn words(text: &str, word: &str) -> Vec<usize> {
    let starts = word.starts_with(is_word);
    let ends = word.ends_with(is_word);
    let free = |at: usize| {
        let before = starts && text[..at].ends_with(is_word);
        let after = ends && text[at + word.len()..].starts_with(is_word);
        !before && !after
    };
    text.match_indices(word).map(|(at, _)| at).filter(|at| free(*at)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn blank(byte: u8) -> u8 {
    match byte {
        b'\n' => b'\n',
        _ => b' ',
    }
}

/// Returns the position after the bracket that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Splits a text into code, comments and literals.
struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    parts: Vec<(Range<usize>, Part)>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(rest) = self.text.get(self.at..).filter(|rest| !rest.is_empty()) {
            let start = self.at;
            let part = match rest {
                [b'/', b'/', ..] => self.line_comment(),
                [b'/', b'*', ..] => self.block_comment(),
                [b'"', ..] => self.quoted(b'"'),
                [b'\'', b'\\', ..] => self.quoted(b'\''),
                [b'\'', ..] if is_char(rest) => self.quoted(b'\''),
                [b'r', ..] if !self.in_word() || self.after_prefix() => self.raw(),
                _ => self.one(),
            };
            self.parts.push((start..self.at, part));
        }
    }

    /// Returns whether the previous byte belongs to a name.
    fn in_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    /// Returns whether the previous byte is the `b` or `c` of `br""` or `cr""`.
    fn after_prefix(&self) -> bool {
        match self.text.get(..self.at) {
            Some([.., before, b'b' | b'c']) => !before.is_ascii_alphanumeric() && *before != b'_',
            Some([b'b' | b'c']) => true,
            _ => false,
        }
    }

    fn one(&mut self) -> Part {
        self.at += 1;
        Part::Code
    }

    fn line_comment(&mut self) -> Part {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        Part::Comment
    }

    fn block_comment(&mut self) -> Part {
        let mut depth = 0usize;
        while let Some(rest) = self.text.get(self.at..).filter(|rest| !rest.is_empty()) {
            match rest {
                [b'/', b'*', ..] => depth += 1,
                [b'*', b'/', ..] => depth -= 1,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            self.at += 2;
            if depth == 0 {
                break;
            }
        }
        Part::Comment
    }

    fn quoted(&mut self, quote: u8) -> Part {
        self.at += 1;
        while let Some(byte) = self.text.get(self.at) {
            self.at += match *byte {
                b'\\' => 2,
                _ => 1,
            };
            if *byte == quote {
                break;
            }
        }
        self.at = self.at.min(self.text.len());
        Part::Literal
    }

    /// Reads `r"..."`, `r##"..."##`, or a name that starts with r.
    fn raw(&mut self) -> Part {
        let rest = &self.text[self.at + 1..];
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        if rest.get(hashes) != Some(&b'"') {
            return self.one();
        }
        let mut end = vec![b'"'];
        end.resize(1 + hashes, b'#');
        let inside = &rest[hashes + 1..];
        let length = inside.windows(end.len()).position(|window| window == end);
        self.at += 2 + hashes + length.map_or(inside.len(), |length| length + end.len());
        Part::Literal
    }
}

/// Returns whether a text that starts with `'` is a character literal, not a lifetime.
fn is_char(text: &[u8]) -> bool {
    let head = &text[1..text.len().min(6)];
    let end = head.iter().position(|byte| *byte == b'\'');
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match (end, head.first()) {
        (Some(1), _) => true,
        // A character of several bytes.
        (Some(_), Some(first)) => !first.is_ascii() && !name(first),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
