//! Choices of the user.

types::labelled! {
    /// An access list.
    pub enum ListKind {
        /// Only these torrents are served.
        Allow = "allow",
        /// These torrents are not served.
        Deny = "deny",
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
