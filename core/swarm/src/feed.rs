//! Encodes a store's content and changes as blocks: for the journal, and for the stream of an upgrade.
//!
//! A store keeps each change until it is taken once. A [`Feed`] passes it to every existing [`Encoder`], so
//! the journal loses nothing while an upgrade is under way.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::{PeerId, Tick, limits};

use crate::store::{Store, StoreWalk, WalkTime};

use replication::block::{self, Change, Header, Kind, WebChange};
use replication::{CLOCK_STEP_MS, Now};

/// The most changes in a block: its body takes at most 64 KiB.
const BLOCK_CHANGES: usize = 64 * 1024 / block::CHANGE_BYTES_MAX;
/// The same for changes of WebTorrent peers.
const BLOCK_WEB_CHANGES: usize = 64 * 1024 / block::WEB_CHANGE_BYTES_MAX;
/// A block of a walk is complete when its body has this many bytes. A step adds less than as many.
const WALK_BODY: usize = 64 * 1024;

/// Distributes a store's changes to its encoders.
#[derive(Debug, Default)]
pub struct Feed(Mutex<Outlets>);

#[derive(Debug, Default)]
struct Outlets {
    next_key: u64,
    outlets: Vec<Outlet>,
    /// Changes just taken.
    taken: Batch,
    /// The place of the first encoder, which is yet to come.
    primed: Option<Reservation>,
}

/// The changes that one encoder has not fetched yet.
#[derive(Debug)]
struct Outlet {
    key: u64,
    waiting: Batch,
    missed: u64,
    /// True if the encoder gets refreshes, too.
    wants_refreshes: bool,
}

/// Changes, and the ids of their peers if the store keeps ids.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
    ids: Vec<PeerId>,
}

impl Batch {
    /// Appends the changes of `other`; refreshes only if `wants_refreshes`.
    fn append(&mut self, other: &Self, wants_refreshes: bool) {
        for (at, change) in other.changes.iter().enumerate() {
            if wants_refreshes || !change.is_refresh {
                self.changes.push(*change);
                self.ids.extend(other.ids.get(at));
            }
        }
    }

    fn clear(&mut self) {
        self.changes.clear();
        self.ids.clear();
    }
}

impl Feed {
    /// Makes `store` keep its changes from now on, so that the first encoder also gets those from before its
    /// creation. Call before there are encoders.
    pub fn prime(&self, store: &Store) {
        let mut outlets = self.lock();
        let reservation = outlets.add(store);
        outlets.primed = Some(reservation);
    }

    /// Reserves a place for a future encoder, which gets all changes from now on, as far as there is room.
    pub fn reserve(&self, store: &Store) -> Reservation {
        self.lock().add(store)
    }

    fn lock(&self) -> MutexGuard<'_, Outlets> {
        // No panic leaves a change of the outlets half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of an encoder that is yet to come.
#[derive(Debug)]
pub struct Reservation(u64);

impl Outlets {
    /// Adds an outlet for all changes from now on.
    fn add(&mut self, store: &Store) -> Reservation {
        if self.outlets.is_empty() {
            store.keep_changes(limits::CHANGES_MAX);
        }
        let key = self.next_key;
        self.next_key += 1;
        let waiting = Batch::default();
        self.outlets.push(Outlet { key, waiting, missed: 0, wants_refreshes: false });
        Reservation(key)
    }

    /// Passes the changes taken and the number of changes missed to all outlets.
    fn distribute(&mut self, missed: u64) {
        for outlet in &mut self.outlets {
            outlet.missed += missed;
            if outlet.waiting.changes.len() + self.taken.changes.len() > limits::CHANGES_MAX {
                outlet.missed += self.taken.changes.len() as u64;
            } else {
                outlet.waiting.append(&self.taken, outlet.wants_refreshes);
            }
        }
        self.taken.clear();
    }

    /// Moves the changes that wait for an encoder to `into`. Returns how many changes it missed.
    fn fetch(&mut self, key: u64, into: &mut Batch) -> u64 {
        let Some(outlet) = self.outlets.iter_mut().find(|outlet| outlet.key == key) else {
            return 0;
        };
        into.append(&outlet.waiting, true);
        if outlet.waiting.changes.len() > BLOCK_CHANGES {
            // Memory that a stall took is returned.
            outlet.waiting = Batch::default();
        }
        outlet.waiting.clear();
        std::mem::take(&mut outlet.missed)
    }
}

/// Receives each block as it is cut, with its kind.
pub type BlockSink<'a> = dyn FnMut(Kind, &[u8]) -> io::Result<()> + 'a;

/// The result of a step of an encoder's walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// True if the walk has visited everything.
    pub is_complete: bool,
    /// Bytes of groups that the step found.
    pub bytes: u64,
    /// Changes lost since the last call.
    pub missed: u64,
}

