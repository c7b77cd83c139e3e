//! Measures how much CPU time other processes used during a run.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// CPU times of processors so far, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTimes {
    /// Time of processes. Interrupts are excluded: the load causes them, whichever process they are
    /// charged to.
    busy_s: f64,
    /// Time that the hypervisor gave to other guests.
    stolen_s: f64,
}

/// Observes processors from a moment on.
pub(crate) struct NoiseMonitor {
    processors: Vec<usize>,
    before: CpuTimes,
    since: Instant,
}

/// Noisier runs are repeated, and marked if they stay noisy.
pub(crate) const NOISE_MAX: f64 = 0.03;

impl NoiseMonitor {
    /// Starts observing.
    pub(crate) fn start(processors: Vec<usize>) -> Result<Self> {
        let before = CpuTimes::read(&processors)?;
        Ok(Self { processors, before, since: Instant::now() })
    }

    /// Returns the fraction of CPU time that other processes used, given that the measured ones
    /// used `own_s`.
    pub(crate) fn noise(&self, own_s: f64) -> Result<f64> {
        let now = CpuTimes::read(&self.processors)?;
        let all_s = self.since.elapsed().as_secs_f64() * self.processors.len() as f64;
        Ok(self.before.noise_until(&now, own_s, all_s))
    }
}

impl CpuTimes {
    fn read(processors: &[usize]) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Ok(Self::parse(&stat, processors))
    }

    /// Parses lines such as `cpu1 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`, in hundredths
    /// of a second.
    fn parse(stat: &str, processors: &[usize]) -> Self {
        let mut spent = Self { busy_s: 0.0, stolen_s: 0.0 };
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !number.is_some_and(|number| processors.contains(&number)) {
                continue;
            }
            let times: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
            spent.busy_s += times.iter().take(3).sum::<f64>() / 100.0;
            spent.stolen_s += times.get(7).unwrap_or(&0.0) / 100.0;
        }
        spent
    }

    fn noise_until(&self, now: &Self, own_s: f64, all_s: f64) -> f64 {
        let others_s = (now.busy_s - self.busy_s - own_s).max(0.0);
        let stolen_s = (now.stolen_s - self.stolen_s).max(0.0);
        (others_s + stolen_s) / all_s.max(f64::MIN_POSITIVE)
    }
}

/// Returns the CPU time of all children that this process has waited for, in seconds: load testers,
/// and trackers of earlier runs.
pub(crate) fn children_cpu_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  999 9 9 9 9 9 9 9\ncpu0 100 20 30 1000 5 6 7 40 0 0\n\
                        cpu1 10 0 0 1000 0 0 0 0 0 0\ncpu10 5000 0 0 0 0 0 0 0\nintr 5\n";

    #[test]
    fn other_processes_and_the_hypervisor_are_noise() {
        let before = CpuTimes::parse("", &[0, 1]);
        let now = CpuTimes::parse(STAT, &[0, 1]);
        assert_eq!(now, CpuTimes { busy_s: 1.6, stolen_s: 0.4 });
        let near = |noise: f64, expected: f64| assert!((noise - expected).abs() < 1e-9, "{noise}");
        near(before.noise_until(&now, 1.1, 10.0), 0.09);
        near(before.noise_until(&now, 5.0, 10.0), 0.04);
    }
}
