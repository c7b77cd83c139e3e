//! For what networks are banned without anybody's doing.
//!
//! A network that does something bad more often than it may in a minute is banned. What was counted is
//! in tables of fixed size ([`Buckets`]), which forget those first who have done the least.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use primitives::IpPrefix;
use primitives::siphash::siphash_ip;
use types::Tick;

use crate::limiter::{Buckets, Rate};

/// Why a network was banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanReason {
    /// What it sent was no request of the protocol: over TCP, or over UDP with a connection id that
    /// was issued to it. The address is no forgery.
    Garbage,
    /// It asked with keys that are not known here. The address is no forgery.
    WrongKeys,
    /// UDP packets that are no requests, or have connection ids that were not issued to it. Anybody can
    /// send them in the name of anybody else.
    BadConnectionIds,
}

/// How often a network may do something bad in a minute before it is banned; 0 is as often as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanRules {
    /// [`BanReason::Garbage`].
    pub malformed_per_min: u32,
    /// [`BanReason::WrongKeys`].
    pub wrong_keys_per_min: u32,
    /// [`BanReason::BadConnectionIds`].
    pub bad_connection_ids_per_min: u32,
    /// Seconds for which it is banned.
    pub time_s: u32,
}

/// What was counted.
pub(super) struct OffenceCounters {
    key: [u8; 16],
    /// In the order of [`BanReason`].
    meters: [Meter; BanReason::ALL.len()],
    time_s: AtomicU32,
}

#[derive(Default)]
struct Meter {
    /// 0 is none.
    per_min: AtomicU32,
    /// Made when there is a rule for the first time.
    buckets: OnceLock<Buckets>,
}

/// Networks remembered for each reason: half a megabyte.
const BUCKETS: u32 = 1 << 16;

impl BanReason {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Garbage, Self::WrongKeys, Self::BadConnectionIds];

    /// The name in metrics, records and events.
    pub fn label(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::WrongKeys => "wrong_keys",
            Self::BadConnectionIds => "bad_connection_ids",
        }
    }
}

impl OffenceCounters {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self { key, meters: Default::default(), time_s: AtomicU32::default() }
    }

    pub(super) fn set_rules(&self, rules: BanRules) {
        let BanRules { malformed_per_min, wrong_keys_per_min, bad_connection_ids_per_min, time_s } =
            rules;
        let rates = [malformed_per_min, wrong_keys_per_min, bad_connection_ids_per_min];
        self.time_s.store(time_s, Relaxed);
        for (meter, per_min) in self.meters.iter().zip(rates) {
            if per_min > 0 {
                meter.buckets.get_or_init(|| Buckets::new(BUCKETS));
            }
            meter.per_min.store(per_min.min(Buckets::BURST_MAX), Relaxed);
        }
    }

    #[inline]
    pub(super) fn is_enabled(&self, reason: BanReason) -> bool {
        self.meters[reason as usize].per_min.load(Relaxed) > 0
    }

    /// Counts; gives for how many seconds the network is to be banned if it is.
    pub(super) fn note(&self, now: Tick, network: IpPrefix, reason: BanReason) -> Option<u32> {
        let meter = &self.meters[reason as usize];
        let per_min = meter.per_min.load(Relaxed);
        let buckets = meter.buckets.get().filter(|_| per_min > 0)?;
        let name = siphash_ip::<1, 3>(&self.key, network.address());
        // The buckets' second is a minute here.
        let rate = Rate { per_s: per_min, burst: per_min };
        (!buckets.take(name, Tick(now.0 / 60), rate)).then(|| self.time_s.load(Relaxed))
    }
}
