//! What each peer of a key holder said last, so that the next announce tells what it has done since.
//!
//! A session is half a cache line, and a batch asks for all of its lines before it needs the first.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use primitives::siphash::siphash;
use types::{Event, InfoHash, PeerId, Role, Tick, limits};

use super::table::{Line, Locked, Name, Tables};
use super::{KeyHash, KeyTotals, Report};

/// Stands for a peer of a key in a torrent: a keyed hash of all three ([`Tagger`]). Not 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SessionTag(u64);

/// A peer of a key in a torrent.
#[derive(Clone, Copy)]
pub(super) struct Session {
    tag: SessionTag,
    uploaded: u64,
    downloaded: u64,
    at: Tick,
    is_seeder: bool,
    is_web: bool,
    /// Whether it counts against bounds: then it has a spot.
    has_spot: bool,
}

/// What a peer counts as against its holder's bounds: torrent and address.
pub(super) type Spot = (u32, u32);

/// The spots of those that have one, with their holders.
pub(super) type Spots = HashTable<(SessionTag, KeyHash, Spot)>;

pub(super) type LockedSessions<'a> = Locked<'a, Session, Spots, 4>;

/// All of them.
pub(super) struct Sessions {
    tables: Tables<Session, Spots, 4>,
    /// The table that the sweep comes to next.
    next: AtomicUsize,
}

/// No tag: of a client that has no key.
impl Default for SessionTag {
    fn default() -> Self {
        Self(1)
    }
}

/// Makes tags: universal hashing, which for two peers gives the same tag once in 2⁶³ draws of its numbers,
/// and so for none that can be chosen without them. Nobody sees a tag.
pub(super) struct Tagger {
    /// For NH (RFC 4418, 5.2), with words of 64 bits.
    pairs: [u64; 6],
    /// For multiply, add and shift (Dietzfelbinger, 1996), which spreads what NH gives over a word.
    spread: [u128; 3],
}

impl Tagger {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let word = |number: usize| siphash::<2, 4>(key, &[b't', number as u8]);
        Self {
            pairs: std::array::from_fn(word),
            spread: std::array::from_fn(|at| {
                u128::from(word(6 + 2 * at)) << 64 | u128::from(word(7 + 2 * at))
            }),
        }
    }

    /// Stands for a peer of a key in a torrent.
    #[inline]
    pub(super) fn tag(
        &self,
        name: KeyHash,
        InfoHash(info_hash): &InfoHash,
        PeerId(peer_id): &PeerId,
    ) -> SessionTag {
        let mut message = [0; 48];
        let (head, rest) = message.split_at_mut(8);
        let (torrent, peer) = rest.split_at_mut(20);
        head.copy_from_slice(&name.bits().to_le_bytes());
        torrent.copy_from_slice(info_hash);
        peer.copy_from_slice(peer_id);
        let mut sum = 0_u128;
        for (pair, [a, b]) in message.as_chunks::<16>().0.iter().zip(self.pairs.as_chunks().0) {
            let pair = u128::from_le_bytes(*pair);
            let (low, high) = (pair as u64, (pair >> 64) as u64);
            let product = u128::from(low.wrapping_add(*a)) * u128::from(high.wrapping_add(*b));
            sum = sum.wrapping_add(product);
        }
        let [a, b, c] = self.spread;
        let (low, high) = (u128::from(sum as u64), sum >> 64);
        let spread = a.wrapping_add(b.wrapping_mul(low)).wrapping_add(c.wrapping_mul(high));
        SessionTag(((spread >> 64) as u64).max(1))
    }
}

impl Name for SessionTag {
    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

impl Line<4> for Session {
    type Name = SessionTag;
    /// With 16 million sessions, 16,384 in each.
    const TABLES: usize = 1024;

    #[inline]
    fn name(&self) -> SessionTag {
        self.tag
    }

    #[inline]
    fn to_words(self) -> [u64; 4] {
        let Self { tag, uploaded, downloaded, at, is_seeder, is_web, has_spot } = self;
        let flags = u64::from(is_seeder) | u64::from(is_web) << 1 | u64::from(has_spot) << 2;
        [tag.0, uploaded, downloaded, u64::from(at.0) | flags << 32]
    }

    #[inline]
    fn from_words([tag, uploaded, downloaded, rest]: [u64; 4]) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        Self {
            tag: SessionTag(tag),
            uploaded,
            downloaded,
            at: Tick(rest as u32),
            is_seeder: has(0),
            is_web: has(1),
            has_spot: has(2),
        }
    }
}

