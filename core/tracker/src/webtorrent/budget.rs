//! The budget of a connection for its announces and the offers in them.
//!
//! A desktop client announces thousands of torrents on one connection, each with up to ten offers of a kilobyte.
//! Two things keep that within a rate of bytes: the connection's interval grows with its torrents, and offers above
//! the rate are not relayed. A client that obeys its interval loses offers only in its first one, when its torrents
//! come all at once.

use types::{Tick, limits};

/// The budget of a connection. An idle one is full.
#[derive(Debug, Default)]
pub struct OfferBudget {
    /// Bytes of relayed offers that the rate has not made up for yet.
    spent: u32,
    /// When `spent` was last reduced.
    since: Tick,
    /// The moving average of the bytes of an announce.
    announce_bytes: u32,
}

/// Bytes of an announce without offers, and of what an offer has besides its description.
const OVERHEAD: u32 = 250;
/// The part of what is left that one announce may use: the torrents of a connection that is over its budget share
/// what there is, instead of the first ones taking all. A full budget has room for the longest message.
const SHARE: u32 = 32;
/// Announces in the moving average.
const AVERAGED: i64 = 16;

const _: () = {
    let burst = limits::WEB_OFFER_BYTES_PER_S * limits::WEB_OFFER_BURST_S;
    let overhead = OVERHEAD as usize * limits::WEB_OFFERS_MAX;
    assert!((burst / SHARE) as usize >= limits::WS_MESSAGE_MAX + overhead);
};

impl OfferBudget {
    /// Records an announce. `offers` are the lengths of its offers.
    pub fn note_announce(&mut self, offers: impl Iterator<Item = usize>) {
        let bytes = offers.fold(OVERHEAD, |sum, len| sum.saturating_add(cost(len)));
        self.announce_bytes = match self.announce_bytes {
            0 => bytes,
            average => {
                let change = (i64::from(bytes) - i64::from(average)) / AVERAGED;
                average.saturating_add_signed(change as i32)
            }
        };
    }

    /// Returns the interval in seconds with which the announces of `torrents` make `bytes_per_s`, at most
    /// [`limits::WEB_INTERVAL_MAX_S`]; 0 if there is no such rate.
    pub fn interval_s(&self, bytes_per_s: u32, torrents: usize) -> u32 {
        let bytes = torrents as u64 * u64::from(self.announce_bytes);
        let interval_s = bytes.checked_div(bytes_per_s.into()).unwrap_or(0);
        interval_s.min(limits::WEB_INTERVAL_MAX_S.into()) as u32
    }

    /// Returns how many of an announce's offers may be relayed, and counts these. `offers` are the lengths of
    /// those that have a receiver, and `bytes_per_s` is the rate; 0 = unlimited.
    pub fn admit(
        &mut self,
        now: Tick,
        bytes_per_s: u32,
        mut offers: impl Iterator<Item = usize>,
    ) -> usize {
        if bytes_per_s == 0 {
            return offers.count();
        }
        let burst = bytes_per_s.saturating_mul(limits::WEB_OFFER_BURST_S);
        let earned = now.since(self.since).saturating_mul(bytes_per_s);
        (self.spent, self.since) = (self.spent.saturating_sub(earned), now);
        let share = burst.saturating_sub(self.spent) / SHARE;
        let (mut used, mut admitted) = (0, 0);
        while let Some(len) = offers.next()
            && used + cost(len) <= share
        {
            used += cost(len);
            admitted += 1;
        }
        self.spent += used;
        admitted
    }
}

/// Returns the bytes that an offer of this length counts as.
#[inline]
fn cost(len: usize) -> u32 {
    // Shorter than a message.
    OVERHEAD + len.min(limits::WS_MESSAGE_MAX) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = limits::WEB_OFFER_BYTES_PER_S;
    const BURST: u32 = RATE * limits::WEB_OFFER_BURST_S;

    /// Announces with ten offers of 750 bytes, and returns how many are admitted.
    fn announce(budget: &mut OfferBudget, now: u32) -> usize {
        budget.note_announce([750; 10].into_iter());
        budget.admit(Tick(now), RATE, [750; 10].into_iter())
    }

    #[test]
    fn browsers_and_small_clients_keep_interval_and_offers() {
        let mut budget = OfferBudget::default();
        // 700 torrents, announced at once every two minutes.
        for round in 0..10 {
            for torrent in 1..=700 {
                assert_eq!(announce(&mut budget, 120 * round), 10, "{round} {torrent}");
                assert!(budget.interval_s(RATE, torrent) <= 120);
            }
        }
    }

    #[test]
    fn the_longest_message_passes_at_once() {
        let mut budget = OfferBudget::default();
        let longest = [limits::WS_MESSAGE_MAX / 64; 64];
        assert_eq!(budget.admit(Tick(0), RATE, longest.into_iter()), 64);
    }

    #[test]
    fn intervals_make_the_rate_of_bytes() {
        let mut budget = OfferBudget::default();
        announce(&mut budget, 0);
        // An announce of 10,250 bytes.
        assert_eq!([1, 1000, 4000].map(|it| budget.interval_s(RATE, it)), [0, 156, 625]);
        assert_eq!(budget.interval_s(RATE, 100_000), limits::WEB_INTERVAL_MAX_S);
        assert_eq!(budget.interval_s(0, 100_000), 0);
        // Seeders' announces have few offers: the average follows.
        (0..200).for_each(|_| budget.note_announce([].into_iter()));
        assert!(budget.interval_s(RATE, 5000) < 25);
    }

    #[test]
    fn a_flood_gets_the_rate_and_its_torrents_share_it() {
        let mut budget = OfferBudget::default();
        // 5,000 torrents at once: no torrent takes all, and those behind the first get some.
        let first: Vec<usize> = (0..5000).map(|_| announce(&mut budget, 0)).collect();
        let relayed = |offers: &[usize]| offers.iter().sum::<usize>() as u32 * cost(750);
        assert!(relayed(&first) <= BURST && relayed(&first) > BURST / 10 * 9);
        assert_eq!(first[0], 10);
        assert!(first.iter().filter(|admitted| **admitted > 0).count() > 700);
        // From then on, 50 announces a second share the rate.
        let later: Vec<usize> =
            (1..=600).flat_map(|now| [now; 50]).map(|now| announce(&mut budget, now)).collect();
        let rate = relayed(&later) / 600;
        assert!(rate <= RATE && rate > RATE / 10 * 9, "{rate}");
        // An idle client earns no more than a burst.
        let again: Vec<usize> = (0..5000).map(|_| announce(&mut budget, 100_000)).collect();
        assert_eq!(again, first);
    }

    #[test]
    fn without_a_rate_all_offers_pass() {
        let mut budget = OfferBudget::default();
        for _ in 0..10_000 {
            assert_eq!(budget.admit(Tick(0), 0, [1 << 20; 64].into_iter()), 64);
        }
    }
}
