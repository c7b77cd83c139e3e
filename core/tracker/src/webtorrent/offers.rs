//! The offers that a connection got and may answer.

use types::{ConnectionKey, Tick, limits};

use super::{OfferNetwork, OfferTag};

/// The offers that a connection got and may answer, oldest first.
#[derive(Debug, Default)]
pub struct Offers(Vec<Outstanding>);

#[derive(Debug)]
struct Outstanding {
    tag: OfferTag,
    from: ConnectionKey,
    network: OfferNetwork,
    until: Tick,
}

/// A network, and how many of the outstanding offers are its own.
struct Sender {
    network: OfferNetwork,
    offers: usize,
}

/// Offers that remain when one too many has come: an eighth makes room at a time, so that the search for the
/// heaviest senders is rare.
const KEPT: usize = limits::OFFERS_OUTSTANDING_MAX / 8 * 7;

impl Offers {
    /// Remembers an offer of `from`. If there are [`limits::OFFERS_OUTSTANDING_MAX`], forgets the oldest ones
    /// of the networks that have sent the most.
    pub fn remember(
        &mut self,
        now: Tick,
        tag: OfferTag,
        from: ConnectionKey,
        network: OfferNetwork,
    ) {
        if self.0.len() >= limits::OFFERS_OUTSTANDING_MAX {
            self.make_room(now);
        }
        let until = now.after(limits::OFFER_LIFETIME_S);
        self.0.push(Outstanding { tag, from, network, until });
    }

    /// Removes an offer, and returns its sender if the offer has not expired. So only the first answer is
    /// relayed.
    pub fn take(&mut self, now: Tick, tag: OfferTag) -> Option<ConnectionKey> {
        let at = self.0.iter().position(|offer| offer.tag == tag)?;
        let offer = self.0.remove(at);
        (now <= offer.until).then_some(offer.from)
    }

    /// Forgets expired offers, and frees the memory when none is left.
    pub fn expire(&mut self, now: Tick) {
        let expired = self.0.iter().take_while(|offer| now > offer.until).count();
        self.0.drain(..expired);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// Forgets expired offers. If more than [`KEPT`] remain, levels the networks: each keeps its newest offers,
    /// up to the same number.
    #[cold]
    fn make_room(&mut self, now: Tick) {
        self.expire(now);
        // 1. Count the offers of each network.
        let mut networks: Vec<OfferNetwork> = self.0.iter().map(|offer| offer.network).collect();
        networks.sort_unstable();
        let runs = networks.chunk_by(|one, next| one == next);
        let sender = |run: &[OfferNetwork]| {
            run.first().map(|network| Sender { network: *network, offers: run.len() })
        };
        let mut senders: Vec<Sender> = runs.filter_map(sender).collect();
        // 2. Forget the oldest offers of those above the level.
        let level = level(&senders).max(1);
        self.0.retain(|offer| {
            let at = senders.binary_search_by_key(&offer.network, |sender| sender.network);
            let sender = at.ok().and_then(|at| senders.get_mut(at));
            let above = sender.filter(|sender| sender.offers > level);
            above.is_none_or(|sender| {
                sender.offers -= 1;
                false
            })
        });
        // 3. With more networks than offers may remain, the oldest offers go.
        let excess = self.0.len().saturating_sub(KEPT);
        self.0.drain(..excess);
    }
}

/// Returns the largest number of offers that every network may keep if [`KEPT`] are to remain in all.
fn level(senders: &[Sender]) -> usize {
    let mut counts: Vec<usize> = senders.iter().map(|sender| sender.offers).collect();
    counts.sort_unstable();
    let mut room = KEPT;
    for (at, count) in counts.iter().enumerate() {
        let share = room / (counts.len() - at);
        if *count > share {
            return share;
        }
        room -= count;
    }
    KEPT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use primitives::Random;

    use super::*;

    const MAX: usize = limits::OFFERS_OUTSTANDING_MAX;

    /// Remembers an offer, whose tag is its sender's number.
    fn remember(offers: &mut Offers, now: u32, number: u64, network: u32) {
        let (tag, from) = (OfferTag(number), ConnectionKey(number));
        offers.remember(Tick(now), tag, from, OfferNetwork(network));
    }

    /// A list that is levelled as the rule says, one level after the other.
    #[derive(Default)]
    struct Twin(Vec<TwinOffer>);

    #[derive(Clone, Copy)]
    struct TwinOffer {
        number: u64,
        network: u32,
        until: u32,
    }

    impl Twin {
        fn remember(&mut self, now: u32, number: u64, network: u32) {
            if self.0.len() == MAX {
                self.0.retain(|offer| now <= offer.until);
                let counts = self.counts();
                let kept = |level: &usize| counts.values().map(|count| *count.min(level)).sum();
                let most = counts.values().copied().max().unwrap_or(1);
                let level = (1..=most).rev().find(|level| KEPT >= kept(level));
                self.keep_newest(level.unwrap_or(1));
                while self.0.len() > KEPT {
                    self.0.remove(0);
                }
            }
            self.0.push(TwinOffer { number, network, until: now + limits::OFFER_LIFETIME_S });
        }

        fn counts(&self) -> BTreeMap<u32, usize> {
            let mut counts = BTreeMap::new();
            self.0.iter().for_each(|offer| *counts.entry(offer.network).or_default() += 1);
            counts
        }

        /// Keeps the newest offers of each network, up to a number.
        fn keep_newest(&mut self, level: usize) {
            let mut counts = self.counts();
            self.0.retain(|offer| {
                let count = counts.entry(offer.network).or_default();
                *count -= 1;
                *count < level
            });
        }

        fn take(&mut self, now: u32, number: u64) -> Option<u64> {
            let at = self.0.iter().position(|offer| offer.number == number)?;
            let offer = self.0.remove(at);
            (now <= offer.until).then_some(number)
        }
    }

    #[test]
    fn offers_behave_like_their_naive_twin() {
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let (mut offers, mut twin) = (Offers::default(), Twin::default());
            // From one network to more than there may be offers; time stands still, or passes.
            let networks = 1 << (seed % 12);
            let (mut now, mut number) = (0, 0);
            for _ in 0..3 * MAX {
                match random.below(16) {
                    0 => {
                        let asked = number - u64::from(random.below(MAX as u32)).min(number);
                        let taken = offers.take(Tick(now), OfferTag(asked));
                        assert_eq!(taken.map(|from| from.0), twin.take(now, asked));
                    }
                    1 if seed % 2 == 1 => {
                        now += random.below(2);
                        offers.expire(Tick(now));
                        twin.0.retain(|offer| now <= offer.until);
                    }
                    _ => {
                        // Half of them from one network.
                        let network = random.below(2) * random.below(networks);
                        remember(&mut offers, now, number, network);
                        twin.remember(now, number, network);
                        number += 1;
                    }
                }
                assert_eq!(offers.0.len(), twin.0.len());
            }
            let numbers: Vec<u64> = offers.0.iter().map(|offer| offer.tag.0).collect();
            let expected: Vec<u64> = twin.0.iter().map(|offer| offer.number).collect();
            assert_eq!(numbers, expected, "{seed}");
            offers.expire(Tick(now + 1 + limits::OFFER_LIFETIME_S));
            assert_eq!((offers.0.len(), offers.0.capacity()), (0, 0));
        }
    }
}
