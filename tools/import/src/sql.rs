//! Rows of SQL dumps: mysqldump's, phpMyAdmin's, and those of `sqlite3 .dump`.
//!
//! Reads CREATE TABLE for the names of columns, and INSERT and REPLACE with literal values. Everything else is
//! skipped. Memory does not depend on the dump: a statement of a gigabyte is read value by value, and only the
//! beginning of a value is kept. A crate for SQL would need whole statements as UTF-8, but info hashes are
//! written as bytes of any value: see docs/decisions/0040-dumps-are-read-by-a-parser-of-our-own.md.

use std::io::Read;
use std::sync::Arc;

use crate::error::ImportError;
use crate::row::{Field, Row};

pub(crate) mod bytes;
mod tokens;

use tokens::{Token, Tokens};

/// Columns of a table.
const COLUMNS_MAX: usize = 1000;
/// Bytes of a line that are looked at.
const LINE_MAX: usize = 256;
/// Words that begin the definition of a key or constraint.
const CONSTRAINTS: [&str; 9] =
    ["primary", "unique", "key", "index", "constraint", "foreign", "fulltext", "spatial", "check"];
/// Types that follow the name of a column which is also a word of table definitions.
const TYPES: [&str; 9] =
    ["text", "varchar", "char", "int", "integer", "bigint", "blob", "binary", "varbinary"];
/// Words between INSERT and the name of the table.
const MODIFIERS: [&str; 7] =
    ["low_priority", "delayed", "high_priority", "ignore", "or", "into", "replace"];

/// Reads the rows of those tables that `is_wanted` accepts, by name, and calls `take` with each.
///
/// # Errors
///
/// Fails if the dump ends too early or cannot be understood, and as `take` does. What was taken before is then to be
/// undone.
pub fn read(
    input: impl Read,
    file: &Arc<str>,
    is_wanted: &dyn Fn(&str) -> bool,
    take: &mut dyn FnMut(&Row<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut dump = Dump { tokens: Tokens::new(input, file), is_wanted, take, tables: Vec::new() };
    loop {
        match dump.tokens.next()? {
            (Token::End, _) => return dump.tokens.check_end(),
            (Token::Word, word) => dump.statement(&word.to_ascii_lowercase())?,
            _ => dump.tokens.skip_statement()?,
        }
    }
}

struct Dump<'a, R> {
    tokens: Tokens<R>,
    is_wanted: &'a dyn Fn(&str) -> bool,
    take: &'a mut dyn FnMut(&Row<'_>) -> Result<(), ImportError>,
    /// Columns of wanted tables.
    tables: Vec<(String, Vec<String>)>,
}

