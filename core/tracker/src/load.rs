//! Load that bends: intervals that grow with load, and budgets per service.
//!
//! [`Controller`] decides a few times a minute, from what was measured since the last time; [`Pacing`] is its
//! decision, which [`Tracker::pace`] puts in force. Requests over a budget are found by the gates, with each announce
//! of a service that has a budget. Time and measurements are arguments.

mod controller;
mod demand;
mod gate;
mod longest;

use types::{Announce, Event, Family, Refusal, SwarmCounts, labelled, limits};

use crate::counters::Protocol;
use crate::{Policy, Tracker, View};

pub use controller::{BytesOfDay, Controller, LoadMeasured, LoadRules, LoadTime, ServiceLoad};
pub(crate) use gate::Gates;
use gate::Standing;

labelled! {
    /// A protocol and the family of its listeners' addresses: the unit of intervals and budgets. WebTorrent with and
    /// without TLS is one service.
    pub enum Service {
        /// UDP over IPv4.
        Udp4 = "udp4",
        /// UDP over IPv6.
        Udp6 = "udp6",
        /// HTTP over IPv4.
        Http4 = "http4",
        /// HTTP over IPv6.
        Http6 = "http6",
        /// HTTPS over IPv4.
        Https4 = "https4",
        /// HTTPS over IPv6.
        Https6 = "https6",
        /// WebTorrent over IPv4.
        Ws4 = "ws4",
        /// WebTorrent over IPv6.
        Ws6 = "ws6",
    }
}

/// The number of services.
pub const SERVICES: usize = Service::ALL.len();

impl Service {
    /// Returns the service of a listener with an address of `family`.
    #[inline]
    pub const fn new(protocol: Protocol, family: Family) -> Self {
        match (protocol, family) {
            (Protocol::Udp, Family::V4) => Self::Udp4,
            (Protocol::Udp, Family::V6) => Self::Udp6,
            (Protocol::Http, Family::V4) => Self::Http4,
            (Protocol::Http, Family::V6) => Self::Http6,
            (Protocol::Https, Family::V4) => Self::Https4,
            (Protocol::Https, Family::V6) => Self::Https6,
            (Protocol::Ws | Protocol::Wss, Family::V4) => Self::Ws4,
            (Protocol::Ws | Protocol::Wss, Family::V6) => Self::Ws6,
        }
    }

    /// Returns true for WebTorrent, whose clients have an interval of their own.
    pub const fn is_web(self) -> bool {
        matches!(self, Self::Ws4 | Self::Ws6)
    }
}

/// The limits of a service. 0 = unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Announces in a second.
    pub announces_per_s: u32,
    /// Payload bytes, received and sent, in a day of UTC.
    pub bytes_per_day: u64,
}

impl Budget {
    /// Returns true if nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// The factor of intervals, in thousandths of the configured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stretch(pub u32);

impl Default for Stretch {
    fn default() -> Self {
        Self::NONE
    }
}

impl Stretch {
    /// Intervals as they are configured.
    pub const NONE: Self = Self(1000);

    /// Returns the stretch that makes `max_s` of `interval_s`, at least none.
    pub fn between(interval_s: u32, max_s: u32) -> Self {
        let permille = u64::from(max_s) * 1000 / u64::from(interval_s.max(1));
        Self(u32::try_from(permille).unwrap_or(u32::MAX)).max(Self::NONE)
    }

    /// Returns `seconds` stretched, rounded down.
    pub fn of(self, seconds: u32) -> u32 {
        let stretched = u64::from(seconds) * u64::from(self.0) / 1000;
        u32::try_from(stretched).unwrap_or(u32::MAX)
    }

    /// Returns a lifetime stretched, as far as the store can keep ages. Without a stretch it is as configured.
    pub(crate) fn lifetime_s(self, seconds: u32) -> u32 {
        if self == Self::NONE { seconds } else { self.of(seconds).min(limits::PEER_LIFETIME_S_MAX) }
    }
}

/// The standing of a service with its bytes of the day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BytesLeft {
    /// Enough for every announce.
    #[default]
    Enough,
    /// Few: torrents that the tracker does not know wait.
    Few,
    /// None.
    None,
}

/// The limits of a service that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceGate {
    /// Announces in a second; 0 = unlimited.
    pub announces_per_s: u32,
    /// The standing with the day's bytes.
    pub bytes: BytesLeft,
}

/// Intervals, lifetimes and budgets in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// The stretch of intervals, by [`Service::index`].
    pub stretch: [Stretch; SERVICES],
    /// The stretch of the intervals in responses over a budget.
    pub stretch_max: Stretch,
    /// The stretch of peers' lifetimes: that of the longest time in which a client that heeds its intervals may not be
    /// heard.
    pub lifetime: Stretch,
    /// The same for WebTorrent peers.
    pub web_lifetime: Stretch,
    /// The limits in force, by [`Service::index`].
    pub gates: [ServiceGate; SERVICES],
}

