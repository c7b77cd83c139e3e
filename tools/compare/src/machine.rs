//! The machine and the time of a measurement.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// A machine as its kernel describes it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// Other relevant settings: frequency governor, mitigations, huge pages, socket buffers.
    pub(crate) settings: Vec<(String, String)>,
}

/// Relevant kernel settings and their files.
const SETTINGS: &[(&str, &str)] = &[
    ("frequency governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("hyper-threads", "/sys/devices/system/cpu/smt/control"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("Spectre v2", "/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
    ("Meltdown", "/sys/devices/system/cpu/vulnerabilities/meltdown"),
    ("net.core.rmem_max", "/proc/sys/net/core/rmem_max"),
    ("net.core.wmem_max", "/proc/sys/net/core/wmem_max"),
    ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
];

impl Machine {
    /// Describes this machine.
    pub(crate) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let setting = |(name, path): &(&str, &str)| {
            let text = read(path).trim().to_owned();
            (!text.is_empty()).then(|| ((*name).to_owned(), text))
        };
        let cpuinfo = read("/proc/cpuinfo");
        Self {
            processor: processor(&cpuinfo).unwrap_or("unknown processor").to_owned(),
            processors: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: memory_kib(&read("/proc/meminfo")).unwrap_or(0).div_ceil(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            settings: SETTINGS.iter().filter_map(setting).collect(),
        }
    }

    /// Formats the machine as one line.
    pub(crate) fn line(&self) -> String {
        let Self { processor, processors, memory_gib, kernel, .. } = self;
        format!("{processors} processors ({processor}), {memory_gib} GiB, Linux {kernel}")
    }
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn memory_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Returns the time in UTC, such as `2026-11-21 14:05`.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs())
}

fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Every 400 years have the same number of days. Years begin in March here, so that leap days
    // come last.
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + late;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_800, "2000-03-01 00:00"),
            (1_735_689_599, "2024-12-31 23:59"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn parses_kernel_files() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A: B\n"), Some("A: B"));
        assert_eq!(memory_kib("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048));
        assert_eq!((processor("x"), memory_kib("x")), (None, None));
    }
}
