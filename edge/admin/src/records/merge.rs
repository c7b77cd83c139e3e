//! Merging a snapshot of another node into the rows.
//!
//! A node that was in the cluster before takes the other's rows for its own, except for its own changes that
//! the other has not heard of: these are applied again on top. A node that joins keeps rows that the other
//! does not have, and publishes them. Where both have a row, the other's holds. If ids are equal and the rows
//! are not, the joining node's row gets a new id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use rusqlite::{Connection, params};
use types::InfoHash;

use super::op::{Consequences, RecordOp};
use super::replica::Replica;
use super::replication::StreamPosition;
use super::snapshot::{FullKey, Head, Merge, Part, Rows, RowsPart, hash, id};
use super::tables::bans::{self, BanRow};
use super::tables::cluster::{self, Heard};
use super::tables::counts;
use super::tables::ignored_nodes;
use super::tables::keys::{self, KeyRow};
use super::tables::lists::{self, List};
use super::tables::settings;
use super::tables::tokens::{self, TokenRow};
use super::tables::webhooks::{self, WebhookRow};

/// Rows read at a time.
const PAGE: u32 = 10_000;

/// The upper bound of info hashes.
const LAST_HASH: InfoHash = InfoHash([0xff; 20]);

impl Replica {
    /// Merges a part, in the present transaction.
    pub(super) fn merge_part(
        &mut self,
        db: &Connection,
        part: Part,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        match part {
            Part::Head(head) => {
                // Until the last part is merged, the next start asks for a snapshot again.
                cluster::remove_position(db, cluster::RECORDS)?;
                db.execute_batch(
                    "CREATE TEMP TABLE IF NOT EXISTS theirs (id INTEGER PRIMARY KEY);
                     DELETE FROM temp.theirs;",
                )?;
                self.state.may_differ.store(true, Ordering::Relaxed);
                self.merge = Some(Merge { head, at: (self.now)() });
            }
            Part::Rows(part) => {
                if let Some(merge) = &mut self.merge {
                    merge.at = (self.now)();
                    self.merge_rows(db, part, to)?;
                }
            }
        }
        Ok(())
    }

    fn merge_rows(
        &self,
        db: &Connection,
        part: RowsPart,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        let RowsPart { after, until, rows } = part;
        let merger = Merger { db, replaces: self.identity.has_joined };
        let (after, until) = (after.as_deref(), until.as_deref());
        match rows {
            Rows::List { list, hashes } => {
                let range = (hash(after), hash(until).unwrap_or(LAST_HASH));
                merger.list(list, range, &hashes, to)
            }
            Rows::Bans(rows) => merger.bans((after.unwrap_or_default(), until), rows, to),
            Rows::Keys(rows) => {
                let until = until.map_or(u32::MAX, |until| id(Some(until)));
                merger.keys((id(after), until), rows, to)
            }
            Rows::Tokens(rows) => merger.tokens(rows, to),
            Rows::Webhooks(rows) => merger.webhooks(rows, to),
            Rows::Settings(rows) => merger.settings(rows, to),
            Rows::IgnoredNodes(nodes) => merger.ignored_nodes(&nodes, to),
            Rows::Downloads { hashes, counts } if !merger.replaces => {
                let counts: Vec<_> = hashes.into_iter().zip(counts).collect();
                counts::raise(db, &counts)?;
                to.effects.push(RecordOp::DownloadsRaised(counts));
                Ok(())
            }
            // A node that was here before has counted by itself.
            Rows::Downloads { .. } => Ok(()),
        }
    }

