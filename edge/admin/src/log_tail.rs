//! The last lines of the log, for the API and the dashboard. One for the process, as there is one log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::since_epoch;
use crate::log_levels::area_of;
use utoipa::ToSchema;

/// Lines kept.
const LINES_MAX: usize = 500;
/// Bytes kept of a line: text from outside can be long.
const MESSAGE_MAX: usize = 2000;

/// The last log lines of this process. The application pushes every line that it logs.
pub static LOG_TAIL: LogTail = LogTail::new();

/// The last lines of a log, and a count of suppressed ones.
pub struct LogTail {
    lines: Mutex<Lines>,
    suppressed: AtomicU64,
}

struct Lines {
    last: u64,
    lines: VecDeque<LogLine>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogLine {
    /// Sequence number.
    pub id: u64,
    /// Unix time, seconds.
    pub time: u64,
    /// ERROR, WARN, INFO, DEBUG or TRACE.
    pub level: String,
    /// The part of the program; docs/operate/observe.md lists the areas.
    pub area: String,
    /// The module that logged it.
    pub target: String,
    /// The message with its fields.
    pub message: String,
}

impl LogTail {
    const fn new() -> Self {
        let lines = Mutex::new(Lines { last: 0, lines: VecDeque::new() });
        Self { lines, suppressed: AtomicU64::new(0) }
    }

    /// Adds a line logged by `target`. The oldest line is dropped when the tail is full.
    pub fn push(&self, level: &str, target: &str, mut message: String) {
        if message.len() > MESSAGE_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_MAX));
            message.push('…');
        }
        let time = since_epoch(SystemTime::now());
        let mut lines = self.lines.lock();
        lines.last += 1;
        let (id, time) = (lines.last, time.as_secs());
        if lines.lines.len() >= LINES_MAX {
            lines.lines.pop_front();
        }
        let (level, area, target) = (level.into(), area_of(target).into(), target.into());
        lines.lines.push_back(LogLine { id, time, level, area, target, message });
    }

    /// Counts a line that the rate limit suppressed.
    pub fn count_suppressed(&self) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// Returns the lines with ids above `id`, oldest first.
    pub(crate) fn after(&self, id: u64) -> Vec<LogLine> {
        let lines = self.lines.lock();
        lines.lines.iter().filter(|line| line.id > id).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_and_truncates_long_ones() {
        let tail = LogTail::new();
        for number in 0..LINES_MAX + 3 {
            tail.push("INFO", "tidegate", format!("line {number}"));
        }
        let all = tail.after(0);
        assert_eq!((all.len(), all[0].id, all[0].message.as_str()), (LINES_MAX, 4, "line 3"));
        tail.push("WARN", "tidegate", "é".repeat(MESSAGE_MAX));
        let [line] = &tail.after(all[LINES_MAX - 1].id)[..] else { panic!("one is new") };
        assert!(line.message.len() <= MESSAGE_MAX + 4 && line.message.ends_with('…'));
    }
}