/// Cuts a store's changes and walks into blocks, in the order of events. The store keeps its
/// changes as long as there is an encoder.
pub struct Encoder<'a> {
    feed: &'a Feed,
    store: &'a Store,
    key: u64,
    node: u16,
    boot: u64,
    number: u64,
    has_ids: bool,
    cut_ms: u64,
    pending: Batch,
    /// The most changes that a shard had when they were last taken.
    most: usize,
    walk: StoreWalk,
    /// Groups of the walk that are not in a block yet.
    body: Vec<u8>,
    /// When these groups were true.
    body_at: Option<Now>,
    groups: Vec<u8>,
    block: Vec<u8>,
}

impl<'a> Encoder<'a> {
    /// Returns an encoder of all changes from now on. `boot` identifies the writer: see
    /// [`replication::block::Header::boot`].
    pub fn new(feed: &'a Feed, store: &'a Store, boot: u64) -> Self {
        let mut outlets = feed.lock();
        let reservation = outlets.primed.take().unwrap_or_else(|| outlets.add(store));
        drop(outlets);
        Self::at(feed, store, boot, reservation)
    }

    /// Returns an encoder of all changes since `reservation` was made, for the same feed and store.
    pub fn at(feed: &'a Feed, store: &'a Store, boot: u64, reservation: Reservation) -> Self {
        Self {
            feed,
            store,
            key: reservation.0,
            node: 0,
            boot,
            number: 0,
            has_ids: store.keeps_peer_ids(),
            cut_ms: 0,
            pending: Batch::default(),
            most: 0,
            walk: StoreWalk::default(),
            body: Vec::new(),
            body_at: None,
            groups: Vec::new(),
            block: Vec::new(),
        }
    }

    /// Sets the node of a cluster that the blocks name as their writer.
    #[must_use]
    pub fn of_node(mut self, node: u16) -> Self {
        self.node = node;
        self
    }

    /// Makes the encoder get refreshes, too, if the store keeps them: see `keep_refreshes` of the store. Other
    /// encoders get none.
    #[must_use]
    pub fn with_refreshes(self) -> Self {
        let mut outlets = self.feed.lock();
        let own = outlets.outlets.iter_mut().find(|outlet| outlet.key == self.key);
        own.into_iter().for_each(|outlet| outlet.wants_refreshes = true);
        drop(outlets);
        self
    }

    /// Passes all changes until now to `sink`. Returns how many were lost since the last call.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does; changes that were not passed yet are lost.
    pub fn changes(&mut self, now: Now, sink: &mut BlockSink<'_>) -> io::Result<u64> {
        self.flush_walk(sink)?;
        let mut missed = 0;
        self.most = 0;
        for shard in 0..self.store.shards() {
            let mut outlets = self.feed.lock();
            let taken = &mut outlets.taken;
            let lost = self.store.take_changes(shard, &mut taken.changes, &mut taken.ids);
            self.most = self.most.max(taken.changes.len());
            outlets.distribute(lost);
            missed += outlets.fetch(self.key, &mut self.pending);
            drop(outlets);
            if self.pending.changes.len() >= BLOCK_CHANGES {
                self.flush_changes(now, sink)?;
            }
        }
        self.flush_changes(now, sink)?;
        Ok(missed)
    }

    /// Returns true if a shard had enough changes to take that it may soon have no room. One popular torrent
    /// suffices, because its shard has only its own share of the room.
    pub fn is_pressed(&self) -> bool {
        self.most > limits::CHANGES_MAX / self.store.shards() / 4
    }

    /// Passes all changes of WebTorrent peers until now to `sink`, if the store keeps them: see
    /// `keep_web_changes` of the store. Returns how many were lost since the last call. Only one encoder may
    /// call it.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does.
    pub fn web_changes(&mut self, now: Now, sink: &mut BlockSink<'_>) -> io::Result<u64> {
        let mut changes = Vec::new();
        let missed = self.store.take_web_changes(&mut changes);
        self.cut_web(now, &changes, sink)?;
        Ok(missed)
    }

    /// Passes all changes of WebTorrent peers until now to `sink`, and all of this node's WebTorrent peers, because other
    /// nodes may have removed them. Returns how many changes were lost since the last call.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does.
    pub fn all_web(&mut self, now: Now, sink: &mut BlockSink<'_>) -> io::Result<u64> {
        let mut changes = Vec::new();
        let missed = self.store.take_all_web(&mut changes);
        self.cut_web(now, &changes, sink)?;
        Ok(missed)
    }

    fn cut_web(
        &mut self,
        now: Now,
        changes: &[WebChange],
        sink: &mut BlockSink<'_>,
    ) -> io::Result<()> {
        let mut body = Vec::new();
        for changes in changes.chunks(BLOCK_WEB_CHANGES) {
            body.clear();
            block::encode_web_changes(changes, &mut body);
            self.cut(now, Kind::WEB, &body, sink)?;
        }
        Ok(())
    }

