//! Lists as text, one entry a line. Half a list must not come into force: the first bad line is an error.

use std::fmt;
use std::io::{self, BufRead, Read};

use types::ParseInfoHashError;

/// An invalid line of a list.
#[derive(Debug)]
pub struct BadLine {
    /// Its number, counted from 1.
    pub line: usize,
    /// Its fault.
    pub fault: LineFault,
}

/// A fault in a line.
#[derive(Debug)]
pub enum LineFault {
    /// It holds something that is not an info hash.
    Hash(ParseInfoHashError),
    /// It holds something that is not a network or a range of addresses.
    Network,
    /// It is longer than `LINE_MAX`.
    TooLong,
    /// It has one entry more than a list may hold, which is this many.
    TooMany(usize),
    /// It could not be read.
    Io(io::Error),
}

/// Maximum length of a line in bytes, comment included.
const LINE_MAX: usize = 1024;

/// Calls `visit` for each line, with its line break.
///
/// # Errors
///
/// Returns the first line that is too long, cannot be read, or has the fault that `visit` returns.
pub(crate) fn read_lines(
    mut text: impl BufRead,
    mut visit: impl FnMut(&[u8]) -> Result<(), LineFault>,
) -> Result<(), BadLine> {
    let mut line = Vec::new();
    for number in 1.. {
        let bad = |fault| BadLine { line: number, fault };
        line.clear();
        let mut limited = text.by_ref().take(LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut line);
        if read.map_err(|error| bad(LineFault::Io(error)))? == 0 {
            break;
        }
        if line.len() > LINE_MAX {
            return Err(bad(LineFault::TooLong));
        }
        visit(&line).map_err(bad)?;
    }
    Ok(())
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.fault {
            LineFault::Hash(error) => write!(f, "{error}"),
            LineFault::Network => f.write_str(
                "expected a network such as 192.0.2.0/24, a range such as 192.0.2.1-192.0.2.9, or \
                 such a range in the form of P2P or DAT lists",
            ),
            LineFault::TooLong => write!(f, "longer than {LINE_MAX} bytes"),
            LineFault::TooMany(most) => write!(f, "more than {most} entries"),
            LineFault::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for BadLine {}
