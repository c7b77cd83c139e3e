//! Words, quoted texts, numbers and symbols of SQL, without the blanks and comments between them.

use std::io::Read;
use std::sync::Arc;

use memchr::memchr2;

use super::bytes::Bytes;
use crate::error::ImportError;
use crate::row::Field;

/// Comments at the beginning and at the end of a dump of mysqldump.
const BEGINNINGS: [&[u8]; 2] = [b"-- MySQL dump ", b"-- MariaDB dump "];
const END: &[u8] = b"-- Dump completed";
/// Bytes of a comment that are looked at.
const COMMENT: usize = 32;

/// A token. Its text is in the field that it was read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word,
    /// A text between these quotes, without them and without escapes.
    Quoted(u8),
    /// Anything that begins like a number, such as `-1.5e3` or `0xff`.
    Number,
    Symbol(u8),
    /// The end of the file.
    End,
}

pub(super) struct Tokens<R> {
    pub(super) bytes: Bytes<R>,
    pub(super) last: Token,
    /// True if a backslash in a string begins an escape, as in MySQL.
    pub(super) has_escapes: bool,
    /// True once mysqldump has begun the dump, and once it has said that it is complete.
    begins_as_dump: bool,
    is_complete: bool,
}

impl<R: Read> Tokens<R> {
    pub(super) fn new(input: R, file: &Arc<str>) -> Self {
        Self {
            bytes: Bytes::new(input, file),
            last: Token::End,
            has_escapes: true,
            begins_as_dump: false,
            is_complete: false,
        }
    }

    /// Reads the next token, with its text into `field`.
    pub(super) fn read(&mut self, field: &mut Field) -> Result<Token, ImportError> {
        field.clear();
        self.last = self.token(field)?;
        Ok(self.last)
    }

    /// Reads the next token. Returns its text, too.
    pub(super) fn next(&mut self) -> Result<(Token, String), ImportError> {
        let mut field = Field::default();
        let token = self.read(&mut field)?;
        Ok((token, String::from_utf8_lossy(&field.bytes).into_owned()))
    }

    /// Returns a name; of `database.table`, the last part. Returns true, too, if it is in quotes.
    pub(super) fn name(&mut self) -> Result<(String, bool), ImportError> {
        loop {
            let (token, name) = self.next()?;
            let is_quoted = matches!(token, Token::Quoted(_));
            if !is_quoted && token != Token::Word {
                return Err(self.unexpected("a name", &name));
            }
            if self.bytes.peek()? != Some(b'.') {
                return Ok((name, is_quoted));
            }
            self.bytes.bump()?;
        }
    }

    /// Passes the rest of a statement and its semicolon. The last one needs none.
    pub(super) fn skip_statement(&mut self) -> Result<(), ImportError> {
        let mut field = Field::default();
        while !matches!(self.last, Token::Symbol(b';') | Token::End) {
            self.read(&mut field)?;
        }
        Ok(())
    }

    pub(super) fn error(&self, text: &str) -> ImportError {
        self.bytes.place().error(text)
    }

    /// Returns an error about the last token, which has this text.
    pub(super) fn unexpected(&self, expected: &str, text: &str) -> ImportError {
        let found = match self.last {
            Token::End => return self.truncated(),
            Token::Symbol(symbol) => symbol.escape_ascii().to_string(),
            _ => text.escape_debug().to_string(),
        };
        self.error(&format!("expected {expected}, found `{found}`"))
    }

    /// mysqldump says when it is complete.
    pub(super) fn check_end(&self) -> Result<(), ImportError> {
        if self.begins_as_dump && !self.is_complete {
            return Err(self.error(
                "expected `-- Dump completed` at the end, found none: the dump is not complete",
            ));
        }
        Ok(())
    }

    fn truncated(&self) -> ImportError {
        self.error(
            "expected the rest of a statement, found the end of the file: the dump is not complete",
        )
    }

