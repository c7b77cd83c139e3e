//! Merging changes of other nodes: of each row, the change with the later stamp wins, in whatever order changes come.
//!
//! The text of a key and the digest of a token are unique, too. If two rows have the same, the one with the later stamp
//! wins; the other becomes a tombstone with that stamp, again in whatever order they come.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use serde_json::Value;
use tracing::debug;

use super::changes::{Consequences, Stamped};
use super::op::RecordOp;
use super::replication::ReplicationState;
use super::rows::{Kind, Row};
use super::stamp::Stamp;
use super::stamps;
use super::tables::bans;
use super::tables::counts;
use super::tables::ids;
use super::tables::key_totals;
use super::tables::keys::{self, KeyRow};
use super::tables::settings;
use super::tables::tokens::{self, TokenRow};
use super::tables::torrent_reasons;
use super::tables::webhooks::{self, WebhookRow};

/// Bytes of a body: twice what a node sends.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The age up to which ops that act on the memory only are applied, ms.
const EPHEMERAL_MS: u64 = 600_000;

/// Merges a body of node `from`, in the present transaction.
pub(super) fn merge_body(
    db: &Connection,
    to: &mut Consequences,
    state: &ReplicationState,
    from: u8,
    body: &[u8],
) -> Result<(), rusqlite::Error> {
    let count = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
    let changes =
        (body.len() <= BODY_BYTES_MAX).then(|| serde_json::from_slice::<Vec<Value>>(body));
    let Some(Ok(changes)) = changes else {
        count(&state.rejected);
        debug!(from, bytes = body.len(), "malformed rows of another node");
        return Ok(());
    };
    for change in changes {
        let change = serde_json::from_value::<Stamped>(change);
        let Some(Stamped { stamp, mut op }) = change.ok().filter(|change| change.op.is_valid())
        else {
            count(&state.unknown);
            continue;
        };
        if stamp < to.oldest_tombstone() {
            op.retain_rows(|_, is_removed| !is_removed);
        }
        // Counters have no order.
        let is_counter = matches!(op, RecordOp::KeyTotals { .. } | RecordOp::Downloads { .. });
        if !is_counter && stamp.is_refused(to.clock.now_ms) {
            count(&state.rejected);
            debug!(from, unix_ms = stamp.unix_ms(), "rows with a stamp far ahead");
            continue;
        }
        op.merge(db, to, stamp)?;
    }
    Ok(())
}

impl RecordOp {
    pub(super) fn merge(
        mut self,
        db: &Connection,
        to: &mut Consequences,
        stamp: Stamp,
    ) -> Result<(), rusqlite::Error> {
        match self {
            Self::KeyTotals { node, keys } => return key_totals::merge(db, to, node, &keys),
            Self::Downloads { node, hashes, counts } => {
                return counts::merge(db, to, node, hashes.into_iter().zip(counts));
            }
            Self::TorrentRemoved { .. } | Self::PeersRemoved { .. } => {
                if to.clock.now_ms.abs_diff(stamp.unix_ms()) <= EPHEMERAL_MS {
                    to.effects.push(self);
                }
                return Ok(());
            }
            _ => {}
        }
        to.clock.see(stamp);
        self.make_room(db, to)?;
        if !self.wins(db, to, stamp)? || !to.take_newer(db, stamp, &mut self)? {
            return Ok(());
        }
        if self.write(db, to)? {
            to.effects.push(self);
        }
        Ok(())
    }

    /// Returns the op that removes the row with an id that this op puts, what identifies the row, and the id.
    fn removal(&self) -> Option<(Self, Row, i64)> {
        let (removal, kind, id) = match self {
            Self::KeyPut(row) => (Self::KeyRemoved { id: row.id }, Kind::Keys, row.id.into()),
            Self::TokenPut(row) => (Self::TokenRemoved { id: row.id }, Kind::Tokens, row.id),
            Self::WebhookPut(row) => (Self::WebhookRemoved { id: row.id }, Kind::Webhooks, row.id),
            _ => return None,
        };
        Some((removal, Row::named(kind, id), id))
    }

