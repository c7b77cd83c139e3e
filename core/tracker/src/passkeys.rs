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

use hashbrown::HashTable;
use parking_lot::Mutex;
use primitives::siphash::{siphash, siphash_128, siphash_ip};
use types::{Event, InfoHash, PeerId, Refusal, Role, Tick, UserKey, limits};

use crate::RequestKind;
use bounds::Bounded;
use sessions::{Session, Sessions, Spot, Spots, Tagger};
use table::{Line, Locked, Name, Place, Tables};

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
pub struct PasskeyStore {
    key: [u8; 16],
    keys: Tables<Entry, Rest, 8>,
    /// Under which names the keys are.
    names: Mutex<BTreeMap<KeyId, KeyHash>>,
    sessions: Sessions,
    tagger: Tagger,
}

/// Stands for a key: a keyed hash, long enough that nobody finds another text that has it. Its first word is
/// not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash([u64; 2]);

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

/// The holder of a key, who is about to do something: nobody else reads or changes what is known of him and
/// of some others.
pub(crate) struct LockedKey<'a> {
    ring: &'a PasskeyStore,
    keys: LockedKeys<'a>,
    place: Place,
    entry: Entry,
}

type LockedKeys<'a> = Locked<'a, Entry, Rest, 8>;

/// What a table of keys has beside them.
#[derive(Default)]
struct Rest {
    /// Those with totals that have not been taken.
    changed: Vec<KeyHash>,
    /// Those that were used for the first time, and nobody has heard of it.
    first_uses: Vec<KeyId>,
    /// What those had moved that are gone, and nobody has taken.
    parted: Vec<(KeyId, KeyTotals)>,
    /// Those that have, or had, bounds.
    bounded: HashTable<(KeyHash, Bounded)>,
}

/// A key.
#[derive(Clone, Copy)]
struct Entry {
    name: KeyHash,
    id: KeyId,
    /// [`NEVER`], or from when on the key is no longer good.
    expires: Tick,
    uploaded: u64,
    downloaded: u64,
    seeding_s: u64,
    /// They are taken long before they are too many; if nobody takes them, they stay at the most.
    announces: u32,
    /// Whether it is among the table's `changed`.
    is_changed: bool,
    is_used: bool,
    /// Whether it is among the table's `bounded`.
    is_bounded: bool,
}

/// No tracker lives to see it.
const NEVER: Tick = Tick(u32::MAX);

