//! The last lines of the log, for the dashboard. There is one for the process, as there is one log.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::log_levels::area_of;

/// Lines that are kept.
const LINES_MAX: usize = 500;
/// Bytes of a line that are kept: what comes from outside can be long.
const TEXT_MAX: usize = 2000;

/// The lines of this process. The application writes what it logs here, too.
pub static LOG_TAIL: LogTail = LogTail::new();

/// The last lines of a log.
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
    /// Grows by one with each.
    pub id: u64,
    /// Seconds since 1970.
    pub time: u64,
    /// ERROR, WARN, INFO, DEBUG or TRACE.
    pub level: String,
    /// The part of the program that it is about: docs/operating.md names them.
    pub area: String,
    /// Where in the program it was written.
    pub target: String,
    /// What it says.
    pub text: String,
}

impl LogTail {
    const fn new() -> Self {
        let lines = Mutex::new(Lines { last: 0, lines: VecDeque::new() });
        Self { lines, suppressed: AtomicU64::new(0) }
    }

    /// Adds a line that is written from `target`; the oldest goes when there are too many.
    pub fn push(&self, level: &str, target: &str, mut text: String) {
        if text.len() > TEXT_MAX {
            text.truncate(text.floor_char_boundary(TEXT_MAX));
            text.push('…');
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.last += 1;
        let (id, time) = (lines.last, time.as_secs());
        if lines.lines.len() >= LINES_MAX {
            lines.lines.pop_front();
        }
        let (level, area, target) = (level.into(), area_of(target).into(), target.into());
        lines.lines.push_back(LogLine { id, time, level, area, target, text });
    }

    /// Counts a line that was one too many of its kind.
    pub fn count_suppressed(&self) {
        self.suppressed.fetch_add(1, Ordering::Relaxed);
    }

    /// Such lines so far.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    /// The lines after that one, the oldest first.
    pub(crate) fn after(&self, id: u64) -> Vec<LogLine> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.lines.iter().filter(|line| line.id > id).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let tail = LogTail::new();
        for number in 0..LINES_MAX + 3 {
            tail.push("INFO", "tidegate", format!("line {number}"));
        }
        let all = tail.after(0);
        assert_eq!((all.len(), all[0].id, all[0].text.as_str()), (LINES_MAX, 4, "line 3"));
        tail.push("WARN", "tidegate", "é".repeat(TEXT_MAX));
        let [line] = &tail.after(all[LINES_MAX - 1].id)[..] else { panic!("one is new") };
        assert!(line.text.len() <= TEXT_MAX + 4 && line.text.ends_with('…'));
    }
}
