//! A small, fast random number generator, for choosing peers and not for secrets.

/// A stream of random numbers (wyrand). Each thread has one, which the caller seeds.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the stream of `seed`. Equal seeds give equal streams.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a stream without end is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// Returns a number from 0 to `n` - 1, or 0 if `n` is 0. The bias is below `n` / 2^64.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.below(1), 0);
    }
}
