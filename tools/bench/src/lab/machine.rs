//! The machine, the commit and the time of a measurement.

use std::fs;
use std::path::Path;
use std::process::Command;

use time::OffsetDateTime;

/// Returns a line about this machine: processors, memory, kernel.
pub(crate) fn machine() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let model = processor(&cpuinfo).unwrap_or("unknown processor");
    let gib = memory_kib(&read("/proc/meminfo")).unwrap_or(0).div_ceil(1 << 20);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{processors} processors ({model}), {gib} GiB, Linux {}", kernel.trim())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

fn memory_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Returns the commit that is checked out in a folder, with a mark if files differ from it.
pub(crate) fn commit(folder: &Path) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["describe", "--always", "--dirty", "--abbrev=7"]);
    harness::output(git).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the time in UTC, such as `2026-11-21 14:05:09`.
pub(crate) fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let (hour, minute, second) = now.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02}", now.date())
}
