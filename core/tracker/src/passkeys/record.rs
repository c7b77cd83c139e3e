//! A key's record: its rules, and what is counted for it.

use types::{Event, Refusal, Role, Tick};

use super::credit::Credit;
use super::quota::QuotaState;
use super::sessions::{QuotaPlace, SessionRecord, Sessions};
use super::{KeyHash, KeyId, KeyRules, SessionTag};

pub(super) struct KeyRecord {
    pub(super) hash: KeyHash,
    pub(super) id: KeyId,
    /// When the key expires, or [`NEVER`].
    pub(super) expires: Tick,
    /// Bounds additions to the totals.
    pub(super) credit: Credit,
    pub(super) sessions: SessionCount,
    /// Present if the key has, or had, bounds.
    pub(super) quota: Option<Box<QuotaState>>,
    pub(super) is_used: bool,
}

/// The number of a key's sessions, by the time of their last announce: in the present period, or in the
/// one before. A period is as long as the longest lifetime, so earlier ones have expired. The sweep does
/// not change the number, because most sessions do not name their key.
#[derive(Clone, Copy, Default)]
pub(super) struct SessionCount {
    /// When the present period began.
    since: Tick,
    recent: u32,
    earlier: u32,
}

// The figure for a key in limits.rs assumes it.
const _: () = assert!(size_of::<KeyRecord>() == 56);

/// 136 years after the start.
const NEVER: Tick = Tick(u32::MAX);

impl KeyRecord {
    pub(super) fn new(hash: KeyHash, id: KeyId) -> Self {
        Self {
            hash,
            id,
            expires: NEVER,
            credit: Credit::default(),
            sessions: SessionCount::default(),
            quota: None,
            is_used: false,
        }
    }

    pub(super) fn set_rules(&mut self, rules: KeyRules) {
        self.expires = rules.expires.unwrap_or(NEVER);
        // Keep the counts, even while there are no bounds: the key's peers are still there under the next ones.
        if rules.are_bounds() || self.quota.is_some() {
            self.quota.get_or_insert_default().rules = rules;
        }
    }

    /// Returns the key's quota, if it depends on the key's peers.
    #[inline]
    pub(super) fn peer_quota(&mut self) -> Option<&mut QuotaState> {
        self.quota.as_deref_mut().filter(|quota| quota.rules.bound_peers())
    }

    /// Checks that the key's peers may do what this one does. Peers may always stop.
    ///
    /// # Errors
    ///
    /// If the key may only seed, and the peer is no seeder.
    #[inline]
    pub(super) fn check_role(&self, event: Event, role: Role) -> Result<(), Refusal> {
        let may_only_seed = self.quota.as_deref().is_some_and(|quota| quota.rules.seed_only);
        if may_only_seed && role != Role::Seeder && event != Event::Stopped {
            return Err(Refusal::KeySeedOnly);
        }
        Ok(())
    }

    /// Counts a peer that is new, or whose prefix has changed, in its place in the quota.
    ///
    /// # Errors
    ///
    /// The bound that the peer would exceed.
    pub(super) fn enter_quota(
        &mut self,
        tag: SessionTag,
        place: QuotaPlace,
        sessions: &mut Sessions,
    ) -> Result<(), Refusal> {
        let Some(quota) = self.peer_quota() else { return Ok(()) };
        match sessions.place(tag) {
            Some(old) if old == place => return Ok(()),
            Some(old) => quota.change_address(old.address, place.address)?,
            None => quota.add_peer(tag, place)?,
        }
        sessions.set_place(tag, place);
        Ok(())
    }

    /// Removes a peer from the quota, if it counts there.
    pub(super) fn leave_quota(&mut self, tag: SessionTag, place: QuotaPlace) {
        if let Some(quota) = &mut self.quota {
            quota.remove_peer(tag, place);
        }
    }

    /// Ends and returns a session of the key, if it exists. `period_s` is the period of [`SessionCount`].
    pub(super) fn end_session(
        &mut self,
        now: Tick,
        period_s: u32,
        tag: SessionTag,
        sessions: &mut Sessions,
    ) -> Option<SessionRecord> {
        let ended = sessions.remove(tag)?;
        self.sessions.remove(now, period_s, ended.session.last.at);
        if let Some(place) = ended.place {
            self.leave_quota(tag, place);
        }
        Some(ended)
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
            let earlier = if are_over { 0 } else { self.recent };
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
            self.earlier = self.earlier.saturating_add(1);
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

    /// Compares the number with a plain list of sessions.
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
        }
        // Silent sessions are forgotten after two periods.
        count.advance(now.after(PERIOD_S), PERIOD_S);
        count.advance(now.after(2 * PERIOD_S), PERIOD_S);
        assert_eq!(count.len(), 0);
    }
}
