//! Where something is, and what is wrong there.

use std::fmt;
use std::sync::Arc;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's name, as the user gave it.
    pub file: Arc<str>,
    /// The line, from 1; 0 = unknown.
    pub line: u64,
}

impl Place {
    pub(crate) fn file(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), line: 0 }
    }

    /// Returns an error about this place.
    pub(crate) fn error(&self, text: impl fmt::Display) -> ImportError {
        ImportError(format!("{self}: {text}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// Why nothing can be imported: a sentence with file, line, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError(pub String);

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}