impl Session {
    pub(super) fn new(tag: SessionTag, now: Tick, report: &Report<'_>) -> Self {
        let mut session = Self {
            tag,
            uploaded: 0,
            downloaded: 0,
            at: now,
            is_seeder: false,
            is_web: report.is_web,
            has_spot: false,
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

    /// Where it counts.
    pub(super) fn spot(&self, spots: &Spots) -> Option<Spot> {
        let is_own = |(tag, ..): &(SessionTag, _, _)| *tag == self.tag;
        let (.., spot) = self.has_spot.then(|| spots.find(self.tag.0, is_own)).flatten()?;
        Some(*spot)
    }

    /// Has it count somewhere.
    pub(super) fn put_spot(&mut self, spots: &mut Spots, holder: KeyHash, spot: Spot) {
        self.take_spot(spots);
        spots.insert_unique(self.tag.0, (self.tag, holder, spot), |(tag, ..)| tag.0);
        self.has_spot = true;
    }

    /// Has it count no more; gives whose it was, and where it counted.
    pub(super) fn take_spot(&mut self, spots: &mut Spots) -> Option<(KeyHash, Spot)> {
        let is_own = |(tag, ..): &(SessionTag, _, _)| *tag == self.tag;
        let found =
            std::mem::take(&mut self.has_spot).then(|| spots.find_entry(self.tag.0, is_own));
        let ((_, holder, spot), _) = found?.ok()?.remove();
        Some((holder, spot))
    }
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { tables: Tables::new(), next: AtomicUsize::default() }
    }

    /// Where the session of `tag` is, if it is.
    #[inline]
    pub(super) fn lock(&self, tag: SessionTag) -> LockedSessions<'_> {
        self.tables.lock(tag)
    }

    /// Asks for the line in which the session of `tag` is, most likely.
    #[inline]
    pub(super) fn prefetch(&self, tag: SessionTag) {
        self.tables.prefetch(tag);
    }

    /// Whether one more may be in such a table.
    pub(super) fn has_room(table: &LockedSessions<'_>) -> bool {
        table.len() < limits::KEY_SESSIONS_MAX / Session::TABLES
    }

    pub(super) fn len(&self) -> usize {
        self.tables.len()
    }

    /// Does one of `parts` parts of a pass: removes sessions whose lifetime (`[plain, WebTorrent]`,
    /// seconds) has passed, and adds to `ended` whose those were, and where they counted, that did.
    pub(super) fn sweep(
        &self,
        now: Tick,
        parts: u32,
        lifetimes_s: [u32; 2],
        ended: &mut Vec<(KeyHash, Spot)>,
    ) {
        let is_over = |session: &Session| {
            let [plain_s, web_s] = lifetimes_s;
            now.since(session.at) > if session.is_web { web_s } else { plain_s }
        };
        for _ in 0..Session::TABLES.div_ceil(parts.max(1) as usize) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let mut table = self.tables.lock_table(next);
            table.extract(is_over, |spots, mut session| ended.extend(session.take_spot(spots)));
        }
        self.tables.make_huge();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// All that differ in a bit, or in the order of their parts.
    #[test]
    fn tags_differ_and_spread() {
        let tagger = Tagger::new(&[7; 16]);
        let mut messages = vec![[0_u8; 48]];
        for bit in 0..48 * 8 {
            for other in 0..=bit {
                let mut message = [0; 48];
                message[bit / 8] ^= 1 << (bit % 8);
                message[other / 8] ^= if other == bit { 0 } else { 1 << (other % 8) };
                messages.push(message);
            }
        }
        let tag = |message: &[u8; 48]| {
            let (name, rest) = message.split_at(8);
            let name = KeyHash([u64::from_le_bytes(name.try_into().unwrap()), 0]);
            let (torrent, peer) = rest.split_at(20);
            let torrent = InfoHash(torrent.try_into().unwrap());
            tagger.tag(name, &torrent, &PeerId(peer.try_into().unwrap())).0
        };
        let tags: BTreeSet<u64> = messages.iter().map(tag).collect();
        assert_eq!(tags.len(), messages.len());
        for bit in 0..64 {
            let share = tags.iter().filter(|tag| *tag >> bit & 1 != 0).count() * 100 / tags.len();
            assert!((48..=52).contains(&share), "bit {bit}: {share} %");
        }
        let other = Tagger::new(&[8; 16]);
        let (torrent, peer) = (InfoHash([1; 20]), PeerId([2; 20]));
        let by = |tagger: &Tagger| tagger.tag(KeyHash([3, 4]), &torrent, &peer);
        assert_ne!(by(&tagger), by(&other));
    }
}
