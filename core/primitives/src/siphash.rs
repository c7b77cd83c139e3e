//! SipHash (Aumasson and Bernstein, 2012): a keyed hash whose collisions cannot be found without
//! the key.
//!
//! The caller chooses the rounds: 1-3 for places in tables, 2-4 for what leaves the process and
//! must not be forged. The `siphasher` crate takes a quarter to two thirds longer for inputs as short as
//! ours (`bench/record/2026-11-23-spread.md`).

use std::net::IpAddr;

/// Returns SipHash-`C`-`D` of `bytes` under `key`.
#[inline]
pub fn siphash<const C: usize, const D: usize>(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let mut state = State::new(key);
    state.absorb_all::<C>(bytes);
    state.v2 ^= 0xff;
    state.squeeze::<D>()
}

/// Returns SipHash-128, the authors' variant with a longer result: its first half first.
#[inline]
pub fn siphash_128<const C: usize, const D: usize>(key: &[u8; 16], bytes: &[u8]) -> [u64; 2] {
    let mut state = State::new(key);
    state.v1 ^= 0xee;
    state.absorb_all::<C>(bytes);
    state.v2 ^= 0xee;
    let first = state.squeeze::<D>();
    state.v1 ^= 0xdd;
    [first, state.squeeze::<D>()]
}

/// Returns SipHash-`C`-`D` of an address under `key`. Families differ in length, so a v4 address is never
/// hashed as a v6 address is; two 64-bit hashes may still be equal.
#[inline]
pub fn siphash_ip<const C: usize, const D: usize>(key: &[u8; 16], ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => siphash::<C, D>(key, &ip.octets()),
        IpAddr::V6(ip) => siphash::<C, D>(key, &ip.octets()),
    }
}

/// Returns SipHash-`C`-`D` of a time slice (4 bytes, little-endian) and an address under `key`: what only
/// the holders of the key can say about the address at that time. As in [`siphash_ip`],
/// families differ in length.
#[inline]
pub fn siphash_slice_ip<const C: usize, const D: usize>(
    key: &[u8; 16],
    slice: u32,
    ip: IpAddr,
) -> u64 {
    let mut message = [0; 20];
    let (head, tail) = message.split_at_mut(4);
    head.copy_from_slice(&slice.to_le_bytes());
    match ip {
        IpAddr::V4(ip) => {
            let (address, _) = tail.split_at_mut(4);
            address.copy_from_slice(&ip.octets());
            siphash::<C, D>(key, message.split_at(8).0)
        }
        IpAddr::V6(ip) => {
            tail.copy_from_slice(&ip.octets());
            siphash::<C, D>(key, &message)
        }
    }
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline(always)]
    fn new(key: &[u8; 16]) -> Self {
        let (low, high) = key.split_at(8);
        let (low, high) = (word(low), word(high));
        Self {
            v0: low ^ 0x736f_6d65_7073_6575,
            v1: high ^ 0x646f_7261_6e64_6f6d,
            v2: low ^ 0x6c79_6765_6e65_7261,
            v3: high ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    fn absorb_all<const C: usize>(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for chunk in &mut words {
            self.absorb::<C>(word(chunk));
        }
        self.absorb::<C>((bytes.len() as u64) << 56 | word(words.remainder()));
    }

    #[inline(always)]
    fn squeeze<const D: usize>(&mut self) -> u64 {
        for _ in 0..D {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline(always)]
    fn absorb<const C: usize>(&mut self, word: u64) {
        self.v3 ^= word;
        for _ in 0..C {
            self.round();
        }
        self.v0 ^= word;
    }

    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

/// Returns up to 8 bytes as a little-endian number.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
        return u64::from_le_bytes(bytes);
    }
    let mut word = 0;
    for (at, byte) in bytes.iter().enumerate() {
        word |= u64::from(*byte) << (8 * at);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    fn input(len: usize) -> Vec<u8> {
        (0..len).map(|at| at as u8).collect()
    }

    /// From the reference implementation's vectors.h; 15 bytes is the paper's own example.
    #[test]
    fn siphash_2_4_reference_vectors() {
        let vectors: [(usize, [u8; 8]); 6] = [
            (0, [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]),
            (1, [0xfd, 0x67, 0xdc, 0x93, 0xc5, 0x39, 0xf8, 0x74]),
            (7, [0x37, 0xd1, 0x01, 0x8b, 0xf5, 0x00, 0x02, 0xab]),
            (8, [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]),
            (15, [0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1]),
            (63, [0x72, 0x45, 0x06, 0xeb, 0x4c, 0x32, 0x8a, 0x95]),
        ];
        for (len, expected) in vectors {
            let found = siphash::<2, 4>(&KEY, &input(len));
            assert_eq!(found.to_le_bytes(), expected, "{len} bytes");
        }
    }

    /// From the same file.
    #[test]
    fn siphash_2_4_128_reference_vectors() {
        let vectors: [(usize, [u8; 16]); 3] = [
            (0, 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes()),
            (1, 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes()),
            (2, 0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4_u128.to_be_bytes()),
        ];
        for (len, expected) in vectors {
            let [first, second] = siphash_128::<2, 4>(&KEY, &input(len)).map(u64::to_le_bytes);
            assert_eq!([first, second].concat(), expected, "{len} bytes");
        }
    }

    #[test]
    fn slice_and_address_are_hashed_one_after_the_other() {
        let hash = |ip: &str| siphash_slice_ip::<2, 4>(&KEY, 0x0102, ip.parse().unwrap());
        assert_eq!(hash("1.2.3.4"), siphash::<2, 4>(&KEY, &[2, 1, 0, 0, 1, 2, 3, 4]));
        let mut message = [0; 20];
        (message[0], message[1], message[19]) = (2, 1, 9);
        assert_eq!(hash("::9"), siphash::<2, 4>(&KEY, &message));
    }

    /// The standard library's hasher is SipHash-1-3 with a key of zeros.
    #[test]
    fn siphash_1_3_agrees_with_the_standard_library() {
        use std::hash::Hasher;
        for len in 0..64 {
            let mut hasher = std::hash::DefaultHasher::new();
            hasher.write(&input(len));
            assert_eq!(siphash::<1, 3>(&[0; 16], &input(len)), hasher.finish(), "{len} bytes");
        }
    }
}
