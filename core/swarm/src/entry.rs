//! Packed peers: what sets need to know of the two forms.

use std::net::{Ipv4Addr, Ipv6Addr};

use bytemuck::Pod;
use replication::PeerMeta;
use types::{PackedV4, PackedV6, PeerKey, Scope};

/// A packed peer.
pub(crate) trait Entry: Pod + Default {
    /// Address and port in wire form.
    type Key: Copy + Ord + AsRef<[u8]>;
    /// The leading bytes of an address that name its network: a /24 or /48.
    type Network: Copy + AsRef<[u8]>;
    /// A set of up to this many peers is one dense array.
    const DENSE_MAX: u32;
    /// Average peers in a page of a larger set. Small pages are searched faster; large ones waste
    /// less, since a page wastes half a line on average.
    const PAGE_PEERS: u32;

    fn new(key: Self::Key, meta: PeerMeta) -> Self;
    fn key(&self) -> Self::Key;
    fn peer_key(&self) -> PeerKey;
    fn meta(&self) -> PeerMeta;
    fn set_meta(&mut self, meta: PeerMeta);
    /// Returns the index of the first entry with that key among the first `len` of `entries`.
    /// Further entries, up to the end of the last line, are leftovers and are ignored.
    fn find(entries: &[Self], len: usize, key: Self::Key) -> Option<usize>;
    /// Returns the network of a public address; `None` for others, to which no cap applies.
    fn network(key: Self::Key) -> Option<Self::Network>;
    /// Returns the byte of an address that tells the customers of its network apart: the last one of a v4
    /// address, or the one behind a v6 /48, since providers give each customer a /56.
    fn customer(key: Self::Key) -> u8;
    /// Returns true if the entry's address belongs to the same host as `key`'s: it is the same, or in
    /// the same /64.
    fn shares_address(&self, key: Self::Key) -> bool;
    /// Returns true if the entry's address is in the same /24 or /48 as `key`'s.
    fn shares_network(&self, key: Self::Key) -> bool;
    /// Returns the leading bits that name the address's /24 or /48, public or not.
    fn network_number(&self) -> u64;
}

impl Entry for PackedV4 {
    type Key = [u8; 6];
    type Network = [u8; 3];
    const DENSE_MAX: u32 = 96;
    const PAGE_PEERS: u32 = 80;

    #[inline]
    fn new([a, b, c, d, high, low]: [u8; 6], meta: PeerMeta) -> Self {
        let [m, n] = meta.0.to_le_bytes();
        Self([a, b, c, d, high, low, m, n])
    }

    #[inline]
    fn key(&self) -> [u8; 6] {
        self.wire()
    }

    fn peer_key(&self) -> PeerKey {
        PeerKey::V4(self.wire())
    }

    #[inline]
    fn meta(&self) -> PeerMeta {
        let [.., m, n] = self.0;
        PeerMeta(u16::from_le_bytes([m, n]))
    }

    #[inline]
    fn set_meta(&mut self, meta: PeerMeta) {
        *self = Self::new(self.wire(), meta);
    }

    /// Compares a cache line at a time without branches, which the compiler vectorises.
    #[inline]
    fn find(entries: &[Self], len: usize, key: [u8; 6]) -> Option<usize> {
        let wanted = word(key);
        for (line, entries) in entries.chunks_exact(8).enumerate() {
            let mut hits = 0u32;
            for (at, entry) in entries.iter().enumerate() {
                // The shift drops the metadata from the comparison.
                hits |= u32::from((u64::from_le_bytes(entry.0) ^ wanted) << 16 == 0) << at;
            }
            if hits != 0 {
                let at = line * 8 + hits.trailing_zeros() as usize;
                return (at < len).then_some(at);
            }
        }
        None
    }

    #[inline]
    fn network([a, b, c, d, ..]: [u8; 6]) -> Option<[u8; 3]> {
        (Scope::of_v4(Ipv4Addr::new(a, b, c, d)) == Scope::Public).then_some([a, b, c])
    }

    #[inline]
    fn customer([_, _, _, host, ..]: [u8; 6]) -> u8 {
        host
    }

    #[inline]
    fn shares_address(&self, key: [u8; 6]) -> bool {
        (u64::from_le_bytes(self.0) ^ word(key)) as u32 == 0
    }

    #[inline]
    fn shares_network(&self, key: [u8; 6]) -> bool {
        // 32 bits, which SSE2 can compare.
        (u64::from_le_bytes(self.0) as u32 ^ word(key) as u32) << 8 == 0
    }

    #[inline]
    fn network_number(&self) -> u64 {
        u64::from_le_bytes(self.0) & 0xff_ffff
    }
}

