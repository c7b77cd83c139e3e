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
mod connections;
mod heavy_hitters;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use primitives::IpPrefix;
use primitives::siphash::siphash_ip;
use types::{Tick, limits};

use crate::{Networks, RequestKind};
use connections::ConnectionLimiter;

pub(crate) use buckets::Buckets;
pub use buckets::Rate;
pub use connections::ConnectionPermit;
pub use heavy_hitters::HeavyHitters;

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
    /// Requests refused in a second, over UDP and by one worker, above which a prefix is shut out; 0
    /// is never.
    pub kernel_block_per_s: u32,
    /// Seconds for which it is shut out.
    pub kernel_block_s: u32,
    /// Bits of an IPv4 address that make a prefix.
    pub prefix_v4: u8,
    /// Bits of an IPv6 address that make a prefix.
    pub prefix_v6: u8,
    /// Prefixes whose requests are remembered, for each of the rates; 8 bytes each. At least so many
    /// are: the number is rounded up to a power of two. For good, once there is a rate.
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
            kernel_block_per_s: 10_000,
            kernel_block_s: 10,
            prefix_v4: 32,
            prefix_v6: 64,
            buckets: 1 << 16,
            exempt: Networks::default(),
        }
    }
}

/// What a rate's table has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUsage {
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
    /// In the order of `LIMITED`.
    meters: [Meter; LIMITED.len()],
    /// Bits that make a prefix.
    prefix_v4: AtomicU8,
    prefix_v6: AtomicU8,
    connections: AtomicU32,
    kernel_block_per_s: AtomicU32,
    kernel_block_s: AtomicU32,
    exempt: ArcSwap<Networks>,
    permits: Arc<ConnectionLimiter>,
}

/// The kinds of requests with a rate, which are the first in [`RequestKind::ALL`].
const LIMITED: [RequestKind; 3] =
    [RequestKind::Connect, RequestKind::Announce, RequestKind::Scrape];

const _: () =
    assert!(LIMITED[0] as usize == 0 && LIMITED[1] as usize == 1 && LIMITED[2] as usize == 2);

/// A rate, and who has asked. What is asked for with every request is a few words, each of which is
/// replaced by itself: during a reload a request may meet the old of one and the new of another.
#[derive(Default)]
struct Meter {
    /// The burst in the upper half; 0 is no limit.
    rate: AtomicU64,
    /// Made when there is a limit for the first time.
    buckets: OnceLock<Buckets>,
}

