//! Why a command that uses the management API fails.

use std::fmt;

use crate::cli::UsageError;

#[derive(Debug)]
pub(crate) enum ApiError {
    /// The arguments make no sense. A sentence.
    Usage(String),
    /// The tracker cannot be reached, or refuses the request. A sentence.
    Failed(String),
    /// The reader of standard output is gone, e.g. `head`.
    OutputClosed,
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Failed(text) => formatter.write_str(text),
            Self::OutputClosed => formatter.write_str("the reader of standard output is gone"),
        }
    }
}

impl std::error::Error for ApiError {}

impl From<UsageError> for ApiError {
    fn from(UsageError(text): UsageError) -> Self {
        Self::Usage(text)
    }
}
