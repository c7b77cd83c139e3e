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
    /// The limit of similar lines.
    pub rate_limit: LogRateLimit,
}

/// Limit of the number of similar lines in an interval.
#[derive(Clone, Copy, Debug)]
pub struct LogRateLimit {
    /// 0 = unlimited.
    pub lines_max: u32,
    /// Seconds over which similar lines are counted.
    pub interval_s: u32,
}

impl LogConfig {
    pub(super) fn from_section(section: &LogSection, problems: &mut Vec<Problem>) -> Self {
        let levels = section.level.value.parse().unwrap_or_else(|text: String| {
            problems.push(section.level.problem(text));
            LogLevels::default()
        });
        let rate_limit = LogRateLimit {
            lines_max: section.rate_limit_lines.value,
            interval_s: section.rate_limit_s.value,
        };
        Self { levels, format: section.format.value, rate_limit }
    }
}
