//! As much of Rust's grammar as the rules need: what is code, what is comment, where functions and
//! inline test modules begin and end. Good for files that compile; macros count as code.

use std::ops::Range;

/// A Rust text taken apart. Both parts keep every byte at its place: what belongs to the other is
/// blanked, newlines stay.
#[derive(Debug)]
pub(super) struct Source {
    /// Without comments and the insides of literals.
    pub(super) code: String,
    /// Only the comments.
    pub(super) comments: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    /// Of the `fn` keyword, from 1.
    pub(super) line: usize,
    /// From the `fn` keyword to the closing brace.
    pub(super) lines: usize,
    /// Without `self`.
    pub(super) parameters: usize,
}

impl Source {
    /// Takes a Rust text apart.
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
        Self { code: part(Part::Code), comments: part(Part::Comment) }
    }

    /// Byte ranges of `#[cfg(test)] mod name { ... }`.
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

    /// The code without inline test modules; byte places and lines are kept.
    pub(super) fn code_without_tests(&self) -> String {
        let mut bytes = self.code.clone().into_bytes();
        for range in self.test_modules() {
            bytes[range].iter_mut().for_each(|byte| *byte = blank(*byte));
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Every function that has a body, inner ones too.
    pub(super) fn functions(&self) -> Vec<Function<'_>> {
        let places = words(&self.code, "fn");
        places.into_iter().filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function<'_>> {
        let code = &self.code;
        let name_at = at + 2 + code[at + 2..].find(|c: char| !c.is_whitespace())?;
        let name_end = name_at + code[name_at..].find(|c: char| !is_word(c))?;
        if name_at == name_end {
            return None; // The type of a function pointer.
        }
        let open = name_end + code[name_end..].find(['(', '<'])?;
        let open = match code.as_bytes()[open] {
            b'<' => open + angle_end(&code[open..])?,
            _ => open,
        };
        let open = open + code[open..].find('(')?;
        let close = closing(code, open);
        let body = body_start(code, close)?;
        let line = line_of(code, at);
        Some(Function {
            name: &code[name_at..name_end],
            line,
            lines: line_of(code, closing(code, body) - 1) - line + 1,
            parameters: parameters(&code[open + 1..close - 1]),
        })
    }
}

/// The line of a byte, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Where `word` stands in `text`, not as part of a longer name.
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

/// The byte after the bracket that closes the one at `open`.
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

/// The byte after the `>` that closes the `<` at the start; `->` is no bracket.
fn angle_end(code: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before != b'-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = byte;
    }
    None
}

/// Where the body of a function opens, after its parameters; `None` for a declaration.
fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// How many parameters a list holds, without `self`.
fn parameters(list: &str) -> usize {
    let mut depth = 0i32;
    let mut before = 0;
    let mut count = 0;
    let mut start = 0;
    let mut end = |piece: &str| {
        let name = piece.split(':').next().unwrap_or_default();
        let is_self = !words(name, "self").is_empty();
        count += usize::from(!piece.trim().is_empty() && !is_self);
    };
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'>' if before != b'-' => depth -= 1,
            b',' if depth == 0 => {
                end(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = byte;
    }
    end(&list[start..]);
    count
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

/// Cuts a text into code, comments and literals.
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

    /// Whether the byte before belongs to a name.
    fn in_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.text.get(at));
        before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    /// Whether the byte before is the `b` or `c` of `br""`, `cr""`.
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

    /// `r"..."`, `r##"..."##`, or just a name that begins with r.
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

/// Whether a text that begins with `'` is a character, not a lifetime.
fn is_char(text: &[u8]) -> bool {
    let head = &text[1..text.len().min(6)];
    let end = head.iter().position(|byte| *byte == b'\'');
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    match (end, head.first()) {
        (Some(1), _) => true,
        // One character of several bytes.
        (Some(_), Some(first)) => !first.is_ascii() && !name(first),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
