//! Assigns processors to tracker and load: never the same ones, and no two hyper-threads of one
//! core if possible.

use anyhow::Result;

/// A processor with its Linux number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processor {
    number: usize,
    /// The lowest number among its core's hyper-threads.
    core: usize,
}

/// The processors of tracker and load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) tracker: Vec<usize>,
    pub(crate) load: Vec<usize>,
}

impl Split {
    /// Assigns `count` processors to the tracker, each of its own core, and all other cores to the
    /// load. If there are too few cores, they share some as hyper-threads. Returns `None` if the load
    /// would get no processor.
    pub(crate) fn of(processors: &[Processor], count: usize) -> Option<Self> {
        let firsts: Vec<_> = processors.iter().filter(|one| one.number == one.core).collect();
        let tracker: Vec<_> = firsts.iter().take(count).map(|one| one.number).collect();
        let rest = processors.iter().filter(|one| !tracker.contains(&one.core));
        let load: Vec<_> = rest.map(|one| one.number).collect();
        if tracker.len() == count && !load.is_empty() {
            return Some(Self { tracker, load });
        }
        let numbers: Vec<_> = processors.iter().map(|one| one.number).collect();
        let (tracker, load) = numbers.split_at_checked(count)?;
        (!load.is_empty()).then(|| Self { tracker: tracker.into(), load: load.into() })
    }
}

/// Returns 1, 2, 4, … up to the number of cores that leaves the load at least as many.
pub(crate) fn default_counts(processors: &[Processor]) -> Vec<usize> {
    let cores = processors.iter().filter(|one| one.number == one.core).count();
    let doubles = std::iter::successors(Some(1), |count| Some(count * 2));
    doubles.take_while(|count| *count <= (cores / 2).max(1)).collect()
}

/// Returns the processors that this process may run on.
pub(crate) fn allowed() -> Result<Vec<Processor>> {
    use anyhow::Context as _;
    let mask = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0))
        .context("cannot read the process's CPU affinity")?;
    let numbers = (0..nix::sched::CpuSet::count()).filter(|at| mask.is_set(*at).unwrap_or(false));
    Ok(with_cores(numbers.collect()))
}

/// Starts something on these processors: children inherit the thread's CPU affinity.
pub(crate) fn on<T>(processors: &[usize], start: impl FnOnce() -> T) -> Result<T> {
    use anyhow::Context as _;
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    let this = nix::unistd::Pid::from_raw(0);
    let before = sched_getaffinity(this)?;
    let mut mask = CpuSet::new();
    for number in processors {
        mask.set(*number).with_context(|| format!("processor {number} does not exist"))?;
    }
    sched_setaffinity(this, &mask)
        .with_context(|| format!("cannot run on processors {processors:?}"))?;
    let started = start();
    sched_setaffinity(this, &before)?;
    Ok(started)
}

fn with_cores(numbers: Vec<usize>) -> Vec<Processor> {
    let siblings = |number: usize| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        parse_list(&std::fs::read_to_string(path).unwrap_or_default())
    };
    let core = |number: usize| {
        let siblings = siblings(number).into_iter().filter(|other| numbers.contains(other));
        siblings.min().unwrap_or(number)
    };
    numbers.iter().map(|number| Processor { number: *number, core: core(*number) }).collect()
}

/// Parses a kernel list of numbers: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().take(4096).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processors(cores: &[usize]) -> Vec<Processor> {
        cores.iter().enumerate().map(|(number, core)| Processor { number, core: *core }).collect()
    }

    fn split(cores: &[usize], count: usize) -> Option<(Vec<usize>, Vec<usize>)> {
        Split::of(&processors(cores), count).map(|split| (split.tracker, split.load))
    }

    #[test]
    fn cores_are_not_shared() {
        assert_eq!(split(&[0, 1], 1), Some((vec![0], vec![1])));
        assert_eq!(split(&[0, 1], 2), None);
        // Two threads a core, numbered as Linux does on most machines, and as on others.
        assert_eq!(split(&[0, 1, 0, 1], 1), Some((vec![0], vec![1, 3])));
        assert_eq!(split(&[0, 0, 2, 2], 1), Some((vec![0], vec![2, 3])));
        assert_eq!(split(&[0, 1, 2, 0, 1, 2], 2), Some((vec![0, 1], vec![2, 5])));
    }

    #[test]
    fn few_cores_are_shared() {
        assert_eq!(split(&[0, 0], 1), Some((vec![0], vec![1])));
        assert_eq!(split(&[0, 1, 0, 1], 3), Some((vec![0, 1, 2], vec![3])));
        assert_eq!(split(&[0], 1), None);
        assert_eq!(split(&[0, 1], 9), None);
    }

    #[test]
    fn default_counts_leave_half_to_the_load() {
        let counts = |cores: usize| default_counts(&processors(&(0..cores).collect::<Vec<_>>()));
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1]);
        assert_eq!(counts(9), [1, 2, 4]);
        assert_eq!(default_counts(&processors(&[0, 1, 0, 1])), [1]);
    }
}
