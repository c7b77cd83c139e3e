//! Users' keys: who may use the private doors, within which bounds, and what each has moved.
//!
//! Plain form: a map from key to rules and totals, and a map from (key, torrent, peer id) to what that
//! peer said last, whose difference to what it says now goes to the totals. Departures:
//! 1. Both are spread over many small tables with a lock each, found by a keyed hash: thousands of keys
//!    come and go while announces pass, no table is large enough for its growth to be felt, and nobody
//!    can aim at a table, or learn from the time a look-up takes how near a guess has come.
//! 2. A key is known by 128 bits of a keyed hash, and its text is not kept: a key and all that is counted
//!    for it are one cache line, and comparing it takes the same time whatever it is compared with.
//! 3. Who has bounds has a place of his own, where his torrents and addresses are counted; nobody else.
//!
//! Peers are told apart by their peer id here, not by their address as in the store: a client that
//! announces over both families, or two protocols, has moved its bytes once.

mod bounds;
mod sessions;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::{Mutex, MutexGuard};
use swarm::siphash::{siphash, siphash_128};
use types::{Event, InfoHash, PeerId, Refusal, Role, Tick, UserKey, limits};

use crate::Asked;
use bounds::Bounded;
use sessions::{Session, Sessions};
use table::{Hint, Line, Name, Table};

pub(crate) use sessions::SessionTag;

/// The number of a key's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);

impl KeyId {
    /// From this number on keys are of files, and have no record.
    pub const FILE_FIRST: u32 = 1 << 31;
}

/// What the holder of a key may do. 0 is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyRules {
    /// From when on the key is no longer good; `None` is never.
    pub expires: Option<Tick>,
    /// Peers in one torrent. A peer counts until it stops or its lifetime has passed.
    pub peers_per_torrent: u16,
    /// Torrents at a time.
    pub torrents: u32,
    /// Addresses at a time, as the limits' prefixes have them: an IPv6 network counts once.
    pub addresses: u16,
    /// Announces a minute, of all its peers.
    pub announces_per_minute: u16,
}

/// What the peers of a key have done since it was asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTotals {
    /// Bytes sent, by their own account.
    pub uploaded: u64,
    /// Bytes received, by their own account.
    pub downloaded: u64,
    /// Seconds as a seeder, of each peer in each torrent.
    pub seeding_s: u64,
    /// Announces that were let through.
    pub announces: u64,
}

/// All keys, and what their holders' peers said last.
pub struct Keyring {
    key: [u8; 16],
    shards: Box<[Holder]>,
    /// Under which names the keys are.
    names: Mutex<BTreeMap<KeyId, KeyName>>,
    sessions: Sessions,
}

/// Stands for a key: a keyed hash, long enough that nobody finds another text that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyName([u64; 2]);

/// What a key holder's peer says.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) info_hash: &'a InfoHash,
    /// The prefix that it asks from.
    pub(crate) prefix: IpAddr,
    pub(crate) event: Event,
    pub(crate) role: Role,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    /// Whether it is a WebTorrent peer.
    pub(crate) is_web: bool,
}

#[repr(align(64))]
#[derive(Default)]
struct Holder {
    hint: Hint,
    shard: Mutex<Shard>,
}

#[derive(Default)]
struct Shard {
    entries: Table<Entry>,
    /// Those with totals that have not been taken.
    changed: Vec<KeyName>,
    /// Those that were used for the first time, and nobody has heard of it.
    first_uses: Vec<KeyId>,
    /// What those had moved that are gone, and nobody has taken.
    parted: Vec<(KeyId, KeyTotals)>,
}

/// A key.
#[repr(align(64))]
struct Entry {
    name: KeyName,
    id: KeyId,
    /// [`NEVER`], or from when on the key is no longer good.
    expires: Tick,
    uploaded: u64,
    downloaded: u64,
    seeding_s: u64,
    /// They are taken long before they are too many; if nobody takes them, they stay at the most.
    announces: u32,
    /// Whether it is among the shard's `changed`.
    is_changed: bool,
    is_used: bool,
    /// Of those that have, or had, bounds.
    bounded: Option<Box<Bounded>>,
}

const _: () = assert!(size_of::<Option<Entry>>() == 64);

/// No tracker lives to see it.
const NEVER: Tick = Tick(u32::MAX);
/// A power of two. With 100,000 keys, 400 in each.
const SHARDS: usize = 256;

