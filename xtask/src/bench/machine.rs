//! Describes the machine of a measurement.

use std::fs;

use anyhow::Result;

use crate::command::{command, output};

/// Returns comment lines for the head of a record.
pub(super) fn describe() -> Result<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let commit = output(command(&["git", "rev-parse", "--short", "HEAD"]))?;
    let rustc = output(command(&["rustc", "--version"]))?;
    Ok(format!(
        "# {cores} cores, {}; Linux {}; {}; tidegate at {}\n# tracker on core 0, load on core 1, loopback\n",
        model.trim_start_matches([':', ' ', '\t']),
        kernel.trim(),
        rustc.trim(),
        commit.trim()
    ))
}

/// Returns today's date, as in file names.
pub(super) fn day() -> Result<String> {
    Ok(output(command(&["date", "+%Y-%m-%d"]))?.trim().to_owned())
}