impl<R: Read> Dump<'_, R> {
    /// Reads a statement behind its first word, or skips it.
    fn statement(&mut self, word: &str) -> Result<(), ImportError> {
        match word {
            "create" => self.create()?,
            "insert" | "replace" => self.insert()?,
            "delimiter" => return self.skip_routines(),
            "copy" => return self.copy(),
            // SQLite's strings have no escapes.
            "pragma" => self.tokens.has_escapes = false,
            _ => {}
        }
        self.tokens.skip_statement()
    }

    /// Reads `TABLE [IF NOT EXISTS] name (column …, …)`.
    fn create(&mut self) -> Result<(), ImportError> {
        let (_, word) = self.tokens.next()?;
        if !word.eq_ignore_ascii_case("table") {
            return Ok(());
        }
        let (mut name, _) = self.tokens.name()?;
        if name.eq_ignore_ascii_case("if") {
            self.tokens.name()?;
            self.tokens.name()?;
            (name, _) = self.tokens.name()?;
        }
        if (self.is_wanted)(&name) && self.tokens.next()?.0 == Token::Symbol(b'(') {
            let columns = self.columns()?;
            self.tables.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            self.tables.push((name, columns));
        }
        Ok(())
    }

    /// Reads the definitions of columns, keys and constraints up to the closing parenthesis.
    fn columns(&mut self) -> Result<Vec<String>, ImportError> {
        let mut columns = Vec::new();
        loop {
            let (name, is_quoted) = self.tokens.name()?;
            let (mut token, mut text) = self.tokens.next()?;
            let is_among = |words: &[&str], text: &str| {
                words.iter().any(|word| word.eq_ignore_ascii_case(text))
            };
            // A column may be named `key`.
            if is_quoted || !is_among(&CONSTRAINTS, &name) || is_among(&TYPES, &text) {
                self.add_column(&mut columns, name)?;
            }
            let mut depth = 0_u32;
            loop {
                match token {
                    Token::Symbol(b'(') => depth += 1,
                    Token::Symbol(b',') if depth == 0 => break,
                    Token::Symbol(b')') if depth == 0 => return Ok(columns),
                    Token::Symbol(b')') => depth -= 1,
                    Token::Symbol(b';') | Token::End => {
                        return Err(self.tokens.unexpected("`)`", &text));
                    }
                    _ => {}
                }
                (token, text) = self.tokens.next()?;
            }
        }
    }

    fn add_column(&self, columns: &mut Vec<String>, name: String) -> Result<(), ImportError> {
        if columns.len() == COLUMNS_MAX {
            return Err(self.tokens.error(&format!("expected at most {COLUMNS_MAX} columns")));
        }
        columns.push(name);
        Ok(())
    }

    /// Reads `[IGNORE …] INTO name [(columns)] VALUES (…), (…) …`.
    fn insert(&mut self) -> Result<(), ImportError> {
        let (mut table, _) = self.tokens.name()?;
        while MODIFIERS.iter().any(|word| table.eq_ignore_ascii_case(word)) {
            (table, _) = self.tokens.name()?;
        }
        if !(self.is_wanted)(&table) {
            return Ok(());
        }
        let known = self.tables.iter().find(|(name, _)| name.eq_ignore_ascii_case(&table));
        let mut columns = known.map(|(_, columns)| columns.clone());
        let (mut token, mut word) = self.tokens.next()?;
        if token == Token::Symbol(b'(') {
            columns = Some(self.names()?);
            (token, word) = self.tokens.next()?;
        }
        let has_values = ["values", "value"].iter().any(|it| word.eq_ignore_ascii_case(it));
        if token != Token::Word || !has_values {
            return Ok(());
        }
        let Some(columns) = columns else {
            return Err(self.tokens.error(&format!(
                "INSERT INTO {table} names no columns, and no CREATE TABLE {table} is before it: \
                 dump with --complete-insert"
            )));
        };
        self.rows(&table, &columns)
    }

    /// Reads names up to a closing parenthesis.
    fn names(&mut self) -> Result<Vec<String>, ImportError> {
        let mut names = Vec::new();
        loop {
            let (name, _) = self.tokens.name()?;
            self.add_column(&mut names, name)?;
            let (token, text) = self.tokens.next()?;
            match token {
                Token::Symbol(b',') => {}
                Token::Symbol(b')') => return Ok(names),
                _ => return Err(self.tokens.unexpected("`,` or `)`", &text)),
            }
        }
    }

    /// Reads the rows behind VALUES.
    fn rows(&mut self, table: &str, columns: &[String]) -> Result<(), ImportError> {
        let mut fields: Vec<Field> = vec![Field::default(); columns.len()];
        let mut extra = Field::default();
        while self.tokens.read(&mut extra)? == Token::Symbol(b'(') {
            let place = self.tokens.bytes.place();
            let mut count = 0;
            loop {
                self.value(fields.get_mut(count).unwrap_or(&mut extra))?;
                count += 1;
                let (token, text) = self.tokens.next()?;
                match token {
                    Token::Symbol(b',') => {}
                    Token::Symbol(b')') => break,
                    _ => return Err(self.tokens.unexpected("`,` or `)`", &text)),
                }
            }
            if count != columns.len() {
                return Err(place.error(format_args!(
                    "expected {} values, as {table} has columns, found {count}",
                    columns.len()
                )));
            }
            (self.take)(&Row { table, columns, fields: &fields, place: &place })?;
            if self.tokens.read(&mut extra)? != Token::Symbol(b',') {
                break;
            }
        }
        Ok(())
    }

    /// Reads a value: a text or number, or a word such as NULL, `X'…'` or the character set of a text.
    fn value(&mut self, field: &mut Field) -> Result<(), ImportError> {
        match self.tokens.read(field)? {
            Token::Quoted(b'\'' | b'"') => return Ok(()),
            Token::Number => {
                let digits =
                    field.bytes.strip_prefix(b"0x").or_else(|| field.bytes.strip_prefix(b"0X"));
                return match digits.map(<[u8]>::to_vec) {
                    Some(digits) => self.hex(&digits, field),
                    None => Ok(()),
                };
            }
            Token::Symbol(b'(') => {
                return Err(self.tokens.error("expected a value, found an expression"));
            }
            Token::Word => {}
            _ => return Err(self.tokens.unexpected("a value", "")),
        }
        let word = String::from_utf8_lossy(&field.bytes).to_ascii_lowercase();
        field.clear();
        match word.as_str() {
            "null" | "default" => field.is_null = true,
            "true" => field.push(b'1'),
            "false" => field.push(b'0'),
            _ => {
                if !matches!(self.tokens.read(field)?, Token::Quoted(b'\'' | b'"')) {
                    return Err(self.tokens.error(&format!("expected a value, found {word}")));
                }
                let text = field.bytes.clone();
                match word.as_str() {
                    "x" => self.hex(&text, field)?,
                    "b" => {
                        field.clear();
                        field.push(if text.contains(&b'1') { b'1' } else { b'0' });
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn hex(&self, digits: &[u8], field: &mut Field) -> Result<(), ImportError> {
        field.clear();
        for pair in digits.chunks(2) {
            let mut byte = 0;
            for digit in pair {
                let Some(value) = char::from(*digit).to_digit(16) else {
                    let found = digit.escape_ascii();
                    let text = format!("expected a hex digit or `'`, found `{found}`");
                    return Err(self.tokens.error(&text));
                };
                byte = byte << 4 | value as u8;
            }
            if pair.len() < 2 {
                return Err(self.tokens.error("expected an even number of hex digits"));
            }
            field.push(byte);
        }
        Ok(())
    }

    /// Refuses the format of PostgreSQL's dumps, unless the table does not matter.
    fn copy(&mut self) -> Result<(), ImportError> {
        let (table, _) = self.tokens.name()?;
        if (self.is_wanted)(&table) {
            return Err(self
                .tokens
                .error("expected INSERT, found COPY: dump with `pg_dump --column-inserts`"));
        }
        self.tokens.skip_statement()?;
        // The rows end with a line of `\.`.
        loop {
            match self.tokens.bytes.line(2)? {
                Some(line) if line != b"\\." => {}
                _ => return Ok(()),
            }
        }
    }

    /// Skips routines and triggers, which contain statements: from `DELIMITER ;;` to `DELIMITER ;`.
    fn skip_routines(&mut self) -> Result<(), ImportError> {
        let mut line = self.tokens.bytes.line(LINE_MAX)?.unwrap_or_default();
        while line.trim_ascii() != b";" {
            let Some(next) = self.tokens.bytes.line(LINE_MAX)? else {
                return Err(self.tokens.error("expected `DELIMITER ;`, found the end of the file"));
            };
            let (word, rest) = next.split_at(next.len().min("delimiter".len()));
            line = if word.eq_ignore_ascii_case(b"delimiter") { rest.to_vec() } else { Vec::new() };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
