//! `[access]` and `[geo]`: networks that are served, tokens, and files that say where a network belongs.

use std::path::{Path, PathBuf};

use hyper::Uri;
use tracker::{ExternalAddress, IpPrefix, Networks, QuietRefusals};
use types::{Refusal, Scope};

use super::key::Problem;
use super::keys::{AccessSection, GeoSection, TrackerSection};
use super::listeners::networks;
use super::setting::Setting;

/// Networks that are served, and networks that are refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// Those that alone are served; empty = all.
    pub allow: NetworkList,
    /// Those that are refused.
    pub deny: NetworkList,
}

/// Networks, by themselves and by the systems that have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkList {
    /// Those that the list names by their addresses.
    pub networks: Networks,
    /// Numbers of autonomous systems.
    pub systems: Vec<u32>,
}

/// Options of the verification of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// The place of the public keys.
    pub keys: KeySource,
    /// The issuer that tokens must name.
    pub issuer: Option<String>,
    /// The audience that tokens must name.
    pub audience: Option<String>,
    /// Seconds between requests for the keys, if they are at a URL.
    pub refresh_s: u32,
    /// Tokens verified per second at most.
    pub verifications_per_s: u32,
}

/// Where the keys of tokens are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A server.
    Url {
        /// Its URL.
        url: String,
        /// The TCP port of that URL.
        port: u16,
    },
}

/// Files that tell the systems and countries of networks, and options of counting peers by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeoConfig {
    /// The file of systems, or an empty path.
    pub asn: PathBuf,
    /// The file of countries, or an empty path.
    pub country: PathBuf,
    /// Peers of the client's own zone or system in responses.
    pub near: NearConfig,
    /// Seconds between counts of peers.
    pub interval_s: u32,
    /// Maximum number of systems, and of countries, that metrics name.
    pub metrics_max: usize,
}

/// Peers of the client's own zone or system in responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearConfig {
    /// Percent of a response's peers; 0 = off.
    pub percent: u8,
    /// The networks of each zone.
    pub zones: Vec<Vec<IpPrefix>>,
}

/// The longest interval of a quiet refusal, seconds.
const QUIET_S_MAX: u32 = 7 * 24 * 3600;

/// Returns the refusals that are quiet.
pub(super) fn quiet_refusals(access: &AccessSection, problems: &mut Vec<Problem>) -> QuietRefusals {
    let mut quiet = QuietRefusals::default();
    for text in &access.quiet.value {
        let (label, interval_s) = match text.split_once('=') {
            Some((label, seconds)) => (label, Some(seconds)),
            None => (text.as_str(), None),
        };
        let known = Refusal::QUIETABLE.into_iter().find(|refusal| refusal.label() == label);
        let Some(refusal) = known else {
            let labels = Refusal::QUIETABLE.map(Refusal::label).join(", ");
            problems.push(access.quiet.item_problem(text, &format!("expected one of {labels}")));
            continue;
        };
        let Some(seconds) = interval_s else {
            quiet.add(refusal, None);
            continue;
        };
        match seconds.parse() {
            Ok(seconds @ 60..=QUIET_S_MAX) => quiet.add(refusal, Some(seconds)),
            _ => {
                let text_of = format!("expected an interval of 60 to {QUIET_S_MAX} seconds");
                problems.push(access.quiet.item_problem(text, &text_of));
            }
        }
    }
    quiet
}

impl NetworkRules {
    pub(super) fn from_sections(
        access: &AccessSection,
        geo: &GeoSection,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut read = |list: &Setting<Vec<String>>| {
            let read = NetworkList::from_setting(list, problems);
            if !read.systems.is_empty() && geo.asn.value.is_empty() {
                problems
                    .push(list.problem("AS numbers require geo.asn, the file of their networks"));
            }
            read
        };
        Self { allow: read(&access.networks_allow), deny: read(&access.networks_deny) }
    }

    /// Returns whether the networks of any system are needed.
    pub fn need_systems(&self) -> bool {
        !self.allow.systems.is_empty() || !self.deny.systems.is_empty()
    }
}

impl NetworkList {
    fn from_setting(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Self {
        let (mut prefixes, mut systems) = (Vec::<IpPrefix>::new(), Vec::new());
        for text in &list.value {
            let number = text.strip_prefix("AS").or_else(|| text.strip_prefix("as"));
            // The number parser alone would also accept a sign.
            let number = number.filter(|digits| digits.bytes().all(|it| it.is_ascii_digit()));
            match (number.and_then(|number| number.parse().ok()), text.parse()) {
                (Some(number), _) => systems.push(number),
                (None, Ok(prefix)) => prefixes.push(prefix),
                (None, Err(_)) => {
                    let text_of = "expected an address, a network such as `192.0.2.0/24` or an \
                                   autonomous system such as `AS64500`";
                    problems.push(list.item_problem(text, text_of));
                }
            }
        }
        Self { networks: prefixes.into_iter().collect(), systems }
    }

    /// Returns whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.systems.is_empty()
    }
}

