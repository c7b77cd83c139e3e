//! Why a request to a tracker failed.

use std::fmt;

/// A failed request to a tracker: a kind for programs and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackerError {
    /// The kind of failure.
    pub kind: FailureKind,
    /// A description of the failure and its place.
    pub text: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The name does not resolve, or nothing listens at the address.
    Unreachable,
    /// No complete response arrived within the timeout.
    Timeout,
    /// The connection closed before the response was complete.
    ConnectionLost,
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls,
    /// The response violates the protocol.
    InvalidResponse,
    /// The tracker refused the request; the text is its reason.
    Refused,
}

impl TrackerError {
    /// Creates an error.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl FailureKind {
    /// Returns the kind as it appears in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::Tls => "tls",
            Self::InvalidResponse => "invalid_response",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for TrackerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TrackerError {}
