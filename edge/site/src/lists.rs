//! Lists of peers that each user gets: several windows at once, against those who collect peers.
//!
//! A window of `seconds` with `lists` permits that many at once, and then one each `seconds / lists`. A list that is not
//! given is not counted. Users are in shards, so a list takes one lock that it shares with few others.

use arrayvec::ArrayVec;
use hashbrown::HashMap;
use parking_lot::Mutex;
use types::{Role, Tick, limits::SITE_LIST_WINDOWS_MAX};

const SHARDS: usize = 64;
/// Parts of a second in which times are kept.
const PARTS: u32 = 4;
/// Users of a shard from which on those are forgotten who are far below their limits.
const SWEPT_FROM: usize = 256;

/// A window of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListWindow {
    /// Its length, seconds.
    pub seconds: u32,
    /// Lists that a user gets within it.
    pub lists: u32,
}

/// The windows of a kind of list, all of which hold. Empty = unlimited.
pub type ListWindows = ArrayVec<ListWindow, SITE_LIST_WINDOWS_MAX>;

/// The times at which a user's windows are empty, in parts of seconds.
type EmptyAt = [u32; SITE_LIST_WINDOWS_MAX];

pub(crate) struct Lists {
    seeds: ListWindows,
    leeches: ListWindows,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    users: HashMap<User, EmptyAt>,
    swept_at: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct User {
    id: u32,
    seeds: bool,
}

impl Lists {
    /// Returns limits of lists that have seeders, which leechers get, and of lists of leechers only.
    pub(crate) fn new(seeds: ListWindows, leeches: ListWindows) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { seeds, leeches, shards }
    }

    /// Counts a list for a user's client. Returns false if the user has had too many.
    pub(crate) fn take(&self, now: Tick, user: u32, role: Role) -> bool {
        let seeds = role == Role::Leecher;
        let windows = if seeds { &self.seeds } else { &self.leeches };
        if windows.is_empty() {
            return true;
        }
        let now = now.0.saturating_mul(PARTS);
        let mut shard = self.shards[user as usize % SHARDS].lock();
        shard.sweep(now);
        let empty_at = shard.users.entry(User { id: user, seeds }).or_default();
        let mut next = *empty_at;
        for (window, at) in windows.iter().zip(&mut next) {
            *at = (*at).max(now).saturating_add(window.step());
            if *at - now > window.seconds.saturating_mul(PARTS) {
                return false;
            }
        }
        *empty_at = next;
        true
    }
}

impl ListWindow {
    /// Returns the time after which one more list is permitted, in parts of a second.
    fn step(self) -> u32 {
        let step = u64::from(self.seconds) * u64::from(PARTS) / u64::from(self.lists.max(1));
        u32::try_from(step).unwrap_or(u32::MAX).max(1)
    }
}

impl Shard {
    /// Forgets users whose windows are empty, each time that their number has doubled.
    fn sweep(&mut self, now: u32) {
        if self.users.len() >= self.swept_at.max(SWEPT_FROM) {
            self.users.retain(|_, empty_at| empty_at.iter().any(|at| *at > now));
            self.swept_at = self.users.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(list: &[(u32, u32)]) -> ListWindows {
        list.iter()
            .map(|(seconds, lists)| ListWindow { seconds: *seconds, lists: *lists })
            .collect()
    }

    #[test]
    fn all_windows_hold_and_kinds_are_apart() {
        let lists = Lists::new(windows(&[(60, 10), (900, 25)]), windows(&[(60, 2)]));
        let take = |at_s, role| lists.take(Tick(at_s), 7, role);
        let taken = |at_s| (0..50).filter(|_| take(at_s, Role::Leecher)).count();
        assert_eq!(taken(100), 10, "of the first window");
        assert_eq!(taken(105), 0);
        assert_eq!(taken(106), 1, "one each six seconds");
        assert_eq!(taken(166), 10);
        assert_eq!(taken(300), 9, "4 that the second window has left, and one for each 36 s since");
        assert_eq!((0..5).filter(|_| take(300, Role::Seeder)).count(), 2);
        assert!(lists.take(Tick(300), 8, Role::Leecher), "another user");
        assert!(Lists::new(windows(&[]), windows(&[])).take(Tick(0), 7, Role::Seeder));
    }

    #[test]
    fn over_two_weeks_a_user_gets_what_the_windows_permit() {
        let rates = [(60, 10), (900, 25), (7_200, 125), (86_400, 500), (604_800, 2_500)];
        let lists = Lists::new(windows(&rates), windows(&[]));
        let taken =
            (0..604_800 * 2).filter(|at_s| lists.take(Tick(*at_s), 1, Role::Leecher)).count();
        // 2,500 at once, as far as shorter windows permit, and as many a week; times are rounded in favour of users.
        assert!((7_400..=7_510).contains(&taken), "{taken}");
    }

    #[test]
    fn users_who_need_no_memory_are_forgotten() {
        let lists = Lists::new(windows(&[(60, 10)]), windows(&[]));
        let known = || lists.shards.iter().map(|shard| shard.lock().users.len()).sum::<usize>();
        for user in 0..100_000 {
            assert!(lists.take(Tick(user / 100), user, Role::Leecher));
        }
        assert!(known() < 40_000, "{}", known());
    }
}
