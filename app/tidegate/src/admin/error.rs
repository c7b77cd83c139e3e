//! Why a command that uses the management API fails.

use crate::cli::UsageError;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum ApiError {
    /// The arguments make no sense. A sentence.
    Usage(String),
    /// The tracker cannot be reached, or refuses the request. A sentence.
    Failed(String),
    /// The reader of standard output is gone, e.g. `head`.
    OutputClosed,
}

impl From<UsageError> for ApiError {
    fn from(UsageError(text): UsageError) -> Self {
        Self::Usage(text)
    }
}