    /// Restarts the walk from the beginning.
    pub fn restart_walk(&mut self) {
        self.walk = StoreWalk::default();
        self.body.clear();
    }

    /// Restarts the walk from the beginning, over peers that have announced in the `age_s` seconds before
    /// `now`. The walk after it visits all peers again.
    pub fn restart_walk_since(&mut self, now: Tick, age_s: u32) {
        self.restart_walk();
        self.walk = StoreWalk::since(now, age_s);
    }

    /// Does a step of the walk. What it found goes to `sink` by the time of the next call of
    /// [`Self::changes`], [`Self::flush_walk`] or [`Self::block`], or when the walk is complete. The step
    /// after that begins the next walk.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does.
    pub fn step(&mut self, now: Now, sink: &mut BlockSink<'_>) -> io::Result<Step> {
        let mut outlets = self.feed.lock();
        let Outlets { taken, .. } = &mut *outlets;
        let walked = self.store.walk(
            WalkTime { now: now.tick, epoch_min: now.epoch_min() },
            &mut self.walk,
            &mut taken.changes,
            &mut taken.ids,
            &mut self.groups,
        );
        outlets.distribute(walked.missed);
        let missed = outlets.fetch(self.key, &mut self.pending);
        drop(outlets);
        let has_moved_on = self.body_at.is_some_and(|at| at != now);
        if !self.pending.changes.is_empty() || has_moved_on {
            // Earlier steps come before these changes, and this step after them.
            self.flush_walk(sink)?;
            self.flush_changes(now, sink)?;
        }
        let bytes = self.groups.len() as u64;
        if self.body.len() + self.groups.len() > block::BODY_MAX {
            self.flush_walk(sink)?;
        }
        self.body.append(&mut self.groups);
        self.body_at = Some(now);
        if walked.is_complete || self.body.len() >= WALK_BODY {
            self.flush_walk(sink)?;
        }
        if walked.is_complete {
            self.walk = StoreWalk::default();
        }
        Ok(Step { is_complete: walked.is_complete, bytes, missed })
    }

    /// Passes the groups that the walk has found to `sink`.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does.
    pub fn flush_walk(&mut self, sink: &mut BlockSink<'_>) -> io::Result<()> {
        let Some(at) = self.body_at.take().filter(|_| !self.body.is_empty()) else {
            return Ok(());
        };
        let body = std::mem::take(&mut self.body);
        let result = self.cut(at, Kind::WALK, &body, sink);
        self.body = body;
        self.body.clear();
        result
    }

    /// Passes a block of another kind to `sink`, after all that came before.
    ///
    /// # Errors
    ///
    /// Fails if `sink` does.
    pub fn block(
        &mut self,
        now: Now,
        kind: Kind,
        body: &[u8],
        sink: &mut BlockSink<'_>,
    ) -> io::Result<()> {
        self.flush_walk(sink)?;
        self.flush_changes(now, sink)?;
        self.cut(now, kind, body, sink)
    }

    fn flush_changes(&mut self, now: Now, sink: &mut BlockSink<'_>) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let mut ids = pending.ids.chunks(BLOCK_CHANGES);
        let mut body = Vec::new();
        for changes in pending.changes.chunks(BLOCK_CHANGES) {
            body.clear();
            block::encode_changes(changes, ids.next().unwrap_or_default(), &mut body);
            self.cut(now, Kind::CHANGES, &body, sink)?;
        }
        if pending.changes.len() <= 2 * BLOCK_CHANGES {
            self.pending = pending;
            self.pending.clear();
        }
        Ok(())
    }

    fn cut(
        &mut self,
        now: Now,
        kind: Kind,
        body: &[u8],
        sink: &mut BlockSink<'_>,
    ) -> io::Result<()> {
        self.number += 1;
        // Readers take an earlier cut for an older state, so cuts do not go back with a wall clock that is set
        // back a little.
        if self.cut_ms > now.unix_ms + CLOCK_STEP_MS {
            self.cut_ms = 0;
        }
        self.cut_ms = self.cut_ms.max(now.unix_ms);
        let header = Header {
            kind,
            has_ids: self.has_ids && matches!(kind, Kind::CHANGES | Kind::WALK),
            node: self.node,
            boot: self.boot,
            number: self.number,
            cut_ms: self.cut_ms,
        };
        self.block.clear();
        block::write(&header, body, &mut self.block);
        sink(kind, &self.block)
    }
}

impl Drop for Encoder<'_> {
    fn drop(&mut self) {
        let mut outlets = self.feed.lock();
        outlets.outlets.retain(|outlet| outlet.key != self.key);
        if outlets.outlets.is_empty() {
            self.store.keep_changes(0);
        }
    }
}