impl Entry for PackedV6 {
    type Key = [u8; 18];
    type Network = [u8; 6];
    const DENSE_MAX: u32 = 32;
    const PAGE_PEERS: u32 = 24;

    #[inline]
    fn new(key: [u8; 18], meta: PeerMeta) -> Self {
        let mut entry = Self::default();
        let (address, end) = entry.0.split_at_mut(18);
        address.copy_from_slice(&key);
        end.copy_from_slice(&meta.0.to_le_bytes());
        entry
    }

    #[inline]
    fn key(&self) -> [u8; 18] {
        self.wire()
    }

    fn peer_key(&self) -> PeerKey {
        PeerKey::V6(self.wire())
    }

    #[inline]
    fn meta(&self) -> PeerMeta {
        let [.., m, n] = self.0;
        PeerMeta(u16::from_le_bytes([m, n]))
    }

    #[inline]
    fn set_meta(&mut self, meta: PeerMeta) {
        let [.., m, n] = &mut self.0;
        [*m, *n] = meta.0.to_le_bytes();
    }

    #[inline]
    fn find(entries: &[Self], len: usize, key: [u8; 18]) -> Option<usize> {
        entries.iter().take(len).position(|entry| entry.wire() == key)
    }

    #[inline]
    fn network(key: [u8; 18]) -> Option<[u8; 6]> {
        let (address, _) = key.split_first_chunk::<16>()?;
        let is_public = Scope::of_v6(Ipv6Addr::from(*address)) == Scope::Public;
        let [network @ .., _, _] = half(&key).to_le_bytes();
        is_public.then_some(network)
    }

    #[inline]
    fn customer(key: [u8; 18]) -> u8 {
        let [.., customer, _] = half(&key).to_le_bytes();
        customer
    }

    #[inline]
    fn shares_address(&self, key: [u8; 18]) -> bool {
        half(&self.0) == half(&key)
    }

    #[inline]
    fn shares_network(&self, key: [u8; 18]) -> bool {
        (half(&self.0) ^ half(&key)) << 16 == 0
    }

    #[inline]
    fn network_number(&self) -> u64 {
        half(&self.0) << 16 >> 16
    }
}

/// Returns what identifies a v6 peer's host, as a number, the first byte lowest: six bytes of a network, and two of
/// a host in it. It is the upper half of its address.
#[inline]
pub(crate) fn half(entry: &[u8]) -> u64 {
    /// The upper half of an address in 64:ff9b::/64.
    const TRANSLATED: u64 = u64::from_le_bytes([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0]);
    let half = entry.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
    if half == TRANSLATED { translated(entry) } else { half }
}

/// Does the same for a v4 peer behind a translator (RFC 6052): its network is its /24, and no other network begins
/// with 64:ff.
#[cold]
fn translated(entry: &[u8]) -> u64 {
    match *entry {
        [_, _, _, _, _, _, _, _, 0, 0, 0, 0, a, b, c, d, ..] => {
            u64::from_le_bytes([0, 0x64, 0xff, a, b, c, d, 0])
        }
        // Not public.
        _ => 0,
    }
}

/// Returns a v4 peer's address and port as a number, the first byte lowest.
#[inline]
fn word(key: [u8; 6]) -> u64 {
    u64::from_le_bytes(PackedV4::new(key, PeerMeta(0)).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_behind_a_translator_are_told_apart() {
        let key = |text: &str| match PeerKey::new(text.parse().unwrap(), 6881) {
            PeerKey::V6(key) => key,
            PeerKey::V4(_) => panic!("{text}"),
        };
        let network = |text| PackedV6::network(key(text));
        assert_eq!(network("64:ff9b::20.9.8.7"), Some([0, 0x64, 0xff, 20, 9, 8]));
        assert_eq!(network("2001:470:1:2::3"), Some([0x20, 1, 4, 0x70, 0, 1]));
        assert_eq!(network("64:ff9b::1:20.9.8.7"), None);
        let entry = PackedV6::new(key("64:ff9b::20.9.8.7"), PeerMeta(3));
        assert_eq!(PackedV6::customer(key("64:ff9b::20.9.8.7")), 7);
        assert_eq!(PackedV6::customer(key("2001:470:1:203::3")), 2);
        let relations = |text| (entry.shares_network(key(text)), entry.shares_address(key(text)));
        assert_eq!(relations("64:ff9b::20.9.8.7"), (true, true));
        assert_eq!(relations("64:ff9b::20.9.8.6"), (true, false));
        assert_eq!(relations("64:ff9b::20.9.7.7"), (false, false));
    }
}
