//! A key's record: its rules, and what is counted for it.

use types::{Refusal, Tick};

use super::credit::Credit;
use super::quota::QuotaState;
use super::sessions::{BYTES_MAX, QuotaEntries, QuotaEntry, Session, SessionTag};
use super::table::Row;
use super::{KeyHash, KeyId, KeyRules, KeyTotals, PasskeyStore, Report, TableAux};

/// A key.
#[derive(Clone, Copy)]
pub(super) struct KeyRecord {
    pub(super) hash: KeyHash,
    pub(super) id: KeyId,
    /// When the key expires, or [`NEVER`].
    pub(super) expires: Tick,
    /// At most [`BYTES_MAX`], as `downloaded`: it saturates, in case the totals are never taken.
    uploaded: u64,
    downloaded: u64,
    /// At most [`SEEDING_MAX`].
    seeding_s: u64,
    /// The credit, which bounds additions to the totals.
    pub(super) credit: Credit,
    /// Saturates, in case the totals are never taken.
    announces: u32,
    pub(super) sessions: SessionCount,
    /// True if the key is in the shard's `changed`.
    pub(super) is_changed: bool,
    pub(super) is_used: bool,
    /// True if the key is in the shard's `quotas`.
    has_quota: bool,
}

/// The number of a key's sessions, by the time of their last announce: in the present period, or in the
/// one before. A period is as long as the longest lifetime, so earlier ones have expired. The sweep does
/// not know to which key a session belongs, and does not need to.
#[derive(Clone, Copy, Default)]
pub(super) struct SessionCount {
    /// When the present period began.
    since: Tick,
    recent: u32,
    /// At most [`EARLIER_MAX`].
    earlier: u32,
}

/// 40 bits: a million sessions for twelve days.
const SEEDING_MAX: u64 = (1 << 40) - 1;
/// 136 years after the start.
const NEVER: Tick = Tick(u32::MAX);
/// 29 bits, and more than there can be sessions.
const EARLIER_MAX: u32 = (1 << 29) - 1;

impl Row<8> for KeyRecord {
    type Key = KeyHash;
    /// With 100,000 keys, 400 in each.
    const SHARDS: usize = 256;

    #[inline]
    fn key(&self) -> KeyHash {
        self.hash
    }

    #[inline]
    fn to_words(self) -> [u64; 8] {
        let Self { hash: KeyHash([first, second]), uploaded, downloaded, seeding_s, .. } = self;
        let SessionCount { since, recent, earlier } = self.sessions;
        let flags = [self.is_changed, self.is_used, self.has_quota].map(u64::from);
        let flags = flags[0] | flags[1] << 1 | flags[2] << 2;
        let numbers = u64::from(self.announces) | u64::from(self.id.0) << 32;
        let rest = u64::from(self.expires.0) | flags << 32 | u64::from(earlier) << 35;
        let sessions = u64::from(since.0) | u64::from(recent) << 32;
        // The credit's bits: 8 above each count of bytes, and 24 above the seconds.
        let spent_ms = self.credit.to_ms();
        let uploaded = uploaded | spent_ms >> 32 << 56;
        let downloaded = downloaded | spent_ms >> 24 << 56;
        let seeding_s = seeding_s | spent_ms << 40;
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, sessions]
    }

    #[inline]
    fn from_words(
        [first, second, uploaded, downloaded, seeding_s, numbers, rest, sessions]: [u64; 8],
    ) -> Self {
        let has = |flag: u32| rest >> (32 + flag) & 1 != 0;
        let spent_ms = uploaded >> 56 << 32 | downloaded >> 56 << 24 | seeding_s >> 40;
        Self {
            hash: KeyHash([first, second]),
            id: KeyId((numbers >> 32) as u32),
            expires: Tick(rest as u32),
            uploaded: uploaded & BYTES_MAX,
            downloaded: downloaded & BYTES_MAX,
            seeding_s: seeding_s & SEEDING_MAX,
            credit: Credit::from_ms(spent_ms),
            announces: numbers as u32,
            sessions: SessionCount {
                since: Tick(sessions as u32),
                recent: (sessions >> 32) as u32,
                earlier: (rest >> 35) as u32,
            },
            is_changed: has(0),
            is_used: has(1),
            has_quota: has(2),
        }
    }
}

