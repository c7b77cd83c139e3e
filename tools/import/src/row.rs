//! Rows of tables, whatever they were read from.

use std::borrow::Cow;

use types::InfoHash;

use crate::error::Place;

/// Bytes kept of a value. Those that are needed are shorter; others may have megabytes.
pub(crate) const VALUE_MAX: usize = 4096;

/// A value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// True if it is NULL.
    pub is_null: bool,
    /// Its first 4096 bytes.
    pub bytes: Vec<u8>,
    /// The number of its bytes.
    pub len: u64,
}

/// A row of a table.
pub struct Row<'a> {
    /// The table's name; empty for tables without one.
    pub table: &'a str,
    /// The names of its columns.
    pub columns: &'a [String],
    /// As many values.
    pub fields: &'a [Field],
    /// Where it is.
    pub place: &'a Place,
}

impl Row<'_> {
    /// Returns the value of a column, if the table has it. Case does not matter.
    pub(crate) fn field(&self, column: &str) -> Option<&Field> {
        let at = self.columns.iter().position(|name| name.eq_ignore_ascii_case(column))?;
        self.fields.get(at)
    }

    /// Returns the value of a column as text; `None` if it is NULL.
    pub(crate) fn text(&self, column: &str) -> Option<Cow<'_, str>> {
        let field = self.field(column).filter(|field| !field.is_null)?;
        Some(String::from_utf8_lossy(&field.bytes))
    }

    /// Returns the value of a column as a number that is not negative. Too large ones are capped; what is no
    /// number is `None`.
    pub(crate) fn number(&self, column: &str) -> Option<u64> {
        let text = self.text(column)?;
        let text = text.trim();
        let whole = text.split('.').next().unwrap_or(text);
        match whole.parse::<u64>() {
            Ok(number) => Some(number),
            Err(_) if whole.starts_with('-') => whole.parse::<i128>().ok().map(|_| 0),
            Err(_) => whole.parse::<u128>().ok().map(|_| u64::MAX),
        }
    }

    /// Returns the value of a column as an info hash: 20 bytes, or 40 or 64 hex digits.
    ///
    /// # Errors
    ///
    /// Returns what was expected and found.
    pub(crate) fn info_hash(&self, column: &str) -> Result<InfoHash, String> {
        let Some(field) = self.field(column) else {
            return Err(format!("expected a column {column}"));
        };
        let bytes = &field.bytes;
        if let Ok(raw) = <[u8; 20]>::try_from(bytes.as_slice()) {
            return Ok(InfoHash(raw));
        }
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim();
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("\\x")).unwrap_or(text);
        digits.parse().map_err(|_| {
            format!(
                "{column}: expected 20 bytes or 40 hex digits, found {} bytes (mysqldump --hex-blob writes \
                 them unharmed)",
                field.len
            )
        })
    }
}

impl Field {
    /// Returns a value.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut field = Self::default();
        field.extend(bytes);
        field
    }

    /// Makes it empty, to be filled again.
    pub(crate) fn clear(&mut self) {
        self.is_null = false;
        self.bytes.clear();
        self.len = 0;
    }

    /// Appends bytes, as many as are kept.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        let room = VALUE_MAX.saturating_sub(self.bytes.len());
        self.bytes.extend(bytes.iter().take(room));
    }

    pub(crate) fn push(&mut self, byte: u8) {
        self.extend(&[byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_values() {
        let columns: Vec<String> = ["a", "HASH"].map(String::from).into();
        let place = Place { file: "f".into(), line: 3 };
        let check = |value: &[u8], test: &dyn Fn(&Row<'_>)| {
            let fields = [Field::of(value), Field::of(value)];
            test(&Row { table: "t", columns: &columns, fields: &fields, place: &place });
        };
        for (text, number) in [
            ("7", Some(7)),
            (" 8.50 ", Some(8)),
            ("-3", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("x", None),
            ("", None),
        ] {
            check(text.as_bytes(), &|row| assert_eq!(row.number("A"), number, "{text}"));
        }
        let hash = InfoHash([0xab; 20]);
        for text in [
            &[0xab; 20][..],
            "ab".repeat(20).as_bytes(),
            format!("0x{}", "AB".repeat(20)).as_bytes(),
        ] {
            check(text, &|row| assert_eq!(row.info_hash("hash"), Ok(hash)));
        }
        check(b"abc", &|row| {
            let error = row.info_hash("hash").unwrap_err();
            assert!(
                error.starts_with("hash: expected 20 bytes or 40 hex digits, found 3"),
                "{error}"
            );
            assert_eq!(row.info_hash("c").unwrap_err(), "expected a column c");
        });
        let mut field = Field::of(&[1; VALUE_MAX]);
        field.push(2);
        assert_eq!((field.bytes.len(), field.len), (VALUE_MAX, VALUE_MAX as u64 + 1));
    }
}
