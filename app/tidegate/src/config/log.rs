//! `[log]`: what is written, and how much.

use admin::LogLevels;

use super::read::{Problem, Settings};

/// The log.
#[derive(Clone, Debug)]
pub(crate) struct LogConfig {
    pub(crate) levels: LogLevels,
    pub(crate) is_json: bool,
    pub(crate) repeats: Repeat,
}

/// How many lines of the same kind there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// 0 is no bound.
    pub(crate) lines_max: u32,
    pub(crate) interval_s: u32,
}

impl LogConfig {
    pub(super) fn from_settings(settings: &Settings, problems: &mut Vec<Problem>) -> Self {
        let name = "log.level";
        let levels = settings.text(name).parse().unwrap_or_else(|text| {
            problems.push(settings.problem(name, text));
            LogLevels::default()
        });
        let (lines_max, interval_s) =
            (settings.int("log.rate_limit_lines"), settings.int("log.rate_limit_s"));
        let is_json = settings.text("log.format") == "json";
        Self { levels, is_json, repeats: Repeat { lines_max, interval_s } }
    }
}