impl KeyRecord {
    pub(super) fn new(hash: KeyHash, id: KeyId) -> Self {
        Self {
            hash,
            id,
            expires: NEVER,
            uploaded: 0,
            downloaded: 0,
            seeding_s: 0,
            credit: Credit::default(),
            announces: 0,
            sessions: SessionCount::default(),
            is_changed: false,
            is_used: false,
            has_quota: false,
        }
    }

    pub(super) fn set_rules(&mut self, aux: &mut TableAux, rules: KeyRules) {
        self.expires = rules.expires.unwrap_or(NEVER);
        if !self.has_quota && rules.has_quota() {
            let quota = (self.hash, QuotaState::default());
            aux.quotas.insert_unique(self.hash.0[0], quota, |(hash, _)| hash.0[0]);
            self.has_quota = true;
        }
        // Keep the counts: the key's peers are still there under the new rules.
        if let Some(quota) = self.quota(aux) {
            quota.rules = rules;
        }
    }

    /// Returns the key's quota, if it has or had one.
    #[inline]
    pub(super) fn quota<'a>(&self, aux: &'a mut TableAux) -> Option<&'a mut QuotaState> {
        if !self.has_quota {
            return None;
        }
        let found = aux.quotas.find_mut(self.hash.0[0], |(hash, _)| *hash == self.hash);
        debug_assert!(found.is_some(), "a key lost its quota");
        found.map(|(_, quota)| quota)
    }

    /// Returns the key's quota, if it depends on the key's peers.
    #[inline]
    pub(super) fn peer_quota<'a>(&self, aux: &'a mut TableAux) -> Option<&'a mut QuotaState> {
        self.quota(aux).filter(|quota| quota.counts_peers())
    }

    /// Adds an announce and a peer's progress to the totals.
    #[inline]
    pub(super) fn add_announce(&mut self, progress: &KeyTotals) {
        self.add(progress);
        self.announces = self.announces.saturating_add(1);
    }

    /// Adds a peer's progress to the totals.
    #[inline]
    pub(super) fn add(&mut self, progress: &KeyTotals) {
        self.uploaded = self.uploaded.saturating_add(progress.uploaded).min(BYTES_MAX);
        self.downloaded = self.downloaded.saturating_add(progress.downloaded).min(BYTES_MAX);
        self.seeding_s = self.seeding_s.saturating_add(progress.seeding_s).min(SEEDING_MAX);
    }

    /// Returns the totals, and resets them.
    pub(super) fn take_totals(&mut self) -> KeyTotals {
        self.is_changed = false;
        KeyTotals {
            uploaded: std::mem::take(&mut self.uploaded),
            downloaded: std::mem::take(&mut self.downloaded),
            seeding_s: std::mem::take(&mut self.seeding_s),
            announces: std::mem::take(&mut self.announces).into(),
        }
    }

    /// Charges the quota for a peer that is new or whose prefix has changed.
    #[inline]
    pub(super) fn charge(
        &self,
        store: &PasskeyStore,
        aux: &mut TableAux,
        (session, entries): (&mut Session, &mut QuotaEntries),
        report: &Report<'_>,
    ) -> Result<(), Refusal> {
        let Some(quota) = self.peer_quota(aux) else { return Ok(()) };
        let (torrent, address) = store.quota_entry(report);
        match session.quota_entry(entries) {
            Some((_, old)) if old == address => return Ok(()),
            Some((_, old)) => quota.change_address(old, address)?,
            None => quota.add_peer(session.tag(), (torrent, address))?,
        }
        session.set_quota_entry(entries, self.hash, (torrent, address));
        Ok(())
    }

    /// Removes a peer from the quota.
    pub(super) fn remove_peer(&self, aux: &mut TableAux, tag: SessionTag, entry: QuotaEntry) {
        if let Some(quota) = self.quota(aux) {
            quota.remove_peer(tag, entry);
        }
    }
}

impl SessionCount {
    /// Returns the number of sessions, with those that expired within the last period.
    pub(super) fn len(&self) -> u32 {
        self.recent.saturating_add(self.earlier)
    }

