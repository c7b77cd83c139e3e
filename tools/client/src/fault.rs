//! Why a tracker did not do what it was asked for.

use std::fmt;

/// What went wrong: its kind for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which kind it is of.
    pub kind: Kind,
    /// What, and where.
    pub text: String,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name leads nowhere, or nobody is there.
    Unreachable,
    /// No answer, or no whole one, in the time given.
    Silent,
    /// The connection ended before its answer.
    Lost,
    /// TLS could not be agreed on, or the certificate is not believed.
    Tls,
    /// What was said is no answer.
    Garbled,
    /// The tracker refused, in its own words.
    Refused,
}

impl Fault {
    /// A fault of this kind.
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

impl Kind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::Lost => "lost",
            Self::Tls => "tls",
            Self::Garbled => "garbled",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}