    /// Returns the id of another row with the same unique text, as the op that removes that row and what identifies it.
    fn rival(&self, db: &Connection) -> Result<Option<(Self, Row)>, rusqlite::Error> {
        Ok(match self {
            Self::KeyPut(row) => keys::id_of(db, &row.key)?
                .filter(|id| *id != row.id)
                .map(|id| (Self::KeyRemoved { id }, Row::named(Kind::Keys, id))),
            Self::TokenPut(row) => tokens::id_of(db, &row.digest)?
                .filter(|id| *id != row.id)
                .map(|id| (Self::TokenRemoved { id }, Row::named(Kind::Tokens, id))),
            _ => None,
        })
    }

    /// Decides between a key or token and another one with the same text or digest, and removes the one that loses.
    /// Returns false if this one does.
    fn wins(
        &self,
        db: &Connection,
        to: &mut Consequences,
        stamp: Stamp,
    ) -> Result<bool, rusqlite::Error> {
        let Some((rival, rival_row)) = self.rival(db)? else { return Ok(true) };
        let Some((removal, row, _)) = self.removal() else { return Ok(true) };
        if stamps::get(db, &row)?.is_some_and(|known| known.stamp >= stamp) {
            // It is not new, so it takes part in nothing.
            return Ok(true);
        }
        let rival_stamp = stamps::get(db, &rival_row)?.map_or_else(Stamp::default, |it| it.stamp);
        let is_won = rival_stamp < stamp;
        let loser = if is_won { rival } else { removal };
        loser.merge(db, to, stamp.max(rival_stamp))?;
        Ok(is_won)
    }

    /// Makes room for a row whose id another row has, which this node made before it was in the cluster: that one gets
    /// a new id. An id of a cluster is assigned once, unless a backup was restored; then the later row replaces the other.
    fn make_room(&self, db: &Connection, to: &mut Consequences) -> Result<(), rusqlite::Error> {
        let Some((mut removal, row, id)) = self.removal() else { return Ok(()) };
        let known = stamps::get(db, &row)?;
        let is_own = known.is_some_and(|known| known.stamp.node() == to.clock.node);
        if !is_own || !ids::is_early(id) {
            return Ok(());
        }
        let moved = match self {
            Self::KeyPut(theirs) => keys::get(db, theirs.id)?
                .filter(|own| own.key != theirs.key)
                .map(|own| Self::KeyPut(KeyRow { id: 0, ..own })),
            Self::TokenPut(theirs) => tokens::get(db, theirs.id)?
                .filter(|own| own.digest != theirs.digest)
                .map(|own| Self::TokenPut(TokenRow { id: 0, ..own })),
            Self::WebhookPut(theirs) => webhooks::get(db, theirs.id)?
                .filter(|own| own.secret != theirs.secret)
                .map(|own| Self::WebhookPut(WebhookRow { id: 0, ..own })),
            _ => None,
        };
        let Some(moved) = moved else { return Ok(()) };
        removal.write(db, to)?;
        to.effects.push(removal);
        to.forget(db, &row)?;
        let outcome = moved.apply(db, to)?;
        if let (Self::KeyPut(theirs), Some(own)) = (self, outcome.key) {
            key_totals::rename(db, to, theirs.id, own.id)?;
        }
        Ok(())
    }

    /// Writes a newer row of another node. Returns false if the memory need not know.
    fn write(&mut self, db: &Connection, to: &mut Consequences) -> Result<bool, rusqlite::Error> {
        match self {
            Self::KeyPut(row) => {
                if keys::get(db, row.id)?.is_some_and(|old| old.key != row.key) {
                    to.effects.push(Self::KeyRemoved { id: row.id });
                }
                keys::put(db, row)?;
            }
            Self::ReasonsPut(rows) => torrent_reasons::put(db, rows)?,
            Self::BansPut(rows) => {
                for row in &*rows {
                    bans::remove(db, &row.network)?;
                }
                bans::put(db, rows)?;
            }
            Self::TokenPut(row) => {
                if tokens::get(db, row.id)?.is_some_and(|old| old.digest != row.digest) {
                    to.effects.push(Self::TokenRemoved { id: row.id });
                }
                tokens::put(db, row)?;
            }
            Self::WebhookPut(row) => webhooks::put(db, row)?,
            Self::SettingsPut(values) => return settings::change(db, values),
            other => drop(other.remove_rows(db)?),
        }
        Ok(true)
    }
}
