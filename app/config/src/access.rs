//! `[access]` and `[geo]`: networks that are served, tokens, and files that say where a network belongs.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tracker::{ExternalAddress, IpPrefix, NetworkAction, QuietRefusals};
use types::{Refusal, Scope};

use super::key::Problem;
use super::keys::{AccessSection, GeoSection, Sections, TrackerSection};
use super::list_source::{ConfiguredList, ListKind, ListSource, fetch_port};
use super::setting::{Setting, networks};

/// Networks that are served, and networks whose clients are refused or get less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// Those that alone are served; empty = all.
    pub allow: Vec<NetworkRule>,
    /// The others.
    pub deny: Vec<NetworkRule>,
}

/// Networks, and the action for their clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRule {
    /// The networks.
    pub set: NetworkSet,
    /// The action, which means nothing for networks that are served.
    pub action: NetworkAction,
}

/// Networks, as an entry of a list names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkSet {
    /// By their addresses.
    Prefix(IpPrefix),
    /// By the number of the autonomous system that has them.
    System(u32),
    /// By the country that they are in, two capital letters.
    Country(String),
    /// By a list of networks.
    List(ListSource),
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
    /// A file of authorities that are trusted besides those of browsers.
    pub ca: Option<PathBuf>,
}

/// Where the keys of tokens are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// The URL of a server.
    Url(String),
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
}

/// Peers of the client's own zone or system in responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearConfig {
    /// Percent of a response's peers; 0 = off.
    pub percent: u8,
    /// The networks of each zone.
    pub zones: Vec<Vec<IpPrefix>>,
}

const QUIET_S_MAX: u32 = 7 * 24 * 3600;

pub(super) fn quiet_refusals(access: &AccessSection, problems: &mut Vec<Problem>) -> QuietRefusals {
    let mut quiet = QuietRefusals::default();
    access.quiet.items(problems, |text| {
        let (label, seconds) = match text.split_once('=') {
            Some((label, seconds)) => (label, Some(seconds)),
            None => (text, None),
        };
        let known = Refusal::QUIETABLE.into_iter().find(|refusal| refusal.label() == label);
        let refusal = known.ok_or_else(|| {
            format!("expected one of {}", Refusal::QUIETABLE.map(Refusal::label).join(", "))
        })?;
        let seconds = match seconds.map(str::parse) {
            None => None,
            Some(Ok(seconds @ 60..=QUIET_S_MAX)) => Some(seconds),
            _ => return Err(format!("expected an interval of 60 to {QUIET_S_MAX} seconds")),
        };
        quiet.add(refusal, seconds);
        Ok(())
    });
    quiet
}

impl NetworkRules {
    pub(super) fn from_sections(sections: &Sections, problems: &mut Vec<Problem>) -> Self {
        let Sections { access, geo, state, .. } = sections;
        let state = state.place();
        let mut read = |list: &Setting<Vec<String>>, may_act: bool| {
            list.items(problems, |text| {
                let rule = NetworkRule::parse(text, may_act, state)?;
                let file = match rule.set {
                    NetworkSet::System(_) => &geo.asn,
                    NetworkSet::Country(_) => &geo.country,
                    NetworkSet::Prefix(_) | NetworkSet::List(_) => return Ok(rule),
                };
                if file.value.is_empty() {
                    return Err(format!("requires {}, the file of their networks", file.key.name));
                }
                Ok(rule)
            })
        };
        Self { allow: read(&access.networks_allow, false), deny: read(&access.networks_deny, true) }
    }

    /// Returns all rules.
    pub fn all(&self) -> impl Iterator<Item = &NetworkRule> {
        self.allow.iter().chain(&self.deny)
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = ConfiguredList<'_>> {
        let allow = self.allow.iter().map(|rule| ("access.networks_allow", rule));
        let deny = self.deny.iter().map(|rule| ("access.networks_deny", rule));
        allow.chain(deny).filter_map(|(key, rule)| match &rule.set {
            NetworkSet::List(source) => {
                Some(ConfiguredList { key, kind: ListKind::Networks, source, is_used: true })
            }
            _ => None,
        })
    }
}

impl NetworkRule {
    fn parse(text: &str, may_act: bool, state: Option<&Path>) -> Result<Self, String> {
        let (set, action) = match text.rsplit_once('=').map(|(set, end)| (set, parse_action(end))) {
            Some((_, Some(_))) if !may_act => {
                return Err("actions such as `=quiet` are for access.networks_deny only".into());
            }
            Some((set, Some(action))) => (set, action),
            _ => (text, NetworkAction::Deny),
        };
        Ok(Self { set: NetworkSet::parse(set, state)?, action })
    }
}

