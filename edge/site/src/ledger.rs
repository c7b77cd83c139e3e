//! The ledger: who moved how many bytes of which torrent.
//!
//! A session is (user, torrent, peer id). It survives changes of address and port, and is remembered for
//! [`LedgerLimits::remembered_s`] after its last announce, so that a client that was offline loses nothing. An announce
//! adds the difference of two reports to the record of its user and torrent; [`Ledger::cut_into`] takes all records. Users
//! are in shards, so an announce takes one lock that it shares with few others.
//!
//! - The first announce of a session is worth nothing: the client may have counted before.
//! - Counters smaller than before: the client began anew, and counts from there.
//! - More bytes than a line can carry since the last announce are kept out, and counted as implausible.

mod presence;
mod shard;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::DefaultHashBuilder;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tracker::{OwnPeer, OwnPeers};
use types::{Event, InfoHash, PeerId, PeerKey};

use crate::batch::{Agent, Batch, Counting, Session, SessionChange, Unregistered};
use crate::credit::{Bytes, Factors};
use crate::spool::SnapshotWriter;
use shard::{Pair, PairKey, Shard};

/// Shards; with a million sessions some thousand are in each.
const SHARDS: usize = 1024;
/// Sessions that are remembered of a user in a torrent. Of more, the oldest that has ended is forgotten.
const SESSIONS_PER_PAIR: usize = 16;
/// Longest time between two announces that a client makes to several nodes at once, seconds.
const AT_ONCE_S: u32 = 10;
/// Shards that each flush searches for silent sessions: all of them within ten minutes.
const SWEPT_PER_CUT: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerLimits {
    /// Seconds after which a silent session is no longer active.
    pub(crate) active_s: u32,
    /// Seconds after which a silent session is forgotten.
    pub(crate) remembered_s: u32,
    /// Most bytes that a client can move in a second.
    pub(crate) bytes_per_s: u64,
    pub(crate) sessions: usize,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        Self {
            active_s: 7_200 + 1_800,
            remembered_s: 21 * 86_400,
            bytes_per_s: u64::from(types::limits::KEY_MBIT_PER_S) * 1_000_000 / 8,
            sessions: 20_000_000,
        }
    }
}

/// An announce of a user, as the ledger needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) user: u32,
    pub(crate) torrent: u32,
    pub(crate) peer_id: PeerId,
    /// Its address, as others get it.
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
    pub(crate) event: Event,
    /// The client's counter of bytes sent.
    pub(crate) uploaded: u64,
    /// The client's counter of bytes received.
    pub(crate) downloaded: u64,
    /// Bytes left to download, if known.
    pub(crate) left: Option<u64>,
    pub(crate) agent: Agent,
    pub(crate) now_s: u32,
}

/// The rights of a user in a torrent, and the credit for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The percentage of bytes that is credited.
    pub(crate) factors: Factors,
    /// True if bytes received use a freeleech token.
    pub(crate) uses_token: bool,
    /// True if the site does not warn the user for leaving early.
    pub(crate) immune: bool,
    /// Torrents that the user may download at a time, if limited.
    pub(crate) slots: Option<u32>,
    /// Clients that the user may have in the torrent.
    pub(crate) clients: u16,
    /// False if others do not get the peer in any case.
    pub(crate) visible: bool,
    /// True if the site does not want to know the user's address.
    pub(crate) hides_address: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// False if the user is over the download slots: others do not get the peer.
    pub(crate) visible: bool,
    /// The user's other clients in the torrent.
    pub(crate) own: OwnPeers,
    /// True if the client completed a download.
    pub(crate) completed: bool,
}

/// Why an announce was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCounted {
    /// It stops a client that is not known.
    UnknownStop,
    TooManyClients,
    Full,
}

/// All sessions, and what changed since the last batch.
pub(crate) struct Ledger {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    limits: LedgerLimits,
    /// Ended ones included.
    pub(crate) sessions: AtomicUsize,
    /// Reports that were kept out because no line carries so much.
    pub(crate) implausible: AtomicU64,
    /// Announces that were not counted because there were too many sessions.
    pub(crate) uncounted: AtomicU64,
    /// The shard that is swept next, modulo their number.
    swept: AtomicUsize,
}

