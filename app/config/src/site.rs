//! `[site]`: the site whose users announce.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tracker::Access;

use super::Config;
use super::choices::SiteChoice;
use super::key::Problem;
use super::keys::{Sections, SiteSection};
use super::setting::Setting;

/// A site whose users announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its kind, with what that needs.
    pub kind: SiteKind,
    /// Seconds within which the database has what users transferred.
    pub flush_s: u32,
    /// Most MiB of what waits on the disk.
    pub spool_mib: u32,
    /// Clients of a user in a torrent.
    pub clients_per_torrent: u32,
    /// The percents that are credited to everyone.
    pub factors: SiteFactors,
    /// Those that are credited to donors.
    pub donor_factors: SiteFactors,
    /// Those that are credited to lifetime donors.
    pub lifetime_donor_factors: SiteFactors,
}

/// The kind of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// Any site, which reads the feed.
    Feed,
    /// UNIT3D.
    Unit3d {
        /// Its database, and where its calls arrive.
        database: SiteDatabase,
        /// The file with its `TRACKER_KEY`.
        tracker_key: PathBuf,
    },
    /// Gazelle.
    Gazelle {
        /// Its database, and where its calls arrive.
        database: SiteDatabase,
        /// The file with the password of updates.
        site_password: PathBuf,
        /// The file with the password of reports.
        report_password: PathBuf,
    },
}

/// The database of a site, and where the site calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteDatabase {
    /// Its URL, perhaps with a password.
    pub url: String,
    /// The file with the password, if the URL has none.
    pub password: Option<PathBuf>,
    /// Where calls arrive.
    pub listen: SocketAddr,
}

/// Percents of what users transfer that are credited. `None` = no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteFactors {
    /// Of bytes sent.
    pub upload: Option<u32>,
    /// Of bytes received.
    pub download: Option<u32>,
}

impl SiteConfig {
    /// Returns the configuration if the section names a kind.
    pub(super) fn from_section(section: &SiteSection, problems: &mut Vec<Problem>) -> Option<Self> {
        let kind = SiteKind::from_section(section, problems)?;
        let factors = |upload: &Setting<Option<u32>>, download: &Setting<Option<u32>>| {
            SiteFactors { upload: upload.value, download: download.value }
        };
        Some(Self {
            kind,
            flush_s: section.flush_s.value,
            spool_mib: section.spool_mib.value,
            clients_per_torrent: section.clients_per_torrent.value,
            factors: SiteFactors {
                upload: Some(section.upload_factor.value),
                download: Some(section.download_factor.value),
            },
            donor_factors: factors(&section.donor_upload_factor, &section.donor_download_factor),
            lifetime_donor_factors: factors(
                &section.lifetime_donor_upload_factor,
                &section.lifetime_donor_download_factor,
            ),
        })
    }

    /// Returns the site's database, unless it reads the feed.
    pub fn database(&self) -> Option<&SiteDatabase> {
        match &self.kind {
            SiteKind::Feed => None,
            SiteKind::Unit3d { database, .. } | SiteKind::Gazelle { database, .. } => {
                Some(database)
            }
        }
    }

    /// Returns the files with secrets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let secrets: Vec<&PathBuf> = match &self.kind {
            SiteKind::Feed => Vec::new(),
            SiteKind::Unit3d { tracker_key, .. } => vec![tracker_key],
            SiteKind::Gazelle { site_password, report_password, .. } => {
                vec![site_password, report_password]
            }
        };
        let password = self.database().and_then(|database| database.password.as_ref());
        secrets.into_iter().chain(password).map(PathBuf::as_path)
    }
}

impl SiteKind {
    /// Returns the kind, or `None` if there is no site, or a key is missing or wrong, which is then a problem.
    fn from_section(section: &SiteSection, problems: &mut Vec<Problem>) -> Option<Self> {
        let database = match section.kind.value {
            SiteChoice::Off => return None,
            SiteChoice::Feed => return Some(Self::Feed),
            SiteChoice::Unit3d | SiteChoice::Gazelle => SiteDatabase::new(section, problems),
        };
        let mut secret = |file: &Setting<String>, what: &str| {
            if file.value.is_empty() {
                problems.push(file.problem(format!("expected a file with {what} of the site")));
                return None;
            }
            Some(PathBuf::from(&file.value))
        };
        if section.kind.value == SiteChoice::Unit3d {
            let tracker_key = secret(&section.tracker_key, "TRACKER_KEY");
            return Some(Self::Unit3d { database: database?, tracker_key: tracker_key? });
        }
        let site_password = secret(&section.site_password, "TRACKER_SECRET");
        let report_password = secret(&section.report_password, "TRACKER_REPORTKEY");
        Some(Self::Gazelle {
            database: database?,
            site_password: site_password?,
            report_password: report_password?,
        })
    }
}

