//! Lists as text, one entry a line. Half a list must not come into force: the first bad line is an error.

use std::fmt;
use std::io::{BufRead, Read};

/// An invalid line of a list.
#[derive(Debug)]
pub struct BadLine {
    /// Its number, counted from 1.
    pub line: usize,
    /// Its fault.
    pub fault: String,
}

/// Maximum length of a line in bytes, comment included.
const LINE_MAX: usize = 1024;

/// Returns the fault of a line with one entry more than a list may hold.
pub(crate) fn too_many(most: usize) -> String {
    format!("more than {most} entries")
}

/// Calls `visit` for each line, with its line break.
///
/// # Errors
///
/// Returns the first line that is too long, cannot be read, or has the fault that `visit` returns.
pub(crate) fn read_lines(
    mut text: impl BufRead,
    mut visit: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), BadLine> {
    let mut line = Vec::new();
    for number in 1.. {
        let bad = |fault| BadLine { line: number, fault };
        line.clear();
        let mut limited = text.by_ref().take(LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut line);
        if read.map_err(|error| bad(error.to_string()))? == 0 {
            break;
        }
        if line.len() > LINE_MAX {
            return Err(bad(format!("longer than {LINE_MAX} bytes")));
        }
        visit(&line).map_err(bad)?;
    }
    Ok(())
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl std::error::Error for BadLine {}
