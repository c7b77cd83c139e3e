//! Connection ids (BEP 15): proof that a client receives packets at the address it sends from.
//!
//! An id is SipHash-2-4, with all its 64 bits, over the number of the time slice and the source
//! address. Nothing is stored, so a flood of connects costs no memory, and every worker (and every
//! node with the same key) accepts the ids of all others. The port is left out because clients and
//! NATs change it between packets. The XDP program of `edge/net` issues and verifies the same ids.

use std::net::IpAddr;

use primitives::siphash::siphash_slice_ip;
use types::Tick;

pub(crate) struct ConnectionIds {
    key: [u8; 16],
}

/// Which connection ids are issued and valid now, for an XDP program that does both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionIdSlices {
    /// The key of all ids.
    pub key: [u8; 16],
    /// The slice of the ids that are issued now. Those of the slice before it are valid, too.
    pub current: u32,
    /// Whether the ids of the slice after it are valid already.
    pub accepts_next: bool,
}

/// Seconds before the end of a slice in which ids of the next one are valid already: parts of the tracker
/// turn to it at slightly different times.
const NEXT_SLICE_S: u32 = 10;

impl ConnectionIds {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// Returns the id of `ip` in the current slice of `lifetime_s` seconds.
    //= bep15#connection-id-unguessable
    pub(crate) fn issue(&self, now: Tick, lifetime_s: u32, ip: IpAddr) -> u64 {
        self.mac(slice(now, lifetime_s), ip)
    }

    /// Returns whether `id` is that of `ip` in the current slice, in the one before it or, near the end of
    /// the current one, in the next.
    //= bep15#connection-id-lifetime
    pub(crate) fn verify(&self, now: Tick, lifetime_s: u32, ip: IpAddr, id: u64) -> bool {
        let slice = slice(now, lifetime_s);
        id == self.mac(slice, ip)
            || id == self.mac(slice.wrapping_sub(1), ip)
            || accepts_next(now, lifetime_s) && id == self.mac(slice.wrapping_add(1), ip)
    }

    pub(crate) fn slices(&self, now: Tick, lifetime_s: u32) -> ConnectionIdSlices {
        ConnectionIdSlices {
            key: self.key,
            current: slice(now, lifetime_s),
            accepts_next: accepts_next(now, lifetime_s),
        }
    }

    fn mac(&self, slice: u32, ip: IpAddr) -> u64 {
        siphash_slice_ip::<2, 4>(&self.key, slice, ip)
    }
}

/// Returns the number of the current slice. Counts from 1, so that the slice before the first is not
/// `u32::MAX`.
fn slice(now: Tick, lifetime_s: u32) -> u32 {
    now.0 / lifetime_s.max(1) + 1
}

/// Returns whether ids of the next slice are valid already.
fn accepts_next(now: Tick, lifetime_s: u32) -> bool {
    let lifetime_s = lifetime_s.max(1);
    lifetime_s - now.0 % lifetime_s <= NEXT_SLICE_S
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME_S: u32 = 120;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    //= bep15#connection-id-lifetime
    //= type=test
    #[test]
    fn ids_are_good_for_one_lifetime_and_at_most_two() {
        let ids = ConnectionIds::new([7; 16]);
        for start in 0..2 * LIFETIME_S {
            let id = ids.issue(Tick(start), LIFETIME_S, ip("1.2.3.4"));
            for age in 0..=LIFETIME_S {
                assert!(ids.verify(Tick(start + age), LIFETIME_S, ip("1.2.3.4"), id));
            }
            assert!(!ids.verify(Tick(start + 2 * LIFETIME_S), LIFETIME_S, ip("1.2.3.4"), id));
        }
    }

    //= bep15#connection-id-unguessable
    //= type=test
    #[test]
    fn ids_are_bound_to_address_and_key() {
        let ids = ConnectionIds::new([7; 16]);
        let id = ids.issue(Tick(5), LIFETIME_S, ip("1.2.3.4"));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("1.2.3.5"), id));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("::102:304"), id));
        assert!(!ConnectionIds::new([8; 16]).verify(Tick(5), LIFETIME_S, ip("1.2.3.4"), id));
        assert!(!ids.verify(Tick(5), LIFETIME_S, ip("1.2.3.4"), id ^ 1));
        // Both halves depend on the address: no part of the id is constant.
        let other = ids.issue(Tick(5), LIFETIME_S, ip("1.2.3.5"));
        assert!((id >> 32) != (other >> 32) && (id as u32) != (other as u32));
    }

    #[test]
    fn ids_depend_on_every_byte_of_a_v6_address() {
        let ids = ConnectionIds::new([9; 16]);
        let id = ids.issue(Tick(5), LIFETIME_S, ip("2001:db8::1"));
        for byte in 0..16 {
            let mut octets = "2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets();
            octets[byte] ^= 0x80;
            assert!(!ids.verify(Tick(5), LIFETIME_S, IpAddr::from(octets), id));
        }
    }

    #[test]
    fn ids_of_the_next_slice_are_good_shortly_before_it() {
        let ids = ConnectionIds::new([7; 16]);
        let next = ids.issue(Tick(2 * LIFETIME_S), LIFETIME_S, ip("1.2.3.4"));
        for now in 0..2 * LIFETIME_S {
            let is_good = ids.verify(Tick(now), LIFETIME_S, ip("1.2.3.4"), next);
            assert_eq!(is_good, now >= 2 * LIFETIME_S - 10, "{now}");
            let slices = ids.slices(Tick(now), LIFETIME_S);
            assert_eq!(slices.accepts_next, now % LIFETIME_S >= LIFETIME_S - 10, "{now}");
            assert_eq!(slices.current, now / LIFETIME_S + 1);
        }
    }
}