impl TokenConfig {
    /// Returns `None` if there are no keys.
    pub(super) fn from_section(
        access: &AccessSection,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let text = &access.jwt_keys.value;
        if text.is_empty() {
            return None;
        }
        let keys = if text.contains("://") {
            let Some(port) = key_url_port(text) else {
                let text_of = "expected a file or an https:// URL; http:// is accepted with an address \
                               of this machine only, e.g. `http://127.0.0.1:8000/keys.json`";
                problems.push(access.jwt_keys.item_problem(text, text_of));
                return None;
            };
            KeySource::Url { url: text.clone(), port }
        } else {
            KeySource::File(text.into())
        };
        let named = |setting: &Setting<String>| {
            Some(setting.value.clone()).filter(|value| !value.is_empty())
        };
        Some(Self {
            keys,
            issuer: named(&access.jwt_issuer),
            audience: named(&access.jwt_audience),
            refresh_s: access.jwt_refresh_s.value,
            verifications_per_s: access.jwt_verify_per_s.value,
        })
    }

    /// Returns the file of the keys, if they are in one.
    pub fn file(&self) -> Option<&Path> {
        match &self.keys {
            KeySource::File(path) => Some(path),
            KeySource::Url { .. } => None,
        }
    }

    /// Returns the port that is connected to for the keys, if they are elsewhere.
    pub fn port(&self) -> Option<u16> {
        match &self.keys {
            KeySource::File(_) => None,
            KeySource::Url { port, .. } => Some(*port),
        }
    }
}

/// Returns the port of a URL that keys may be fetched from: a host that can change them on the way decides who
/// is served.
fn key_url_port(url: &str) -> Option<u16> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_own = bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str()? {
        "https" => Some(uri.port_u16().unwrap_or(443)),
        "http" if is_own => Some(uri.port_u16().unwrap_or(80)),
        _ => None,
    }
}

impl GeoConfig {
    pub(super) fn from_section(geo: &GeoSection, problems: &mut Vec<Problem>) -> Self {
        Self {
            near: NearConfig::from_section(geo, problems),
            asn: geo.asn.value.clone().into(),
            country: geo.country.value.clone().into(),
            interval_s: geo.interval_s.value,
            metrics_max: geo.metrics_max.size(),
        }
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [self.asn.as_path(), self.country.as_path()].into_iter()
    }
}

impl NearConfig {
    fn from_section(geo: &GeoSection, problems: &mut Vec<Problem>) -> Self {
        let mut zones = Vec::new();
        for text in &geo.zones.value {
            match text.split_whitespace().map(str::parse).collect::<Result<Vec<IpPrefix>, _>>() {
                Ok(networks) => zones.push(networks),
                Err(error) => problems.push(geo.zones.problem(format!("{text}: {error}"))),
            }
        }
        let percent = geo.near_percent.value as u8;
        if percent > 0 && zones.is_empty() && geo.asn.value.is_empty() {
            let text = "needs geo.asn or geo.zones: set one of them, or 0";
            problems.push(geo.near_percent.problem(text));
        }
        Self { percent, zones }
    }
}

/// Checks that listeners that ask for tokens can verify them, and ask for nothing else.
pub(super) fn check_tokens(access: &AccessSection, problems: &mut Vec<Problem>) {
    if !access.jwt.value {
        return;
    }
    if access.jwt_keys.value.is_empty() {
        problems.push(access.jwt_keys.problem("must name a file or URL because access.jwt is on"));
    }
    if access.private.value {
        problems.push(access.jwt.problem("cannot be on together with access.private: choose one"));
    }
}

/// Reads the addresses of the tracker's site.
pub(super) fn external_address(
    tracker: &TrackerSection,
    problems: &mut Vec<Problem>,
) -> Option<ExternalAddress> {
    let setting = &tracker.external_address;
    let networks = networks(&tracker.external_address_for, problems);
    let (mut v4, mut v6) = (None, None);
    for text in &setting.value {
        let ip = text.parse().ok().filter(|ip| Scope::of(*ip) != Scope::Nowhere);
        let has_another = match ip.map(|ip: std::net::IpAddr| ip.to_canonical()) {
            Some(std::net::IpAddr::V4(ip)) => v4.replace(ip).is_some(),
            Some(std::net::IpAddr::V6(ip)) => v6.replace(ip).is_some(),
            None => {
                problems.push(setting.item_problem(text, "expected an IP address without a port"));
                continue;
            }
        };
        if has_another {
            let text_of = "is one address too many: expected at most one of each family";
            problems.push(setting.item_problem(text, text_of));
        }
        if ip.is_some_and(|ip| networks.contains(ip)) {
            let text_of = "is in tracker.external_address_for, so it would replace itself";
            problems.push(setting.item_problem(text, text_of));
        }
    }
    (v4.is_some() || v6.is_some()).then(|| ExternalAddress::new(v4, v6, networks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_tls_or_from_this_machine() {
        assert_eq!(key_url_port("https://id.example.org/keys.json"), Some(443));
        assert_eq!(key_url_port("https://id.example.org:8443/"), Some(8443));
        assert_eq!(key_url_port("http://127.0.0.1:8000/keys.json"), Some(8000));
        assert_eq!(key_url_port("http://[::1]/"), Some(80));
        for bad in ["http://id.example.org/", "http://10.0.0.1/", "ftp://a/", "https://", "://"] {
            assert_eq!(key_url_port(bad), None, "{bad}");
        }
    }
}
