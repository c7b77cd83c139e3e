//! `[log]`: which lines are written, and how many.

use admin::LogLevels;

use super::choices::LogFormat;
use super::key::Problem;
use super::keys::LogSection;

/// The log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The level of each area.
    pub levels: LogLevels,
    /// The form of the lines.
    pub format: LogFormat,
    /// Similar lines in an interval; 0 = unlimited.
    pub rate_limit_lines: u32,
    /// Seconds over which similar lines are counted.
    pub rate_limit_s: u32,
}

impl LogConfig {
    pub(super) fn from_section(section: &LogSection, problems: &mut Vec<Problem>) -> Self {
        let levels = section.level.value.parse().unwrap_or_else(|text: String| {
            problems.push(section.level.problem(text));
            LogLevels::default()
        });
        Self {
            levels,
            format: section.format.value,
            rate_limit_lines: section.rate_limit_lines.value,
            rate_limit_s: section.rate_limit_s.value,
        }
    }
}
