//! The site's database: connections, batches in one transaction each, and errors with remedies.

use std::error::Error;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, DriverError, Opts, OptsBuilder, Row, Transaction, TxOpts};

use crate::batch::{Batch, Record};
use crate::sql::{RowText, Statement};

/// Rows of one statement: some 200 KiB, so that it fits into a packet and is one system call.
const ROWS_PER_STATEMENT: usize = 1_000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the site's own heavy queries lock a table.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// The table that makes batches idempotent.
pub(crate) const BATCHES_TABLE: &str = "CREATE TABLE IF NOT EXISTS tidegate_batches (\
    node VARCHAR(64) NOT NULL PRIMARY KEY, spool BIGINT UNSIGNED NOT NULL, \
    sequence BIGINT UNSIGNED NOT NULL, written_at TIMESTAMP NULL DEFAULT NULL)";

/// An error of the database, and what the operator can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) error: String,
    pub(crate) remedy: String,
}

/// The tables of a kind of site.
pub(crate) trait Tables: Send + Sync {
    /// The columns that are read or written: a line for each table, such as `peers: port int, agent text`.
    fn columns(&self) -> &'static [&'static str];
    /// Writes records, and returns the number of rows. Each call is one unit: it is undone if it fails.
    fn write(&self, rows: &mut Rows<'_, '_>, records: &[Record]) -> Result<(), mysql::Error>;
    /// Writes what belongs to no record.
    fn write_rest(&self, rows: &mut Rows<'_, '_>, batch: &Batch) -> Result<(), mysql::Error>;
}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: u64,
    /// Records that the database refused.
    pub(crate) skipped: u64,
}

/// Rows that are inserted or changed in a transaction.
pub(crate) struct Rows<'a, 'c> {
    conn: &'a mut Transaction<'c>,
    statement: Statement,
    pub(crate) count: u64,
    pub(crate) unix_s: u32,
}

/// The origin of batches, by which the database remembers its position.
#[derive(Clone, Debug)]
pub(crate) struct BatchOrigin {
    pub(crate) node: String,
    pub(crate) spool: u64,
    /// True if other nodes of a cluster write, too: one transaction at a time.
    pub(crate) takes_turns: bool,
}

impl Rows<'_, '_> {
    /// Runs `INSERT INTO head VALUES (row), … tail` with a row for each item, in as many statements as needed. `write`
    /// appends the values of a row.
    pub(crate) fn insert<T>(
        &mut self,
        head: &str,
        tail: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut RowText<'_>, T),
    ) -> Result<(), mysql::Error> {
        let mut items = items.peekable();
        while items.peek().is_some() {
            self.statement.begin_insert(head);
            for item in items.by_ref().take(ROWS_PER_STATEMENT) {
                self.statement.row(|row| write(row, item));
            }
            self.count += self.statement.rows() as u64;
            self.conn.query_drop(self.statement.end(tail))?;
        }
        Ok(())
    }

    /// Runs an `UPDATE` that takes its rows from a JSON array, in as many statements as needed.
    pub(crate) fn update(&mut self, sql: &str, rows: &[String]) -> Result<(), mysql::Error> {
        for chunk in rows.chunks(ROWS_PER_STATEMENT * 10) {
            let json = format!("[{}]", chunk.join(","));
            self.count += chunk.len() as u64;
            self.conn.exec_drop(sql, (json,))?;
        }
        Ok(())
    }
}

/// Connects, and sets the session up: times are UTC, and values that do not fit are errors.
pub(crate) fn connect(options: &Opts, password: Option<&str>) -> Result<Conn, mysql::Error> {
    let mut builder = OptsBuilder::from_opts(options.clone())
        .tcp_connect_timeout(Some(CONNECT_TIMEOUT))
        .read_timeout(Some(STATEMENT_TIMEOUT))
        .write_timeout(Some(STATEMENT_TIMEOUT))
        .prefer_socket(false)
        .init(vec![
            "SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
             innodb_lock_wait_timeout = 20",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        ]);
    if let Some(password) = password {
        builder = builder.pass(Some(password));
    }
    Conn::new(builder)
}

/// Returns the types that a column of a kind may have.
fn types_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "int" => &["tinyint", "smallint", "mediumint", "int", "bigint"],
        "bool" => &["tinyint", "smallint", "int", "bit"],
        "flag" => &["enum", "tinyint", "smallint", "int", "char"],
        "text" => &["varchar", "char", "text"],
        "binary" => &["binary", "varbinary"],
        "blob" => &["binary", "varbinary", "blob"],
        "time" => &["timestamp", "datetime"],
        _ => &[],
    }
}

