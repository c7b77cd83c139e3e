//! Resource usage of a process and its descendants, from /proc.

use std::fs;

use anyhow::{Context, Result, bail};

/// Resource usage of a process and its descendants so far. Some trackers, and most TLS proxies,
/// consist of several processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time in user space in seconds, all threads.
    pub user_s: f64,
    /// CPU time in the kernel in seconds, all threads.
    pub system_s: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Peak resident memory in bytes.
    pub peak_bytes: u64,
}

impl Usage {
    /// Returns the usage of a process and its descendants.
    pub fn of(pid: u32) -> Result<Self> {
        Self::with_descendants(pid, Self::of_one)
    }

    /// Returns only the CPU times, which is cheap for the process.
    pub fn times(pid: u32) -> Result<Self> {
        Self::with_descendants(pid, |pid| {
            let (user_s, system_s) = times(&read(pid, "stat")?)?;
            Ok(Self { user_s, system_s, ..Self::default() })
        })
    }

    fn with_descendants(pid: u32, of_one: impl Fn(u32) -> Result<Self>) -> Result<Self> {
        let mut sum = of_one(pid)?;
        // The usage of a descendant that exits at this moment is lost.
        for one in started_by(pid).into_iter().filter_map(|pid| of_one(pid).ok()) {
            sum.user_s += one.user_s;
            sum.system_s += one.system_s;
            sum.resident_bytes += one.resident_bytes;
            sum.peak_bytes += one.peak_bytes;
        }
        Ok(sum)
    }

    /// Returns the usage of one process.
    pub(crate) fn of_one(pid: u32) -> Result<Self> {
        Self::parse(&read(pid, "stat")?, &read(pid, "smaps_rollup")?, &read(pid, "status")?)
    }

    /// Returns the CPU time used since `before`, and the current memory.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            user_s: self.user_s - before.user_s,
            system_s: self.system_s - before.system_s,
            ..*self
        }
    }

    /// Returns the CPU time in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    fn parse(stat: &str, memory: &str, status: &str) -> Result<Self> {
        let (user_s, system_s) = times(stat)?;
        // Counted page by page; the figure in `status` may lack 64 pages per core.
        let resident_bytes = kilobytes(memory, "Rss:").context("no Rss in smaps_rollup")?;
        let peak = kilobytes(status, "VmHWM:").context("no VmHWM in status")?;
        Ok(Self { user_s, system_s, resident_bytes, peak_bytes: peak.max(resident_bytes) })
    }
}

fn read(pid: u32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// Returns the running descendants of a process; at most [`PROCESSES_MAX`].
fn started_by(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next).copied().filter(|_| all.len() < PROCESSES_MAX) {
        // Each thread has its own list.
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        for list in lists {
            all.extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        next += 1;
    }
    all.split_off(1)
}

/// More processes than any tracker has.
const PROCESSES_MAX: usize = 4096;

/// Parses the CPU times in user space and in the kernel, in seconds.
fn times(stat: &str) -> Result<(f64, f64)> {
    // The process name may contain anything, including parentheses. The field after it is number 3
    // of proc(5); user and system time are numbers 14 and 15.
    let (_, fields) = stat.rsplit_once(')').context("no process name in stat")?;
    let times = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    let times: Vec<f64> = times.collect::<Result<_, _>>()?;
    let [user, system] = times[..] else { bail!("stat is cut short") };
    // Linux counts CPU time for user space in hundredths of a second.
    Ok((user / 100.0, system / 100.0))
}

/// Returns the value of a field in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_usage_after_an_unusual_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 1234 56 0 0 20 0";
        let memory = "5-7 ---p 0 00:00 0 [rollup]\nRss:    2000 kB\nPss:  1000 kB\n";
        let status = "Name:\ta\nVmHWM:\t    3000 kB\n";
        let usage = Usage::parse(stat, memory, status).unwrap();
        let (resident_bytes, peak_bytes) = (2_048_000, 3_072_000);
        assert_eq!(usage, Usage { user_s: 12.34, system_s: 0.56, resident_bytes, peak_bytes });
        assert!(Usage::parse("7 (a) S 1", memory, status).is_err());
        assert!(Usage::parse(stat, "", status).is_err() && Usage::parse(stat, memory, "").is_err());
    }

    #[test]
    fn includes_descendants() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sh -c 'sleep 60 & echo; wait' & wait"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // All are there once the innermost has spoken.
        let mut byte = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let others = started_by(shell.id());
        let (all, one) = (Usage::of(shell.id()).unwrap(), Usage::of_one(shell.id()).unwrap());
        for pid in others.iter().chain([&shell.id()]) {
            let kill =
                std::process::Command::new("sh").args(["-c", &format!("kill -9 {pid}")]).status();
            assert!(kill.unwrap().success());
        }
        shell.wait().unwrap();
        assert_eq!(others.len(), 2);
        assert!(all.resident_bytes > one.resident_bytes && all.peak_bytes > one.peak_bytes);
    }
}
