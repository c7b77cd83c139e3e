//! Words, names and values of SQL.

use std::io::Read;

use memchr::memchr2;

use super::{COLUMNS_MAX, Dump, NAME_MAX};
use crate::error::ImportError;
use crate::row::Field;

impl<R: Read> Dump<'_, R> {
    pub(super) fn error(&self, text: &str) -> ImportError {
        self.bytes.place().error(text)
    }

    pub(super) fn unexpected(&self, expected: &str, found: u8) -> ImportError {
        self.error(&format!("expected {expected}, found `{}`", found.escape_ascii()))
    }

    fn truncated(&self) -> ImportError {
        self.error(
            "expected the rest of a statement, found the end of the file: the dump is not complete",
        )
    }

    /// Passes the next byte; the end of the file is an error.
    pub(super) fn must_bump(&mut self) -> Result<u8, ImportError> {
        let byte = self.bytes.bump()?;
        byte.ok_or_else(|| self.truncated())
    }

    /// Passes blanks and comments. Returns false at the end of the file.
    pub(super) fn skip_blanks(&mut self) -> Result<bool, ImportError> {
        loop {
            let buffered = self.bytes.buffered()?;
            match buffered {
                [] => return Ok(false),
                [byte, ..] if byte.is_ascii_whitespace() => {
                    let blanks = buffered.iter().take_while(|byte| byte.is_ascii_whitespace());
                    let count = blanks.count();
                    self.bytes.pass(count);
                }
                [b'#', ..] => drop(self.bytes.line(0)?),
                [b'-' | b'/', ..] => {
                    if !self.skip_comment()? {
                        return Ok(true);
                    }
                }
                _ => return Ok(true),
            }
        }
    }

    /// Passes a comment. Returns false if what begins with `-` or `/` is none.
    fn skip_comment(&mut self) -> Result<bool, ImportError> {
        // Its second byte may be in the next buffer, so the first is passed. Signs of numbers that matter are read by
        // `value`.
        let first = self.must_bump()?;
        match (first, self.bytes.peek()?) {
            (b'-', Some(b'-')) => {
                self.bytes.line(0)?;
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
            // A minus or a division in a statement that is skipped.
            _ => Ok(false),
        }
    }

    /// Passes blanks and, if it is next, `byte`. Returns whether it was.
    pub(super) fn next_is(&mut self, byte: u8) -> Result<bool, ImportError> {
        self.skip_blanks()?;
        let is_next = self.bytes.peek()? == Some(byte);
        if is_next {
            self.bytes.bump()?;
        }
        Ok(is_next)
    }

    /// Returns the word that is next, in lower case; an empty one if something else is.
    pub(super) fn bare_word(&mut self) -> Result<String, ImportError> {
        let mut word = String::new();
        while let Some(byte) = self.bytes.peek()?
            && (byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80)
        {
            if word.len() < NAME_MAX {
                word.push(byte.to_ascii_lowercase().into());
            }
            self.bytes.bump()?;
        }
        Ok(word)
    }

    /// Returns a name; of `database.table`, the last part.
    pub(super) fn name(&mut self) -> Result<String, ImportError> {
        loop {
            self.skip_blanks()?;
            let name = match self.bytes.peek()? {
                Some(quote @ (b'`' | b'"')) => self.quoted_name(quote)?,
                Some(b'[') => self.quoted_name(b']')?,
                _ => self.plain_name()?,
            };
            if self.bytes.peek()? != Some(b'.') {
                return Ok(name);
            }
            self.bytes.bump()?;
        }
    }

    fn plain_name(&mut self) -> Result<String, ImportError> {
        let mut name = Vec::new();
        while let Some(byte) = self.bytes.peek()?
            && (byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80)
        {
            self.push_name(&mut name, byte)?;
            self.bytes.bump()?;
        }
        if name.is_empty() {
            let found = self.must_bump()?;
            return Err(self.unexpected("a name", found));
        }
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    /// Reads a name up to its closing `quote`, which is written twice within it.
    fn quoted_name(&mut self, quote: u8) -> Result<String, ImportError> {
        self.bytes.bump()?;
        let mut name = Vec::new();
        loop {
            let byte = self.must_bump()?;
            if byte == quote && self.bytes.peek()? != Some(quote) {
                return Ok(String::from_utf8_lossy(&name).into_owned());
            }
            if byte == quote {
                self.bytes.bump()?;
            }
            self.push_name(&mut name, byte)?;
        }
    }

    fn push_name(&self, name: &mut Vec<u8>, byte: u8) -> Result<(), ImportError> {
        if name.len() == NAME_MAX {
            return Err(self.error(&format!("expected a name of at most {NAME_MAX} bytes")));
        }
        name.push(byte);
        Ok(())
    }

    /// Reads names up to a closing parenthesis.
    pub(super) fn names(&mut self) -> Result<Vec<String>, ImportError> {
        let mut names = Vec::new();
        loop {
            names.push(self.name()?);
            if names.len() > COLUMNS_MAX {
                return Err(self.error(&format!("expected at most {COLUMNS_MAX} columns")));
            }
            self.skip_blanks()?;
            match self.must_bump()? {
                b',' => {}
                b')' => return Ok(names),
                other => return Err(self.unexpected("`,` or `)`", other)),
            }
        }
    }

    /// Reads a value.
    pub(super) fn value(&mut self, field: &mut Field) -> Result<(), ImportError> {
        field.clear();
        // Not `skip_blanks`: it would take the sign of a number for the beginning of a comment.
        while self.bytes.peek()?.is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.bytes.bump()?;
        }
        match self.bytes.peek()? {
            Some(quote @ (b'\'' | b'"')) => self.string(quote, field),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(field),
            Some(b'(') => Err(self.error("expected a value, found an expression")),
            Some(_) => self.word_value(field),
            None => Err(self.truncated()),
        }
    }

    /// Reads a number, or hexadecimal bytes as `0x…`.
    fn number(&mut self, field: &mut Field) -> Result<(), ImportError> {
        while let Some(byte) = self.bytes.peek()?
            && (byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
        {
            field.push(byte);
            self.bytes.bump()?;
            if field.bytes == b"0x" || field.bytes == b"0X" {
                field.clear();
                return self.hex(field);
            }
        }
        Ok(())
    }

    /// Reads hex digits as bytes.
    fn hex(&mut self, field: &mut Field) -> Result<(), ImportError> {
        let mut high = None;
        while let Some(digit) = self.bytes.peek()?.and_then(|byte| char::from(byte).to_digit(16)) {
            let digit = digit as u8;
            self.bytes.bump()?;
            match high.take() {
                None => high = Some(digit << 4),
                Some(high) => field.push(high | digit),
            }
        }
        if high.is_some() {
            return Err(self.error("expected an even number of hex digits"));
        }
        Ok(())
    }

    /// Reads a value that begins with a letter: NULL, TRUE, FALSE, `X'…'`, `b'…'`, or a string behind the
    /// name of its character set.
    fn word_value(&mut self, field: &mut Field) -> Result<(), ImportError> {
        let word = self.bare_word()?;
        match word.as_str() {
            "null" | "default" => field.is_null = true,
            "true" => field.push(b'1'),
            "false" => field.push(b'0'),
            "" => {
                let found = self.must_bump()?;
                return Err(self.unexpected("a value", found));
            }
            _ => {
                while self.bytes.peek()?.is_some_and(|byte| byte.is_ascii_whitespace()) {
                    self.bytes.bump()?;
                }
                let quote = self.bytes.peek()?;
                return match (word.as_str(), quote) {
                    ("x", Some(b'\'')) => {
                        self.bytes.bump()?;
                        self.hex(field)?;
                        match self.must_bump()? {
                            b'\'' => Ok(()),
                            other => Err(self.unexpected("a hex digit or `'`", other)),
                        }
                    }
                    ("b", Some(b'\'')) => {
                        let mut bits = Field::default();
                        self.string(b'\'', &mut bits)?;
                        let is_set = bits.bytes.contains(&b'1');
                        field.push(if is_set { b'1' } else { b'0' });
                        Ok(())
                    }
                    (_, Some(quote @ (b'\'' | b'"'))) => self.string(quote, field),
                    _ => Err(self.error(&format!("expected a value, found {word}"))),
                };
            }
        }
        Ok(())
    }

    /// Reads a string in quotes.
    fn string(&mut self, quote: u8, field: &mut Field) -> Result<(), ImportError> {
        self.bytes.bump()?;
        loop {
            let escape = if self.backslash_escapes { b'\\' } else { quote };
            let buffered = self.bytes.buffered()?;
            let count = memchr2(quote, escape, buffered).unwrap_or(buffered.len());
            let (plain, _) = buffered.split_at(count);
            field.extend(plain);
            self.bytes.pass(count);
            let Some(byte) = self.bytes.bump()? else { return Err(self.truncated()) };
            if byte == quote {
                if self.bytes.peek()? != Some(quote) {
                    return Ok(());
                }
                self.bytes.bump()?;
                field.push(quote);
            } else if byte == escape {
                let escaped = self.must_bump()?;
                field.push(unescaped(escaped));
            } else {
                // The next buffer begins here.
                field.push(byte);
            }
        }
    }

    /// Passes a string or quoted name up to its end.
    pub(super) fn skip_quoted(&mut self, quote: u8) -> Result<(), ImportError> {
        loop {
            let has_escapes = self.backslash_escapes && quote != b'`';
            let escape = if has_escapes { b'\\' } else { quote };
            let buffered = self.bytes.buffered()?;
            let count = memchr2(quote, escape, buffered).unwrap_or(buffered.len());
            self.bytes.pass(count);
            // A quote that is written twice ends a string and begins another one: it does not matter.
            match self.bytes.bump()? {
                None => return Err(self.truncated()),
                Some(byte) if byte == quote => return Ok(()),
                Some(byte) if byte == escape => drop(self.must_bump()?),
                Some(_) => {}
            }
        }
    }

    /// Passes the rest of a statement and its semicolon. The last one needs none.
    pub(super) fn skip_statement(&mut self) -> Result<(), ImportError> {
        while self.skip_blanks()? {
            match self.bytes.bump()? {
                None | Some(b';') => break,
                Some(quote @ (b'\'' | b'"' | b'`')) => self.skip_quoted(quote)?,
                Some(_) => {}
            }
        }
        Ok(())
    }
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
