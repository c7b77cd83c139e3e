//! Sessions that the nodes of a cluster send each other, so that a client that moves to another node continues there.
//!
//! A node sends the sessions of each batch once it is on its disk. Others take them over and put them into their own next
//! batch, so that a kill does not lose them. Only the node at which a client announces counts.

use std::collections::VecDeque;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{Shared, SiteSubsystem};
use crate::batch::{Batch, Record, TorrentName};
use crate::bytes::Writer;
use crate::spool::Spool;

/// Records in a part of a batch: 64 KiB with a client each.
const RECORDS_PER_PART: usize = 400;
/// Batches that wait to be sent, or to be taken over. Further ones are left out: what their clients transferred counts
/// twice if they move to another node before they announce here again.
const WAITING_MAX: usize = 1_024;
/// Batches that are sent again at the start: ten minutes of them. Nodes that know them ignore them.
const SENT_AGAIN: u64 = 200;

/// Batches that wait between the spool and the cluster.
#[derive(Default)]
pub(super) struct Sharing {
    /// Parts of batches that were not sent yet.
    outgoing: Mutex<VecDeque<Batch>>,
    /// Parts of other nodes that came before the sessions of this one were restored.
    early: Mutex<Vec<Batch>>,
}

impl SiteSubsystem {
    /// Returns sessions that changed here since the last call, as bytes for [`SiteSubsystem::learn`] of other nodes: a
    /// part of at most some 64 KiB. `None` if there are no more.
    pub fn take_sessions(&self) -> Option<Vec<u8>> {
        let part = self.shared.sharing.outgoing.lock().pop_front()?;
        let mut writer = Writer::default();
        writer.bytes(&part.unix_s.to_le_bytes());
        part.encode(&mut writer);
        Some(writer.0)
    }

    /// Takes over the sessions of another node. Returns false if the bytes are malformed.
    pub fn learn(&self, body: &[u8]) -> bool {
        let Some((time, rest)) = body.split_first_chunk() else { return false };
        let Some(batch) = Batch::decode(0, u32::from_le_bytes(*time), rest) else { return false };
        let mut early = self.shared.sharing.early.lock();
        if self.shared.answers.is_counting() {
            drop(early);
            learn(&self.shared, &batch);
        } else if early.len() < WAITING_MAX {
            early.push(batch);
        }
        true
    }
}

/// Takes over what came before the sessions were restored. Call when announces are counted.
pub(super) fn learn_early(shared: &Shared) {
    let early = std::mem::take(&mut *shared.sharing.early.lock());
    early.iter().for_each(|batch| learn(shared, batch));
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

/// Returns a record with the sessions that announced here, or ended, and nothing to count. `None` if there are none.
fn own_sessions(record: &Record) -> Option<Record> {
    let mut own = Record::new(record.user, record.torrent, record.created_s);
    own.sessions = record.sessions.iter().copied().filter(|it| !it.learned).collect();
    (!own.sessions.is_empty()).then_some(own)
}

/// Returns the names of the torrents of records: each node numbers torrents by itself.
fn names_of(shared: &Shared, records: &[Record]) -> Vec<TorrentName> {
    let name = |record: &Record| {
        let info_hash = shared.answers.names.info_hash(record.torrent)?;
        Some(TorrentName { torrent: record.torrent, info_hash })
    };
    records.iter().filter_map(name).collect()
}

fn learn(shared: &Shared, batch: &Batch) {
    let now_s = shared.clock.now_s();
    let answers = &shared.answers;
    let names: HashMap<_, _> = batch.names.iter().map(|it| (it.torrent, it.info_hash)).collect();
    for record in &batch.records {
        let info_hash = names.get(&record.torrent);
        let Some(torrent) = info_hash.and_then(|hash| answers.names.number(*hash)) else {
            continue;
        };
        for change in &record.sessions {
            answers.ledger.learn_of_node(record.user, torrent, change, now_s);
        }
    }
}