    /// Finishes merging, in the present transaction: what was heard is what the other node had heard. Returns
    /// the place in the stream from which to read on.
    pub(super) fn finish_merge(
        &mut self,
        db: &Connection,
        to: &mut Consequences,
    ) -> Result<StreamPosition, rusqlite::Error> {
        let Some(Merge { head, .. }) = self.merge.take() else {
            return cluster::position(db, cluster::RECORDS);
        };
        self.take_heard(db, &head)?;
        let heard = cluster::heard(db, self.identity.node)?;
        let is_same = heard.epoch == self.identity.epoch;
        if is_same && heard.number > cluster::last_number(db)? {
            self.begin_epoch(db)?;
        }
        if self.identity.has_joined {
            let known = if is_same { heard.number } else { 0 };
            self.apply_own_again(db, known, &mut to.effects)?;
        } else {
            Merger { db, replaces: false }.publish_keys(to)?;
            let (stream, sequence) = head.peers;
            if cluster::position(db, cluster::PEERS)?.stream == 0 {
                let position = StreamPosition { stream, sequence };
                cluster::set_position(db, cluster::PEERS, position)?;
            }
            self.identity.has_joined = true;
            cluster::set_identity(db, self.identity)?;
        }
        let (stream, sequence) = head.position;
        let position = StreamPosition { stream, sequence };
        cluster::set_position(db, cluster::RECORDS, position)?;
        Ok(position)
    }

    fn take_heard(&self, db: &Connection, head: &Head) -> Result<(), rusqlite::Error> {
        cluster::forget_heard(db)?;
        for (node, epoch, number) in head.heard.iter().copied() {
            cluster::set_heard(db, node, Heard { epoch, number })?;
        }
        Ok(())
    }

    /// Applies own entries again that the other node has not heard of, and totals that wait to be sent.
    fn apply_own_again(
        &self,
        db: &Connection,
        known: u64,
        effects: &mut Vec<RecordOp>,
    ) -> Result<(), rusqlite::Error> {
        let mut last = known;
        while let Some((number, _, ops)) = cluster::next(db, last, false)? {
            let ops: Vec<RecordOp> = serde_json::from_str(&ops).unwrap_or_default();
            for op in ops.into_iter().filter(|op| !op.is_ephemeral()) {
                self.apply_op(db, op, true, effects)?;
            }
            last = number;
        }
        keys::add_totals(db, &counts::unsent(db)?)
    }

    /// Joins the cluster without a snapshot, because no other node has one: publishes all rows.
    pub(super) fn join_alone(
        &mut self,
        db: &Connection,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        if self.identity.has_joined {
            return Ok(());
        }
        // One may have been left unfinished.
        self.merge = None;
        let merger = Merger { db, replaces: false };
        merger.tokens(Vec::new(), to)?;
        merger.webhooks(Vec::new(), to)?;
        merger.settings(Vec::new(), to)?;
        merger.ignored_nodes(&[], to)?;
        for list in [List::Frozen, List::Allow, List::Deny] {
            merger.list(list, (None, LAST_HASH), &[], to)?;
        }
        merger.bans(("", None), Vec::new(), to)?;
        db.execute_batch("CREATE TEMP TABLE IF NOT EXISTS theirs (id INTEGER PRIMARY KEY)")?;
        merger.publish_keys(to)?;
        self.identity.has_joined = true;
        cluster::set_identity(db, self.identity)
    }
}

struct Merger<'a> {
    db: &'a Connection,
    /// Whether rows that the other node does not have are removed. Else they are published.
    replaces: bool,
}

