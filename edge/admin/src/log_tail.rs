//! The last lines of the log, for the dashboard. There is one for the process, as there is one log.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

/// Lines that are kept.
const LINES_MAX: usize = 500;
/// Bytes of a line that are kept: what comes from outside can be long.
const TEXT_MAX: usize = 2000;

/// The lines of this process. The application writes what it logs here, too.
pub static LOG_TAIL: LogTail = LogTail(Mutex::new(Lines { last: 0, lines: VecDeque::new() }));

/// The last lines of a log.
pub struct LogTail(Mutex<Lines>);

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
    /// Where in the program it was written.
    pub target: String,
    /// What it says.
    pub text: String,
}

impl LogTail {
    /// Adds a line; the oldest goes when there are too many.
    pub fn push(&self, level: &str, target: &str, mut text: String) {
        if text.len() > TEXT_MAX {
            text.truncate(text.floor_char_boundary(TEXT_MAX));
            text.push('…');
        }
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.last += 1;
        let (id, time) = (lines.last, time.as_secs());
        if lines.lines.len() >= LINES_MAX {
            lines.lines.pop_front();
        }
        let (level, target) = (level.into(), target.into());
        lines.lines.push_back(LogLine { id, time, level, target, text });
    }

    /// The lines after that one, the oldest first.
    pub(crate) fn after(&self, id: u64) -> Vec<LogLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.lines.iter().filter(|line| line.id > id).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_cut() {
        let tail = LogTail(Mutex::new(Lines { last: 0, lines: VecDeque::new() }));
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
