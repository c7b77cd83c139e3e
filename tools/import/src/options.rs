//! Choices of the user, and questions of an import to the machine.

use std::path::Path;

use crate::sink::ListKind;

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

/// Questions of an import to the machine that tidegate will run on.
pub trait Here {
    /// Checks that tidegate can use a certificate and its key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with them.
    fn check_certificate(&self, chain: &Path, key: &Path) -> Result<(), String>;

    /// Checks that tidegate can read a file as an allow or deny list.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    fn check_list(&self, file: &Path) -> Result<(), String>;

    /// Checks that tidegate can read a folder of torrent files.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    fn check_folder(&self, folder: &Path) -> Result<(), String>;
}