impl Limiter {
    /// No limits. `key` keeps others from knowing which prefixes share a bucket.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        let limiter = Self {
            key,
            meters: Default::default(),
            prefix_v4: AtomicU8::default(),
            prefix_v6: AtomicU8::default(),
            connections: AtomicU32::default(),
            kernel_block_per_s: AtomicU32::default(),
            kernel_block_s: AtomicU32::default(),
            exempt: ArcSwap::default(),
            permits: Arc::new(ConnectionLimiter::new()),
        };
        limiter.replace(Limits::default());
        limiter
    }

    /// Puts other limits in force, for every worker from its next request on. What was counted is
    /// kept, and the number of buckets stays what it was when there was a limit for the first time.
    /// Connections that came while there was no limit of them are never counted.
    pub fn replace(&self, limits: Limits) {
        let rates = [limits.connects, limits.announces, limits.scrapes];
        for (meter, rate) in self.meters.iter().zip(rates) {
            meter.set(rate, limits.buckets);
        }
        self.prefix_v4.store(limits.prefix_v4, Relaxed);
        self.prefix_v6.store(limits.prefix_v6, Relaxed);
        self.connections.store(limits.connections, Relaxed);
        self.kernel_block_per_s.store(limits.kernel_block_per_s, Relaxed);
        self.kernel_block_s.store(limits.kernel_block_s, Relaxed);
        self.exempt.store(Arc::new(limits.exempt));
    }

    /// Notes a request that [`crate::View::authorize`] refused as one too many. Gives whether that makes
    /// its prefix one to shut out.
    pub(crate) fn note(&self, heavy_hitters: &mut HeavyHitters, now: Tick, from: IpAddr) -> bool {
        let max = self.kernel_block_per_s.load(Relaxed);
        let time_s = self.kernel_block_s.load(Relaxed);
        max > 0 && heavy_hitters.refused(now, self.prefix(from), max, time_s)
    }

    /// The prefix that `ip` is counted in.
    #[inline]
    pub fn prefix(&self, ip: IpAddr) -> IpPrefix {
        match ip.to_canonical() {
            IpAddr::V4(ip) => IpPrefix::v4(ip, self.prefix_v4.load(Relaxed)),
            IpAddr::V6(ip) => IpPrefix::v6(ip, self.prefix_v6.load(Relaxed)),
        }
    }

    /// Counts a request of `from`. Returns false, and counts nothing, if its prefix is over the limit;
    /// the caller looks up exemptions.
    #[inline]
    pub(crate) fn take(&self, now: Tick, from: IpAddr, kind: RequestKind) -> bool {
        let limit = self.meters.get(kind.index()).and_then(Meter::limit);
        limit.is_none_or(|(rate, buckets)| buckets.take(self.name(from), now, rate))
    }

    /// Returns the networks for which no limit holds.
    pub(crate) fn exempt(&self) -> Guard<Arc<Networks>> {
        self.exempt.load()
    }

    /// Lets `from` hold one more connection, over TCP of whatever kind and at whichever worker, unless
    /// its prefix holds as many as it may.
    pub fn permit(&self, from: IpAddr) -> Option<ConnectionPermit> {
        match self.connections_of(from) {
            Some(max) => self.permits.take(self.name(from), max),
            None => Some(ConnectionPermit::free()),
        }
    }

    /// Whether [`Limiter::permit`] would let it, now.
    pub fn has_free_permit(&self, from: IpAddr) -> bool {
        self.connections_of(from).is_none_or(|max| self.permits.has_room(self.name(from), max))
    }

    /// The tables of the rates in force. Looks at every bucket: for once in some seconds.
    pub fn table_usages(&self, now: Tick) -> Vec<TableUsage> {
        let fill = |(meter, kind): (&Meter, RequestKind)| {
            let (rate, buckets) = meter.limit()?;
            Some(TableUsage {
                label: kind.label(),
                in_use: buckets.in_use(now, rate.per_s),
                buckets: buckets.len(),
            })
        };
        self.meters.iter().zip(LIMITED).filter_map(fill).collect()
    }

    /// How many connections the prefix of `from` may hold, if there is a limit.
    fn connections_of(&self, from: IpAddr) -> Option<u32> {
        let max = self.connections.load(Relaxed);
        (max > 0 && !self.exempt.load().contains(from)).then_some(max)
    }

    /// Stands for a prefix: a keyed hash.
    #[inline]
    fn name(&self, ip: IpAddr) -> u64 {
        siphash_ip::<1, 3>(&self.key, self.prefix(ip).address())
    }
}

impl Meter {
    fn set(&self, rate: Rate, buckets: u32) {
        let mut word = 0;
        if rate.per_s > 0 {
            let burst = rate.burst.max(rate.per_s).min(Buckets::BURST_MAX);
            word = u64::from(burst) << 32 | u64::from(rate.per_s);
            self.buckets.get_or_init(|| Buckets::new(buckets.clamp(1, limits::BUCKETS_MAX)));
        }
        self.rate.store(word, Relaxed);
    }

    #[inline]
    fn limit(&self) -> Option<(Rate, &Buckets)> {
        let word = self.rate.load(Relaxed);
        if word == 0 {
            return None;
        }
        let rate = Rate { per_s: word as u32, burst: (word >> 32) as u32 };
        self.buckets.get().map(|buckets| (rate, buckets))
    }
}
