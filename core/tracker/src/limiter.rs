//! How much clients may ask for, and how many connections they may hold: counted by prefix, because
//! whoever has one address of an IPv6 network has all of them.
//!
//! What is counted is counted under an address that was shown to be the client's: by a connection id
//! over UDP, by the handshake over TCP. UDP connects alone come before that. Their source may be
//! forged, so they have a table of their own: a forged flood can use up the connects of those whose
//! addresses it forges, and nothing else. Who has a connection id goes on with it; packets with a
//! bad one are dropped uncounted.
//!
//! Ticks are whole seconds: a prefix over its limit gets a second's worth at the beginning of each
//! second.

mod buckets;
mod seats;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use swarm::siphash::siphash;
use types::{Tick, limits};

use crate::Networks;
use buckets::{BURST_MAX, Buckets};
use seats::Seats;

pub use buckets::Rate;
pub use seats::Seat;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A UDP connection id: the only request whose source is not verified.
    Connect,
    /// An announce; over UDP also whatever a verified client sends that is none of these.
    Announce,
    /// A scrape.
    Scrape,
    /// A WebSocket: not counted as a request, but as a connection.
    Socket,
}

/// What clients of one prefix may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// UDP connects.
    pub connects: Rate,
    /// Announces, over all protocols together.
    pub announces: Rate,
    /// Scrapes, over all protocols together.
    pub scrapes: Rate,
    /// TCP connections held at a time; 0 is no limit.
    pub connections: u32,
    /// Bits of an IPv4 address that make a prefix.
    pub prefix_v4: u8,
    /// Bits of an IPv6 address that make a prefix.
    pub prefix_v6: u8,
    /// Prefixes whose requests are remembered, for each of the rates; 8 bytes each. At least so many
    /// are: the number is rounded up to a power of two.
    pub buckets: u32,
    /// Networks for which none of this holds.
    pub exempt: Networks,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connects: Rate::default(),
            announces: Rate::default(),
            scrapes: Rate::default(),
            connections: 0,
            prefix_v4: 32,
            prefix_v6: 64,
            buckets: 1 << 17,
            exempt: Networks::default(),
        }
    }
}

/// What a rate's table has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The rate's name in metrics.
    pub label: &'static str,
    /// Buckets of prefixes that have asked for something of late.
    pub in_use: usize,
    /// All buckets.
    pub buckets: usize,
}

/// The limits in force, and what was counted for them.
pub struct Limiter {
    key: [u8; 16],
    current: ArcSwap<InForce>,
    seats: Arc<Seats>,
}

struct InForce {
    limits: Limits,
    /// In the order of [`Asked`].
    meters: [Option<Meter>; METERS],
}

const METERS: usize = 3;
const LABELS: [&str; METERS] = ["connect", "announce", "scrape"];

#[derive(Clone)]
struct Meter {
    rate: Rate,
    buckets: Arc<Buckets>,
}

impl Limiter {
    /// No limits. `key` keeps others from knowing which prefixes share a bucket.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let in_force = InForce { limits: Limits::default(), meters: [const { None }; METERS] };
        Self { key, current: ArcSwap::from_pointee(in_force), seats: Arc::new(Seats::new()) }
    }

    /// Puts other limits in force, for every worker from its next request on. What was counted is
    /// kept, unless the number of buckets changes. Connections that came while there was no limit of
    /// them are never counted.
    pub fn replace(&self, limits: Limits) {
        let old = self.current.load();
        let rates = [limits.connects, limits.announces, limits.scrapes];
        let mut rates = rates.into_iter().zip(&old.meters);
        let meters = std::array::from_fn(|_| {
            let (rate, old) = rates.next()?;
            (rate.per_s > 0).then(|| Meter::new(rate, limits.buckets, old.as_ref()))
        });
        self.current.store(Arc::new(InForce { limits, meters }));
    }

    /// Counts a request of `from`, unless its prefix is over the limit.
    #[inline]
    pub(crate) fn admits(&self, now: Tick, from: IpAddr, asked: Asked) -> bool {
        let current = self.current.load();
        let Some(Some(meter)) = current.meters.get(asked as usize) else { return true };
        let name = self.name(&current.limits, from);
        // Few are exempt, and few are over the limit: who is both is looked for last.
        meter.buckets.take(name, now, meter.rate) || current.limits.exempt.contains(from)
    }

    /// Lets `from` hold one more connection, over TCP of whatever kind and at whichever worker, unless
    /// its prefix holds as many as it may.
    pub fn seat(&self, from: IpAddr) -> Option<Seat> {
        let current = self.current.load();
        let limits = &current.limits;
        if limits.connections == 0 || limits.exempt.contains(from) {
            return Some(Seat::free());
        }
        self.seats.take(self.name(limits, from), limits.connections)
    }

    /// Whether [`Limiter::seat`] would let it, now.
    pub fn has_seat(&self, from: IpAddr) -> bool {
        let current = self.current.load();
        let limits = &current.limits;
        limits.connections == 0
            || limits.exempt.contains(from)
            || self.seats.has_room(self.name(limits, from), limits.connections)
    }

    /// The tables of the rates in force. Looks at every bucket: for once in some seconds.
    pub fn fills(&self, now: Tick) -> Vec<Fill> {
        let current = self.current.load();
        let meters = current.meters.iter().zip(LABELS);
        let fill = |(meter, label): (&Option<Meter>, _)| {
            let Meter { rate, buckets } = meter.as_ref()?;
            Some(Fill { label, in_use: buckets.in_use(now, rate.per_s), buckets: buckets.len() })
        };
        meters.filter_map(fill).collect()
    }

    /// Stands for a prefix: a keyed hash. Families differ in length, so they cannot collide.
    #[inline]
    fn name(&self, limits: &Limits, ip: IpAddr) -> u64 {
        match ip.to_canonical() {
            IpAddr::V4(ip) => {
                let host_bits = 32_u32.saturating_sub(limits.prefix_v4.into());
                let kept = ip.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0);
                siphash::<1, 3>(&self.key, &kept.to_le_bytes())
            }
            IpAddr::V6(ip) => {
                let host_bits = 128_u32.saturating_sub(limits.prefix_v6.into());
                let kept = ip.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0);
                siphash::<1, 3>(&self.key, &kept.to_le_bytes())
            }
        }
    }
}

impl Meter {
    /// Goes on with the buckets of `old` if their number is right.
    fn new(rate: Rate, buckets: u32, old: Option<&Self>) -> Self {
        let burst = rate.burst.max(rate.per_s).min(BURST_MAX);
        let buckets = buckets.clamp(1, limits::BUCKETS_MAX);
        let is_right = |old: &&Self| old.buckets.len() == Buckets::rounded(buckets);
        let buckets = match old.filter(is_right) {
            Some(old) => Arc::clone(&old.buckets),
            None => Arc::new(Buckets::new(buckets)),
        };
        Self { rate: Rate { burst, ..rate }, buckets }
    }
}
