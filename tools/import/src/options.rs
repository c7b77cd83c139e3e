//! Choices of the user.

/// An access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// Only these torrents are served.
    Allow,
    /// These torrents are not served.
    Deny,
}

impl ListKind {
    /// Returns the word for it in the configuration.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// Choices of the user.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The directory of the records, if they are to be written.
    pub state: Option<String>,
    /// The list that files of info hashes are for. Absent: the configuration says it.
    pub list: Option<ListKind>,
    /// Compile-time options of opentracker, such as `WANT_FULLSCRAPE`.
    pub compiled: Vec<String>,
    /// Addresses and networks of reverse proxies. Empty: this machine.
    pub proxies: Vec<String>,
}
