//! Certificates from files: read at startup, on SIGHUP, and when the files change.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, Result};
use net::tls::{Certificate, Certificates, ChainStatus};
use tracing::warn;

use crate::permissions::is_readable_by_all;
use config::Config;

const DAY_S: u64 = 24 * 3600;

pub(crate) fn read(config: &Config) -> Result<Vec<Certificate>> {
    let read = |files| Certificate::read(files).context("tls.certificates");
    config.certificates.iter().map(read).collect()
}

/// Warns of what is wrong with certificates, and uses them from now on.
pub(crate) fn install(config: &Config, in_use: &Certificates, certificates: Vec<Certificate>) {
    let warnings = warnings(config, &certificates).into_iter().chain(key_warnings(config));
    warnings.for_each(|warning| warn!("{warning}"));
    in_use.replace(certificates);
}

pub(crate) fn warnings(config: &Config, certificates: &[Certificate]) -> Vec<String> {
    let now = SystemTime::now();
    let mut warnings = Vec::new();
    for (files, certificate) in config.certificates.iter().zip(certificates) {
        let mut warn = |text: &str| warnings.push(format!("{}: {text}", files.chain.display()));
        if certificate.expires() < now {
            warn("the certificate has expired, so clients refuse it: renew it");
        } else if !certificate.is_valid_at(now) {
            warn("the certificate is not valid yet: check the clock of this machine");
        } else if let Some(text) = expiry_warning(certificate, now) {
            warn(&text);
        }
        if certificate.names().is_empty() {
            warn(
                "the certificate names no host, so most clients refuse it: issue it with a subjectAltName",
            );
        }
        match certificate.chain() {
            ChainStatus::Complete => {}
            ChainStatus::MissingIntermediate => warn(
                "the intermediate certificate is missing: add the certificate of the authority that \
                 issued the first one, or most clients will refuse it",
            ),
            ChainStatus::OutOfOrder => warn(
                "the certificates are in the wrong order: each must be followed by that of its issuer, \
                 or most clients will refuse them",
            ),
        }
    }
    warnings
}

fn expiry_warning(certificate: &Certificate, now: SystemTime) -> Option<String> {
    if !admin::is_renewal_late(&(certificate.begins()..certificate.expires()), now) {
        return None;
    }
    let left = certificate.expires().duration_since(now).unwrap_or_default();
    let days = left.as_secs() / DAY_S + 1;
    let plural = if days == 1 { "" } else { "s" };
    Some(format!("the certificate expires in less than {days} day{plural}: renew it"))
}

pub(crate) fn key_warnings(config: &Config) -> Vec<String> {
    let keys = config.certificates.iter().map(|files| &files.key);
    let readable = keys.filter(|key| is_readable_by_all(key));
    let warning = |key: &PathBuf| {
        format!("{}: every user of this machine can read this key: chmod 600 it", key.display())
    };
    readable.map(warning).collect()
}
