//! What the operator decides about announces.

use types::{Event, NumWant, Refusal, TooSoon};

/// How a tracker is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// What can change while it runs.
    pub policy: Policy,
    /// The store's own options. Its `peer_lifetime_s` should equal the policy's.
    pub store: swarm::Options,
}

/// The part of the options that can be replaced while serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Seconds between a client's announces.
    pub interval_s: u32,
    /// Seconds before which a client should not announce again.
    pub interval_min_s: u32,
    /// Whether an announce that comes sooner, and has nothing new to say, is refused.
    pub enforce_interval_min: bool,
    /// Up to so many seconds are added to `interval_s` by chance, so that clients which came
    /// together do not come back together.
    pub interval_jitter_s: u32,
    /// Seconds without an announce after which a peer is gone.
    pub peer_lifetime_s: u32,
    /// Seconds between the announces of a WebTorrent client.
    pub websocket_interval_s: u32,
    /// Peers given to a client that does not say how many it wants.
    pub numwant_default: u16,
    /// The most peers given to any client.
    pub numwant_max: u16,
    /// Seconds for which a UDP connection id is good at least; it is good for twice that at most.
    pub connection_id_lifetime_s: u32,
}

/// Seconds that a client may be early: one whose announce was lost on its way, and sent again after
/// 15 seconds (BEP 15), counts from the first.
const TOLERANCE_S: u32 = 15;

/// Tells a client that should wait for `interval_min_s` how long that still is. After so long it is
/// served, however much its age is in doubt.
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
            connection_id_lifetime_s: 120,
        }
    }
}

impl Policy {
    /// Seconds without an announce after which a WebTorrent peer is gone. With the sweep's round
    /// after it, that makes two intervals.
    pub fn web_lifetime_s(&self) -> u32 {
        self.websocket_interval_s.saturating_mul(3) / 2
    }

    /// Seconds before which a WebTorrent client should not announce again. No message tells it: half
    /// an interval is what nobody goes below who keeps to what is told.
    pub fn websocket_interval_min_s(&self) -> u32 {
        self.websocket_interval_s / 2
    }

    /// The least seconds between a peer's announces if this one has `event`; 0 is none.
    #[inline]
    pub(crate) fn min_interval_s(&self, event: Event) -> u32 {
        self.spacing_of(event, self.interval_min_s)
    }

    /// The same for WebTorrent.
    pub(crate) fn web_min_interval_s(&self, event: Event) -> u32 {
        self.spacing_of(event, self.websocket_interval_min_s())
    }

    #[inline]
    fn spacing_of(&self, event: Event, interval_min_s: u32) -> u32 {
        match event {
            Event::None | Event::Paused if self.enforce_interval_min => {
                interval_min_s.saturating_sub(TOLERANCE_S)
            }
            _ => 0,
        }
    }

    /// How many peers an announce gets that asks for `want`.
    pub(crate) fn peers(&self, want: NumWant) -> u16 {
        match want {
            //= bep15#announce-num-want-default
            NumWant::Default => self.numwant_default.min(self.numwant_max),
            NumWant::Peers(peers) => peers.min(self.numwant_max),
        }
    }
}
