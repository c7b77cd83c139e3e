//! Files of other trackers: SQL dumps, tables as text, YAML, full scrapes. A dump means the same in whatever pieces it is read.

use std::io::Read;

use ::import::{ImportError, Row, check_full_scrape, check_yaml, read_sql, read_table};

/// Checks `bytes` as each of them.
pub fn check(bytes: &[u8]) {
    assert_eq!(dump(bytes, usize::MAX), dump(bytes, 1));
    let mut columns = None;
    let read = read_table(bytes, &"f".into(), &mut |row| {
        assert_eq!(row.columns.len(), row.fields.len());
        assert_eq!(*columns.get_or_insert(row.columns.len()), row.fields.len());
        Ok(())
    });
    check_error(read);
    let scraped = check_full_scrape(bytes);
    assert_eq!(scraped, check_full_scrape(Pieces { bytes, size: 1 }));
    check_error(scraped.map(drop));
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_error(check_yaml(text));
    }
}

fn check_error(read: Result<(), ImportError>) {
    if let Err(error) = read {
        assert!(!error.0.is_empty() && error.0.contains(": "), "{error}");
    }
}

/// Reads a dump in pieces of at most `size` bytes. Returns its rows, or the error.
fn dump(bytes: &[u8], size: usize) -> Result<Vec<(u64, usize, Vec<u8>)>, ImportError> {
    let mut rows = Vec::new();
    let mut take = |row: &Row<'_>| {
        assert_eq!(row.columns.len(), row.fields.len());
        let bytes = row.fields.iter().flat_map(|field| field.bytes.clone()).collect();
        rows.push((row.place.line, row.fields.len(), bytes));
        Ok(())
    };
    read_sql(Pieces { bytes, size }, &"f".into(), &|name| name != "no", &mut take)?;
    Ok(rows)
}

struct Pieces<'a> {
    bytes: &'a [u8],
    size: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = self.size.min(buffer.len());
        self.bytes.read(buffer.get_mut(..len).unwrap_or_default())
    }
}
