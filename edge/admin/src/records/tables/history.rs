//! Statistics of the last 90 days, and annotations. Each node of a cluster has its own.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::annotation::{ANNOTATIONS_MAX, Annotation, AnnotationKind};

/// Rows that wait to be written, and annotations too, at most. Older ones are dropped.
const PENDING_MAX: usize = 1000;
/// Rows kept of each step: as many as the recorder reads at a start.
const ROWS_MAX: u32 = 360;

/// Figures of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredRow {
    pub(crate) step_s: u64,
    /// The end of the step, Unix time in seconds.
    pub(crate) time: u64,
    /// A JSON object.
    pub(crate) data: String,
}

/// Rows and annotations that are to be written, or were read.
#[derive(Debug, Default)]
pub(crate) struct PendingHistory {
    pub(crate) rows: Vec<StoredRow>,
    pub(crate) annotations: Vec<Annotation>,
}

impl PendingHistory {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.annotations.is_empty()
    }

    /// Moves everything of `later` behind it. Rows of the same step replace earlier ones.
    pub(crate) fn append(&mut self, later: &mut Self) {
        let is_replaced = |row: &StoredRow| {
            later.rows.iter().any(|it| (it.step_s, it.time) == (row.step_s, row.time))
        };
        self.rows.retain(|row| !is_replaced(row));
        self.rows.append(&mut later.rows);
        self.annotations.append(&mut later.annotations);
        self.rows.drain(..self.rows.len().saturating_sub(PENDING_MAX));
        self.annotations.drain(..self.annotations.len().saturating_sub(PENDING_MAX));
    }
}

/// Writes rows and annotations, and removes the oldest beyond their limits.
pub(in super::super) fn write(
    db: &Connection,
    pending: &PendingHistory,
) -> Result<(), rusqlite::Error> {
    if pending.is_empty() {
        return Ok(());
    }
    let mut insert = db.prepare("INSERT OR REPLACE INTO history VALUES (?1, ?2, ?3)")?;
    // Rows after one that is written come from before the clock was set back.
    let mut limit = db.prepare(
        "DELETE FROM history WHERE step_s = ?1 AND (time > ?2 OR time NOT IN
         (SELECT time FROM history WHERE step_s = ?1 AND time <= ?2 ORDER BY time DESC LIMIT ?3))",
    )?;
    for row in &pending.rows {
        insert.execute(params![row.step_s as i64, row.time as i64, row.data])?;
        limit.execute(params![row.step_s as i64, row.time as i64, ROWS_MAX])?;
    }
    let mut insert =
        db.prepare("INSERT INTO annotations (time, kind, text) VALUES (?1, ?2, ?3)")?;
    for Annotation { time, kind, text } in &pending.annotations {
        let kind = serde_json::to_value(kind).unwrap_or_default();
        insert.execute(params![*time as i64, kind.as_str(), text])?;
    }
    let limit =
        "DELETE FROM annotations WHERE number <= (SELECT max(number) FROM annotations) - ?1";
    db.execute(limit, [ANNOTATIONS_MAX as i64])?;
    Ok(())
}

/// Returns all rows, each step's in order, and all annotations.
pub(crate) fn all(db: &Connection) -> Result<PendingHistory, rusqlite::Error> {
    let mut rows = db.prepare("SELECT step_s, time, data FROM history ORDER BY step_s, time")?;
    let number = |row: &rusqlite::Row<'_>, column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let rows = rows.query_map([], |row| {
        Ok(StoredRow { step_s: number(row, 0)?, time: number(row, 1)?, data: row.get(2)? })
    })?;
    let mut annotations = db.prepare("SELECT time, kind, text FROM annotations ORDER BY number")?;
    let annotations = annotations.query_map([], |row| {
        // Kinds of later versions are left out.
        let kind: String = row.get(1)?;
        let kind = serde_json::from_value::<AnnotationKind>(kind.into()).ok();
        let (time, text) = (number(row, 0)?, row.get(2)?);
        Ok(kind.map(|kind| Annotation { time, kind, text }))
    })?;
    let annotations = annotations.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok(PendingHistory { rows: rows.collect::<Result<_, _>>()?, annotations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;

    #[test]
    fn rows_and_annotations_are_limited() {
        let (_records, writer) = Records::open(None).unwrap();
        let db = writer.connection();
        let row = |step_s, time| StoredRow { step_s, time, data: "{}".into() };
        let annotation = |time| {
            let kind = AnnotationKind::Reload;
            Annotation { time, kind, text: "reloaded".into() }
        };
        let mut pending = PendingHistory::default();
        pending.append(&mut PendingHistory {
            rows: (0..2000).map(|at| row(60, 60 * at)).collect(),
            annotations: (0..2000).map(annotation).collect(),
        });
        assert_eq!((pending.rows.len(), pending.annotations.len()), (PENDING_MAX, PENDING_MAX));
        write(db, &pending).unwrap();
        write(db, &PendingHistory { rows: vec![row(300, 300)], annotations: Vec::new() }).unwrap();
        let read = all(db).unwrap();
        assert_eq!(read.rows.len(), ROWS_MAX as usize + 1);
        assert_eq!(read.rows.last(), Some(&row(300, 300)));
        assert_eq!(read.annotations.len(), ANNOTATIONS_MAX);
        assert_eq!(read.annotations.last(), Some(&annotation(1999)));
        // The clock was set back.
        write(db, &PendingHistory { rows: vec![row(60, 119_000)], annotations: Vec::new() })
            .unwrap();
        let steps = all(db).unwrap().rows.into_iter().filter(|row| row.step_s == 60);
        assert_eq!(steps.map(|row| row.time).max(), Some(119_000));
    }
}
