//! The consequences of a transaction besides the rows that it changes.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::digests::{DigestChanges, RangeDigest};
use super::op::RecordOp;
use super::rows::Row;
use super::stamp::{Clock, Stamp};
use super::stamps::State;

/// A change with its stamp, for other nodes.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Stamped {
    pub(super) stamp: Stamp,
    pub(super) op: RecordOp,
}

/// The consequences of the changes of a transaction.
pub(super) struct Consequences {
    /// To be applied to the memory after the commit.
    pub(super) effects: Vec<RecordOp>,
    /// For other nodes, after the commit.
    pub(super) told: Vec<Stamped>,
    /// To be written before the commit.
    pub(super) digests: DigestChanges,
    pub(super) clock: Clock,
    /// Rows and counters taken from other nodes.
    pub(super) merged: u64,
    /// Those that were not newer than what was known.
    pub(super) stale: u64,
}

impl Consequences {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            effects: Vec::new(),
            told: Vec::new(),
            digests: DigestChanges::default(),
            clock,
            merged: 0,
            stale: 0,
        }
    }

    /// Stamps the rows of a change that was made here, and tells other nodes. What is left of `op` is what changed.
    /// Returns false if nothing did.
    pub(super) fn stamp(
        &mut self,
        db: &Connection,
        op: &mut RecordOp,
    ) -> Result<bool, rusqlite::Error> {
        let stamp = self.clock.next();
        let note =
            |to: &mut Self, row: &Row, is_removed| to.note(db, row, State { stamp, is_removed });
        if !self.retain(op, note)? {
            return Ok(false);
        }
        self.tell(stamp, op.clone());
        Ok(true)
    }

    /// Takes the rows of another node's change that are newer than those here; the others leave `op`. Returns false if
    /// there is none.
    pub(super) fn take_newer(
        &mut self,
        db: &Connection,
        stamp: Stamp,
        op: &mut RecordOp,
    ) -> Result<bool, rusqlite::Error> {
        self.retain(op, |to, row, is_removed| to.take(db, row, State { stamp, is_removed }))
    }

    fn retain(
        &mut self,
        op: &mut RecordOp,
        mut is_kept: impl FnMut(&mut Self, &Row, bool) -> Result<bool, rusqlite::Error>,
    ) -> Result<bool, rusqlite::Error> {
        let mut failure = None;
        let is_left = op.retain_rows(|row, is_removed| match is_kept(self, row, is_removed) {
            Ok(is_kept) => is_kept,
            Err(error) => {
                failure.get_or_insert(error);
                false
            }
        });
        failure.map_or(Ok(is_left), Err)
    }

    /// Counts a row or counter of another node.
    pub(super) fn count_merged(&mut self, is_new: bool) {
        if is_new {
            self.merged += 1;
        } else {
            self.stale += 1;
        }
    }

    /// Tells other nodes of a change, if there are any.
    pub(super) fn tell(&mut self, stamp: Stamp, op: RecordOp) {
        if self.clock.node > 0 {
            self.told.push(Stamped { stamp, op });
        }
    }

    /// Adds what a part of the transaction leads to. Returns the effects, which belong to that part.
    pub(super) fn absorb(&mut self, part: Self) -> Vec<RecordOp> {
        self.told.extend(part.told);
        self.digests.absorb(part.digests);
        self.clock = part.clock;
        part.effects
    }

    /// Writes digests and the clock, in the present transaction.
    pub(super) fn write(&self, db: &Connection) -> Result<Vec<RangeDigest>, rusqlite::Error> {
        // During an upgrade two processes write.
        let sql = "UPDATE clock SET stamp = max(stamp, ?1) WHERE stamp < ?1";
        db.prepare_cached(sql)?.execute([self.clock.last])?;
        self.digests.write(db)
    }
}
