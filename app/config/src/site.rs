//! `[site]`: the site whose users announce.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tracker::Access;
use types::limits::SITE_LIST_WINDOWS_MAX;

use super::Config;
use super::choices::SiteKind;
use super::key::Problem;
use super::keys::{Sections, SiteSection};
use super::setting::Setting;

/// A site whose users announce. Values that its kind does not need mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Its kind.
    pub kind: SiteKind,
    /// The URL of its database, perhaps with a password.
    pub database: String,
    /// The file with the password of the database, or an empty path.
    pub database_password: PathBuf,
    /// The file with the authority of the database's certificate, `public`, or empty for no TLS.
    pub database_ca: String,
    /// Where the site's calls arrive.
    pub listen: Option<SocketAddr>,
    /// The file with UNIT3D's `TRACKER_KEY`.
    pub tracker_key: PathBuf,
    /// The file with Gazelle's password of updates.
    pub site_password: PathBuf,
    /// The file with Gazelle's password of reports.
    pub report_password: PathBuf,
    /// The URL of Gazelle for calls about used-up tokens; empty = none.
    pub url: String,
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
    /// Lists of peers that a user's downloading clients get.
    pub seed_lists: Vec<SiteListWindow>,
    /// Lists of peers that a user's seeding clients get.
    pub leech_lists: Vec<SiteListWindow>,
    /// Addresses of this machine from which clients are probed.
    pub connectable_from: Vec<IpAddr>,
    /// True if clients that accept no connection get no peers.
    pub connectable_required: bool,
}

