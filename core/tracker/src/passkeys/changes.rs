//! Sessions that have changed, for the other nodes of a cluster: a peer that announces at another node next
//! time is then counted once, and its key's quota holds everywhere but for what happens within a second or so.
//!
//! Of changed sessions only the tags are kept, not the reports: a session that reports several times
//! before it is taken is sent once. Ended sessions are kept whole, and are sent first: a peer that comes
//! back with another peer id ends its old session before the new one begins.

use std::sync::atomic::Ordering;

use hashbrown::HashTable;

use super::SessionTag;
use super::sessions::{SessionRecord, Sessions};

/// Sessions of a shard that have changed since they were last taken.
#[derive(Default)]
pub(super) struct SessionChanges {
    renewed: HashTable<SessionTag>,
    ended: Vec<SessionRecord>,
}

impl Sessions {
    /// Keeps that a session has begun, or was renewed.
    #[cold]
    pub(super) fn keep_renewed(&mut self, tag: SessionTag) {
        let renewed = &self.changes.renewed;
        if renewed.find(tag.client, |other| *other == tag).is_none() && self.takes_change() {
            self.changes.renewed.insert_unique(tag.client, tag, |tag| tag.client);
        }
    }

    /// Keeps a session that has ended, at the time of its last report.
    #[cold]
    pub(super) fn keep_ended(&mut self, ended: SessionRecord) {
        // Sessions of WebTorrent peers stay at their node.
        if !ended.session.last.is_web && self.takes_change() {
            self.changes.ended.push(ended);
        }
    }

    /// Counts a change, unless there are too many in all shards.
    fn takes_change(&self) -> bool {
        let has_room = self.limits.changes.load(Ordering::Relaxed) < self.limits.changes_max;
        self.limits.changes.fetch_add(has_room.into(), Ordering::Relaxed);
        has_room
    }

    /// Appends the sessions that have changed to `into`. Ended ones come last, since callers take from the end.
    pub(super) fn take_changes(&mut self, into: &mut Vec<SessionRecord>) {
        let SessionChanges { renewed, ended } = std::mem::take(&mut self.changes);
        self.limits.changes.fetch_sub(renewed.len() + ended.len(), Ordering::Relaxed);
        // A session that was renewed may have ended, or expired.
        into.extend(renewed.into_iter().filter_map(|tag| self.find_record(tag)));
        into.extend(ended);
    }
}