impl Keyring {
    /// No keys. `key` keeps others from aiming at tables.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            shards: (0..SHARDS).map(|_| Holder::default()).collect(),
            names: Mutex::default(),
            sessions: Sessions::new(),
        }
    }

    /// Makes `key` good from now on, with `rules`, under the number `id`. A key that had the number
    /// before is good no longer, unless it is the same: then its rules are replaced and the rest stays.
    /// Above [`limits::USER_KEYS_MAX`] nothing is done, and that is said.
    pub fn put(&self, id: KeyId, key: UserKey, rules: KeyRules) -> bool {
        let name = self.name(key.as_bytes());
        let mut names = self.names.lock();
        if names.len() >= limits::USER_KEYS_MAX && !names.contains_key(&id) {
            return false;
        }
        if let Some(old) = names.insert(id, name)
            && old != name
        {
            self.shard(old).part(old);
        }
        let mut shard = self.shard(name);
        if let Some(entry) = shard.entries.find(name) {
            entry.rule(rules);
            let number = std::mem::replace(&mut entry.id, id);
            if number != id {
                names.remove(&number);
            }
        } else {
            shard.entries.insert(Entry::new(name, id, rules));
            self.shards[name.shard(SHARDS)].hint.publish(&shard.entries);
        }
        true
    }

    /// Ends a key: from now on it is as unknown as any other. Gives whether there was one. What its
    /// holder has moved can still be taken.
    pub fn remove(&self, id: KeyId) -> bool {
        let mut names = self.names.lock();
        let Some(name) = names.remove(&id) else { return false };
        self.shard(name).part(name);
        true
    }

    /// How many keys there are, those that have expired included.
    pub fn len(&self) -> usize {
        self.names.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many peers of key holders are remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Adds what the holders of keys have moved to `into`, each key once at the most for each time that
    /// it was put, and forgets it.
    pub fn take_totals(&self, into: &mut Vec<(KeyId, KeyTotals)>) {
        for Holder { shard, .. } in &self.shards {
            let shard = &mut *shard.lock();
            into.append(&mut shard.parted);
            for name in shard.changed.drain(..) {
                if let Some(entry) = shard.entries.find(name) {
                    into.push((entry.id, entry.take_totals()));
                }
            }
        }
    }

    /// Adds the keys to `into` that were used for the first time since they were put, or the tracker was
    /// started, each once.
    pub fn take_first_uses(&self, into: &mut Vec<KeyId>) {
        self.shards.iter().for_each(|it| into.append(&mut it.shard.lock().first_uses));
    }

    /// The name of the key `text`, whether it is one or not. Asks for the memory that [`Keyring::admit`] will
    /// need.
    #[inline]
    pub(crate) fn seek(&self, text: &[u8]) -> KeyName {
        // No key is longer, and of a longer text there is no more to know.
        let text = text.get(..=limits::USER_KEY_LEN_MAX).unwrap_or(text);
        let name = self.name(text);
        self.shards[name.shard(SHARDS)].hint.prefetch::<Entry>(name);
        name
    }

    /// Lets the holder of a key ask for something.
    pub(crate) fn admit(&self, now: Tick, name: KeyName, asked: Asked) -> Result<(), Refusal> {
        let shard = &mut *self.shard(name);
        let entry = shard.entries.find(name).ok_or(Refusal::KeyUnknown)?;
        if now >= entry.expires {
            return Err(Refusal::KeyExpired);
        }
        if asked == Asked::Announce
            && let Some(bounded) = &mut entry.bounded
        {
            bounded.keep_pace(now)?;
        }
        if !std::mem::replace(&mut entry.is_used, true) {
            shard.first_uses.push(entry.id);
        }
        Ok(())
    }

    /// Asks for the memory that [`Keyring::account`] will need, and names it.
    #[inline]
    pub(crate) fn approach(
        &self,
        name: KeyName,
        info_hash: &InfoHash,
        peer_id: &PeerId,
    ) -> SessionTag {
        let tag = self.tag(name, info_hash, peer_id);
        self.sessions.prefetch(tag);
        tag
    }

    /// Counts an announce for the key's holder, unless it goes beyond what he may.
    pub(crate) fn account(
        &self,
        now: Tick,
        name: KeyName,
        tag: SessionTag,
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        // Locks are taken in this order everywhere: sessions before keys.
        let sessions = &mut *self.sessions.lock(tag);
        let shard = &mut *self.shard(name);
        let entry = shard.entries.find(name).ok_or(Refusal::KeyUnknown)?;
        let place = entry.bounded.as_ref().and_then(|bounded| self.place(bounded, report));
        let mut moved = KeyTotals::default();
        if report.event == Event::Stopped {
            if let Some(session) = sessions.remove(tag) {
                moved = session.moved(now, report);
                entry.leave(&session);
            }
        } else if let Some(session) = sessions.find(tag) {
            entry.go_on(session, place)?;
            moved = session.moved(now, report);
            session.renew(now, report);
        } else if Sessions::has_room(sessions) {
            let mut session = Session::new(tag, name, now, report);
            entry.go_on(&mut session, place)?;
            self.sessions.insert(sessions, session);
        }
        entry.count(&moved);
        if !std::mem::replace(&mut entry.is_changed, true) {
            shard.changed.push(name);
        }
        Ok(())
    }

    /// Does one of `parts` parts of a pass that forgets peers not heard of for their lifetime.
    pub(crate) fn sweep(&self, now: Tick, parts: u32, plain_s: u32, web_s: u32) {
        let mut ended = Vec::new();
        self.sessions.sweep(now, parts, [plain_s, web_s], &mut ended);
        for session in ended {
            if let Some(entry) = self.shard(session.holder).entries.find(session.holder) {
                entry.leave(&session);
            }
        }
    }

    /// What a peer counts as against its holder's bounds, if he has such: torrent and address.
    #[cold]
    fn place(&self, bounded: &Bounded, report: &Report<'_>) -> Option<(u32, u32)> {
        if !bounded.counts_peers() {
            return None;
        }
        let torrent = siphash::<1, 3>(&self.key, &report.info_hash.0) as u32;
        let address = match report.prefix {
            IpAddr::V4(ip) => siphash::<1, 3>(&self.key, &ip.octets()),
            IpAddr::V6(ip) => siphash::<1, 3>(&self.key, &ip.octets()),
        };
        Some((torrent, address as u32))
    }

    #[inline]
    fn name(&self, key: &[u8]) -> KeyName {
        KeyName(siphash_128::<1, 3>(&self.key, key))
    }

    /// Stands for a peer of a key in a torrent.
    #[inline]
    fn tag(&self, name: KeyName, info_hash: &InfoHash, peer_id: &PeerId) -> SessionTag {
        let mut message = [0; 48];
        let (head, rest) = message.split_at_mut(8);
        let (torrent, peer) = rest.split_at_mut(20);
        head.copy_from_slice(&name.bits().to_le_bytes());
        torrent.copy_from_slice(&info_hash.0);
        peer.copy_from_slice(&peer_id.0);
        SessionTag(siphash::<1, 3>(&self.key, &message))
    }

    #[inline]
    fn shard(&self, name: KeyName) -> MutexGuard<'_, Shard> {
        self.shards[name.shard(SHARDS)].shard.lock()
    }
}

