//! The exchange between the nodes of a cluster: sessions, so that a client that moves to another node continues there,
//! and the calls of the site, which reach one node.
//!
//! A node sends the sessions of each batch once it is on its disk. Others take them over and put them into their own next
//! batch, so that a kill does not lose them. Only the node at which a client announces counts.
//!
//! A client with two addresses announces to two nodes at once. When that is first seen, one of them begins to count it
//! last, after the other has told what it counted: for it, there is nothing left then.
//!
//! Calls are sent as they are carried out, and carried out by the others in the same way. The database has what they
//! say, too: a node that may have missed one reads it again, and so do the others when a node begins that may have been
//! killed before it sent one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{Shared, SiteSubsystem};
use crate::batch::{Batch, Record, TorrentName};
use crate::bytes::{Reader, Writer};
use crate::config::SiteKind;
use crate::shared_call::SharedCall;
use crate::spool::Spool;

/// Records in a part of a batch: 64 KiB with a client each.
const RECORDS_PER_PART: usize = 400;
/// Batches that wait to be sent, or to be taken over. Further ones are left out: what their clients transferred counts
/// twice if they move to another node before they announce here again.
const WAITING_MAX: usize = 1_024;
/// Calls that wait to be sent. With more, the other nodes read the database again.
const CALLS_MAX: usize = 10_000;
/// Batches that are sent again at the start: ten minutes of them. Nodes that know them ignore them.
const SENT_AGAIN: u64 = 200;
/// Seconds by which the clocks of nodes may differ, when one tells whether a call came before it read the database.
const CLOCKS_S: u32 = 60;

/// The first byte of what nodes send each other.
const SESSIONS: u8 = 0;
const CALL: u8 = 1;
const RELOAD: u8 = 2;

/// Sessions and calls that wait between this node and the others.
#[derive(Default)]
pub(crate) struct Sharing {
    /// Parts of batches that were not sent yet.
    outgoing: Mutex<VecDeque<Batch>>,
    /// Calls of the site that were not sent yet, with their times in unix seconds.
    calls: Mutex<VecDeque<(u32, SharedCall)>>,
    /// True if the other nodes are to read the database again.
    reload: AtomicBool,
    /// When this node last began to read the database, unix seconds.
    pub(super) loaded_s: AtomicU32,
    /// Parts of other nodes that came before the sessions of this one were restored.
    early: Mutex<Vec<Part>>,
}

/// A part of a batch of another node.
struct Part {
    batch: Batch,
    /// True if that node counts clients that announce to it and to this one at once: one of two has to.
    counts: bool,
}

impl Part {
    /// Reads a part that comes to `node`. Returns `None` if it is malformed.
    fn decode(unix_s: u32, reader: &mut Reader<'_>, node: &str) -> Option<Self> {
        let len = usize::try_from(reader.varint()?).ok()?;
        let counts = reader.take(len)? < node.as_bytes();
        Some(Self { batch: Batch::decode(0, unix_s, reader.0)?, counts })
    }
}

impl Sharing {
    /// Queues a call of the site for other nodes.
    pub(crate) fn queue_call(&self, now_s: u32, call: SharedCall) {
        let mut calls = self.calls.lock();
        if calls.len() < CALLS_MAX {
            calls.push_back((now_s, call));
        } else {
            self.queue_reload();
        }
    }

    /// Has the other nodes read the database again.
    pub(super) fn queue_reload(&self) {
        self.reload.store(true, Ordering::Release);
    }
}

impl SiteSubsystem {
    /// Returns what other nodes have to know since the last call, as bytes for [`SiteSubsystem::learn`] of theirs: a call
    /// of the site, or at most some 64 KiB of sessions. `None` if there is no more.
    pub fn take_shared(&self) -> Option<Vec<u8>> {
        let Sharing { outgoing, calls, reload, .. } = &self.shared.sharing;
        let kind = self.shared.config.kind as u8;
        if let Some((unix_s, call)) = calls.lock().pop_front() {
            let mut writer = Writer(vec![CALL, kind]);
            writer.bytes(&unix_s.to_le_bytes());
            call.encode(&mut writer);
            return Some(writer.0);
        }
        if reload.swap(false, Ordering::AcqRel) {
            return Some(vec![RELOAD, kind]);
        }
        let part = outgoing.lock().pop_front()?;
        let mut writer = Writer(vec![SESSIONS, kind]);
        writer.bytes(&part.unix_s.to_le_bytes());
        let node = self.shared.config.node.as_bytes();
        writer.varint(node.len() as u64);
        writer.bytes(node);
        part.encode(&mut writer);
        Some(writer.0)
    }

