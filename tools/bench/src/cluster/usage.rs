//! Resources that hosts and processes use: bytes of interfaces, CPU time of threads.

use std::collections::BTreeMap;
use std::fs;

use ::load::Usage;
use anyhow::{Context, Result};
use harness::network::Namespace;

/// The interface of hosts at the backbone.
const BACKBONE: &str = "eth1";
/// Of a frame on a wire, what interfaces do not count: preamble, checksum and gap.
const FRAME_BYTES: f64 = 24.0;

/// Bytes and packets that a host has sent and received at the backbone, without its other interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) received: f64,
    pub(super) sent: f64,
}

impl Traffic {
    /// Returns what a host has sent and received so far, with what a wire adds to each frame.
    pub(super) fn of(host: &Namespace) -> Result<Self> {
        // Of this thread: a process may be in several namespaces.
        let table = host.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        Self::parse(&table).context("no backbone")
    }

    /// Parses a line such as `  eth1: RECEIVED PACKETS … SENT PACKETS …`: eight numbers each.
    fn parse(table: &str) -> Option<Self> {
        let mut lines = table.lines().filter_map(|line| line.split_once(':'));
        let (_, numbers) = lines.find(|(name, _)| name.trim() == BACKBONE)?;
        let numbers: Vec<f64> =
            numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let with_frames = |at: usize| Some(numbers.get(at)? + FRAME_BYTES * numbers.get(at + 1)?);
        Some(Self { received: with_frames(0)?, sent: with_frames(8)? })
    }

    /// Returns what was sent and received since.
    pub(super) fn since(self, before: Self) -> Self {
        Self { received: self.received - before.received, sent: self.sent - before.sent }
    }
}

/// CPU time of a process so far, in seconds, by the names of its threads.
pub(super) fn thread_times(process: u32) -> Result<BTreeMap<String, f64>> {
    let folder = format!("/proc/{process}/task");
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(&folder).with_context(|| format!("cannot read {folder}"))? {
        // A thread may end at any time.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        if let Some((name, seconds)) = thread_time(&stat) {
            *times.entry(name).or_default() += seconds;
        }
    }
    Ok(times)
}

/// Parses name and CPU time of `ID (NAME) STATE …`: user and system time are fields 14 and 15, in hundredths of
/// a second.
fn thread_time(stat: &str) -> Option<(String, f64)> {
    let (before, fields) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (times.next()?.ok()?, times.next()?.ok()?);
    Some((name.to_owned(), (user + system) / 100.0))
}

/// Returns the CPU time of threads whose names begin so.
pub(super) fn time_of(times: &BTreeMap<String, f64>, start: &str) -> f64 {
    times.iter().filter(|(name, _)| name.starts_with(start)).map(|(_, time)| time).sum()
}

/// Returns the CPU time of processes and their descendants so far, in seconds.
pub(super) fn process_times(processes: &[u32]) -> Result<f64> {
    let times: Result<Vec<Usage>> = processes.iter().map(|it| Usage::times(*it)).collect();
    Ok(times?.iter().map(Usage::cpu_s).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_that_of_the_backbone() {
        let table = "Inter-| Receive\n face |bytes\n  eth0: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  \
                     eth1: 1000 10 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n";
        let traffic = Traffic::parse(table).unwrap();
        assert_eq!(traffic, Traffic { received: 1240.0, sent: 248.0 });
        assert_eq!(traffic.since(traffic), Traffic::default());
        assert_eq!(Traffic::parse("  eth0: 1 2\n"), None);
    }
}
