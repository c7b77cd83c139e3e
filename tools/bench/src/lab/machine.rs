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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_kernel_files() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A: B\n"), Some("A: B"));
        assert_eq!(memory_kib("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2048));
        assert_eq!((processor("x"), memory_kib("x")), (None, None));
    }

    #[test]
    fn times_have_one_form() {
        let now = now();
        assert_eq!((now.len(), &now[10..11], &now[13..14]), (19, " ", ":"), "{now}");
    }

    #[test]
    fn a_folder_outside_a_repository_has_no_commit() {
        assert_eq!(commit(Path::new("/")), "unknown");
        assert!(commit(Path::new(env!("CARGO_MANIFEST_DIR"))).len() >= 7);
    }
}
