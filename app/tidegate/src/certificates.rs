//! Certificates from files: read at the start, on SIGHUP, and when they change.

use std::time::{Duration, SystemTime};

use anyhow::Result;
use net::tls::{Certificate, Chain};

use crate::config::Config;

/// How long before its end a certificate is spoken of.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

/// Reads those that `config` names.
pub(crate) fn read(config: &Config) -> Result<Vec<Certificate>> {
    let read = |files| Certificate::read(files).map_err(Into::into);
    config.certificates.iter().map(read).collect()
}

/// What is in force, but hardly meant.
pub(crate) fn warnings(config: &Config, certificates: &[Certificate]) -> Vec<String> {
    let now = SystemTime::now();
    let mut warnings = Vec::new();
    for (files, certificate) in config.certificates.iter().zip(certificates) {
        let mut doubt = |text: &str| warnings.push(format!("{}: {text}", files.chain.display()));
        if certificate.expires() < now {
            doubt("the certificate has expired");
        } else if !certificate.is_good_at(now) {
            doubt("the certificate is not valid yet: is the clock right?");
        } else if !certificate.is_good_at(now + EXPIRY_WARNING) {
            doubt("the certificate expires in less than 14 days");
        }
        if certificate.names().is_empty() {
            doubt("the certificate is for no host name");
        }
        match certificate.chain() {
            Chain::Whole => {}
            Chain::Short => doubt(
                "the certificate of the authority that issued the first one is missing: \
                 most clients will refuse it",
            ),
            Chain::Broken => doubt(
                "each certificate but the last must be issued by the one behind it: \
                 most clients will refuse this",
            ),
        }
    }
    warnings
}