impl SiteDatabase {
    /// Returns the port of the database.
    pub fn port(&self) -> u16 {
        const OF_MYSQL: u16 = 3306;
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let place = rest.split(['/', '?']).next().unwrap_or_default();
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.unwrap_or(OF_MYSQL)
    }

    /// Returns `None` if a key is missing or wrong, which is then a problem.
    fn new(section: &SiteSection, problems: &mut Vec<Problem>) -> Option<Self> {
        let SiteSection { database: url, database_password: password, listen, .. } = section;
        let has_url = url.value.strip_prefix("mysql://").is_some_and(|rest| !rest.is_empty());
        if !has_url {
            let text = "expected the URL of the site's database, e.g. \
                        `mysql://tidegate@127.0.0.1:3306/unit3d`";
            problems.push(url.problem(text));
        }
        let address = listen.value.parse::<SocketAddr>();
        if address.is_err() {
            let text =
                "expected an address on which the site's calls are answered, e.g. `127.0.0.1:6971`";
            problems.push(listen.problem(text));
        }
        has_url.then_some(Self {
            url: url.value.clone(),
            password: Some(&password.value).filter(|file| !file.is_empty()).map(PathBuf::from),
            listen: address.ok()?,
        })
    }
}

impl Config {
    /// Checks what a site needs of other sections.
    pub(super) fn check_site(&self, sections: &Sections, problems: &mut Vec<Problem>) {
        let kind = &sections.site.kind;
        if kind.value == SiteChoice::Off {
            return;
        }
        if self.state_dir.is_none() {
            let text = "requires state.dir, where it keeps what the site does not have yet";
            problems.push(kind.problem(text));
        }
        if !self.listener_policies.iter().any(|policy| policy.access == Access::Private) {
            let text =
                "requires a private listener (access.private): only users with keys have accounts";
            problems.push(kind.problem(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{read, says};

    const PRIVATE: &str = "[access]\nprivate = true\n[state]\ndir = \"/s\"\n";

    #[test]
    fn reads_a_site() {
        let text = format!(
            "{PRIVATE}[site]\nkind = \"unit3d\"\ndatabase = \"mysql://a@h/d\"\nlisten = \"127.0.0.1:1\"\n\
             tracker_key = \"/k\"\ndonor_download_factor = 50\n"
        );
        let site = Config::from_settings(&read(&text).unwrap()).unwrap().site.unwrap();
        assert_eq!((site.flush_s, site.spool_mib), (3, 4096));
        let factors = |upload, download| SiteFactors { upload, download };
        assert_eq!(site.factors, factors(Some(100), Some(100)));
        assert_eq!(site.donor_factors, factors(None, Some(50)));
        assert_eq!(site.files().collect::<Vec<_>>(), [Path::new("/k")]);
        let database = site.database().unwrap();
        assert_eq!((database.listen.port(), database.port()), (1, 3306));
        for (url, port) in [
            ("mysql://u:p@h:3307/d?x=1", 3307),
            ("mysql://[::1]:9/d", 9),
            ("mysql://u:p%40:7@h/d", 3306),
        ] {
            assert_eq!(SiteDatabase { url: url.into(), ..database.clone() }.port(), port, "{url}");
        }
        let off = Config::from_settings(&read("[site]\nflush_s = 9\n").unwrap()).unwrap();
        assert_eq!(off.site, None);
    }

    #[test]
    fn missing_parts_of_a_site_are_named() {
        let found = says(&format!("{PRIVATE}[site]\nkind = \"gazelle\"\n"));
        for key in ["database", "listen", "site_password", "report_password"] {
            let named = |text: &String| text.contains(&format!("site.{key}: expected "));
            assert!(found.iter().any(named), "{key}: {found:?}");
        }
        assert_eq!(found.len(), 4);
        let found = says("[site]\nkind = \"feed\"\n[state]\ndir = \"\"\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("requires state.dir") && found[1].contains("a private listener"));
        let in_cluster = |kind: &str| {
            format!(
                "{PRIVATE}[site]\nkind = \"{kind}\"\ndatabase = \"mysql://a@h/d\"\nlisten = \"127.0.0.1:1\"\n\
                 tracker_key = \"/k\"\n[cluster]\njoin = \"/j\"\n"
            )
        };
        assert!(Config::from_settings(&read(&in_cluster("unit3d")).unwrap()).is_ok());
        assert!(Config::from_settings(&read(&in_cluster("feed")).unwrap()).is_ok());
    }
}
