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
mod values;

use bytes::Bytes;

/// Columns of a table.
const COLUMNS_MAX: usize = 1000;
/// Tables whose columns are remembered.
const TABLES_MAX: usize = 100;
/// Bytes of a name.
const NAME_MAX: usize = 256;
/// Types that follow the name of a column which is also a word of table definitions.
const TYPES: [&str; 9] =
    ["text", "varchar", "char", "int", "integer", "bigint", "blob", "binary", "varbinary"];

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
    let mut dump = Dump {
        bytes: Bytes::new(input, file),
        is_wanted,
        take,
        tables: Vec::new(),
        backslash_escapes: true,
    };
    while dump.skip_blanks()? {
        dump.statement()?;
    }
    dump.check_end()
}

struct Dump<'a, R> {
    bytes: Bytes<R>,
    is_wanted: &'a dyn Fn(&str) -> bool,
    take: &'a mut dyn FnMut(&Row<'_>) -> Result<(), ImportError>,
    /// Columns of wanted tables.
    tables: Vec<(String, Vec<String>)>,
    /// True if a backslash in a string begins an escape, as in MySQL.
    backslash_escapes: bool,
}

impl<R: Read> Dump<'_, R> {
    /// Reads a statement, or skips it.
    fn statement(&mut self) -> Result<(), ImportError> {
        let word = self.bare_word()?;
        match word.as_str() {
            "create" => self.create(),
            "insert" | "replace" => self.insert(),
            "delimiter" => self.skip_routines(),
            "copy" => self.copy(),
            "pragma" => {
                // SQLite's strings have no escapes.
                self.backslash_escapes = false;
                self.skip_statement()
            }
            _ => self.skip_statement(),
        }
    }

    /// Reads `TABLE [IF NOT EXISTS] name (column …, …) …;`.
    fn create(&mut self) -> Result<(), ImportError> {
        self.skip_blanks()?;
        if self.bare_word()? != "table" {
            return self.skip_statement();
        }
        let mut name = self.name()?;
        if name.eq_ignore_ascii_case("if") {
            for _ in 0..2 {
                self.name()?;
            }
            name = self.name()?;
        }
        if !(self.is_wanted)(&name) || !self.next_is(b'(')? {
            return self.skip_statement();
        }
        let mut columns = Vec::new();
        loop {
            if let Some(column) = self.column()? {
                columns.push(column);
            }
            if columns.len() > COLUMNS_MAX {
                return Err(self.error(&format!("expected at most {COLUMNS_MAX} columns")));
            }
            match self.skip_definition()? {
                b',' => {}
                b')' => break,
                _ => return Ok(()),
            }
        }
        self.tables.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        if self.tables.len() == TABLES_MAX {
            self.tables.remove(0);
        }
        self.tables.push((name, columns));
        self.skip_statement()
    }

    /// Returns the name of the column that a definition begins with; `None` for a key or constraint.
    fn column(&mut self) -> Result<Option<String>, ImportError> {
        self.skip_blanks()?;
        let is_quoted = matches!(self.bytes.peek()?, Some(b'`' | b'"' | b'['));
        let name = self.name()?;
        if is_quoted {
            return Ok(Some(name));
        }
        let lower = name.to_ascii_lowercase();
        let is_constraint = matches!(
            lower.as_str(),
            "primary"
                | "unique"
                | "key"
                | "index"
                | "constraint"
                | "foreign"
                | "fulltext"
                | "spatial"
                | "check"
        );
        if !is_constraint {
            return Ok(Some(name));
        }
        // A column may be named `key`.
        self.skip_blanks()?;
        let next = self.bare_word()?;
        Ok(TYPES.contains(&next.as_str()).then_some(name))
    }

    /// Skips the rest of a column's definition. Returns the comma, parenthesis or semicolon behind it.
    fn skip_definition(&mut self) -> Result<u8, ImportError> {
        let mut depth = 0_u32;
        loop {
            self.skip_blanks()?;
            match self.must_bump()? {
                b'(' => depth += 1,
                b')' if depth > 0 => depth -= 1,
                end @ (b',' | b')' | b';') if depth == 0 => return Ok(end),
                quote @ (b'\'' | b'"' | b'`') => self.skip_quoted(quote)?,
                _ => {}
            }
        }
    }

    /// Reads `[IGNORE …] INTO name [(columns)] VALUES (…), (…) …;`.
    fn insert(&mut self) -> Result<(), ImportError> {
        let mut table = self.name()?;
        while ["low_priority", "delayed", "high_priority", "ignore", "or", "into", "replace"]
            .iter()
            .any(|word| table.eq_ignore_ascii_case(word))
        {
            table = self.name()?;
        }
        if !(self.is_wanted)(&table) {
            return self.skip_statement();
        }
        let mut columns = None;
        if self.next_is(b'(')? {
            columns = Some(self.names()?);
        }
        self.skip_blanks()?;
        let word = self.bare_word()?;
        if word != "values" && word != "value" {
            return self.skip_statement();
        }
        let Some(columns) = columns.or_else(|| self.columns_of(&table)) else {
            return Err(self.error(&format!(
                "INSERT INTO {table} names no columns, and no CREATE TABLE {table} is before it: \
                 dump with --complete-insert"
            )));
        };
        self.rows(&table, &columns)
    }

    fn columns_of(&self, table: &str) -> Option<Vec<String>> {
        let known = self.tables.iter().find(|(name, _)| name.eq_ignore_ascii_case(table));
        known.map(|(_, columns)| columns.clone())
    }

    /// Reads the rows behind VALUES, and the end of the statement.
    fn rows(&mut self, table: &str, columns: &[String]) -> Result<(), ImportError> {
        let mut fields: Vec<Field> = vec![Field::default(); columns.len()];
        while self.next_is(b'(')? {
            let place = self.bytes.place();
            let mut count = 0;
            loop {
                let mut extra = Field::default();
                self.value(fields.get_mut(count).unwrap_or(&mut extra))?;
                count += 1;
                self.skip_blanks()?;
                match self.must_bump()? {
                    b',' => {}
                    b')' => break,
                    other => return Err(self.unexpected("`,` or `)`", other)),
                }
            }
            if count != columns.len() {
                return Err(place.error(format_args!(
                    "expected {} values, as {table} has columns, found {count}",
                    columns.len()
                )));
            }
            (self.take)(&Row { table, columns, fields: &fields, place: &place })?;
            if !self.next_is(b',')? {
                break;
            }
        }
        self.skip_statement()
    }

    /// Refuses the format of PostgreSQL's dumps, unless the table does not matter.
    fn copy(&mut self) -> Result<(), ImportError> {
        let table = self.name()?;
        if (self.is_wanted)(&table) {
            return Err(
                self.error("expected INSERT, found COPY: dump with `pg_dump --column-inserts`")
            );
        }
        self.skip_statement()?;
        // The rows end with a line of `\.`.
        loop {
            match self.bytes.line(2)? {
                Some(line) if line != b"\\." => {}
                _ => return Ok(()),
            }
        }
    }

    /// Skips routines and triggers, which contain statements: from `DELIMITER ;;` to `DELIMITER ;`.
    fn skip_routines(&mut self) -> Result<(), ImportError> {
        let mut line = self.bytes.line(NAME_MAX)?.unwrap_or_default();
        while line.trim_ascii() != b";" {
            let Some(next) = self.bytes.line(NAME_MAX)? else {
                return Err(self.error("expected `DELIMITER ;`, found the end of the file"));
            };
            let (word, rest) = next.split_at(next.len().min("delimiter".len()));
            line = if word.eq_ignore_ascii_case(b"delimiter") { rest.to_vec() } else { Vec::new() };
        }
        Ok(())
    }

    /// mysqldump says when it is complete.
    fn check_end(&self) -> Result<(), ImportError> {
        if self.bytes.begins_as_dump() && !self.bytes.is_complete_dump() {
            return Err(self.error(
                "expected `-- Dump completed` at the end, found none: the dump is not complete",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