impl Ledger {
    pub(crate) fn new(limits: LedgerLimits) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            limits,
            sessions: AtomicUsize::default(),
            implausible: AtomicU64::default(),
            uncounted: AtomicU64::default(),
            swept: AtomicUsize::default(),
        }
    }

    pub(crate) fn announce(&self, report: &Report, terms: &Terms) -> Result<Counted, NotCounted> {
        let key = self.key(report.user, report.torrent);
        let mut shard = self.shard(report.user).lock();
        let shard = &mut *shard;
        shard.prefetch(&key);
        // 1. The session as the client's last announce left it.
        let found = shard.find(&key);
        let known = found.and_then(|place| shard.pairs.get_bucket(place));
        let old = known.and_then(|pair| pair.session(report.peer_id)).copied();
        if old.is_none() {
            self.admit(report, terms, known)?;
        }
        // 2. What the announce changes.
        let stops = report.event == Event::Stopped;
        let new = shard.next_session(report, terms, old.as_ref());
        let moved = old.map_or_else(Bytes::default, |old| self.moved(&old, report));
        let credited = terms.factors.credit(moved);
        let changes = shard.replace(report.user, old.as_ref(), &new);
        let completed = !stops && new.seeder && old.is_some_and(|old| !old.seeder);
        // 3. The session is replaced, and the changes are added to the record.
        let (pair, record) = shard.change(found, &key, report.now_s, &self.hasher);
        record.seeded_s = record.seeded_s.saturating_add(self.seeded_s(pair, &new));
        self.put(pair, new);
        record.uploaded = record.uploaded.saturating_add(moved.uploaded);
        record.downloaded = record.downloaded.saturating_add(moved.downloaded);
        record.credited_uploaded = record.credited_uploaded.saturating_add(credited.uploaded);
        record.credited_downloaded = record.credited_downloaded.saturating_add(credited.downloaded);
        if terms.uses_token {
            record.token_downloaded = record.token_downloaded.saturating_add(moved.downloaded);
        }
        record.announces += 1;
        if report.event == Event::Completed && record.completed_s == 0 {
            record.completed_s = report.now_s;
        }
        record.seeders += changes.seeders;
        record.leechers += changes.leechers;
        record.completions += u32::from(completed);
        record.active = pair.active() > 0;
        record.immune = terms.immune;
        record.hides_address = terms.hides_address;
        record.elapsed_s = old.map_or(0, |old| report.now_s.saturating_sub(old.updated_s));
        record.event = report.event;
        let agent = report.agent;
        record.put_session(SessionChange { session: new, agent, expired: false, learned: false });
        Ok(Counted { visible: new.visible, own: pair.others(report.peer_id), completed })
    }

    /// Checks whether a session may begin. `known` are the user's other clients in the torrent.
    fn admit(
        &self,
        report: &Report,
        terms: &Terms,
        known: Option<&Pair>,
    ) -> Result<(), NotCounted> {
        if report.event == Event::Stopped {
            return Err(NotCounted::UnknownStop);
        }
        let active = known.map_or(0, Pair::active);
        if active >= usize::from(terms.clients) {
            return Err(NotCounted::TooManyClients);
        }
        if self.sessions.load(Ordering::Relaxed) >= self.limits.sessions {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
            return Err(NotCounted::Full);
        }
        Ok(())
    }

    /// Remembers that a user announced a torrent that the site does not have.
    pub(crate) fn note_unregistered(&self, user: u32, info_hash: InfoHash) {
        self.shard(user).lock().note_unregistered(Unregistered { user, info_hash });
    }

    /// Takes everything that changed since the last cut into an empty batch, whose memory is used again; sequence and
    /// names are the caller's. Appends all sessions, as they are with this batch, to `snapshot`. Also ends silent
    /// sessions of some shards.
    pub(crate) fn cut_into(
        &self,
        mut batch: Batch,
        now_s: u32,
        mut snapshot: Option<&mut SnapshotWriter>,
    ) -> Batch {
        let first = self.swept.fetch_add(SWEPT_PER_CUT, Ordering::Relaxed);
        let swept = |number: usize| number.wrapping_sub(first) % SHARDS < SWEPT_PER_CUT;
        batch.unix_s = now_s;
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.lock();
            if swept(number) {
                let forgotten = shard.sweep(now_s, &self.limits, &self.hasher);
                self.sessions.fetch_sub(forgotten, Ordering::Relaxed);
            }
            shard.take(&mut batch);
            if let Some(snapshot) = &mut snapshot {
                for pair in &shard.pairs {
                    let Pair { user, torrent, sessions, .. } = pair;
                    sessions.iter().for_each(|it| snapshot.session(*user, *torrent, it));
                }
                drop(shard);
                snapshot.flush_chunk();
            }
        }
        batch.records.sort_unstable_by_key(|record| (record.user, record.torrent));
        batch.unregistered.sort_unstable();
        batch
    }

    /// Ends all sessions that have been silent for too long. They are in the next batch.
    #[cfg(test)]
    pub(crate) fn sweep_all(&self, now_s: u32) {
        for shard in &self.shards {
            let forgotten = shard.lock().sweep(now_s, &self.limits, &self.hasher);
            self.sessions.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }

    /// Takes over the state of a session from a snapshot, a batch or the database. Nothing is counted.
    pub(crate) fn learn(&self, user: u32, torrent: u32, session: &Session) {
        self.learn_if(user, torrent, session, |_| true);
    }

    /// Takes over the state of a session, unless `is_older` says that the known state stays.
    fn learn_if(
        &self,
        user: u32,
        torrent: u32,
        session: &Session,
        is_older: impl FnOnce(&Session) -> bool,
    ) {
        let key = self.key(user, torrent);
        let mut shard = self.shard(user).lock();
        let pair = shard.pair(&key, &self.hasher);
        let old = pair.session(session.peer_id).copied();
        if old.as_ref().is_some_and(|old| !is_older(old)) {
            return;
        }
        self.put(pair, *session);
        shard.replace(user, old.as_ref(), session);
    }

    /// Returns the answer to an announce that is counted later, because another node counts the client first. `None` if it
    /// is counted at once.
    pub(crate) fn counted_late(&self, report: &Report) -> Option<Counted> {
        let key = self.key(report.user, report.torrent);
        let shard = self.shard(report.user).lock();
        let pair = shard.find(&key).and_then(|place| shard.pairs.get_bucket(place))?;
        let known = pair.session(report.peer_id).filter(|known| known.is_late())?;
        let visible = known.visible || !known.active;
        Some(Counted { visible, own: pair.others(report.peer_id), completed: false })
    }

    /// Returns when a session announced last, unix seconds, if it is known.
    pub(crate) fn updated_s(&self, report: &Report) -> Option<u32> {
        let key = self.key(report.user, report.torrent);
        let shard = self.shard(report.user).lock();
        let pair = shard.find(&key).and_then(|place| shard.pairs.get_bucket(place))?;
        pair.session(report.peer_id).map(|session| session.updated_s)
    }

    /// Takes over the state of a session from the database, unless the one known here is as young. Nothing is counted.
    pub(crate) fn learn_younger(&self, user: u32, torrent: u32, session: &Session) {
        self.learn_if(user, torrent, session, |known| known.updated_s < session.updated_s);
    }

    /// Takes over a session of another node, unless the one known here is younger. It goes into the next batch, and
    /// nothing is counted. Returns false if it changes nothing.
    ///
    /// `counts` is true if the other node counts a client that announces to both at once.
    pub(crate) fn learn_of_node(
        &self,
        user: u32,
        torrent: u32,
        change: &SessionChange,
        counts: bool,
    ) -> bool {
        let key = self.key(user, torrent);
        let mut shard = self.shard(user).lock();
        let shard = &mut *shard;
        let found = shard.find(&key);
        let known = found.and_then(|place| shard.pairs.get_bucket(place));
        let old = known.and_then(|pair| pair.session(change.session.peer_id)).copied();
        let updated_s = change.session.updated_s;
        let counts = counts && !change.expired;
        let is_at_once = |old: &Session| counts && old.updated_s.abs_diff(updated_s) <= AT_ONCE_S;
        let counting = match &old {
            Some(old) if old.is_late() => Counting::Late,
            Some(old) if old.counting == Counting::Here && is_at_once(old) => Counting::Late,
            _ => Counting::Elsewhere,
        };
        let session = Session { counting, ..change.session };
        let is_known = |old: Session| Session { counting, ..old } == session;
        if old.is_some_and(|old| old.updated_s > updated_s || is_known(old)) {
            let pair = found.and_then(|place| shard.pairs.get_bucket_mut(place));
            let known = pair.and_then(|pair| pair.session_mut(session.peer_id));
            if let Some(known) = known.filter(|_| counting == Counting::Late) {
                known.counting = counting;
            }
            return false;
        }
        shard.replace(user, old.as_ref(), &session);
        let (pair, record) = shard.change(found, &key, session.updated_s, &self.hasher);
        self.put(pair, session);
        record.active = pair.active() > 0;
        record.put_session(SessionChange { session, learned: true, ..*change });
        true
    }

    /// Takes over the sessions of a batch of this node's spool. Nothing is counted.
    pub(crate) fn learn_batch(&self, batch: &Batch) {
        for record in &batch.records {
            for change in &record.sessions {
                self.learn(record.user, record.torrent, &change.session);
            }
        }
    }

    /// Returns the users with active clients in a torrent, and these clients. Visits all shards.
    pub(crate) fn sessions_of(&self, torrent: u32) -> Vec<(u32, Session)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for pair in shard.pairs.iter().filter(|pair| pair.torrent == torrent) {
                found.extend(pair.sessions.iter().map(|session| (pair.user, *session)));
            }
        }
        found
    }

    /// Returns the torrents that a user seeds and leeches, by clients that others get.
    pub(crate) fn presence(&self, user: u32) -> presence::Presence {
        self.shard(user).lock().presence(user)
    }

    /// Returns the numbers of clients that seed and leech, and that others get.
    pub(crate) fn totals(&self) -> presence::Presence {
        let mut totals = presence::Presence::default();
        for shard in &self.shards {
            shard.lock().add_totals(&mut totals);
        }
        totals
    }

    /// Returns the number of records that the next batch would have.
    pub(crate) fn pending(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().records.len()).sum()
    }

    fn key(&self, user: u32, torrent: u32) -> PairKey {
        PairKey::new(user, torrent, &self.hasher)
    }

    /// Sites number users one by one, so that all shards have as many.
    fn shard(&self, user: u32) -> &Mutex<Shard> {
        &self.shards[user as usize % SHARDS]
    }

    fn put(&self, pair: &mut Pair, session: Session) {
        if pair.put(session, SESSIONS_PER_PAIR) {
            self.sessions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns what a client moved since its last announce.
    fn moved(&self, old: &Session, report: &Report) -> Bytes {
        let began_anew = report.uploaded < old.uploaded || report.downloaded < old.downloaded;
        if began_anew {
            return Bytes::default();
        }
        let moved = Bytes {
            uploaded: report.uploaded - old.uploaded,
            downloaded: report.downloaded - old.downloaded,
        };
        let seconds = u64::from(report.now_s.saturating_sub(old.updated_s).max(1));
        let most = self.limits.bytes_per_s.saturating_mul(seconds);
        if moved.uploaded.saturating_add(moved.downloaded) > most {
            self.implausible.fetch_add(1, Ordering::Relaxed);
            return Bytes::default();
        }
        moved
    }

    /// Returns the seconds that a user seeded until `new`: since the last announce of any of its clients in the torrent,
    /// if that one was an active seeder, this one is, and it was not silent for too long.
    fn seeded_s(&self, pair: &Pair, new: &Session) -> u32 {
        let Some(last) = pair.sessions.iter().max_by_key(|session| session.updated_s) else {
            return 0;
        };
        let elapsed_s = new.updated_s.saturating_sub(last.updated_s);
        let seeded = last.seeder && pair.active() > 0 && new.seeder;
        if seeded && elapsed_s < self.limits.active_s { elapsed_s } else { 0 }
    }
}

impl Pair {
    /// Returns the active clients but one, as others get them.
    fn others(&self, peer_id: PeerId) -> OwnPeers {
        let others = self.sessions.iter().filter(|it| it.active && it.peer_id != peer_id);
        let mut own = OwnPeers::new();
        for other in others.take(own.capacity()) {
            own.push(OwnPeer { peer: PeerKey::new(other.ip, other.port), peer_id: other.peer_id });
        }
        own
    }
}

/// Sessions inline: nearly always one.
pub(crate) type PairSessions = SmallVec<[Session; 1]>;