    /// Takes over what another node sent. Returns false if the bytes are malformed, or of a node with another kind of
    /// site.
    pub fn learn(&self, body: &[u8]) -> bool {
        let shared = &*self.shared;
        let mut reader = Reader(body);
        let Some([what, kind]) = reader.array() else { return false };
        if kind != shared.config.kind as u8 {
            return false;
        }
        if what == RELOAD {
            self.reload();
            return true;
        }
        let Some(unix_s) = reader.array().map(u32::from_le_bytes) else { return false };
        match what {
            SESSIONS => {
                Part::decode(unix_s, &mut reader, &shared.config.node).is_some_and(|part| {
                    shared.take_over(part);
                    true
                })
            }
            CALL => SharedCall::decode(&mut reader).is_some_and(|call| {
                self.repeat_call(unix_s, call);
                true
            }),
            _ => false,
        }
    }

    /// Carries out a call that another node got. It is left out if the database has been read since then.
    fn repeat_call(&self, unix_s: u32, call: SharedCall) {
        let loaded_s = self.shared.sharing.loaded_s.load(Ordering::Acquire);
        if unix_s.saturating_add(CLOCKS_S) < loaded_s {
            return;
        }
        if self.shared.repeated_calls.0.try_send(call).is_err() {
            self.reload();
        }
    }

    /// Reads the database again, here and at the other nodes: this one was apart from them, and calls were lost.
    pub fn reload_everywhere(&self) {
        if self.kind() == SiteKind::Feed {
            return;
        }
        self.reload();
        self.shared.sharing.queue_reload();
    }
}

impl Shared {
    /// Takes over the sessions in a part of a batch of another node.
    fn take_over(&self, part: Part) {
        let mut early = self.sharing.early.lock();
        if self.answers.is_counting() {
            drop(early);
            learn(self, &part);
        } else if early.len() < WAITING_MAX {
            early.push(part);
        }
    }
}

/// Takes over what came before the sessions were restored. Call when announces are counted.
pub(super) fn learn_early(shared: &Shared) {
    let early = std::mem::take(&mut *shared.sharing.early.lock());
    early.iter().for_each(|part| learn(shared, part));
}

/// Queues a batch for other nodes.
pub(super) fn queue(shared: &Shared, batch: &Batch) {
    let sent: Vec<Record> = batch.records.iter().filter_map(own_sessions).collect();
    let mut outgoing = shared.sharing.outgoing.lock();
    for records in sent.chunks(RECORDS_PER_PART) {
        if outgoing.len() < WAITING_MAX {
            let names = names_of(shared, records);
            outgoing.push_back(Batch {
                unix_s: batch.unix_s,
                records: records.to_vec(),
                names,
                ..Batch::default()
            });
        }
    }
}

/// Queues the last batches of a spool that was just opened: the process before may have ended too early to send them.
pub(super) fn queue_again(shared: &Shared, spool: &Spool) {
    let last = spool.last_sequence();
    for before in last.saturating_sub(SENT_AGAIN)..last {
        // Those that are gone were sent long ago.
        if let Ok(Some(batch)) = spool.after(before)
            && batch.sequence == before + 1
        {
            queue(shared, &batch);
        }
    }
}

/// Returns a record with the sessions that announced here, or ended, and the downloads that they completed. `None` if
/// there are none.
fn own_sessions(record: &Record) -> Option<Record> {
    let mut own = Record::new(record.user, record.torrent, record.created_s);
    own.sessions = record.sessions.iter().copied().filter(|it| !it.learned).collect();
    own.completions = record.completions;
    (!own.sessions.is_empty()).then_some(own)
}

/// Returns the names of the torrents of records, unless the site numbers them: each node numbers torrents by itself.
fn names_of(shared: &Shared, records: &[Record]) -> Vec<TorrentName> {
    if shared.config.kind != SiteKind::Feed {
        return Vec::new();
    }
    let name = |record: &Record| {
        let info_hash = shared.answers.names.info_hash(record.torrent)?;
        Some(TorrentName { torrent: record.torrent, info_hash })
    };
    records.iter().filter_map(name).collect()
}

fn learn(shared: &Shared, part: &Part) {
    let Part { batch, counts } = part;
    let answers = &shared.answers;
    let names: HashMap<_, _> = batch.names.iter().map(|it| (it.torrent, it.info_hash)).collect();
    let number = |torrent: u32| match shared.config.kind {
        SiteKind::Feed => answers.names.number(*names.get(&torrent)?),
        SiteKind::Unit3d | SiteKind::Gazelle => Some(torrent),
    };
    for record in &batch.records {
        let Some(torrent) = number(record.torrent) else { continue };
        let mut is_news = false;
        for change in &record.sessions {
            is_news |= answers.ledger.learn_of_node(record.user, torrent, change, *counts);
        }
        // A repeated batch is no news.
        if is_news && record.completions > 0 {
            // The node that counted it tells the site of a used token.
            let _ = answers.note_completed(record.user, torrent, record.completions);
        }
    }
}
