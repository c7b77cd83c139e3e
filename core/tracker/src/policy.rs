//! The operator's settings for announces.

use swarm::PeerCaps;
use types::{Event, NumWant, Refusal, TooSoon, limits};

/// The settings of a tracker.
#[derive(Clone, Debug)]
pub struct Options {
    /// Settings that can change while it runs.
    pub policy: Policy,
    /// The store's own options. Its `peer_lifetime_s` should equal the policy's.
    pub store: swarm::Options,
}

impl Options {
    /// Returns options with a store of a few shards, whose hashes are predictable: for tests and benches.
    #[doc(hidden)]
    pub fn predictable(policy: Policy) -> Self {
        let store = swarm::Options {
            web_lifetime_s: policy.web_lifetime_s(),
            ..swarm::Options::new(4, [3; 16], policy.peer_lifetime_s)
        };
        Self { policy, store }
    }
}

/// Settings that can be replaced while serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Seconds between a client's announces.
    pub interval_s: u32,
    /// Seconds before which a client should not announce again.
    pub interval_min_s: u32,
    /// True if announces that come sooner and report no event are refused.
    pub enforce_interval_min: bool,
    /// Upper bound of the random seconds added to `interval_s`, so that clients that came together do
    /// not come back together. WebTorrent clients get the same share of `websocket_interval_s`, a quarter at
    /// most.
    pub interval_jitter_s: u32,
    /// Seconds without an announce after which a peer is removed.
    pub peer_lifetime_s: u32,
    /// Seconds between the announces of a WebTorrent client.
    pub websocket_interval_s: u32,
    /// Peers for a client that does not say how many it wants.
    pub numwant_default: u16,
    /// Upper bound of the peers for any client.
    pub numwant_max: u16,
    /// Most peers of a torrent at one public address and in one public network.
    pub peer_caps: PeerCaps,
    /// Lifetime of UDP connection ids, seconds. An id is good for one to two lifetimes.
    pub connection_id_lifetime_s: u32,
    /// Mbit/s above which what the peers of a key report is not credited; 0 = unlimited.
    pub key_mbit_per_s: u32,
    /// Seconds between two full scrapes of one prefix; 0 = any.
    pub full_scrape_interval_s: u32,
    /// Full scrapes in an hour; 0 = unlimited.
    pub full_scrapes_per_hour: u32,
}

/// Seconds that a client may be early: one whose announce was lost and sent again after 15 seconds
/// (BEP 15) counts from the first.
const TOLERANCE_S: u32 = 15;

/// Returns the refusal for a client that should have waited for `interval_min_s`, with the minutes that
/// are left. After these it is served, although the store knows ages only roughly.
pub(crate) fn too_soon(interval_min_s: u32, TooSoon { age_s }: TooSoon) -> Refusal {
    let wait_min = interval_min_s.saturating_sub(age_s).div_ceil(60);
    Refusal::TooSoon { wait_min: u16::try_from(wait_min).unwrap_or(u16::MAX) }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            interval_s: 1800,
            interval_min_s: 900,
            enforce_interval_min: false,
            interval_jitter_s: 0,
            peer_lifetime_s: 2700,
            websocket_interval_s: 120,
            numwant_default: 50,
            numwant_max: 200,
            peer_caps: PeerCaps {
                per_address: limits::PEERS_PER_ADDRESS,
                per_network: limits::PEERS_PER_NETWORK,
            },
            connection_id_lifetime_s: 120,
            key_mbit_per_s: limits::KEY_MBIT_PER_S,
            full_scrape_interval_s: 300,
            full_scrapes_per_hour: 60,
        }
    }
}

impl Policy {
    /// Returns the seconds without an announce after which a WebTorrent peer is removed. With the
    /// following pass of the sweep, that makes two intervals.
    pub fn web_lifetime_s(&self) -> u32 {
        self.websocket_interval_s.saturating_mul(3) / 2
    }

    /// Returns the seconds before which a WebTorrent client should not announce again. The protocol has
    /// no field for it: half an interval, which no client that respects the interval goes below.
    pub fn websocket_interval_min_s(&self) -> u32 {
        self.websocket_interval_s / 2
    }

    /// Returns the upper bound of the random seconds added to the `interval_s` of a WebTorrent client.
    pub(crate) fn websocket_jitter_s(&self, interval_s: u32) -> u32 {
        let share_s = u64::from(interval_s) * u64::from(self.interval_jitter_s)
            / u64::from(self.interval_s.max(1));
        // Peers expire after one and a half intervals of silence.
        u32::try_from(share_s).unwrap_or(u32::MAX).min(interval_s / 4)
    }

    /// Returns the seconds that must pass before a peer that should wait for `interval_min_s` may announce with
    /// `event`; 0 = none.
    #[inline]
    pub(crate) fn min_interval_s(&self, event: Event, interval_min_s: u32) -> u32 {
        match event {
            Event::None | Event::Paused if self.enforce_interval_min => {
                interval_min_s.saturating_sub(TOLERANCE_S)
            }
            _ => 0,
        }
    }

    /// Returns how many peers an announce with `want` gets.
    pub(crate) fn peers(&self, want: NumWant) -> u16 {
        match want {
            //= bep15#announce-num-want-default
            NumWant::Default => self.numwant_default.min(self.numwant_max),
            NumWant::Peers(peers) => peers.min(self.numwant_max),
        }
    }
}
