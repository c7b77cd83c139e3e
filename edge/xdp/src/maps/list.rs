//! Lists in mapped memory, and the words of addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use primitives::IpPrefix;

/// No source has it: those with the unspecified address were passed before.
pub(super) const UNUSED_V4: [u64; 1] = [0xffff_ffff << 32];
pub(super) const UNUSED_V6: [u64; 4] = [0, 0, u64::MAX, u64::MAX];

/// Returns the words of networks: address and mask.
pub(super) fn network_words(networks: &[IpPrefix]) -> (Vec<[u64; 1]>, Vec<[u64; 4]>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for network in networks {
        match (network.address(), network.mask()) {
            (IpAddr::V4(address), IpAddr::V4(mask)) => {
                v4.push([u64::from(raw_v4(mask)) << 32 | u64::from(raw_v4(address))]);
            }
            (IpAddr::V6(address), IpAddr::V6(mask)) => {
                let ([high, low], [high_mask, low_mask]) = (raw_v6(address), raw_v6(mask));
                v6.push([high, low, high_mask, low_mask]);
            }
            _ => unreachable!("a mask has the family of its address"),
        }
    }
    (v4, v6)
}

/// Replaces the entries of a list. Returns how many did not fit.
pub(super) fn replace<const N: usize>(
    places: &[[AtomicU64; N]],
    len: &AtomicU64,
    unused: [u64; N],
    entries: &[[u64; N]],
) -> usize {
    let (entries, rest) = entries.split_at(entries.len().min(places.len()));
    let value = |place: &[AtomicU64; N]| place.each_ref().map(|word| word.load(Ordering::Relaxed));
    let old_len = len.load(Ordering::Relaxed) as usize;
    let old: Vec<[u64; N]> = places.iter().take(old_len).map(value).collect();
    let mut missing = entries.iter().filter(|entry| !old.contains(entry));
    let mut new_len = 0;
    for (at, place) in places.iter().enumerate() {
        let stays = old.get(at).is_some_and(|value| entries.contains(value));
        if !stays {
            let entry = missing.next();
            write(place, unused, entry.unwrap_or(&unused));
            if entry.is_none() {
                continue;
            }
        }
        new_len = at + 1;
    }
    set(len, new_len as u64);
    rest.len()
}

/// Writes an entry so that it matches nothing else meanwhile: its last words first become those of an
/// entry that is not in use.
fn write<const N: usize>(place: &[AtomicU64; N], unused: [u64; N], entry: &[u64; N]) {
    const ADDRESS_WORDS: usize = 2;
    for at in ADDRESS_WORDS..N {
        set(&place[at], unused[at]);
    }
    for at in 0..N {
        set(&place[at], entry[at]);
    }
}

/// Returns an address as the program loads it.
pub(super) fn raw_v4(ip: Ipv4Addr) -> u32 {
    u32::from_le_bytes(ip.octets())
}

/// Returns the two halves of an address as the program loads them.
pub(super) fn raw_v6(ip: Ipv6Addr) -> [u64; 2] {
    let bits = ip.to_bits();
    [(bits >> 64) as u64, bits as u64].map(u64::swap_bytes)
}

/// Stores a word, after all that was stored before.
pub(super) fn set(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}
