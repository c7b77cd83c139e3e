//! Distributions of peers over torrents.

use std::str::FromStr;

use crate::random::Random;

/// A distribution of peers over torrents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All torrents are equally likely.
    Uniform,
    /// The distribution of a public tracker: a heavy head and a long tail (Zipf–Mandelbrot with exponent 0.92). With 4.6
    /// peers per torrent, six of seven torrents have at most four, and the largest, torrent 0, thousands.
    Real,
}

/// Exponent of [`Spread::Real`] and its flat start as a fraction of all torrents.
const REAL: (f64, f64) = (0.92, 6e-5);

impl Spread {
    /// Draws the torrent of a peer, below `torrents`.
    pub(crate) fn draw(self, torrents: usize, random: &mut Random) -> usize {
        let all = torrents as f64;
        let rank = match self {
            Self::Uniform => return random.below(torrents),
            Self::Real => {
                let power = 1.0 - REAL.0;
                let flat = (all * REAL.1).max(1.0);
                let (low, high) = (flat.powf(power), (all + flat).powf(power));
                (low + random.unit() * (high - low)).powf(1.0 / power) - flat
            }
        };
        // Negative values become 0.
        (rank as usize).min(torrents.saturating_sub(1))
    }
}

impl FromStr for Spread {
    type Err = String;

    /// Parses `uniform` or `real`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "real" => Ok(Self::Real),
            _ => Err(format!("unknown distribution `{text}`: expected uniform or real")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(spread: Spread, torrents: usize, peers: usize) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut sizes = vec![0; torrents];
        for _ in 0..peers {
            sizes[spread.draw(torrents, &mut random)] += 1;
        }
        sizes
    }

    /// Six of seven have at most four; those with more than 64 hold more than a third of all peers.
    #[test]
    fn real_has_a_heavy_head_and_a_long_tail() {
        let sizes = sizes(Spread::Real, 100_000, 463_000);
        let small = sizes.iter().filter(|size| **size <= 4).count();
        assert!((78_000..90_000).contains(&small), "{small}");
        let large: usize = sizes.iter().filter(|size| **size > 64).sum();
        assert!((150_000..210_000).contains(&large), "{large}");
        let max = *sizes.iter().max().unwrap();
        assert!((3_500..6_500).contains(&max) && max == sizes[0], "{max}");
    }
}
