//! Tests whether a torrent's peers are returned evenly, with Pearson's test over many announces.
//!
//! Two things can be uneven. Some peers may be returned more often than others, which shows in one
//! peer of
//! each response. Or certain peers may be returned together, which shows only in whole responses,
//! whose
//! peers are then not drawn independently.

use std::collections::BTreeMap;

use crate::EvennessTest;

/// Counts of how often each of a torrent's peers was returned.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<u16, Count>,
    announces: u64,
}

#[derive(Debug, Default)]
struct Count {
    /// As the one peer picked from a response.
    picked: u64,
    /// In total.
    given: u64,
}

impl Tally {
    /// Creates a tally of all peers, identified by their ports.
    pub(crate) fn new(ports: impl IntoIterator<Item = u16>) -> Self {
        let counts = ports.into_iter().map(|port| (port, Count::default()));
        Self { counts: counts.collect(), announces: 0 }
    }

    /// Counts a response with these ports, of which index `pick` is the picked one.
    pub(crate) fn add(&mut self, ports: &[u16], pick: usize) {
        self.announces += 1;
        for (at, port) in ports.iter().enumerate() {
            if let Some(count) = self.counts.get_mut(port) {
                count.given += 1;
                count.picked += u64::from(at == pick);
            }
        }
    }

    /// Returns the test's result, or `None` if all or none of the peers were returned each time.
    pub(crate) fn sample(&self) -> Option<EvennessTest> {
        let peers = self.counts.len() as f64;
        let picked: u64 = self.counts.values().map(|count| count.picked).sum();
        let given: u64 = self.counts.values().map(|count| count.given).sum();
        let part = given as f64 / (self.announces as f64 * peers);
        if self.counts.len() < 2 || picked == 0 || part >= 1.0 {
            return None;
        }
        let squares = |sum: u64, count: fn(&Count) -> u64| -> f64 {
            let expected = sum as f64 / peers;
            let counts = self.counts.values().map(|it| (count(it) as f64 - expected).powi(2));
            counts.sum::<f64>() / expected
        };
        let chi_square = squares(picked, |count| count.picked);
        // Peers of one response are drawn without repetition, so counts vary less than for
        // independent draws.
        let joint_chi_square =
            squares(given, |count| count.given) / (1.0 - part) * (peers - 1.0) / peers;
        let degrees = self.counts.len() as u64 - 1;
        let tail = |chi_square| tail(chi_square, degrees as f64);
        let (p, joint_p) = (tail(chi_square), tail(joint_chi_square));
        Some(EvennessTest { chi_square, degrees, p, joint_chi_square, joint_p })
    }
}

/// Returns the probability of a chi-square of at least this value (Wilson and Hilferty, 1931);
/// accurate to
/// three digits for the degrees of freedom used here.
fn tail(chi_square: f64, degrees: f64) -> f64 {
    let variance = 2.0 / (9.0 * degrees);
    let z = ((chi_square / degrees).cbrt() - (1.0 - variance)) / variance.sqrt();
    let upper = complement(z.abs() / std::f64::consts::SQRT_2) / 2.0;
    if z >= 0.0 { upper } else { 1.0 - upper }
}

/// The complementary error function for non-negative arguments (Abramowitz and Stegun, 7.1.26).
fn complement(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let terms = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    terms.iter().fold(0.0, |sum, term| (sum + term) * t) * (-x * x).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn tail_matches_published_tables() {
        for (chi_square, degrees, p) in [
            (18.307, 10.0, 0.05),
            (3.940, 10.0, 0.95),
            (124.342, 100.0, 0.05),
            (149.449, 100.0, 0.001),
            (249.445, 200.0, 0.01),
        ] {
            let found = tail(chi_square, degrees);
            assert!((found - p).abs() < 0.002, "{chi_square}: {found}");
        }
    }

    /// Runs the test on 1000 responses of `draw`, each with 25 of 100 peers.
    fn sample(mut draw: impl FnMut(&mut Random) -> Vec<u16>) -> EvennessTest {
        let mut random = Random::new(4);
        let mut tally = Tally::new(0..100);
        for _ in 0..1000 {
            let ports = draw(&mut random);
            tally.add(&ports, random.below(25));
        }
        tally.sample().unwrap()
    }

    /// Draws 25 distinct ports below 100 from `numbers`, taken modulo 100.
    fn drawn(random: &mut Random, numbers: usize) -> Vec<u16> {
        let mut ports = Vec::new();
        while ports.len() < 25 {
            let port = (random.below(numbers) % 100) as u16;
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        ports
    }

    #[test]
    fn detects_uneven_choices() {
        let even = sample(|random| drawn(random, 100));
        assert_eq!(even.degrees, 99);
        for p in [even.p, even.joint_p] {
            assert!((0.001..0.999).contains(&p), "{even:?}");
        }
        // Some peers are missing; some appear twice as often; always the same ones.
        assert!(sample(|random| drawn(random, 80)).p < 1e-6);
        assert!(sample(|random| drawn(random, 130)).p < 1e-3);
        assert!(sample(|random| drawn(random, 130)).joint_p < 1e-6);
        assert!(sample(|_| (0..25).collect()).p < 1e-6);
    }

    #[test]
    fn detects_peers_returned_together() {
        let together = sample(|random| {
            let first = random.below(4) as u16 * 25;
            (first..first + 25).collect()
        });
        assert!((0.001..0.999).contains(&together.p), "{together:?}");
        assert!(!(1e-3..1.0 - 1e-3).contains(&together.joint_p), "{together:?}");
    }

    #[test]
    fn no_result_without_a_choice() {
        let all: Vec<u16> = (0..20).collect();
        let mut tally = Tally::new(0..10);
        assert_eq!(tally.sample(), None);
        tally.add(&all[..10], 3);
        assert_eq!(tally.sample(), None);
        let mut tally = Tally::new(0..10);
        tally.add(&all[10..], 3);
        assert_eq!(tally.sample(), None);
    }
}
