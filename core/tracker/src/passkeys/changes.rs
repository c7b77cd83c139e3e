//! Sessions that have changed, for the other nodes of a cluster: a peer that announces at another node next
//! time is then counted once, and its key's quota holds everywhere but for what happens within a second or so.
//!
//! Of changed sessions only the tags are kept, not the reports: a session that reports several times
//! before it is taken is sent once. Ended sessions are kept whole, and are sent first: a peer that comes
//! back with another peer id ends its old session before the new one begins.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashTable;
use parking_lot::Mutex;
use types::{Tick, limits};

use super::export::{ARE_CHANGES, LONG_LEN, SessionRecord};
use super::sessions::PlacedSession;
use super::{PasskeyStore, SessionTag};

/// Sessions that have changed since they were last taken.
pub(super) struct SessionChanges {
    is_on: AtomicBool,
    parts: [Mutex<Part>; PARTS],
    lost: AtomicU64,
    taking: Mutex<Taking>,
}

/// Two workers seldom need the same one of this many.
const PARTS: usize = 64;
/// Changes of a part at most, and as many ended sessions.
const PART_MAX: usize = limits::KEY_SESSION_CHANGES_MAX / PARTS;

#[derive(Default)]
struct Part {
    renewed: HashTable<SessionTag>,
    /// With the time when they ended as that of their last report.
    ended: Vec<PlacedSession>,
}

/// The progress of taking all changes.
#[derive(Default)]
struct Taking {
    /// The part that is taken next; `None` before the first.
    part: Option<usize>,
    ended: Vec<PlacedSession>,
    renewed: Vec<SessionTag>,
}

impl Default for SessionChanges {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::default(),
            parts: std::array::from_fn(|_| Mutex::default()),
            lost: AtomicU64::default(),
            taking: Mutex::default(),
        }
    }
}

impl SessionChanges {
    /// Returns whether changes are kept.
    #[inline]
    pub(super) fn are_kept(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Keeps that a session has begun, or was renewed.
    #[cold]
    pub(super) fn renewed(&self, tag: SessionTag) {
        let mut part = self.part(tag).lock();
        if part.renewed.find(tag.client, |other| *other == tag).is_some() {
            return;
        }
        if part.renewed.len() >= PART_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        part.renewed.insert_unique(tag.client, tag, |tag| tag.client);
    }

    /// Keeps that a session ends now, with its last report. Those of WebTorrent peers stay at their node.
    #[cold]
    pub(super) fn ended(&self, now: Tick, mut ended: PlacedSession) {
        if ended.session.last.is_web {
            return;
        }
        ended.session.last.at = now;
        let tag = ended.session.tag;
        let mut part = self.part(tag).lock();
        if let Ok(renewed) = part.renewed.find_entry(tag.client, |other| *other == tag) {
            renewed.remove();
        }
        if part.ended.len() >= PART_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        part.ended.push(ended);
    }

    fn part(&self, tag: SessionTag) -> &Mutex<Part> {
        &self.parts[tag.client as usize % PARTS]
    }
}

impl PasskeyStore {
    /// Sets whether changed sessions are kept for [`Self::take_changed_sessions`]. Off at first.
    pub fn keep_session_changes(&self, is_on: bool) {
        self.changes.is_on.store(is_on, Ordering::Relaxed);
        if !is_on {
            self.changes.parts.iter().for_each(|part| *part.lock() = Part::default());
        }
    }

    /// Returns how many changes there was no room to keep, since the start.
    pub fn lost_session_changes(&self) -> u64 {
        self.changes.lost.load(Ordering::Relaxed)
    }

    /// Appends a body of sessions that have changed since the last time to `body`, which should be empty: up
    /// to `bytes_max` of them. Returns false, and appends nothing, if all have been taken: then call it again
    /// after a while, since the next call begins anew.
    pub fn take_changed_sessions(&self, now: Tick, bytes_max: usize, body: &mut Vec<u8>) -> bool {
        let start = body.len();
        let mut taking = self.changes.taking.lock();
        while body.len() - start + LONG_LEN <= bytes_max {
            let Some(record) = self.next_change(now, &mut taking) else {
                // Nothing is left: the next call says so, or this one.
                if body.len() == start {
                    taking.part = None;
                }
                break;
            };
            if body.len() == start {
                self.begin_body(ARE_CHANGES, body);
            }
            record.encode(body);
        }
        body.len() > start
    }

    fn next_change(&self, now: Tick, taking: &mut Taking) -> Option<SessionRecord> {
        let Taking { part, ended, renewed } = taking;
        let next = part.get_or_insert_with(|| {
            self.changes.parts.iter().for_each(|part| ended.append(&mut part.lock().ended));
            0
        });
        if let Some(session) = ended.pop() {
            return Some(SessionRecord { has_ended: true, ..SessionRecord::new(now, &session) });
        }
        loop {
            while let Some(tag) = renewed.pop() {
                // It may have expired meanwhile.
                if let Some(session) = self.lock(tag.client).sessions.find_placed(tag) {
                    return Some(SessionRecord::new(now, &session));
                }
            }
            let part = self.changes.parts.get(*next)?;
            *next += 1;
            renewed.extend(part.lock().renewed.drain());
        }
    }
}