impl PasskeyStore {
    /// No keys. `key` keeps others from aiming at tables.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            key,
            keys: Tables::new(),
            names: Mutex::default(),
            sessions: Sessions::new(),
            tagger: Tagger::new(&key),
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
            part(&mut self.keys.lock(old), old);
        }
        let mut keys = self.keys.lock(name);
        if let Some((place, mut entry)) = keys.find(name) {
            entry.rule(keys.with(), rules);
            let number = std::mem::replace(&mut entry.id, id);
            keys.set(place, entry);
            if number != id {
                names.remove(&number);
            }
        } else {
            let mut entry = Entry::new(name, id);
            entry.rule(keys.with(), rules);
            keys.insert(entry);
        }
        true
    }

    /// Ends a key: from now on it is as unknown as any other. Gives whether there was one. What its
    /// holder has moved can still be taken.
    pub fn remove(&self, id: KeyId) -> bool {
        let mut names = self.names.lock();
        let Some(name) = names.remove(&id) else { return false };
        part(&mut self.keys.lock(name), name);
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
        for mut keys in self.keys.each() {
            into.append(&mut keys.with().parted);
            let mut changed = std::mem::take(&mut keys.with().changed);
            for name in changed.drain(..) {
                if let Some((place, mut entry)) = keys.find(name) {
                    into.push((entry.id, entry.take_totals()));
                    keys.set(place, entry);
                }
            }
            // It keeps its memory.
            keys.with().changed = changed;
        }
    }

    /// Adds the keys to `into` that were used for the first time since they were put, or the tracker was
    /// started, each once.
    pub fn take_first_uses(&self, into: &mut Vec<KeyId>) {
        self.keys.each().for_each(|mut keys| into.append(&mut keys.with().first_uses));
    }

    /// The name of the key `text`, whether it is one or not. Asks for the memory that [`PasskeyStore::admit`] will
    /// need.
    #[inline]
    pub(crate) fn hash_and_prefetch(&self, text: &[u8]) -> KeyHash {
        // No key is longer, and of a longer text there is no more to know.
        let text = text.get(..=limits::USER_KEY_LEN_MAX).unwrap_or(text);
        let name = self.name(text);
        self.keys.prefetch(name);
        name
    }

    /// Lets the holder of a key do something, and nobody else with a key of the same table until he is done.
    #[inline]
    pub(crate) fn admit(
        &self,
        now: Tick,
        name: KeyHash,
        kind: RequestKind,
    ) -> Result<LockedKey<'_>, Refusal> {
        let mut keys = self.keys.lock(name);
        let (place, mut entry) = keys.find(name).ok_or(Refusal::KeyUnknown)?;
        if now >= entry.expires {
            return Err(Refusal::KeyExpired);
        }
        if kind == RequestKind::Announce
            && let Some(bounded) = entry.bounded(keys.with())
        {
            bounded.keep_pace(now)?;
        }
        if !std::mem::replace(&mut entry.is_used, true) {
            keys.set(place, entry);
            keys.with().first_uses.push(entry.id);
        }
        Ok(LockedKey { ring: self, keys, place, entry })
    }

    /// Asks for the memory that [`LockedKey::account`] will need, and names it.
    #[inline]
    pub(crate) fn prefetch_session(
        &self,
        name: KeyHash,
        info_hash: &InfoHash,
        peer_id: &PeerId,
    ) -> SessionTag {
        let tag = self.tagger.tag(name, info_hash, peer_id);
        self.sessions.prefetch(tag);
        tag
    }

    /// Does one of `parts` parts of a pass that forgets peers not heard of for their lifetime.
    pub(crate) fn sweep(&self, now: Tick, parts: u32, plain_s: u32, web_s: u32) {
        let mut ended = Vec::new();
        self.sessions.sweep(now, parts, [plain_s, web_s], &mut ended);
        for (holder, spot) in ended {
            let mut keys = self.keys.lock(holder);
            if let Some((_, entry)) = keys.find(holder) {
                entry.leave(keys.with(), spot);
            }
        }
        self.keys.make_huge();
    }

    /// What a peer counts as against its holder's bounds, if he has such: torrent and address.
    fn spot(&self, bounded: &Bounded, report: &Report<'_>) -> Option<Spot> {
        if !bounded.counts_peers() {
            return None;
        }
        let torrent = siphash::<1, 3>(&self.key, &report.info_hash.0) as u32;
        let address = siphash_ip::<1, 3>(&self.key, report.prefix);
        Some((torrent, address as u32))
    }

    #[inline]
    fn name(&self, key: &[u8]) -> KeyHash {
        let [first, second] = siphash_128::<1, 3>(&self.key, key);
        KeyHash([first.max(1), second])
    }
}

impl Name for KeyHash {
    #[inline]
    fn bits(self) -> u64 {
        self.0[0]
    }
}

impl Line<8> for Entry {
    type Name = KeyHash;
    /// With 100,000 keys, 400 in each.
    const TABLES: usize = 256;

    #[inline]
    fn name(&self) -> KeyHash {
        self.name
    }

    #[inline]
    fn to_words(self) -> [u64; 8] {
        let Self { name: KeyHash([first, second]), uploaded, downloaded, seeding_s, .. } = self;
        let flags = [self.is_changed, self.is_used, self.is_bounded].map(u64::from);
        let flags = flags[0] | flags[1] << 1 | flags[2] << 2;
        let numbers = u64::from(self.announces) | u64::from(self.id.0) << 32;
        let rest = u64::from(self.expires.0) | flags << 32;
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, 0]
    }

    #[inline]
    fn from_words(
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, _]: [u64; 8],
    ) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        Self {
            name: KeyHash([first, second]),
            id: KeyId((numbers >> 32) as u32),
            expires: Tick(rest as u32),
            uploaded,
            downloaded,
            seeding_s,
            announces: numbers as u32,
            is_changed: has(0),
            is_used: has(1),
            is_bounded: has(2),
        }
    }
}

