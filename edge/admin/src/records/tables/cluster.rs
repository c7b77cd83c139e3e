//! What a node of a cluster keeps beside its rows: entries to publish, entries heard, places in streams.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::replication::StreamPosition;

/// What this node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Identity {
    pub(in super::super) node: u8,
    /// When these records were made, unix ms. A later epoch counts entries anew.
    pub(in super::super) epoch: u64,
    /// Whether the rows have been merged with those of the other nodes once.
    pub(in super::super) has_joined: bool,
}

/// What was heard of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Heard {
    pub(in super::super) epoch: u64,
    /// The last entry that was applied.
    pub(in super::super) number: u64,
}

/// The names of positions: the stream of records, and the log of peers.
pub(in super::super) const RECORDS: &str = "records";
pub(in super::super) const PEERS: &str = "peers";

/// SQLite has signed integers. All of these numbers are far below the limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(in super::super) fn identity(db: &Connection) -> Result<Option<Identity>, rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| {
        let epoch = row.get::<_, i64>(1)?.unsigned_abs();
        Ok(Identity { node: row.get(0)?, epoch, has_joined: row.get(2)? })
    };
    db.query_row("SELECT node, epoch, has_joined FROM replica", [], read).optional()
}

pub(in super::super) fn set_identity(
    db: &Connection,
    identity: Identity,
) -> Result<(), rusqlite::Error> {
    let Identity { node, epoch, has_joined } = identity;
    db.execute("DELETE FROM replica", [])?;
    let values = params![node, signed(epoch), has_joined];
    db.execute("INSERT INTO replica (node, epoch, has_joined) VALUES (?1, ?2, ?3)", values)?;
    Ok(())
}

/// Removes what belongs to another node: the rows were copied from it.
pub(in super::super) fn clear(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute_batch(
        "DELETE FROM outbox; DELETE FROM heard; DELETE FROM positions; DELETE FROM unsent_totals;
         DELETE FROM last_ids;",
    )
}

pub(in super::super) fn heard(db: &Connection, node: u8) -> Result<Heard, rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(Heard { epoch: number(0)?, number: number(1)? })
    };
    let sql = "SELECT epoch, number FROM heard WHERE node = ?1";
    Ok(db.query_row(sql, [node], read).optional()?.unwrap_or_default())
}

pub(in super::super) fn all_heard(db: &Connection) -> Result<Vec<(u8, Heard)>, rusqlite::Error> {
    let mut nodes = db.prepare("SELECT node FROM heard ORDER BY node")?;
    let nodes: Result<Vec<u8>, _> = nodes.query_map([], |row| row.get(0))?.collect();
    nodes?.into_iter().map(|node| Ok((node, heard(db, node)?))).collect()
}

pub(in super::super) fn set_heard(
    db: &Connection,
    node: u8,
    heard: Heard,
) -> Result<(), rusqlite::Error> {
    let Heard { epoch, number } = heard;
    db.execute(
        "INSERT INTO heard (node, epoch, number) VALUES (?1, ?2, ?3)
         ON CONFLICT (node) DO UPDATE SET epoch = excluded.epoch, number = excluded.number",
        params![node, signed(epoch), signed(number)],
    )?;
    Ok(())
}

pub(in super::super) fn position(
    db: &Connection,
    name: &str,
) -> Result<StreamPosition, rusqlite::Error> {
    let read = |row: &rusqlite::Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(StreamPosition { stream: number(0)?, sequence: number(1)? })
    };
    let sql = "SELECT stream, sequence FROM positions WHERE name = ?1";
    Ok(db.query_row(sql, [name], read).optional()?.unwrap_or_default())
}

pub(in super::super) fn set_position(
    db: &Connection,
    name: &str,
    position: StreamPosition,
) -> Result<(), rusqlite::Error> {
    let StreamPosition { stream, sequence } = position;
    db.execute(
        "INSERT INTO positions (name, stream, sequence) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET stream = excluded.stream, sequence = excluded.sequence",
        params![name, signed(stream), signed(sequence)],
    )?;
    Ok(())
}

pub(in super::super) fn remove_position(
    db: &Connection,
    name: &str,
) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM positions WHERE name = ?1", [name]).map(drop)
}

/// Forgets what was heard of all nodes.
pub(in super::super) fn forget_heard(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM heard", []).map(drop)
}

/// Appends an entry with these ops, as a JSON array, made at `at`, unix ms. Returns its number.
pub(in super::super) fn append(
    db: &Connection,
    at: u64,
    ops: &str,
) -> Result<u64, rusqlite::Error> {
    db.execute("INSERT INTO outbox (at, ops) VALUES (?1, ?2)", params![signed(at), ops])?;
    Ok(db.last_insert_rowid().unsigned_abs())
}

/// Returns the number of the last entry ever appended.
pub(in super::super) fn last_number(db: &Connection) -> Result<u64, rusqlite::Error> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'outbox'";
    let last: Option<i64> = db.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok(last.unwrap_or(0).unsigned_abs())
}

/// Returns the first entry after `number`, of all or of those that are not stored: its number, when it was
/// made, and its ops.
pub(in super::super) fn next(
    db: &Connection,
    after: u64,
    unstored_only: bool,
) -> Result<Option<(u64, u64, String)>, rusqlite::Error> {
    let condition = if unstored_only { "AND stored_at IS NULL" } else { "" };
    let sql = format!(
        "SELECT number, at, ops FROM outbox WHERE number > ?1 {condition} ORDER BY number LIMIT 1"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok((number(0)?, number(1)?, row.get(2)?))
    };
    db.query_row(&sql, [signed(after)], read).optional()
}

/// Notes that the entries up to `number` are stored. Returns their bytes.
pub(in super::super) fn mark_stored(
    db: &Connection,
    number: u64,
    now: u64,
) -> Result<u64, rusqlite::Error> {
    let mut update = db.prepare(
        "UPDATE outbox SET stored_at = ?2 WHERE number <= ?1 AND stored_at IS NULL
         RETURNING octet_length(ops)",
    )?;
    let sizes = update.query_map(params![signed(number), signed(now)], |row| row.get::<_, i64>(0));
    sizes?.try_fold(0, |sum, size| Ok(sum + size?.unsigned_abs()))
}

/// Notes that no entry is stored.
pub(in super::super) fn mark_unstored(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute("UPDATE outbox SET stored_at = NULL", []).map(drop)
}

/// Removes entries that were stored before `time`.
pub(in super::super) fn remove_stored(db: &Connection, time: u64) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM outbox WHERE stored_at < ?1", [signed(time)]).map(drop)
}

/// Returns the bytes of entries that are not stored.
pub(in super::super) fn unstored_bytes(db: &Connection) -> Result<u64, rusqlite::Error> {
    let sql = "SELECT coalesce(sum(octet_length(ops)), 0) FROM outbox WHERE stored_at IS NULL";
    db.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Returns the number of the last own entry that has come back from the stream.
pub(in super::super) fn returned(
    db: &Connection,
    identity: Identity,
) -> Result<u64, rusqlite::Error> {
    let heard = heard(db, identity.node)?;
    Ok(if heard.epoch == identity.epoch { heard.number } else { 0 })
}

/// Returns whether all entries of this node have come back from the stream.
pub(in super::super) fn has_settled(db: &Connection) -> Result<bool, rusqlite::Error> {
    let Some(identity) = identity(db)? else { return Ok(true) };
    Ok(returned(db, identity)? >= last_number(db)?)
}
