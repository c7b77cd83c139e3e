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

types::labelled! {
    /// The kinds of failure.
    pub enum FailureKind {
        /// The name does not resolve, or nothing listens at the address.
        Unreachable = "unreachable",
        /// No complete response arrived within the timeout.
        Timeout = "timeout",
        /// The connection closed before the response was complete.
        ConnectionLost = "connection_lost",
        /// The TLS handshake failed, or the certificate is not trusted.
        Tls = "tls",
        /// The response violates the protocol.
        InvalidResponse = "invalid_response",
        /// The tracker refused the request; the text is its reason.
        Refused = "refused",
    }
}

impl TrackerError {
    /// Creates an error.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl fmt::Display for TrackerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for TrackerError {}
