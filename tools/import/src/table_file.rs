//! Tables as text: CSV, or what `mysql --batch` prints, which has tabs. The first line names the columns.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use csv::{ByteRecord, ReaderBuilder, Terminator};

use crate::error::{ImportError, Place};
use crate::row::{Field, Row};

/// Bytes of a row. Beyond that a quote is missing somewhere.
const ROW_MAX: usize = 1 << 20;
const COLUMNS_MAX: usize = 1000;
/// Bytes in which the first line is looked at.
const HEAD_MAX: usize = 64 * 1024;

/// Reads the rows of a table, and calls `take` with each.
///
/// # Errors
///
/// Fails if the text is no table, and as `take` does.
pub fn read(
    mut input: impl Read,
    file: &Arc<str>,
    take: &mut dyn FnMut(&Row<'_>) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut place = Place { file: Arc::clone(file), line: 1 };
    let mut head = Vec::new();
    let read_head = input.by_ref().take(HEAD_MAX as u64).read_to_end(&mut head);
    read_head.map_err(|error| place.error(format_args!("cannot read: {error}")))?;
    let first_line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let has_tabs = first_line.contains(&b'\t');
    let delimiter = if has_tabs { b'\t' } else { b',' };
    let left = Rc::new(Cell::new(ROW_MAX));
    let input = Bounded { input: head.as_slice().chain(input), left: Rc::clone(&left) };
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter)
        .has_headers(false)
        .flexible(true)
        .quoting(!has_tabs)
        .terminator(Terminator::Any(b'\n'))
        .from_reader(input);
    let mut record = ByteRecord::new();
    let (mut columns, mut fields) = (Vec::new(), Vec::new());
    loop {
        left.set(ROW_MAX);
        let has_record = reader.read_byte_record(&mut record).map_err(|error| {
            // All that follows a missing quote is one row.
            let line = reader.position().line();
            Place { file: Arc::clone(file), line }.error(match error.into_kind() {
                csv::ErrorKind::Io(error) => error.to_string(),
                other => format!("{other:?}"),
            })
        })?;
        if !has_record {
            break;
        }
        if record.len() == 1 && record.get(0) == Some(b"\r") {
            continue;
        }
        place.line = record.position().map_or(0, csv::Position::line);
        if columns.is_empty() {
            columns = names(&record, &place)?;
            fields = vec![Field::default(); columns.len()];
            continue;
        }
        if record.len() != columns.len() {
            let (expected, found) = (columns.len(), record.len());
            return Err(place.error(format_args!(
                "expected {expected} values, as there are columns, found {found}"
            )));
        }
        let last = columns.len() - 1;
        for (at, (field, value)) in fields.iter_mut().zip(&record).enumerate() {
            let value = value.strip_suffix(b"\r").filter(|_| at == last).unwrap_or(value);
            fill(field, value, has_tabs);
        }
        take(&Row { table: "", columns: &columns, fields: &fields, place: &place })?;
    }
    Ok(())
}

fn names(record: &ByteRecord, place: &Place) -> Result<Vec<String>, ImportError> {
    if record.len() > COLUMNS_MAX {
        return Err(place.error(format_args!("expected at most {COLUMNS_MAX} columns")));
    }
    Ok(record.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect())
}

/// Fills a field. NULL is written as that word, as `\N` or not at all.
fn fill(field: &mut Field, value: &[u8], has_escapes: bool) {
    field.clear();
    field.is_null = matches!(value, b"" | b"NULL" | b"\\N");
    if !has_escapes {
        return field.extend(value);
    }
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        let byte = match (byte, byte == &b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(other) => *other,
                None => b'\\',
            },
            (byte, false) => *byte,
        };
        field.push(byte);
    }
}

/// Fails if one row has too many bytes.
struct Bounded<R> {
    input: R,
    /// Bytes that may still be read of this row, and of those behind it in the reader's buffer.
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left.get() == 0 {
            return Err(io::Error::other(format!(
                "expected a row of at most {ROW_MAX} bytes: a quote is probably missing"
            )));
        }
        let len = self.input.read(buffer)?;
        self.left.set(self.left.get().saturating_sub(len));
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[u8]) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        read(text, &"u.csv".into(), &mut |row| {
            let value = |(name, field): (&String, &Field)| match field.is_null {
                true => format!("{name}=NULL"),
                false => format!("{name}={}", field.bytes.escape_ascii()),
            };
            let values: Vec<String> = row.columns.iter().zip(row.fields).map(value).collect();
            rows.push(format!("{} {}", row.place.line, values.join(" ")));
            Ok(())
        })
        .map_err(|error| error.0)?;
        Ok(rows)
    }

    #[test]
    fn reads_commas_and_tabs() {
        let csv = "id, name\r\n1,\"a, \"\"b\"\"\nc\"\r\n2,NULL\n3,\n";
        assert_eq!(
            rows(csv.as_bytes()).unwrap(),
            [r#"2 id=1 name=a, \"b\"\nc"#, "4 id=2 name=NULL", "5 id=3 name=NULL"]
        );
        let tabs = "id\tname\n1\ta\"b\\tc\\\\\n2\t\\N\n";
        assert_eq!(
            rows(tabs.as_bytes()).unwrap(),
            [r#"2 id=1 name=a\"b\tc\\"#, "3 id=2 name=NULL"]
        );
        assert!(rows(b"").unwrap().is_empty());
    }

    #[test]
    fn reports_rows_of_another_shape_and_missing_quotes() {
        let error = rows(b"a,b\n1,2\n3\n").unwrap_err();
        assert_eq!(error, "u.csv:3: expected 2 values, as there are columns, found 1");
        let endless = ["a,b\n1,\"".as_bytes(), &vec![b'x'; 3 * ROW_MAX]].concat();
        let error = rows(&endless).unwrap_err();
        assert!(error.ends_with("at most 1048576 bytes: a quote is probably missing"), "{error}");
        let error = rows(",".repeat(1000).as_bytes()).unwrap_err();
        assert_eq!(error, "u.csv:1: expected at most 1000 columns");
    }
}
