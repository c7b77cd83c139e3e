//! What each peer of a key holder said last, so that the next announce tells what it has done since.
//!
//! Tables of our own, because theirs is the one line of memory that an announce by key waits for: a
//! session is a cache line, and a batch asks for all of its lines before it needs the first.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use swarm::prefetch;
use types::{Event, Role, Tick, limits};

use super::{KeyName, KeyTotals, Report, middle_bits};

/// A peer of a key in a torrent.
#[repr(align(64))]
pub(super) struct Session {
    /// A keyed hash of all three.
    tag: u64,
    pub(super) holder: KeyName,
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    /// Torrent and address, if they are counted.
    pub(super) place: Option<(u32, u32)>,
    is_seeder: bool,
    is_web: bool,
}

const _: () = assert!(size_of::<Option<Session>>() == 64);

/// Some of them: open addressing with linear probing.
#[derive(Default)]
pub(super) struct Table {
    /// A power of two, of which at most three quarters are taken; or none.
    slots: Vec<Option<Session>>,
    len: usize,
}

/// All of them.
pub(super) struct Sessions {
    shards: Box<[Mutex<Table>]>,
    /// The one that the sweep comes to next.
    next: AtomicUsize,
}

const SLOTS_MIN: usize = 8;
/// A power of two: enough that the table of one, with ten million peers, doubles within a millisecond.
const SHARDS: usize = 1024;

impl Session {
    pub(super) fn new(tag: u64, holder: KeyName, now: Tick, report: &Report<'_>) -> Self {
        let mut session = Self {
            tag,
            holder,
            uploaded: 0,
            downloaded: 0,
            at: now,
            place: None,
            is_seeder: false,
            is_web: report.is_web,
        };
        session.renew(now, report);
        session
    }

    /// What the peer has done since its last announce. Figures count from the client's start: when they
    /// begin anew, there is nothing to tell yet.
    pub(super) fn moved(&self, now: Tick, report: &Report<'_>) -> KeyTotals {
        if report.event == Event::Started {
            return KeyTotals::default();
        }
        let passed_s = u64::from(now.since(self.at));
        let most = (passed_s + 1).saturating_mul(limits::KEY_BYTES_PER_S_MAX);
        KeyTotals {
            uploaded: report.uploaded.saturating_sub(self.uploaded).min(most),
            downloaded: report.downloaded.saturating_sub(self.downloaded).min(most),
            seeding_s: if self.is_seeder { passed_s } else { 0 },
            announces: 0,
        }
    }

    /// Remembers what it says now.
    pub(super) fn renew(&mut self, now: Tick, report: &Report<'_>) {
        self.uploaded = report.uploaded;
        self.downloaded = report.downloaded;
        self.at = now;
        self.is_seeder = report.role == Role::Seeder;
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::default(),
        }
    }

    /// Where the session of `tag` is, if it is.
    #[inline]
    pub(super) fn lock(&self, tag: u64) -> MutexGuard<'_, Table> {
        self.shards[middle_bits(tag) % SHARDS].lock()
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len).sum()
    }

    /// Does one of `parts` parts of a pass: moves sessions whose lifetime (`[plain, WebTorrent]`,
    /// seconds) has passed, and that count somewhere, to `ended`, and drops the others.
    pub(super) fn sweep(
        &self,
        now: Tick,
        parts: u32,
        lifetimes_s: [u32; 2],
        ended: &mut Vec<Session>,
    ) {
        for _ in 0..SHARDS.div_ceil(parts.max(1) as usize) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = |session: &Session| {
                let [plain_s, web_s] = lifetimes_s;
                now.since(session.at) > if session.is_web { web_s } else { plain_s }
            };
            self.shards[next % SHARDS].lock().extract(is_over, ended);
        }
    }
}

impl Table {
    /// Asks for the line in which the session of `tag` is, most likely.
    #[inline]
    pub(super) fn prefetch(&self, tag: u64) {
        self.slots.get(self.home(tag)).into_iter().for_each(prefetch);
    }

    #[inline]
    pub(super) fn find(&mut self, tag: u64) -> Option<&mut Session> {
        let at = self.position(tag)?;
        self.slots.get_mut(at)?.as_mut()
    }

    pub(super) fn remove(&mut self, tag: u64) -> Option<Session> {
        let at = self.position(tag)?;
        self.take(at)
    }