/// Checks the columns of a site's tables. The error names the first that differ.
pub(crate) fn check_columns(conn: &mut Conn, tables: &[&str]) -> Result<(), Trouble> {
    let sql = "SELECT LOWER(table_name), LOWER(column_name), LOWER(data_type) FROM information_schema.columns \
               WHERE table_schema = DATABASE()";
    let found: Vec<(String, String, String)> = conn.query(sql).map_err(|error| trouble(&error))?;
    let type_of = |table: &str, name: &str| {
        let (table, name) = (table.to_lowercase(), name.to_lowercase());
        found.iter().find(|it| (&it.0, &it.1) == (&table, &name)).map(|it| it.2.as_str())
    };
    let mut differences = Vec::new();
    for (table, columns) in tables.iter().filter_map(|table| table.split_once(": ")) {
        for (name, kind) in columns.split(", ").filter_map(|column| column.split_once(' ')) {
            let (expected, found) = (types_of(kind), type_of(table, name));
            if !found.is_some_and(|found| expected.contains(&found)) {
                let expected = expected.join(" or ");
                let found = found.unwrap_or("no such column");
                differences.push(format!(
                    "table {table}, column {name}: expected {expected}, found {found}"
                ));
            }
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    let rest = differences.len().saturating_sub(3);
    differences.truncate(3);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    Err(Trouble {
        error: format!("{}{more}", differences.join("; ")),
        remedy: "check site.kind and the name of the database in site.database, or update the site and run its \
                 migrations"
            .to_owned(),
    })
}

/// Returns the database's time, unix seconds.
pub(crate) fn now_s(conn: &mut Conn) -> Result<u32, mysql::Error> {
    let now_s: Option<u32> = conn.query_first("SELECT UNIX_TIMESTAMP()")?;
    Ok(now_s.unwrap_or_default())
}

/// The row of `tidegate_batches` that a node locks while it writes. No node has this name.
const TURN: &str = "*";

/// Prepares a connection of a node for [`BatchOrigin::takes_turns`]. The server ends the transaction of a node that it
/// hears nothing of for a minute: the others wait for it.
pub(crate) fn prepare_turns(conn: &mut Conn) -> Result<(), mysql::Error> {
    conn.query_drop("SET SESSION wait_timeout = 60")?;
    conn.exec_drop(
        "INSERT INTO tidegate_batches (node, spool, sequence) VALUES (?, 0, 0) ON DUPLICATE KEY UPDATE node = node",
        (TURN,),
    )
}

/// Returns the last sequence of this spool that the database has. Creates the table of sequences if it is missing; if it
/// may not, the remedy has the statement.
pub(crate) fn read_sequence(conn: &mut Conn, writer: &BatchOrigin) -> Result<u64, Trouble> {
    let sql = "SELECT spool, sequence FROM tidegate_batches WHERE node = ?";
    let found: Option<(u64, u64)> = match conn.exec_first(sql, (&writer.node,)) {
        Ok(found) => found,
        Err(error) if code(&error) == Some(1146) => {
            conn.query_drop(BATCHES_TABLE).map_err(|error| Trouble {
                error: format!("cannot create the table tidegate_batches: {}", message(&error)),
                remedy: format!(
                    "run this statement as an administrator of the database, and let the tracker's user SELECT, INSERT \
                     and UPDATE the table: {BATCHES_TABLE}"
                ),
            })?;
            None
        }
        Err(error) => return Err(trouble(&error)),
    };
    Ok(found.filter(|(spool, _)| *spool == writer.spool).map_or(0, |(_, sequence)| sequence))
}

/// Writes a batch and its sequence in one transaction. Records that the database refuses are left out. After an error,
/// nothing of the batch is written, or all of it is, and [`read_sequence`] knows.
pub(crate) fn write_batch(
    conn: &mut Conn,
    tables: &dyn Tables,
    writer: &BatchOrigin,
    batch: &Batch,
) -> Result<Written, mysql::Error> {
    let mut transaction = conn.start_transaction(TxOpts::default())?;
    if writer.takes_turns {
        // Otherwise each would count the peers of a torrent without those that the other writes, and both would lock the
        // rows of a torrent that the other needs.
        transaction
            .exec_drop("SELECT node FROM tidegate_batches WHERE node = ? FOR UPDATE", (TURN,))?;
    }
    let mut written = Written::default();
    write_records(&mut transaction, tables, batch.unix_s, &batch.records, &mut written)?;
    written.rows += unit(&mut transaction, batch.unix_s, |rows| tables.write_rest(rows, batch))?
        .unwrap_or_default();
    transaction.exec_drop(
        "INSERT INTO tidegate_batches (node, spool, sequence, written_at) VALUES (?, ?, ?, NOW()) \
         ON DUPLICATE KEY UPDATE spool = VALUES(spool), sequence = VALUES(sequence), \
         written_at = VALUES(written_at)",
        (&writer.node, writer.spool, batch.sequence),
    )?;
    transaction.commit()?;
    Ok(written)
}

/// Writes records. If the database refuses a value, for example because a user was deleted, searches for the record by
/// halves, and leaves it out.
fn write_records(
    transaction: &mut Transaction<'_>,
    tables: &dyn Tables,
    unix_s: u32,
    records: &[Record],
    written: &mut Written,
) -> Result<(), mysql::Error> {
    if records.is_empty() {
        return Ok(());
    }
    match unit(transaction, unix_s, |rows| tables.write(rows, records))? {
        Some(rows) => written.rows += rows,
        None if records.len() == 1 => written.skipped += 1,
        None => {
            let (first, second) = records.split_at(records.len() / 2);
            write_records(transaction, tables, unix_s, first, written)?;
            write_records(transaction, tables, unix_s, second, written)?;
        }
    }
    Ok(())
}

/// Runs `write` so that all of it happens or nothing. Returns the number of rows, or `None` if a value was refused.
fn unit(
    transaction: &mut Transaction<'_>,
    unix_s: u32,
    write: impl FnOnce(&mut Rows<'_, '_>) -> Result<(), mysql::Error>,
) -> Result<Option<u64>, mysql::Error> {
    transaction.query_drop("SAVEPOINT tidegate")?;
    let mut rows = Rows { conn: transaction, statement: Statement::default(), count: 0, unix_s };
    match write(&mut rows) {
        Ok(()) => Ok(Some(rows.count)),
        Err(error) if is_refused_value(&error) => {
            transaction.query_drop("ROLLBACK TO SAVEPOINT tidegate")?;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the value of a column, or the error of a row that has none.
pub(crate) fn column<T: mysql::prelude::FromValue>(
    row: &mut Row,
    index: usize,
) -> Result<T, mysql::Error> {
    let value = row.take_opt(index).ok_or_else(|| missing(index))?;
    value.map_err(|error| mysql::Error::FromValueError(error.0))
}

fn missing(index: usize) -> mysql::Error {
    let text = format!("expected a column {index}, found none");
    mysql::Error::IoError(std::io::Error::other(text))
}

fn code(error: &mysql::Error) -> Option<u16> {
    match error {
        mysql::Error::MySqlError(error) => Some(error.code),
        _ => None,
    }
}

/// Returns true if TLS failed, whereas the server answers.
fn is_tls(error: &mysql::Error) -> bool {
    match error {
        mysql::Error::TlsError(_) => true,
        // The handshake happens with the first bytes that are written.
        other => tls_error(other).is_some(),
    }
}

/// Returns the error of TLS within an error.
fn tls_error(error: &mysql::Error) -> Option<&rustls::Error> {
    let mut within: Option<&(dyn Error + 'static)> = match error {
        mysql::Error::IoError(error) => Some(error),
        mysql::Error::CodecError(error) => Some(error),
        mysql::Error::TlsError(error) => Some(error),
        _ => None,
    };
    while let Some(error) = within {
        if let Some(tls) = error.downcast_ref() {
            return Some(tls);
        }
        // The source of an error of the system is that of what it wraps.
        within = match error.downcast_ref::<std::io::Error>() {
            Some(error) => error.get_ref().map(|error| error as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}

fn message(error: &mysql::Error) -> String {
    match error {
        mysql::Error::MySqlError(error) => format!("{} (error {})", error.message, error.code),
        mysql::Error::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// Returns the sentence for an error of TLS.
fn tls_message(error: &mysql::Error) -> String {
    use rustls::{CertificateError as Bad, Error as Tls};
    match tls_error(error) {
        Some(Tls::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature)) => {
            "expected a certificate of the authority in site.database_ca, found one of another"
                .to_owned()
        }
        Some(Tls::InvalidCertificate(
            Bad::NotValidForName | Bad::NotValidForNameContext { .. },
        )) => {
            "expected a certificate for the host in site.database, found one for another".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns whether the database refuses a value, whereas others would be written.
fn is_refused_value(error: &mysql::Error) -> bool {
    // Null, duplicate, out of range, incorrect, too long, a missing or referenced parent row, and a sum that is too large.
    let codes = [1048, 1062, 1216, 1264, 1292, 1364, 1366, 1406, 1451, 1452, 1690];
    code(error).is_some_and(|code| codes.contains(&code))
}

/// Returns the sentence for an error, and its remedy.
pub(crate) fn trouble(error: &mysql::Error) -> Trouble {
    let text = match error {
        mysql::Error::MySqlError(_) => format!("the database refuses: {}", message(error)),
        mysql::Error::DriverError(DriverError::TlsNotSupported) => {
            "the database offers no TLS: expected a server with a certificate (ssl_cert, ssl_key), found one without"
                .to_owned()
        }
        _ if is_tls(error) => format!("no TLS to the database: {}", tls_message(error)),
        _ => format!("the database cannot be reached: {}", message(error)),
    };
    Trouble { error: text, remedy: remedy(error).to_owned() }
}

fn remedy(error: &mysql::Error) -> &'static str {
    let Some(code) = code(error) else {
        return match error {
            mysql::Error::DriverError(DriverError::TlsNotSupported) => {
                "give the server a certificate, or leave site.database_ca empty; batches wait in the spool"
            }
            _ if is_tls(error) => {
                "name the authority of the database's certificate in site.database_ca, and in site.database the host \
                 that the certificate is for; batches wait in the spool"
            }
            _ => {
                "start the database, or check host and port in site.database; batches wait in the spool"
            }
        };
    };
    match code {
        1045 | 1698 => "check user and password in site.database, or the file of the password",
        1044 | 1049 => {
            "check the name of the database in site.database, and that the user may use it (GRANT … ON NAME.*)"
        }
        1142 | 1143 | 1370 => {
            "let the tracker's user SELECT, INSERT and UPDATE the site's tables (GRANT SELECT, INSERT, UPDATE ON NAME.* TO …)"
        }
        1146 | 1054 => {
            "check site.kind and the database, or update the site and run its migrations"
        }
        1290 | 1792 | 1836 => {
            "the database takes no writes: end read_only, or name the primary server in site.database; batches wait in \
             the spool"
        }
        1021 | 1114 | 1030 | 3675 => {
            "make room on the disk of the database; batches wait in the spool"
        }
        1205 | 1213 => "nothing: another transaction held the rows; the batch is repeated",
        1153 => "raise max_allowed_packet of the database to 16M or more",
        1040 | 1203 | 1226 => "raise max_connections of the database",
        1064 => "use MariaDB 10.6 or later, or MySQL 8.0.4 or later",
        _ => "see the database's documentation of this error; the batch is repeated",
    }
}

#[cfg(test)]
mod tests {
    use mysql::MySqlError;

    use super::*;

    /// Errors that no test can have a server make.
    #[test]
    fn errors_of_servers_have_remedies() {
        for (code, part) in [
            (1064, "MariaDB 10.6 or later, or MySQL 8.0.4 or later"),
            (1021, "make room on the disk"),
            (1040, "max_connections"),
            (1153, "max_allowed_packet"),
            (1213, "the batch is repeated"),
            (9_999, "documentation of this error"),
        ] {
            let error = MySqlError { state: "HY000".into(), message: "m".into(), code };
            let Trouble { error, remedy } = trouble(&mysql::Error::MySqlError(error));
            assert_eq!(error, format!("the database refuses: m (error {code})"));
            assert!(remedy.contains(part), "{code}: {remedy}");
        }
    }
}