    /// Begins a new period if the present one is over. Call before all else.
    #[inline]
    pub(super) fn advance(&mut self, now: Tick, period_s: u32) {
        let passed_s = now.since(self.since);
        if passed_s >= period_s {
            // After two periods without an announce, all have expired.
            let are_over = passed_s / 2 >= period_s;
            let earlier = if are_over { 0 } else { self.recent.min(EARLIER_MAX) };
            *self = Self { since: now, recent: 0, earlier };
        }
    }

    /// Counts a session that announces for the first time.
    pub(super) fn add(&mut self) {
        self.recent = self.recent.saturating_add(1);
    }

    /// Counts a session of an earlier process, whose last announce was at `last`.
    pub(super) fn add_at(&mut self, now: Tick, period_s: u32, last: Tick) {
        if last >= self.since {
            self.add();
        } else if now.since(last) <= period_s {
            self.earlier = (self.earlier + 1).min(EARLIER_MAX);
        }
    }

    /// Counts an announce of a session whose last one was at `last`.
    #[inline]
    pub(super) fn renew(&mut self, now: Tick, period_s: u32, last: Tick) {
        if last < self.since {
            self.remove(now, period_s, last);
            self.add();
        }
    }

    /// Removes a session whose last announce was at `last`.
    pub(super) fn remove(&mut self, now: Tick, period_s: u32, last: Tick) {
        if last >= self.since {
            self.recent = self.recent.saturating_sub(1);
        } else if now.since(last) <= period_s {
            self.earlier = self.earlier.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use primitives::Random;

    use super::*;

    #[test]
    fn rows_keep_records() {
        for number in [0, 1 << 39, Credit::MAX_MS, 0x12_3456_789a] {
            let row = KeyRecord {
                uploaded: BYTES_MAX - number,
                downloaded: number,
                seeding_s: SEEDING_MAX - number,
                credit: Credit::from_ms(number),
                is_used: true,
                ..KeyRecord::new(KeyHash([1, 2]), KeyId(3))
            };
            let read = KeyRecord::from_words(row.to_words());
            assert_eq!(read.credit, row.credit);
            assert_eq!([read.uploaded, read.downloaded], [row.uploaded, row.downloaded]);
            assert_eq!((read.seeding_s, read.id, read.is_used), (row.seeding_s, KeyId(3), true));
            let progress = KeyTotals { uploaded: u64::MAX, seeding_s: 9, ..KeyTotals::default() };
            let mut full = read;
            full.add(&progress);
            assert_eq!(KeyRecord::from_words(full.to_words()).uploaded, BYTES_MAX);
            assert_eq!(KeyRecord::from_words(full.to_words()).credit, row.credit);
        }
    }

    /// Beside a plain list of sessions, of which none is ever missed.
    #[test]
    fn no_live_session_is_left_out() {
        const PERIOD_S: u32 = 100;
        let mut random = Random::new(3);
        let mut count = SessionCount::default();
        let (mut now, mut all) = (Tick(0), Vec::<Tick>::new());
        for _ in 0..20_000 {
            now =
                now.after(if random.below(50) == 0 { random.below(250) } else { random.below(8) });
            count.advance(now, PERIOD_S);
            // The sweep comes late.
            all.retain(|last| now.since(*last) <= PERIOD_S + 10);
            let at = random.below(all.len() as u32 + 1) as usize;
            match random.below(4) {
                0 if at < all.len() => count.remove(now, PERIOD_S, all.swap_remove(at)),
                1 | 2 if at < all.len() => {
                    count.renew(now, PERIOD_S, all[at]);
                    all[at] = now;
                }
                _ => {
                    count.add();
                    all.push(now);
                }
            }
            let live = all.iter().filter(|last| now.since(**last) <= PERIOD_S).count();
            assert!(count.len() as usize >= live, "{} of {live}", count.len());
            let row = KeyRecord { sessions: count, ..KeyRecord::new(KeyHash([1, 2]), KeyId(3)) };
            let read = KeyRecord::from_words(row.to_words()).sessions;
            assert_eq!(
                (read.since, read.recent, read.earlier),
                (count.since, count.recent, count.earlier)
            );
        }
        // Those that are silent are not counted for ever.
        count.advance(now.after(PERIOD_S), PERIOD_S);
        count.advance(now.after(2 * PERIOD_S), PERIOD_S);
        assert_eq!(count.len(), 0);
    }
}
