//! Distributions of peers over torrents.

use std::f64::consts::TAU;
use std::fmt;
use std::str::FromStr;

use crate::random::Random;

/// A distribution of peers over torrents. Torrent 0 is the most popular one in all but `uniform`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// All torrents are equally likely.
    Uniform,
    /// Bounded Pareto over the ranks: the density falls with `rank^-(shape + 1)`.
    Pareto {
        /// Above 0; 0.2 by default.
        shape: f64,
    },
    /// The distribution of aquatic's load testers: a Gamma sample, clamped to 1 to 101, is
    /// stretched over all
    /// torrents.
    Gamma {
        /// Above 0; 0.2 by default, like aquatic's.
        shape: f64,
        /// Above 0; 100 by default, like aquatic's.
        scale: f64,
    },
    /// The distribution of a public tracker: a heavy head and a long tail (Zipf–Mandelbrot with
    /// exponent 0.92).
    /// With 4.6 peers per torrent, six of seven torrents have at most four, and the largest
    /// thousands.
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
            Self::Pareto { shape } => {
                let part = 1.0 - (all + 1.0).powf(-shape);
                (1.0 - random.unit() * part).powf(-1.0 / shape) - 1.0
            }
            Self::Gamma { shape, scale } => {
                (gamma(shape, scale, random).min(101.0) - 1.0) / 100.0 * (all - 1.0)
            }
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

/// A sample of the Gamma distribution (Marsaglia and Tsang, 2000).
fn gamma(shape: f64, scale: f64, random: &mut Random) -> f64 {
    if shape < 1.0 {
        return gamma(shape + 1.0, scale, random) * random.unit().powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        // More than 95 % of the samples are accepted.
        if v > 0.0 && random.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v * scale;
        }
    }
}

/// A sample of the normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * random.unit().ln()).sqrt() * (TAU * random.unit()).cos()
}

impl FromStr for Spread {
    type Err = String;

    /// Parses `uniform`, `pareto[:SHAPE]`, `gamma[:SHAPE:SCALE]` or `real`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let mut number = |default: f64| match words.next() {
            None => Ok(default),
            Some(word) => match word.parse() {
                Ok(number) if number > 0.0 && number < 1e6 => Ok(number),
                _ => Err(format!("{text}: expected a number above 0, found `{word}`")),
            },
        };
        let spread = match name {
            "uniform" => Self::Uniform,
            "pareto" => Self::Pareto { shape: number(0.2)? },
            "gamma" => Self::Gamma { shape: number(0.2)?, scale: number(100.0)? },
            "real" => Self::Real,
            _ => {
                return Err(format!(
                    "unknown distribution `{name}`: expected uniform, pareto[:SHAPE], gamma[:SHAPE:SCALE] or real"
                ));
            }
        };
        match words.next() {
            Some(word) => Err(format!("{text}: unexpected `:{word}`")),
            None => Ok(spread),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Pareto { shape } => write!(f, "pareto:{shape}"),
            Self::Gamma { shape, scale } => write!(f, "gamma:{shape}:{scale}"),
            Self::Real => write!(f, "real"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of peers of each torrent.
    fn sizes(spread: Spread, torrents: usize, peers: usize) -> Vec<usize> {
        let mut random = Random::new(7);
        let mut sizes = vec![0; torrents];
        for _ in 0..peers {
            sizes[spread.draw(torrents, &mut random)] += 1;
        }
        sizes
    }

    fn assert_near(found: f64, expected: f64, part: f64) {
        assert!((found - expected).abs() <= expected * part, "{found}, not {expected}");
    }

    #[test]
    fn uniform_is_even() {
        for size in sizes(Spread::Uniform, 100, 1_000_000) {
            assert_near(size as f64, 10_000.0, 0.05);
        }
    }

    #[test]
    fn pareto_matches_its_formula() {
        for shape in [0.2, 1.0] {
            let sizes = sizes(Spread::Pareto { shape }, 1000, 1_000_000);
            let below = |rank: f64| (1.0 - rank.powf(-shape)) / (1.0 - 1001_f64.powf(-shape));
            for first in [1, 10, 100] {
                let share = sizes.iter().take(first).sum::<usize>() as f64 / 1e6;
                assert_near(share, below(first as f64 + 1.0), 0.01);
            }
        }
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut random = Random::new(3);
        for (shape, scale) in [(0.2, 100.0), (3.0, 2.0)] {
            let all: Vec<f64> = (0..300_000).map(|_| gamma(shape, scale, &mut random)).collect();
            let mean = all.iter().sum::<f64>() / 3e5;
            let variance = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3e5;
            assert_near(mean, shape * scale, 0.02);
            assert_near(variance, shape * scale * scale, 0.05);
        }
    }

    /// With aquatic's shape and scale, four of ten peers are in torrent 0, and one of 40 in the last.
    #[test]
    fn gamma_is_stretched_over_all_torrents() {
        let sizes = sizes(Spread::Gamma { shape: 0.2, scale: 100.0 }, 10_000, 1_000_000);
        // P(X < 1 + 1/100) of Gamma(0.2, 100), and P(X > 101).
        assert_near(sizes[0] as f64, 433_723.0, 0.02);
        assert_near(sizes[9_999] as f64, 51_586.0, 0.05);
        assert!(sizes[1..9_999].iter().all(|size| *size < 20_000));
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

    #[test]
    fn works_with_one_or_two_torrents() {
        for spread in ["uniform", "pareto", "gamma", "real"] {
            let spread: Spread = spread.parse().unwrap();
            assert_eq!(sizes(spread, 1, 100), [100]);
            assert_eq!(sizes(spread, 2, 100).iter().sum::<usize>(), 100);
        }
    }

    #[test]
    fn names_round_trip() {
        for text in ["uniform", "pareto:0.5", "gamma:0.3:50", "real"] {
            assert_eq!(text.parse::<Spread>().unwrap().to_string(), text);
        }
        assert_eq!("gamma".parse(), Ok(Spread::Gamma { shape: 0.2, scale: 100.0 }));
        for bad in ["", "zipf", "pareto:", "pareto:0", "pareto:nan", "gamma:1:-2", "real:1"] {
            assert!(bad.parse::<Spread>().is_err(), "{bad}");
        }
    }
}