    /// Whether one more may be in it.
    pub(super) fn has_room(&self) -> bool {
        self.len < limits::KEY_SESSIONS_MAX / SHARDS
    }

    /// Adds one that is not in it.
    pub(super) fn insert(&mut self, session: Session) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN));
        }
        self.put(session);
    }

    /// Removes those that are over, and gives those of them that count somewhere.
    fn extract(&mut self, is_over: impl Fn(&Session) -> bool, ended: &mut Vec<Session>) {
        let mut at = 0;
        while let Some(slot) = self.slots.get(at) {
            if slot.as_ref().is_some_and(&is_over) {
                // Another one may have moved into the gap, which is looked at once more.
                ended.extend(self.take(at).filter(|session| session.place.is_some()));
            } else {
                at += 1;
            }
        }
        if self.slots.len() > SLOTS_MIN && self.len * 8 < self.slots.len() {
            self.resize((self.len * 2).next_power_of_two().max(SLOTS_MIN));
        }
    }

    fn resize(&mut self, slots: usize) {
        let empty = std::iter::repeat_with(|| None).take(slots).collect();
        let old = std::mem::replace(&mut self.slots, empty);
        self.len = 0;
        old.into_iter().flatten().for_each(|session| self.put(session));
    }

    /// Puts a session into the first gap from its home on. There is one.
    fn put(&mut self, session: Session) {
        let mut at = self.home(session.tag);
        while let Some(Some(_)) = self.slots.get(at) {
            at = self.next(at);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some(session);
            self.len += 1;
        }
    }

    /// Empties a slot, and moves those up that stand behind it only because it was taken.
    fn take(&mut self, at: usize) -> Option<Session> {
        let taken = self.slots.get_mut(at)?.take()?;
        self.len -= 1;
        let (mut gap, mut at) = (at, self.next(at));
        while let Some(Some(session)) = self.slots.get(at) {
            let home = self.home(session.tag);
            // Steps from home to where it stands, and to the gap: it may move if the gap is on its way.
            if self.steps(home, gap) <= self.steps(home, at) {
                self.slots.swap(gap, at);
                gap = at;
            }
            at = self.next(at);
        }
        Some(taken)
    }

    #[inline]
    fn position(&self, tag: u64) -> Option<usize> {
        let mut at = self.home(tag);
        while let Some(Some(session)) = self.slots.get(at) {
            if session.tag == tag {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn home(&self, tag: u64) -> usize {
        tag as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & self.slots.len().wrapping_sub(1)
    }

    #[inline]
    fn steps(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use swarm::Random;
    use types::InfoHash;

    use super::*;

    /// Tags that share their homes, at both ends of the table.
    #[test]
    fn a_table_is_a_map() {
        let mut random = Random::new(1);
        for tags in [5, 40, 3000] {
            let (mut table, mut twin) = (Table::default(), BTreeMap::new());
            for step in 0..20_000_u32 {
                let tag = u64::from(random.below(tags)).wrapping_mul(u64::MAX / 3);
                assert_eq!(table.find(tag).map(|session| session.at), twin.get(&tag).copied());
                match random.below(if step % 4000 < 2000 { 3 } else { 6 }) {
                    0 => {
                        let removed = table.remove(tag).map(|session| session.at);
                        assert_eq!(removed, twin.remove(&tag));
                    }
                    1 | 2 if !twin.contains_key(&tag) => {
                        table.insert(session(tag, Tick(step)));
                        twin.insert(tag, Tick(step));
                    }
                    _ => {}
                }
                assert_eq!(table.len, twin.len());
                if step % 1000 == 999 {
                    let mut ended = Vec::new();
                    let old = Tick(step - random.below(500));
                    table.extract(|session| session.at < old, &mut ended);
                    twin.retain(|_, at| *at >= old);
                    assert_eq!((table.len, ended.len()), (twin.len(), 0), "none counts anywhere");
                }
            }
            assert!(twin.keys().all(|tag| table.find(*tag).is_some()));
        }
    }

    fn session(tag: u64, now: Tick) -> Session {
        let report = Report {
            info_hash: &InfoHash([0; 20]),
            prefix: [0; 4].into(),
            event: Event::None,
            role: Role::Leecher,
            uploaded: 0,
            downloaded: 0,
            is_web: false,
        };
        Session::new(tag, KeyName(0), now, &report)
    }
}