fn parse_action(text: &str) -> Option<NetworkAction> {
    match text {
        "deny" => Some(NetworkAction::Deny),
        "quiet" => Some(NetworkAction::Quiet),
        _ => text.strip_prefix("numwant:")?.parse().ok().map(NetworkAction::Numwant),
    }
}

impl NetworkSet {
    fn parse(text: &str, state: Option<&Path>) -> Result<Self, String> {
        let number = text.strip_prefix("AS").or_else(|| text.strip_prefix("as"));
        // The number parser alone would also accept a sign.
        let number = number.filter(|digits| digits.bytes().all(|it| it.is_ascii_digit()));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            return Ok(Self::System(number));
        }
        if let Some(code) = text.strip_prefix("country:") {
            let is_code = code.len() == 2 && code.bytes().all(|it| it.is_ascii_uppercase());
            let country = is_code.then(|| Self::Country(code.into()));
            return country.ok_or_else(|| "expected two capital letters after `country:`".into());
        }
        if text.starts_with("file:") || text.contains("://") {
            return ListSource::parse(text, ListKind::Networks, state).map(Self::List);
        }
        text.parse().map(Self::Prefix).map_err(|_| {
            "expected an address, a network such as `192.0.2.0/24`, an autonomous system such as `AS64500`, a country \
             such as `country:XX`, or a list of networks such as `file:/etc/tidegate/bad.txt` or an https:// URL"
                .into()
        })
    }
}

impl TokenConfig {
    pub(super) fn from_section(
        access: &AccessSection,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let text = &access.jwt_keys.value;
        if text.is_empty() {
            return None;
        }
        let keys = if text.contains("://") {
            if fetch_port(text).is_none() {
                let text_of = "expected a file or an https:// URL; http:// is accepted with an address \
                               of this machine only, e.g. `http://127.0.0.1:8000/keys.json`";
                problems.push(access.jwt_keys.item_problem(text, text_of));
                return None;
            }
            KeySource::Url(text.clone())
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
            ca: named(&access.urls_ca).map(PathBuf::from),
        })
    }

    /// Returns the file of the keys, if they are in one.
    pub fn file(&self) -> Option<&Path> {
        match &self.keys {
            KeySource::File(path) => Some(path),
            KeySource::Url(_) => None,
        }
    }

    /// Returns the port that is connected to for the keys, if they are elsewhere.
    pub fn port(&self) -> Option<u16> {
        match &self.keys {
            KeySource::File(_) => None,
            KeySource::Url(url) => fetch_port(url),
        }
    }
}

impl GeoConfig {
    pub(super) fn from_section(geo: &GeoSection, problems: &mut Vec<Problem>) -> Self {
        Self {
            near: NearConfig::from_section(geo, problems),
            asn: geo.asn.value.clone().into(),
            country: geo.country.value.clone().into(),
            interval_s: geo.interval_s.value,
        }
    }

    /// Returns the files.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        [self.asn.as_path(), self.country.as_path()].into_iter()
    }
}

impl NearConfig {
    fn from_section(geo: &GeoSection, problems: &mut Vec<Problem>) -> Self {
        let zones = geo.zones.items(problems, |text| {
            text.split_whitespace().map(str::parse).collect::<Result<Vec<IpPrefix>, _>>()
        });
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

pub(super) fn external_address(
    tracker: &TrackerSection,
    problems: &mut Vec<Problem>,
) -> Option<ExternalAddress> {
    let setting = &tracker.external_address;
    let networks = networks(&tracker.external_address_for, problems);
    let (mut v4, mut v6) = (None, None);
    setting.items(problems, |text| {
        let ip = text.parse().ok().filter(|ip| Scope::of(*ip) != Scope::Nowhere);
        let ip: IpAddr = ip.ok_or("expected an IP address without a port")?;
        let has_another = match ip.to_canonical() {
            IpAddr::V4(ip) => v4.replace(ip).is_some(),
            IpAddr::V6(ip) => v6.replace(ip).is_some(),
        };
        if has_another {
            return Err("is one address too many: expected at most one of each family");
        }
        match networks.contains(ip) {
            true => Err("is in tracker.external_address_for, so it would replace itself"),
            false => Ok(()),
        }
    });
    (v4.is_some() || v6.is_some()).then(|| ExternalAddress::new(v4, v6, networks))
}