    fn must_bump(&mut self) -> Result<u8, ImportError> {
        let byte = self.bytes.bump()?;
        byte.ok_or_else(|| self.truncated())
    }

    fn token(&mut self, field: &mut Field) -> Result<Token, ImportError> {
        loop {
            let Some(byte) = self.bytes.peek()? else { return Ok(Token::End) };
            match byte {
                b'#' => drop(self.bytes.line(0)?),
                byte if byte.is_ascii_whitespace() => drop(self.bytes.bump()?),
                b'-' | b'/' => {
                    self.bytes.bump()?;
                    if !self.skip_comment(byte)? {
                        return self.sign(byte, field);
                    }
                }
                b'+' | b'.' | b'0'..=b'9' => {
                    return self.number(field);
                }
                b'\'' | b'"' | b'`' => return self.quoted(byte, field),
                b'[' => return self.quoted(b']', field),
                byte if is_word(byte) => {
                    self.while_bytes(is_word, field)?;
                    return Ok(Token::Word);
                }
                symbol => {
                    self.bytes.bump()?;
                    return Ok(Token::Symbol(symbol));
                }
            }
        }
    }

    /// Passes a comment that begins with `first`, which has been read. Returns false if there is none.
    fn skip_comment(&mut self, first: u8) -> Result<bool, ImportError> {
        match (first, self.bytes.peek()?) {
            (b'-', Some(b'-')) => {
                let rest = self.bytes.line(COMMENT)?.unwrap_or_default();
                let comment = [b"-", rest.as_slice()].concat();
                self.begins_as_dump |= BEGINNINGS.iter().any(|begin| comment.starts_with(begin));
                self.is_complete |= comment.starts_with(END);
                Ok(true)
            }
            (b'/', Some(b'*')) => {
                self.bytes.bump()?;
                let mut last = 0;
                loop {
                    let byte = self.must_bump()?;
                    if last == b'*' && byte == b'/' {
                        return Ok(true);
                    }
                    last = byte;
                }
            }
            _ => Ok(false),
        }
    }

    /// Reads the number behind a sign, which has been read, or returns that as a symbol.
    fn sign(&mut self, sign: u8, field: &mut Field) -> Result<Token, ImportError> {
        match self.bytes.peek()? {
            Some(b'.' | b'0'..=b'9') if sign == b'-' => {
                field.push(sign);
                self.number(field)
            }
            _ => Ok(Token::Symbol(sign)),
        }
    }

    fn number(&mut self, field: &mut Field) -> Result<Token, ImportError> {
        self.while_bytes(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte), field)?;
        Ok(Token::Number)
    }

    fn while_bytes(
        &mut self,
        is_part: impl Fn(u8) -> bool,
        field: &mut Field,
    ) -> Result<(), ImportError> {
        while let Some(byte) = self.bytes.peek()?.filter(|byte| is_part(*byte)) {
            field.push(byte);
            self.bytes.bump()?;
        }
        Ok(())
    }

    /// Reads a text up to its closing quote, which is written twice within it.
    fn quoted(&mut self, end: u8, field: &mut Field) -> Result<Token, ImportError> {
        self.bytes.bump()?;
        let has_escapes = self.has_escapes && matches!(end, b'\'' | b'"');
        let escape = if has_escapes { b'\\' } else { end };
        loop {
            let buffered = self.bytes.buffered()?;
            let count = memchr2(end, escape, buffered).unwrap_or(buffered.len());
            let (plain, _) = buffered.split_at(count);
            field.extend(plain);
            self.bytes.pass(count);
            let byte = self.must_bump()?;
            if byte == end {
                if self.bytes.peek()? != Some(end) {
                    return Ok(Token::Quoted(end));
                }
                self.bytes.bump()?;
                field.push(end);
            } else if byte == escape {
                field.push(unescaped(self.must_bump()?));
            } else {
                // The next buffer begins here.
                field.push(byte);
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'0' => 0,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'Z' => 26,
        other => other,
    }
}