impl Merger<'_> {
    fn list(
        &self,
        list: List,
        (mut after, until): (Option<InfoHash>, InfoHash),
        theirs: &[InfoHash],
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        loop {
            let mut own = lists::page(self.db, list, after, PAGE)?;
            after = own.last().copied();
            let is_last = own.len() < PAGE as usize || after >= Some(until);
            own.retain(|hash| *hash <= until && theirs.binary_search(hash).is_err());
            if self.replaces {
                lists::remove(self.db, list, &own)?;
                to.effects.extend(RecordOp::list(list, &own, false));
            } else {
                to.logged.extend(RecordOp::list(list, &own, true));
            }
            if is_last {
                break;
            }
        }
        lists::insert(self.db, list, theirs)?;
        to.effects.extend(RecordOp::list(list, theirs, true));
        Ok(())
    }

    fn bans(
        &self,
        (after, until): (&str, Option<&str>),
        theirs: Vec<BanRow>,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        let known: BTreeSet<&str> = theirs.iter().map(|row| row.network.as_str()).collect();
        let mut after = after.to_owned();
        loop {
            let mut own = bans::page(self.db, i64::MIN, &after, PAGE)?;
            let Some(last) = own.last() else { break };
            after.clone_from(&last.network);
            let is_last = until.is_some_and(|until| after.as_str() >= until);
            own.retain(|row| {
                until.is_none_or(|until| row.network.as_str() <= until)
                    && !known.contains(row.network.as_str())
            });
            if self.replaces {
                for network in own.into_iter().map(|row| row.network) {
                    bans::remove(self.db, &network)?;
                    to.effects.push(RecordOp::BanRemoved { network });
                }
            } else if !own.is_empty() {
                let ops = own.chunks(1000).map(|rows| RecordOp::BansPut(rows.to_vec()));
                to.logged.extend(ops);
            }
            if is_last {
                break;
            }
        }
        // Theirs hold, even automatic ones.
        for row in &theirs {
            bans::remove(self.db, &row.network)?;
        }
        to.effects.push(RecordOp::BansPut(bans::put(self.db, &theirs)?));
        Ok(())
    }

    fn keys(
        &self,
        (after, until): (u32, u32),
        theirs: Vec<FullKey>,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        let theirs: BTreeMap<u32, KeyRow> =
            theirs.into_iter().map(FullKey::row).map(|row| (row.id, row)).collect();
        if self.replaces {
            let mut after = after;
            loop {
                let own = keys::page(self.db, after, PAGE)?;
                let Some(last) = own.last() else { break };
                after = last.id;
                let own = own.iter().map(|row| row.id);
                for id in own.filter(|id| *id <= until && !theirs.contains_key(id)) {
                    keys::remove(self.db, id)?;
                    to.effects.push(RecordOp::KeyRemoved { id });
                }
                if after >= until {
                    break;
                }
            }
        }
        let mut mark = self.db.prepare("INSERT OR IGNORE INTO temp.theirs VALUES (?1)")?;
        for row in theirs.into_values() {
            let own = keys::get(self.db, row.id)?;
            if let Some(own) = own.filter(|own| own.key != row.key) {
                self.make_room_for_key(own, to)?;
            }
            let displaced = keys::put(self.db, &row)?;
            to.effects.extend(displaced.map(|id| RecordOp::KeyRemoved { id }));
            keys::set_totals(self.db, &row)?;
            mark.execute([row.id])?;
            to.effects.push(RecordOp::KeyPut(row));
        }
        Ok(())
    }

    /// Gives an own key another id, or removes it.
    fn make_room_for_key(&self, own: KeyRow, to: &mut Consequences) -> Result<(), rusqlite::Error> {
        let old = own.id;
        if self.replaces {
            keys::remove(self.db, old)?;
            to.effects.push(RecordOp::KeyRemoved { id: old });
            return Ok(());
        }
        let id = keys::next_id(self.db)?;
        self.db.execute("UPDATE keys SET id = ?2 WHERE id = ?1", params![old, id])?;
        to.effects.push(RecordOp::KeyPut(KeyRow { id, ..own }));
        Ok(())
    }

    /// Publishes all keys that the other node does not have, with their totals.
    fn publish_keys(&self, to: &mut Consequences) -> Result<(), rusqlite::Error> {
        let mut is_theirs = self.db.prepare("SELECT 1 FROM temp.theirs WHERE id = ?1")?;
        let mut after = 0;
        loop {
            let page = keys::page(self.db, after, 1000)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.id;
            let (mut totals, mut uses) = (Vec::new(), Vec::new());
            for row in page {
                if is_theirs.exists([row.id])? {
                    continue;
                }
                let of = row.totals;
                totals.push((row.id, of.uploaded, of.downloaded, of.seeding_s, of.announces));
                uses.extend(row.first_used.map(|at| (row.id, at)));
                to.logged.push(RecordOp::KeyPut(row));
            }
            to.logged.push(RecordOp::KeyTotals(totals));
            to.logged.push(RecordOp::KeysFirstUsed(uses));
        }
    }

    fn tokens(&self, theirs: Vec<TokenRow>, to: &mut Consequences) -> Result<(), rusqlite::Error> {
        let own = tokens::all(self.db)?;
        for mut row in own.iter().cloned() {
            if theirs.contains(&row) || theirs.iter().any(|it| it.digest == row.digest) {
                continue;
            }
            let is_id_taken = theirs.iter().any(|it| it.id == row.id);
            if self.replaces || is_id_taken {
                tokens::remove(self.db, row.id)?;
                to.effects.push(RecordOp::TokenRemoved { id: row.id });
            }
            if !self.replaces {
                if is_id_taken {
                    row.id = 0;
                    tokens::insert(self.db, &mut row)?;
                    to.effects.push(RecordOp::TokenPut(row.clone()));
                }
                to.logged.push(RecordOp::TokenPut(row));
            }
        }
        for row in theirs.into_iter().filter(|row| !own.contains(row)) {
            let displaced = tokens::put(self.db, &row)?;
            to.effects.extend(displaced.map(|id| RecordOp::TokenRemoved { id }));
            to.effects.push(RecordOp::TokenPut(row));
        }
        Ok(())
    }

    fn webhooks(
        &self,
        theirs: Vec<WebhookRow>,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        let own = webhooks::all(self.db)?;
        for mut row in own.iter().filter(|row| !theirs.contains(row)).cloned() {
            let is_id_taken = theirs.iter().any(|it| it.id == row.id);
            if self.replaces || is_id_taken {
                webhooks::remove(self.db, row.id)?;
                to.effects.push(RecordOp::WebhookRemoved { id: row.id });
            }
            if !self.replaces {
                if is_id_taken {
                    row.id = 0;
                    webhooks::insert(self.db, &mut row)?;
                    to.effects.push(RecordOp::WebhookPut(row.clone()));
                }
                to.logged.push(RecordOp::WebhookPut(row));
            }
        }
        for row in theirs.into_iter().filter(|row| !own.contains(row)) {
            webhooks::put(self.db, &row)?;
            to.effects.push(RecordOp::WebhookPut(row));
        }
        Ok(())
    }

    fn ignored_nodes(&self, theirs: &[u8], to: &mut Consequences) -> Result<(), rusqlite::Error> {
        let own = ignored_nodes::all(self.db)?;
        for node in own.iter().copied().filter(|node| !theirs.contains(node)) {
            let is_ignored = !self.replaces;
            let to = if self.replaces { &mut to.effects } else { &mut to.logged };
            ignored_nodes::set(self.db, node, is_ignored)?;
            to.push(RecordOp::NodeIgnored { node, is_ignored });
        }
        for node in theirs.iter().copied().filter(|node| !own.contains(node)) {
            ignored_nodes::set(self.db, node, true)?;
            to.effects.push(RecordOp::NodeIgnored { node, is_ignored: true });
        }
        Ok(())
    }

    fn settings(
        &self,
        theirs: Vec<(String, String)>,
        to: &mut Consequences,
    ) -> Result<(), rusqlite::Error> {
        let own = settings::texts(self.db)?.into_iter();
        let own = own.filter(|(name, _)| theirs.iter().all(|(theirs, _)| theirs != name));
        let mut values: Vec<_> =
            theirs.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
        if self.replaces {
            values.extend(own.map(|(name, _)| (name, None)));
        } else {
            let own: Vec<_> = own.map(|(name, value)| (name, Some(value))).collect();
            if !own.is_empty() {
                to.logged.push(RecordOp::SettingsPut(own));
            }
        }
        if settings::change(self.db, &values)? {
            to.effects.push(RecordOp::SettingsPut(values));
        }
        Ok(())
    }
}