/// The interval in the responses of a service, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Seconds until the next announce, without the random part.
    pub interval_s: u32,
    /// Upper bound of the random seconds added to it.
    pub jitter_s: u32,
    /// Seconds before which a client should not announce again.
    pub min_s: u32,
}

impl Interval {
    /// Returns the interval of the answer in `slot` of a batch. Each answer has its own: two peers of a
    /// batch that got the same one would be in the same batch again.
    #[inline]
    pub(crate) fn jittered_s(&self, seed: u64, slot: u8) -> u32 {
        // An odd factor maps uniform seeds to uniform numbers, another one for each slot.
        let random = seed.wrapping_mul(2 * u64::from(slot) + 1);
        let jitter_s = ((random >> 32) * (u64::from(self.jitter_s) + 1)) >> 32;
        self.interval_s + jitter_s as u32
    }
}

impl Policy {
    /// Returns the interval of a service at a stretch.
    pub fn interval(&self, service: Service, stretch: Stretch) -> Interval {
        if service.is_web() {
            let interval_s = stretch.of(self.websocket_interval_s);
            return Interval {
                interval_s,
                jitter_s: self.websocket_jitter_s(interval_s),
                min_s: interval_s / 2,
            };
        }
        Interval {
            interval_s: stretch.of(self.interval_s),
            jitter_s: stretch.of(self.interval_jitter_s),
            min_s: stretch.of(self.interval_min_s),
        }
    }
}

/// Seconds without an announce after which peers are removed, as they are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLifetimes {
    /// Those of UDP and HTTP.
    pub peer_s: u32,
    /// Those of WebTorrent.
    pub web_s: u32,
}

/// Values that follow from the policy and the pacing, computed once for all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paced {
    pub(crate) intervals: [Interval; SERVICES],
    pub(crate) has_budget: [bool; SERVICES],
    pub(crate) lifetimes: PeerLifetimes,
}

impl Paced {
    pub(crate) fn new(policy: &Policy, pacing: &Pacing) -> Self {
        let stretched =
            |service: Service| policy.interval(service, pacing.stretch[service.index()]);
        Self {
            intervals: Service::ALL.map(stretched),
            has_budget: pacing.gates.map(|gate| gate != ServiceGate::default()),
            lifetimes: PeerLifetimes {
                peer_s: pacing.lifetime.lifetime_s(policy.peer_lifetime_s),
                web_s: pacing.web_lifetime.lifetime_s(policy.web_lifetime_s()),
            },
        }
    }
}

impl Tracker {
    /// Puts a decision of a [`Controller`] in force, for every worker from its next batch on.
    pub fn pace(&self, pacing: &Pacing) {
        self.settings.change(|settings| settings.set_pacing(*pacing));
        let PeerLifetimes { peer_s, web_s } = self.settings.load().lifetimes();
        self.store.set_lifetimes(peer_s, web_s);
    }

    /// Returns how many announces were answered over the budget of each service, by [`Service::index`].
    pub fn over_budget(&self) -> [u64; SERVICES] {
        self.gates.over()
    }
}

impl View<'_> {
    /// Checks an announce against the budget of its service. Stops are always served: they cost little and free memory.
    ///
    /// # Errors
    ///
    /// `OverBudget` if the budget is used up, or nearly, and the torrent is new.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_budget(&self, announce: &Announce) -> Result<(), Refusal> {
        if announce.event == Event::Stopped {
            return Ok(());
        }
        let gate = self.tracker.gates.of(self.service);
        let limits = &self.settings.pacing().gates[self.service.index()];
        let is_admitted = match gate.arrive(self.now, limits) {
            Standing::Open => true,
            Standing::Known if self.knows(announce) => {
                gate.serve();
                true
            }
            Standing::Known | Standing::Closed => false,
        };
        if is_admitted {
            return Ok(());
        }
        gate.count_over();
        Err(Refusal::OverBudget { interval_s: self.over_budget_interval_s(announce) })
    }

    fn knows(&self, announce: &Announce) -> bool {
        let mut counts = [SwarmCounts::default()];
        self.tracker.store.scrape(&[announce.info_hash], &mut counts);
        counts.iter().any(|counts| counts.seeders() + counts.leechers() > 0)
    }

    /// Returns the longest interval of a service, with a random part: clients that were refused together must not
    /// return together. The peer id is random enough, and a client that chooses it changes its own time only.
    fn over_budget_interval_s(&self, announce: &Announce) -> u32 {
        let interval =
            self.settings.policy.interval(self.service, self.settings.pacing().stretch_max);
        let (_, tail) = announce.peer_id.0.split_at(12);
        let seed = tail.iter().fold(0_u64, |seed, byte| (seed << 8) | u64::from(*byte));
        interval.jittered_s(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0)
    }
}

#[cfg(test)]
mod tests;