/// A window within which a user gets a limited number of lists of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteListWindow {
    /// Its length, seconds.
    pub seconds: u32,
    /// The number of lists.
    pub lists: u32,
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
    pub(super) fn from_section(section: &SiteSection, problems: &mut Vec<Problem>) -> Option<Self> {
        let kind = section.kind.value;
        if kind == SiteKind::Off {
            return None;
        }
        let listen = section.listen.value.parse().ok();
        check_kind(section, listen, problems);
        let path = |file: &Setting<String>| PathBuf::from(&file.value);
        let factors = |upload: &Setting<Option<u32>>, download: &Setting<Option<u32>>| {
            SiteFactors { upload: upload.value, download: download.value }
        };
        let mut windows = |setting: &Setting<String>| {
            read_windows(&setting.value).unwrap_or_else(|| {
                let text = format!(
                    "expected at most {SITE_LIST_WINDOWS_MAX} windows `SECONDS=LISTS`, separated by `;`, with numbers \
                     from 1, e.g. `60=10;900=25`, found `{}`",
                    setting.value
                );
                problems.push(setting.problem(text));
                Vec::new()
            })
        };
        let (seed_lists, leech_lists) =
            (windows(&section.seed_lists), windows(&section.leech_lists));
        Some(Self {
            kind,
            database: section.database.value.clone(),
            database_password: path(&section.database_password),
            database_ca: section.database_ca.value.clone(),
            listen: listen.filter(|_| kind != SiteKind::Feed),
            tracker_key: path(&section.tracker_key),
            site_password: path(&section.site_password),
            report_password: path(&section.report_password),
            url: section.url.value.clone(),
            seed_lists,
            leech_lists,
            connectable_from: read_sources(section, problems),
            connectable_required: section.connectable_required.value,
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

    /// Returns the ports to which the tracker connects: those of the database, and of the site.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        const OF_MYSQL: u16 = 3306;
        const OF_HTTP: u16 = 80;
        let database =
            (self.kind != SiteKind::Feed).then(|| port_of(&self.database).unwrap_or(OF_MYSQL));
        let calls = self.kind == SiteKind::Gazelle && !self.url.is_empty();
        let site = calls.then(|| port_of(&self.url).unwrap_or(OF_HTTP));
        database.into_iter().chain(site)
    }
}

fn check_kind(section: &SiteSection, listen: Option<SocketAddr>, problems: &mut Vec<Problem>) {
    let secrets = match section.kind.value {
        SiteKind::Off | SiteKind::Feed => return,
        SiteKind::Unit3d => vec![(&section.tracker_key, "TRACKER_KEY")],
        SiteKind::Gazelle => vec![
            (&section.site_password, "TRACKER_SECRET"),
            (&section.report_password, "TRACKER_REPORTKEY"),
        ],
    };
    let url = &section.database;
    if url.value.strip_prefix("mysql://").is_none_or(str::is_empty) {
        let text = "expected the URL of the site's database, e.g. `mysql://tidegate@127.0.0.1:3306/unit3d`";
        problems.push(url.problem(text));
    }
    if listen.is_none() {
        let text =
            "expected an address on which the site's calls are answered, e.g. `127.0.0.1:6971`";
        problems.push(section.listen.problem(text));
    }
    for (file, what) in secrets.into_iter().filter(|(file, _)| file.value.is_empty()) {
        problems.push(file.problem(format!("expected a file with {what} of the site")));
    }
}

fn port_of(url: &str) -> Option<u16> {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let place = rest.split(['/', '?']).next().unwrap_or_default();
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

/// Reads windows as UNIT3D-Announce writes them. Returns `None` if they are malformed.
fn read_windows(text: &str) -> Option<Vec<SiteListWindow>> {
    let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
    let window = |window: &str| {
        let (seconds, lists) = window.split_once('=')?;
        Some(SiteListWindow { seconds: number(seconds)?, lists: number(lists)? })
    };
    let windows = text.split(';').filter(|window| !window.trim().is_empty());
    let windows: Vec<_> = windows.map(window).collect::<Option<_>>()?;
    (windows.len() <= SITE_LIST_WINDOWS_MAX).then_some(windows)
}

fn read_sources(section: &SiteSection, problems: &mut Vec<Problem>) -> Vec<IpAddr> {
    let setting = &section.connectable_from;
    let mut families = BTreeSet::new();
    let sources = setting.items(problems, |text| match text.parse::<IpAddr>() {
        Ok(ip) if families.insert(ip.is_ipv4()) => Ok(ip),
        _ => Err(
            "expected an address of this machine, at most one of each family, e.g. `203.0.113.7`",
        ),
    });
    if section.connectable_required.value && setting.value.is_empty() {
        let text =
            "requires site.connectable_from: nothing is known of clients that are not probed";
        problems.push(section.connectable_required.problem(text));
    }
    sources
}

impl Config {
    pub(super) fn check_site(&self, sections: &Sections, problems: &mut Vec<Problem>) {
        let kind = &sections.site.kind;
        if kind.value == SiteKind::Off {
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
             tracker_key = \"/k\"\ndonor_download_factor = 50\n[cluster]\njoin = \"/j\"\n"
        );
        let site = Config::from_settings(&read(&text).unwrap()).unwrap().site.unwrap();
        assert_eq!((site.flush_s, site.spool_mib), (3, 4096));
        let factors = |upload, download| SiteFactors { upload, download };
        assert_eq!(site.factors, factors(Some(100), Some(100)));
        assert_eq!(site.donor_factors, factors(None, Some(50)));
        assert_eq!(site.listen.unwrap().port(), 1);
        let days = |lists: &[SiteListWindow]| lists[3];
        assert_eq!(days(&site.seed_lists), SiteListWindow { seconds: 86_400, lists: 500 });
        assert_eq!(days(&site.leech_lists), SiteListWindow { seconds: 86_400, lists: 1_000 });
        assert!(site.connectable_from.is_empty() && !site.connectable_required);
        for (url, port) in [
            ("mysql://a@h/d", 3306),
            ("mysql://u:p@h:3307/d?x=1", 3307),
            ("mysql://[::1]:9/d", 9),
            ("mysql://u:p%40:7@h/d", 3306),
        ] {
            let site = SiteConfig { database: url.into(), ..site.clone() };
            assert_eq!(site.ports().collect::<Vec<_>>(), [port], "{url}");
        }
        let off = Config::from_settings(&read("[site]\nflush_s = 9\n").unwrap()).unwrap();
        assert_eq!(off.site, None);
    }

    #[test]
    fn windows_and_sources_are_read_or_named() {
        let with = |more: &str| format!("{PRIVATE}[site]\nkind = \"feed\"\n{more}\n");
        let site =
            |more: &str| Config::from_settings(&read(&with(more)).unwrap()).unwrap().site.unwrap();
        let lists = site("seed_lists = \" 60 = 10; \"\nleech_lists = \"\"");
        assert_eq!(lists.seed_lists, [SiteListWindow { seconds: 60, lists: 10 }]);
        assert_eq!(lists.leech_lists, []);
        for wrong in ["60", "0=1", "60=0", "60=-1", "a=b", "1=1;1=1;1=1;1=1;1=1;1=1;1=1"] {
            let found = says(&with(&format!("seed_lists = \"{wrong}\"")));
            assert!(found[0].contains("site.seed_lists: expected at most 6 windows"), "{found:?}");
        }
        let probed =
            site("connectable_from = [\"192.0.2.7\", \"::1\"]\nconnectable_required = true");
        assert_eq!(probed.connectable_from.len(), 2);
        let found = says(&with("connectable_from = [\"192.0.2.7\", \"192.0.2.8\"]"));
        assert!(found[0].contains("at most one of each family"), "{found:?}");
        let found = says(&with("connectable_required = true"));
        assert!(found[0].contains("requires site.connectable_from"), "{found:?}");
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
    }
}
