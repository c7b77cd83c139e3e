//! Deterministic pseudo-random numbers: SplitMix64.

/// A pseudo-random sequence.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// Returns a number above 0 and at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is uniform enough for every bound used here.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns true with a probability of `percent`.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        percent >= 100 || (percent > 0 && self.below(100) < usize::from(percent))
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for eight in bytes.chunks_mut(8) {
            let random = self.next().to_le_bytes();
            eight.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
        }
        bytes
    }
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a pseudo-random number for item `number` of `seed`, independent of the order of calls.
pub(crate) fn hash(seed: u64, number: u64) -> u64 {
    mix(mix(seed.wrapping_add(STEP)).wrapping_add(number.wrapping_mul(STEP)))
}

fn mix(mut mixed: u64) -> u64 {
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
