//! Clients: what they announce, and what should be known of them.

use primitives::Random;
use swarm::{Action, StoreAnnounce};
use types::{Families, InfoHash, PeerKey, Role};

use crate::{Peer, Times};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not announced, or has stopped.
    Stopped,
    /// It ended without a word.
    Vanished,
    Here(Role),
}

/// A client of one torrent.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Peer,
    pub(crate) state: State,
    pub(crate) last_ms: u64,
    pub(crate) next_ms: u64,
    /// The slot that it announces at, mostly; and the last one.
    home: usize,
    /// Longest time between most of its announces, seconds.
    pause_s: u32,
    /// Longest time between any two of its announces, seconds.
    interval_s: u32,
    pub(crate) at: usize,
    /// When it last announced at another node than before, or after it had stopped, soon after.
    pub(crate) switched_ms: Option<u64>,
    /// Time between that announce and the one before it, milliseconds.
    pub(crate) gap_ms: u64,
}

impl Client {
    pub(crate) fn new(
        number: u32,
        torrents: u32,
        (slots, pause_s, times): (usize, u32, Times),
        random: &mut Random,
    ) -> Self {
        let [_, b, c, d] = number.to_be_bytes();
        let home = random.below(slots as u32) as usize;
        let key = if number % 4 == 3 {
            PeerKey::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, b, c, d, 1, 1])
        } else {
            PeerKey::V4([10, b, c, d, 1, 1])
        };
        Self {
            peer: (InfoHash([random.below(torrents) as u8; 20]), key),
            state: State::Stopped,
            last_ms: 0,
            next_ms: u64::from(random.below(20_000)),
            home,
            pause_s,
            interval_s: times.interval_s,
            at: home,
            switched_ms: None,
            gap_ms: 0,
        }
    }

    /// Chooses the slot that it announces at next, of those for which `serves`.
    pub(crate) fn choose(
        &self,
        slots: usize,
        random: &mut Random,
        serves: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        if serves(self.home) && random.below(100) < 85 {
            return Some(self.home);
        }
        let from = random.below(slots as u32) as usize;
        (from..from + slots).map(|at| at % slots).find(|at| serves(*at))
    }

    /// Returns what it announces next; `None` if it vanishes instead.
    pub(crate) fn act(
        &mut self,
        now_ms: u64,
        at: usize,
        random: &mut Random,
    ) -> Option<StoreAnnounce> {
        let update = |completed| Action::Update { completed };
        let dice = random.below(100);
        let (state, action) = match self.state {
            State::Stopped | State::Vanished => {
                let role = if dice < 30 { Role::Seeder } else { Role::Leecher };
                (State::Here(role), update(false))
            }
            State::Here(Role::Leecher) if dice < 20 => (State::Here(Role::Seeder), update(true)),
            State::Here(Role::Leecher) if dice < 24 => {
                (State::Here(Role::PartialSeed), update(false))
            }
            State::Here(_) if (24..38).contains(&dice) => (State::Stopped, Action::Stop),
            State::Here(_) if (38..43).contains(&dice) => {
                self.state = State::Vanished;
                self.next_ms = now_ms + 30_000 + u64::from(random.below(120_000));
                return None;
            }
            state => (state, update(false)),
        };
        let role = match (state, self.state) {
            (State::Here(role), _) | (_, State::Here(role)) => role,
            _ => Role::Leecher,
        };
        // A stop and a start within a unit have the same mark.
        let is_back = self.state == State::Stopped && self.last_ms > 0;
        if (at != self.at || is_back) && now_ms < self.last_ms + 60_000 {
            self.switched_ms = Some(now_ms);
            self.gap_ms = now_ms - self.last_ms;
        }
        (self.state, self.last_ms, self.at) = (state, now_ms, at);
        let most_s = if dice.is_multiple_of(3) { self.interval_s } else { self.pause_s };
        self.next_ms = now_ms + 2000 + u64::from(random.below(most_s * 1000 - 2000));
        Some(StoreAnnounce {
            action,
            want: 5,
            families: Families::Both,
            ..StoreAnnounce::update(self.peer.0, self.peer.1, role)
        })
    }
}