impl Name for KeyName {
    #[inline]
    fn bits(self) -> u64 {
        self.0[0]
    }
}

impl Line for Entry {
    type Name = KeyName;

    #[inline]
    fn name(&self) -> KeyName {
        self.name
    }
}

impl Shard {
    /// Removes a key, and keeps what its holder has moved.
    fn part(&mut self, name: KeyName) {
        let Some(mut entry) = self.entries.remove(name) else { return };
        if entry.is_changed {
            self.changed.retain(|changed| *changed != name);
            // Where nobody takes them, they are not for ever.
            if self.parted.len() < limits::USER_KEYS_MAX / SHARDS {
                self.parted.push((entry.id, entry.take_totals()));
            }
        }
    }
}

impl Entry {
    fn new(name: KeyName, id: KeyId, rules: KeyRules) -> Self {
        let mut entry = Self {
            name,
            id,
            expires: NEVER,
            uploaded: 0,
            downloaded: 0,
            seeding_s: 0,
            announces: 0,
            is_changed: false,
            is_used: false,
            bounded: None,
        };
        entry.rule(rules);
        entry
    }

    /// Puts rules in force.
    fn rule(&mut self, rules: KeyRules) {
        self.expires = rules.expires.unwrap_or(NEVER);
        // What is counted stays: the peers are still there when other bounds come.
        if self.bounded.is_some() || rules.has_bounds() {
            self.bounded.get_or_insert_default().rules = rules;
        }
    }

    #[inline]
    fn count(&mut self, moved: &KeyTotals) {
        self.uploaded = self.uploaded.saturating_add(moved.uploaded);
        self.downloaded = self.downloaded.saturating_add(moved.downloaded);
        self.seeding_s = self.seeding_s.saturating_add(moved.seeding_s);
        self.announces = self.announces.saturating_add(1);
    }

    fn take_totals(&mut self) -> KeyTotals {
        self.is_changed = false;
        KeyTotals {
            uploaded: std::mem::take(&mut self.uploaded),
            downloaded: std::mem::take(&mut self.downloaded),
            seeding_s: std::mem::take(&mut self.seeding_s),
            announces: std::mem::take(&mut self.announces).into(),
        }
    }

    /// Counts a peer that was not, or has another address now, unless that is one too many.
    #[inline]
    fn go_on(&mut self, session: &mut Session, place: Option<(u32, u32)>) -> Result<(), Refusal> {
        let (Some(bounded), Some((torrent, address))) = (&mut self.bounded, place) else {
            return Ok(());
        };
        match session.place {
            Some((_, old)) if old == address => {}
            Some((_, old)) => bounded.change_address(old, address)?,
            None => bounded.enter(torrent, address)?,
        }
        session.place = place;
        Ok(())
    }

    /// A peer is there no more.
    fn leave(&mut self, session: &Session) {
        if let (Some(bounded), Some((torrent, address))) = (&mut self.bounded, session.place) {
            bounded.leave(torrent, address);
        }
    }
}

impl KeyRules {
    fn has_bounds(&self) -> bool {
        let Self { peers_per_torrent, torrents, addresses, announces_per_minute, .. } = *self;
        peers_per_torrent > 0 || torrents > 0 || addresses > 0 || announces_per_minute > 0
    }
}

impl KeyTotals {
    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            uploaded: self.uploaded.saturating_add(other.uploaded),
            downloaded: self.downloaded.saturating_add(other.downloaded),
            seeding_s: self.seeding_s.saturating_add(other.seeding_s),
            announces: self.announces.saturating_add(other.announces),
        }
    }
}
