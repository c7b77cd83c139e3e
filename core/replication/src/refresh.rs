//! Refreshes: the choice of the announces that change nothing and still go to other nodes.
//!
//! The time of a peer is cut into periods of `R` units of age, whose beginnings are spread by a phase of the
//! peer's own, so that not all refreshes of a node come together. The first announce in a period is sent:
//! the last one, whose mark the store has, was in an earlier period. That needs no memory, and a peer that
//! announces all the time is sent once in `R` units.
//!
//! Two refreshes of a live peer are less than `R` units and an interval apart: the first announce of a
//! period is sent, the last one comes before the period's end, and the next one at most an interval later.
//! [`refresh_period_units`] chooses `R` so that this is less than a lifetime: no other node lets the
//! peer expire early. That holds with several nodes, too, although their periods differ. What a node
//! receives of a peer is a mark like its own, so within `R` units of a refresh each node's period has ended
//! once, and there the next announce is sent unless another one was since.

#[cfg(test)]
mod tests;

use types::{PeerKey, WebPeer};

use crate::meta::AGE_UNIT_S;

/// Seconds allowed for a refresh to reach the other nodes, and for clocks that differ.
const SLACK_S: u32 = 120;
/// The period of refreshes of WebTorrent peers, in seconds.
pub const WEB_REFRESH_S: u32 = 512;
/// The shortest period that is worth it, in units of [`AGE_UNIT_S`].
const PERIOD_MIN: u32 = 4;

const _: () = assert!((WEB_REFRESH_S / AGE_UNIT_S).is_power_of_two());

/// Returns the longest period of refreshes in units of [`AGE_UNIT_S`], for peers that announce within
/// `interval_s` seconds and expire after `lifetime_s`: a power of two, for
/// `keep_refreshes` of the store. Returns 1 if lifetimes are too short for periods: each announce is sent,
/// but for those in the same unit.
pub fn refresh_period_units(lifetime_s: u32, interval_s: u32) -> u32 {
    let units = lifetime_s.saturating_sub(interval_s).saturating_sub(SLACK_S) / AGE_UNIT_S;
    if units < PERIOD_MIN { 1 } else { 1 << units.ilog2() }
}

/// Returns true if an announce must be sent to other nodes. `age` is that of the announce before, and `unit` the
/// time of this one. `period` is a power of two; only the bits of `phase` below it matter.
#[inline]
pub fn is_due(age: u32, unit: u32, phase: impl FnOnce() -> u32, period: u32) -> bool {
    // Most peers announce once in longer than a period.
    age >= period || age > unit.wrapping_add(phase()) & (period - 1)
}

/// Returns true if an announce of a WebTorrent peer must be sent to other nodes.
pub fn is_web_due(age: u32, unit: u32, peer: &WebPeer) -> bool {
    let phase = || mixed(peer.connection.0);
    is_due(age, unit, phase, WEB_REFRESH_S / AGE_UNIT_S)
}

/// Returns the phase of a peer.
#[inline]
pub fn phase(peer: &PeerKey) -> u32 {
    match *peer {
        PeerKey::V4([a, b, c, d, high, low]) => {
            mixed(u64::from_le_bytes([a, b, c, d, high, low, 0, 0]))
        }
        // The network, and what tells hosts and ports in it apart.
        PeerKey::V6([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, high, low]) => mixed(
            u64::from_le_bytes([a, b, c, d, e, f, g, h])
                ^ u64::from_le_bytes([i, j, k, l, m, n, o, p]).rotate_left(29)
                ^ u64::from_le_bytes([high, low, 0, 0, 0, 0, 0, 0]),
        ),
    }
}

#[inline]
fn mixed(number: u64) -> u32 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
