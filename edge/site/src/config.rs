//! The configuration of a site, and errors of its start.

use std::path::PathBuf;

use mysql::OptsBuilder;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::credit::Factors;
use crate::gazelle::tokens::SiteUrl;
use crate::lists::ListWindows;
use crate::probes::ProbeConfig;

types::labelled! {
    /// The software of a site.
    pub enum SiteKind {
        /// Any: it reads the feed.
        Feed = "feed",
        /// UNIT3D, whose database is read and written.
        Unit3d = "unit3d",
        /// Gazelle, likewise.
        Gazelle = "gazelle",
    }
}

/// Factors of donors, which replace those of their group. `None` = the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DonorRule {
    /// Percent of bytes sent.
    pub upload_factor: Option<u16>,
    /// Percent of bytes received.
    pub download_factor: Option<u16>,
}

/// TLS to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseTls {
    /// None.
    Off,
    /// With certificates of the authorities that browsers trust.
    Public,
    /// With certificates of the authority in this PEM file, too.
    Authority(PathBuf),
}

/// The configuration of a site.
#[derive(Clone)]
pub struct SiteConfig {
    /// The software of the site.
    pub kind: SiteKind,
    /// The URL of the site's database, `mysql://USER:PASSWORD@HOST:PORT/NAME`.
    pub database: Option<String>,
    /// The password of the database, if it is not in the URL.
    pub database_password: Option<String>,
    /// TLS of connections to the database, if the URL does not set it.
    pub database_tls: DatabaseTls,
    /// UNIT3D's `TRACKER_KEY`: who knows it may call.
    pub tracker_key: Option<String>,
    /// Gazelle's password for updates.
    pub site_password: Option<String>,
    /// Gazelle's password for reports.
    pub report_password: Option<String>,
    /// The address of Gazelle for calls about used-up tokens.
    pub url: Option<SiteUrl>,
    /// Seconds within which the database has an announce, if it keeps up: what a kill loses at most.
    pub flush_s: u32,
    /// The name of this node in the site's database.
    pub node: String,
    /// Factors of all users, in percent.
    pub factors: Factors,
    /// Factors of donors.
    pub donor: DonorRule,
    /// Factors of donors for life.
    pub lifetime_donor: DonorRule,
    /// Clients that a user may have in a torrent.
    pub clients_per_torrent: u16,
    /// Most MiB of the spool.
    pub spool_mib: u64,
    /// True if the node is one of a cluster: the others get the sessions of each batch, and the calls of the site.
    pub is_node: bool,
    /// Lists of peers with seeders that a user gets. Kind `unit3d` only, as the following.
    pub seed_lists: ListWindows,
    /// Lists of leechers that a user's seeders get.
    pub leech_lists: ListWindows,
    /// Probes of clients for connections that they accept.
    pub probes: ProbeConfig,
}

impl Default for SiteConfig {
    fn default() -> Self {
        Self {
            kind: SiteKind::Feed,
            database: None,
            database_password: None,
            database_tls: DatabaseTls::Off,
            tracker_key: None,
            site_password: None,
            report_password: None,
            url: None,
            flush_s: 3,
            node: "tidegate".to_owned(),
            factors: Factors::PLAIN,
            donor: DonorRule::default(),
            lifetime_donor: DonorRule::default(),
            clients_per_torrent: 3,
            spool_mib: 1_024,
            is_node: false,
            seed_lists: ListWindows::new(),
            leech_lists: ListWindows::new(),
            probes: ProbeConfig { from: Vec::new(), required: false, may_probe: |_| false },
        }
    }
}

/// Why a site cannot be opened, with the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SiteError(pub(crate) String);

impl SiteError {
    /// Returns the error of a key of the configuration that has a bad value.
    pub(crate) fn invalid(key: &str, expected: &str, found: &str) -> Self {
        Self(format!("site.{key}: expected {expected}, found {found}"))
    }
}

impl SiteConfig {
    /// Checks the URL of the database, and what files have: secrets and the authority.
    ///
    /// # Errors
    ///
    /// The first key that is invalid.
    pub fn check(&self) -> Result<(), SiteError> {
        let secret = |secret: &Option<String>, key: &str| {
            let secret = secret.as_deref().unwrap_or_default();
            if secret.len() >= 32 && !secret.contains('/') {
                return Ok(());
            }
            let found = format!("one of {} characters", secret.len());
            let expected = "a secret of 32 characters or more, without `/`";
            Err(SiteError::invalid(key, expected, &found))
        };
        match self.kind {
            SiteKind::Feed => return Ok(()),
            SiteKind::Unit3d => secret(&self.tracker_key, "tracker_key")?,
            SiteKind::Gazelle => {
                secret(&self.site_password, "site_password")?;
                secret(&self.report_password, "report_password")?;
            }
        }
        self.check_authority()?;
        self.database_options().map(drop)
    }

    /// Checks the file with the authority of the database's certificate.
    fn check_authority(&self) -> Result<(), SiteError> {
        let DatabaseTls::Authority(file) = &self.database_tls else { return Ok(()) };
        let invalid =
            |found: &str| SiteError::invalid("database_ca", "a PEM file with certificates", found);
        let place = file.display();
        let text = std::fs::read(file).map_err(|error| invalid(&format!("{place}: {error}")))?;
        match CertificateDer::pem_slice_iter(&text).next() {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(invalid(&format!("{place}: {error}"))),
            None => Err(invalid(&format!("none in {place}"))),
        }
    }

    /// Returns the secret of those who may change something by calls.
    pub(crate) fn update_secret(&self) -> &str {
        let secret = match self.kind {
            SiteKind::Gazelle => &self.site_password,
            SiteKind::Unit3d | SiteKind::Feed => &self.tracker_key,
        };
        secret.as_deref().unwrap_or_default()
    }

    pub(crate) fn database_options(&self) -> Result<mysql::Opts, SiteError> {
        let url = self.database.as_deref().unwrap_or_default();
        let invalid = |found: &str| {
            SiteError::invalid("database", "mysql://USER:PASSWORD@HOST:PORT/NAME", found)
        };
        // The URL has a password: it is not repeated.
        let options = mysql::Opts::from_url(url).map_err(|error| invalid(&error.to_string()))?;
        if options.get_db_name().is_none() {
            return Err(invalid("a URL without the name of a database"));
        }
        let tls = options.get_ssl_opts().cloned().unwrap_or_default();
        let tls = match &self.database_tls {
            DatabaseTls::Off => return Ok(options),
            DatabaseTls::Public => tls,
            DatabaseTls::Authority(file) => tls.with_root_cert_path(Some(file.clone())),
        };
        Ok(OptsBuilder::from_opts(options).ssl_opts(tls).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_keys_are_named() {
        let text = |config: &SiteConfig| config.check().unwrap_err().to_string();
        let mut config = SiteConfig { kind: SiteKind::Unit3d, ..SiteConfig::default() };
        assert!(text(&config).ends_with("without `/`, found one of 0 characters"));
        config.database = Some("mysql://localhost".to_owned());
        config.tracker_key = Some("short".to_owned());
        assert!(text(&config).ends_with("without `/`, found one of 5 characters"));
        config.tracker_key = Some("k".repeat(32));
        assert!(text(&config).ends_with("found a URL without the name of a database"));
        config.database = Some("postgres://localhost/x".to_owned());
        assert!(text(&config).starts_with("site.database: expected mysql://"));
        config.database = Some("mysql://a:b@localhost/x".to_owned());
        assert!(config.check().is_ok());
        assert!(SiteConfig::default().check().is_ok());
    }
}
