//! Automatic bans.
//!
//! A network that commits more offences of one kind in a minute than the rules allow is banned. Offences
//! are counted in tables of fixed size ([`Buckets`]), which forget the networks with the fewest first.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use primitives::IpPrefix;
use primitives::siphash::siphash_ip;
use types::{Tick, labelled};

use crate::limiter::{Buckets, Rate};

labelled! {
    /// Why a network was banned.
    pub enum BanReason {
        /// It sent something that is not a request of the protocol, over TCP, or over UDP with a
        /// connection id that was issued to it. The address is verified.
        Malformed = "malformed",
        /// It sent keys that do not exist. The address is verified.
        WrongKeys = "wrong_keys",
    }
}

/// Offences that a network may commit in a minute before it is banned; 0 = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanRules {
    /// [`BanReason::Malformed`].
    pub malformed_per_min: u32,
    /// [`BanReason::WrongKeys`].
    pub wrong_keys_per_min: u32,
    /// Duration of a ban, seconds.
    pub time_s: u32,
}

/// Counts offences by network and reason.
pub(super) struct OffenceCounters {
    key: [u8; 16],
    /// In the order of [`BanReason`].
    counters: [OffenceCounter; BanReason::ALL.len()],
    time_s: AtomicU32,
}

#[derive(Default)]
struct OffenceCounter {
    /// 0 = unlimited.
    per_min: AtomicU32,
    /// Allocated with the first rule.
    buckets: OnceLock<Buckets>,
}

/// Networks remembered for each reason: half a megabyte.
const BUCKETS: u32 = 1 << 16;

impl OffenceCounters {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self { key, counters: Default::default(), time_s: AtomicU32::default() }
    }

    pub(super) fn set_rules(&self, rules: BanRules) {
        let BanRules { malformed_per_min, wrong_keys_per_min, time_s } = rules;
        let rates = [malformed_per_min, wrong_keys_per_min];
        self.time_s.store(time_s, Relaxed);
        for (counter, per_min) in self.counters.iter().zip(rates) {
            if per_min > 0 {
                counter.buckets.get_or_init(|| Buckets::new(BUCKETS));
            }
            counter.per_min.store(per_min.min(Buckets::BURST_MAX), Relaxed);
        }
    }

    /// Returns whether there is a rule for `reason`.
    #[inline]
    pub(super) fn is_enabled(&self, reason: BanReason) -> bool {
        self.counters[reason.index()].per_min.load(Relaxed) > 0
    }

    /// Counts an offence. Returns the seconds to ban the network for, if it is one too many.
    pub(super) fn note(&self, now: Tick, network: IpPrefix, reason: BanReason) -> Option<u32> {
        let counter = &self.counters[reason.index()];
        let per_min = counter.per_min.load(Relaxed);
        let buckets = counter.buckets.get().filter(|_| per_min > 0)?;
        // A bucket counts by the second; passing minutes as seconds makes it count by the minute.
        let (minute, rate) = (Tick(now.0 / 60), Rate { per_s: per_min, burst: per_min });
        let is_within =
            buckets.take(siphash_ip::<1, 3>(&self.key, network.address()), minute, rate);
        (!is_within).then(|| self.time_s.load(Relaxed))
    }
}
