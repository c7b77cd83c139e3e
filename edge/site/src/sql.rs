//! Rows of values as the text of a statement.
//!
//! Plain form: prepared statements with placeholders. Departure: a statement of a thousand rows has sixteen thousand
//! values, and the driver allocates for each text and for the list, and searches the statement for named
//! placeholders. As text each value is written once, into a buffer that is used again.
//!
//! All text is escaped: the connection is UTF-8, in which no byte of a longer character is a quote or backslash, and
//! its `sql_mode` is the tracker's own, in which backslashes escape.

/// A statement, to which rows are added one by one.
#[derive(Default)]
pub(crate) struct Statement {
    text: String,
    rows: usize,
}

/// A row that is being written. Its values come in the order of the statement's columns.
pub(crate) struct RowText<'a> {
    text: &'a mut String,
    has_values: bool,
}

impl Statement {
    /// Begins `INSERT INTO head VALUES …`.
    pub(crate) fn begin_insert(&mut self, head: &str) {
        self.text.clear();
        self.rows = 0;
        self.text.push_str("INSERT INTO ");
        self.text.push_str(head);
        self.text.push_str(" VALUES ");
    }

    /// Adds a row, whose values `write` appends.
    pub(crate) fn row(&mut self, write: impl FnOnce(&mut RowText<'_>)) {
        self.text.push_str(if self.rows > 0 { ",(" } else { "(" });
        write(&mut RowText { text: &mut self.text, has_values: false });
        self.text.push(')');
        self.rows += 1;
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Appends the end of the statement, and returns the whole.
    pub(crate) fn end(&mut self, tail: &str) -> &str {
        self.text.push_str(tail);
        &self.text
    }
}

/// Returns assignments for `ON DUPLICATE KEY UPDATE` by which these columns keep the values of the later `time`, whichever
/// row is written last.
pub(crate) fn keep_later(time: &str, columns: &[&str]) -> String {
    let assignment = |column: &&str| {
        format!("{column} = IF(COALESCE(VALUES({time}) >= {time}, 1), VALUES({column}), {column})")
    };
    columns.iter().map(assignment).collect::<Vec<_>>().join(", ")
}

/// Returns the assignment of the later `time`. It comes after those that compare it.
pub(crate) fn latest(time: &str) -> String {
    format!("{time} = COALESCE(GREATEST({time}, VALUES({time})), VALUES({time}))")
}

impl RowText<'_> {
    pub(crate) fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.separate();
        self.text.push_str(itoa::Buffer::new().format(number));
        self
    }

    /// Appends 1 for true, 0 for false.
    pub(crate) fn flag(&mut self, flag: bool) -> &mut Self {
        self.separate();
        self.text.push(if flag { '1' } else { '0' });
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.text.push('\'');
        let mut rest = text;
        while let Some(at) = rest.find(['\'', '\\']) {
            let (plain, special) = rest.split_at(at);
            self.text.push_str(plain);
            self.text.push('\\');
            self.text.push_str(&special[..1]);
            rest = &special[1..];
        }
        self.text.push_str(rest);
        self.text.push('\'');
        self
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.separate();
        self.text.push_str("X'");
        for byte in bytes {
            self.text.push(DIGITS[usize::from(byte >> 4)].into());
            self.text.push(DIGITS[usize::from(byte & 15)].into());
        }
        self.text.push('\'');
        self
    }

    /// Appends a time, unix seconds.
    pub(crate) fn time(&mut self, unix_s: u32) -> &mut Self {
        self.separate();
        self.text.push_str("FROM_UNIXTIME(");
        self.text.push_str(itoa::Buffer::new().format(unix_s));
        self.text.push(')');
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.separate();
        self.text.push_str("NULL");
        self
    }

    fn separate(&mut self) {
        if self.has_values {
            self.text.push(',');
        }
        self.has_values = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_escaped() {
        let mut statement = Statement::default();
        statement.begin_insert("t (a, b)");
        statement.row(|row| {
            row.number(u64::MAX).number(-1).flag(true).bytes(&[0, 0xab]).time(5).null();
        });
        statement.row(|row| {
            row.text(r"it's \'; DROP").text("").text("é'");
        });
        assert_eq!(statement.rows(), 2);
        let expected = r"INSERT INTO t (a, b) VALUES (18446744073709551615,-1,1,X'00ab',FROM_UNIXTIME(5),NULL),('it\'s \\\'; DROP','','é\'') ON x";
        assert_eq!(statement.end(" ON x"), expected);
        statement.begin_insert("u");
        assert_eq!(statement.rows(), 0);
        assert_eq!(statement.end(""), "INSERT INTO u VALUES ");
    }
}