/// Removes a key, and keeps what its holder has moved.
fn part(keys: &mut LockedKeys<'_>, name: KeyHash) {
    let Some(mut entry) = keys.remove(name) else { return };
    let rest = keys.with();
    if let Ok(bounded) = rest.bounded.find_entry(name.bits(), |(of, _)| *of == name) {
        bounded.remove();
    }
    if entry.is_changed {
        rest.changed.retain(|changed| *changed != name);
        // Where nobody takes them, they are not for ever.
        if rest.parted.len() < limits::USER_KEYS_MAX / Entry::TABLES {
            rest.parted.push((entry.id, entry.take_totals()));
        }
    }
}

impl LockedKey<'_> {
    /// Counts an announce of his, unless it goes beyond what he may.
    #[inline]
    pub(crate) fn account(
        self,
        now: Tick,
        tag: SessionTag,
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        let Self { ring, mut keys, place, mut entry } = self;
        // Locks are taken in this order everywhere: keys before sessions.
        let mut sessions = ring.sessions.lock(tag);
        let mut moved = KeyTotals::default();
        if report.event == Event::Stopped {
            if let Some((at, mut session)) = sessions.find(tag) {
                moved = session.moved(now, report);
                if let Some((_, spot)) = session.take_spot(sessions.with()) {
                    entry.leave(keys.with(), spot);
                }
                sessions.take(at);
            }
        } else if let Some((at, mut session)) = sessions.find(tag) {
            entry.go_on(ring, keys.with(), (&mut session, sessions.with()), report)?;
            moved = session.moved(now, report);
            session.renew(now, report);
            sessions.set(at, session);
        } else if Sessions::has_room(&sessions) {
            let mut session = Session::new(tag, now, report);
            entry.go_on(ring, keys.with(), (&mut session, sessions.with()), report)?;
            sessions.insert(session);
        }
        entry.count(&moved);
        if !std::mem::replace(&mut entry.is_changed, true) {
            keys.with().changed.push(entry.name);
        }
        keys.set(place, entry);
        Ok(())
    }
}

impl Entry {
    fn new(name: KeyHash, id: KeyId) -> Self {
        Self {
            name,
            id,
            expires: NEVER,
            uploaded: 0,
            downloaded: 0,
            seeding_s: 0,
            announces: 0,
            is_changed: false,
            is_used: false,
            is_bounded: false,
        }
    }

    /// Puts rules in force.
    fn rule(&mut self, rest: &mut Rest, rules: KeyRules) {
        self.expires = rules.expires.unwrap_or(NEVER);
        if !self.is_bounded && rules.has_bounds() {
            let bounded = (self.name, Bounded::default());
            rest.bounded.insert_unique(self.name.bits(), bounded, |(name, _)| name.bits());
            self.is_bounded = true;
        }
        // What is counted stays: the peers are still there when other bounds come.
        if let Some(bounded) = self.bounded(rest) {
            bounded.rules = rules;
        }
    }

    /// Its bounds, if it has, or had, some.
    #[inline]
    fn bounded<'a>(&self, rest: &'a mut Rest) -> Option<&'a mut Bounded> {
        if !self.is_bounded {
            return None;
        }
        let found = rest.bounded.find_mut(self.name.bits(), |(name, _)| *name == self.name);
        found.map(|(_, bounded)| bounded)
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
    fn go_on(
        &self,
        ring: &PasskeyStore,
        rest: &mut Rest,
        (session, spots): (&mut Session, &mut Spots),
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        let Some(bounded) = self.bounded(rest) else { return Ok(()) };
        let Some((torrent, address)) = ring.spot(bounded, report) else { return Ok(()) };
        match session.spot(spots) {
            Some((_, old)) if old == address => return Ok(()),
            Some((_, old)) => bounded.change_address(old, address)?,
            None => bounded.enter(torrent, address)?,
        }
        session.put_spot(spots, self.name, (torrent, address));
        Ok(())
    }

    /// A peer is there no more.
    fn leave(&self, rest: &mut Rest, (torrent, address): Spot) {
        if let Some(bounded) = self.bounded(rest) {
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
