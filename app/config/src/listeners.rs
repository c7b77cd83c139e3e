//! Listeners: those of `[udp]`, `[http]` and `[tls]`, which share those sections and `[access]`, and
//! those of `[[listener]]` tables, which can override keys of the sections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use front::http::HttpOptions;
use front::webtorrent::WebOptions;
use pages::{Challenges, PageOptions, StatsForm, StatsOptions};
use tracker::access::Mode;
use tracker::{Access, ClientRules, ExternalAddress, ListenerPolicyId, Networks, PrivateAddresses};
use types::{PeerId, limits};

use super::access::{check_tokens, external_address};
use super::choices::{ProxyProtocol, StatsChoice, Transport};
use super::key::Problem;
use super::keys::{AccessSection, Sections};
use super::list_source::{ConfiguredList, ListKind, ListSource};
use super::read::Settings;
use super::setting::{AnySetting, Setting, networks};

const PEER_ID_LEN: usize = size_of::<PeerId>();

/// Listeners of one protocol to which the same rules apply.
#[derive(Clone, Debug)]
pub struct ListenerGroup {
    /// The protocol.
    pub transport: Transport,
    /// The addresses to listen on.
    pub addresses: Vec<SocketAddr>,
    /// True if the addresses are the defaults. Then an address family that the system lacks is skipped.
    pub is_default: bool,
    /// Its index in [`super::Config::listener_policies`].
    pub listener_policy: ListenerPolicyId,
    /// The proxies that put Simple Proxy headers before datagrams, if that is on.
    pub simple_proxies: Option<Networks>,
    /// Options of serving HTTP.
    pub http: HttpOptions,
    /// The pages that are served besides announces and scrapes.
    pub pages: PageOptions,
}

/// Configuration from which a listener's policy is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerPolicyConfig {
    /// Lists that decide which torrents are served.
    pub mode: Mode,
    /// The allow list, if there is one.
    pub allow: Option<ListSource>,
    /// The deny list, if there is one.
    pub deny: Option<ListSource>,
    /// A folder of torrent files, or an empty path.
    pub torrents: PathBuf,
    /// The rule for private addresses of peers.
    pub private_addresses: PrivateAddresses,
    /// Credentials that announces need.
    pub access: Access,
    /// Client programs that are served.
    pub clients: ClientRules,
    /// True if scrapes without info hashes are answered with all torrents.
    pub full_scrape: bool,
    /// The addresses for peers beside the tracker, if there are any.
    pub external: Option<Arc<ExternalAddress>>,
}

impl ListenerPolicyConfig {
    fn from_sections(sections: &Sections, problems: &mut Vec<Problem>) -> Self {
        let access = &sections.access;
        let config = Self {
            mode: access.mode.value,
            allow: list_source(&access.allow, sections, problems),
            deny: list_source(&access.deny, sections, problems),
            torrents: access.allow_torrents.value.clone().into(),
            private_addresses: sections.tracker.private_addresses.value,
            access: access_of(access).0,
            clients: ClientRules {
                allow: access.clients_allow.value.iter().collect(),
                deny: access.clients_deny.value.iter().collect(),
            },
            full_scrape: sections.http.full_scrape.value,
            external: external_address(&sections.tracker, problems).map(Arc::new),
        };
        check_tokens(access, problems);
        if config.full_scrape && config.access == Access::Private {
            let text = "does not go with access.private: any user could list all torrents";
            problems.push(sections.http.full_scrape.problem(text));
        }
        // With durable records, all entries may come from the API.
        let needs_file = sections.state.place().is_none();
        let uses_deny = matches!(config.mode, Mode::Deny | Mode::Both);
        for (is_used, file) in [(config.uses_allow(), &access.allow), (uses_deny, &access.deny)] {
            let has_folder =
                file.key.name == "access.allow" && !config.torrents.as_os_str().is_empty();
            if is_used && file.value.is_empty() && needs_file && !has_folder {
                let mode = access.mode.json();
                let text = format!("must name a file because access.mode is {mode}");
                problems.push(file.problem(text));
            }
        }
        for prefixes in [&access.clients_allow, &access.clients_deny] {
            check_client_prefixes(prefixes, problems);
        }
        config
    }

    /// Returns both lists, whether the mode uses them or not.
    pub fn lists(&self) -> impl Iterator<Item = ConfiguredList<'_>> {
        let of = |key, source, is_used| {
            Some(ConfiguredList { key, kind: ListKind::Torrents, source, is_used })
        };
        let allow = self.allow.as_ref();
        let allow = allow.and_then(|source| of("access.allow", source, self.uses_allow()));
        let deny = self.deny.as_ref().and_then(|source| of("access.deny", source, true));
        allow.into_iter().chain(deny)
    }

    /// Returns true if only torrents of the allow list are served.
    pub fn uses_allow(&self) -> bool {
        matches!(self.mode, Mode::Allow | Mode::Both)
    }
}

fn list_source(
    setting: &Setting<String>,
    sections: &Sections,
    problems: &mut Vec<Problem>,
) -> Option<ListSource> {
    let text = setting.value.as_str();
    if text.is_empty() {
        return None;
    }
    let source = ListSource::parse(text, ListKind::Torrents, sections.state.place());
    source.map_err(|expected| problems.push(setting.item_problem(text, &expected))).ok()
}

fn check_client_prefixes(prefixes: &Setting<Vec<String>>, problems: &mut Vec<Problem>) {
    if prefixes.value.len() > limits::CLIENT_PREFIXES_MAX {
        let (most, found) = (limits::CLIENT_PREFIXES_MAX, prefixes.value.len());
        problems.push(prefixes.problem(format!("expected at most {most} prefixes, found {found}")));
    }
    prefixes.items(problems, |prefix| match (1..=PEER_ID_LEN).contains(&prefix.len()) {
        true => Ok(()),
        false => Err("expected 1 to 20 characters, the beginning of a peer id such as `-TR`"),
    });
}

/// Returns the policy of the sections, then that of each `[[listener]]`.
pub fn listener_policies(settings: &Settings) -> Result<Vec<ListenerPolicyConfig>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut policies = vec![ListenerPolicyConfig::from_sections(&settings.sections, &mut problems)];
    for table in &settings.listeners {
        let sections = table.apply(&settings.sections);
        policies.push(ListenerPolicyConfig::from_sections(&sections, &mut problems));
    }
    problems.extend(mix(settings));
    if problems.is_empty() { Ok(policies) } else { Err(problems) }
}

/// Returns the access of a listener with this section, and the setting that decides it.
fn access_of(section: &AccessSection) -> (Access, Setting<bool>) {
    match (section.private.value, section.jwt.value) {
        (true, _) => (Access::Private, section.private.clone()),
        (false, true) => (Access::Tokens, section.jwt.clone()),
        (false, false) => (Access::Open, section.private.clone()),
    }
}

/// Returns the end of a sentence about a listener.
fn access_text(access: Access) -> &'static str {
    match access {
        Access::Private => "is private",
        Access::Tokens => "needs tokens (access.jwt)",
        Access::Open => "is open",
    }
}

/// Returns a problem if there are listeners of different kinds, and no key says that this is wanted.
/// All listeners share the same swarms, so an open one would undo the privacy of the others.
fn mix(settings: &Settings) -> Option<Problem> {
    let sections = &settings.sections;
    if sections.access.private_and_open.value {
        return None;
    }
    let of_sections = Transport::ALL.into_iter().map(|transport| {
        let addresses = addresses(sections.listen(transport), &mut Vec::new());
        let name = format!("[{}] at {}", transport.label(), join(&addresses));
        (name, addresses, access_of(&sections.access))
    });
    let of_tables = settings.listeners.iter().map(|table| {
        let addresses = addresses(&table.listen, &mut Vec::new());
        let protocol = table.transport.label();
        let name = format!("[[listener]] {protocol} at {} ({})", join(&addresses), table.origin);
        (name, addresses, access_of(&table.apply(sections).access))
    });
    // Invalid addresses have been reported, and are not repeated here.
    let all: Vec<_> = of_sections
        .chain(of_tables)
        .filter(|(_, addresses, _)| !addresses.is_empty())
        .map(|(name, _, (access, setting))| (access, name, setting))
        .collect();
    let (access, name, setting) = all.iter().min_by_key(|(access, ..)| access)?;
    let (other_access, other, _) = all.iter().find(|(other, ..)| other != access)?;
    let (text, other_text) = (access_text(*access), access_text(*other_access));
    Some(setting.problem(format!(
        "{name} {text} and {other} {other_text}, but all listeners share the same swarms, so clients of \
         the second get the peers of the first: make both of one kind, serve one by a tidegate of its \
         own, or accept this with access.private_and_open = true"
    )))
}

/// Returns the kinds of listeners that serve, as the nodes of a cluster tell each other: `open`, `private`, `jwt`,
/// or several of these with `+` between them.
pub fn access_kinds(settings: &Settings) -> String {
    let sections = &settings.sections;
    let serves = Transport::ALL.into_iter().any(|it| !sections.listen(it).value.is_empty());
    let of_sections = serves.then(|| access_of(&sections.access));
    let of_tables = settings.listeners.iter().map(|table| access_of(&table.apply(sections).access));
    let word = |access| match access {
        Access::Private => "private",
        Access::Tokens => "jwt",
        Access::Open => "open",
    };
    let kinds: BTreeSet<_> =
        of_sections.into_iter().chain(of_tables).map(|(access, _)| word(access)).collect();
    kinds.into_iter().collect::<Vec<_>>().join("+")
}

fn join(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

pub(super) fn groups(
    settings: &Settings,
    challenges: &Arc<Challenges>,
    problems: &mut Vec<Problem>,
) -> Vec<ListenerGroup> {
    let mut groups = Vec::new();
    let mut add = |sections: &Sections, listener_policy, transports: &[Transport]| {
        let policy = ListenerPolicyId(listener_policy);
        let common = ListenerGroup::common(sections, policy, challenges, problems);
        check(sections, problems);
        for transport in transports {
            groups.push(common.clone().at(*transport, sections, problems));
        }
    };
    add(&settings.sections, 0, &Transport::ALL);
    for (number, table) in (1..).zip(&settings.listeners) {
        add(&table.apply(&settings.sections), number, &[table.transport]);
    }
    groups
}

impl ListenerGroup {
    /// Returns what is the same for every protocol, without addresses.
    fn common(
        sections: &Sections,
        listener_policy: ListenerPolicyId,
        challenges: &Arc<Challenges>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let udp_proxies = networks(&sections.udp.trusted_proxies, problems);
        let section = &sections.http;
        let http = HttpOptions {
            listener_policy,
            connections_max: section.connections_max.size(),
            head_timeout_s: section.head_timeout_s.value,
            trusted_proxies: networks(&section.trusted_proxies, problems),
            proxy_protocol: section.proxy_protocol.value == ProxyProtocol::V1V2,
            forwarded_header: section.forwarded_header.value,
            non_compact: section.non_compact.value,
            shutdown_timeout_s: sections.process.shutdown_timeout_s.value,
            web: section.websocket.value.then(|| web(sections)),
            ..HttpOptions::default()
        };
        let pages = PageOptions {
            page: section.page.value,
            stats: stats(sections, problems),
            challenges: Arc::clone(challenges),
        };
        Self {
            transport: Transport::Udp,
            addresses: Vec::new(),
            is_default: false,
            listener_policy,
            simple_proxies: Some(udp_proxies).filter(|proxies| !proxies.is_empty()),
            http,
            pages,
        }
    }

    /// Returns the same for `transport`, at the addresses that `sections` has for it.
    fn at(self, transport: Transport, sections: &Sections, problems: &mut Vec<Problem>) -> Self {
        let listen = sections.listen(transport);
        let addresses = addresses(listen, problems);
        Self { transport, addresses, is_default: listen.is_default(), ..self }
    }

    /// Returns whether clients may come by trusted proxies.
    pub fn has_trusted_proxies(&self) -> bool {
        match self.transport {
            Transport::Udp => self.simple_proxies.is_some(),
            Transport::Http | Transport::Tls => !self.http.trusted_proxies.is_empty(),
        }
    }

    pub(super) fn warning(&self) -> Option<String> {
        let (proxies, name) = match self.transport {
            Transport::Udp => (self.simple_proxies.as_ref()?, "udp.trusted_proxies"),
            Transport::Http | Transport::Tls => {
                (&self.http.trusted_proxies, "http.trusted_proxies")
            }
        };
        proxies.contains_whole_family().then(|| {
            format!("{name} contains every address: any client can claim any other address")
        })
    }
}

fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    let http = &sections.http;
    let has_proxy_protocol = http.proxy_protocol.value == ProxyProtocol::V1V2;
    if has_proxy_protocol && http.trusted_proxies.value.is_empty() {
        let text = "must name the proxies because http.proxy_protocol is on";
        problems.push(http.trusted_proxies.problem(text));
    }
    for origins in [&http.websocket_origins_allow, &http.websocket_origins_deny] {
        origins.items(problems, |origin| {
            let host = origin.split_once("://").map_or("", |(_, host)| host);
            match origin.is_empty() || !(host.is_empty() || host.contains('/')) {
                true => Ok(()),
                false => {
                    Err("expected a scheme and a host without a path, e.g. `https://example.org`")
                }
            }
        });
    }
}

pub(super) fn check_addresses(
    settings: &Settings,
    groups: &[ListenerGroup],
    admin: &[SocketAddr],
    problems: &mut Vec<Problem>,
) {
    let (mut udp, mut tcp) = (BTreeMap::new(), BTreeMap::new());
    // Claims an address for `owner`; adds a mistake in `listen` if it has another owner.
    let mut claim =
        |transport, address: &SocketAddr, owner: String, listen: &Setting<Vec<String>>| {
            let owners = if transport == Transport::Udp { &mut udp } else { &mut tcp };
            if address.port() != 0
                && let Some(other) = owners.insert(*address, owner)
            {
                problems.push(listen.problem(format!("{address} is already used by {other}")));
            }
        };
    let (of_sections, of_tables) = groups.split_at(Transport::ALL.len());
    for group in of_sections {
        let transport = group.transport;
        for address in &group.addresses {
            let owner = format!("[{}]", transport.label());
            claim(transport, address, owner, settings.sections.listen(transport));
        }
    }
    for address in admin {
        claim(Transport::Http, address, "[admin]".into(), &settings.sections.admin.listen);
    }
    for (group, table) in of_tables.iter().zip(&settings.listeners) {
        for address in &group.addresses {
            let owner = format!("the [[listener]] at {}", table.origin);
            claim(group.transport, address, owner, &table.listen);
        }
    }
}

fn stats(sections: &Sections, problems: &mut Vec<Problem>) -> Option<StatsOptions> {
    let http = &sections.http;
    let form = match http.stats.value {
        StatsChoice::Off => return None,
        StatsChoice::Page => StatsForm::Page,
        StatsChoice::Opentracker => StatsForm::Opentracker,
    };
    let path = &http.stats_path.value;
    let is_taken = ["/announce", "/scrape", "/health", "/.well-known"]
        .iter()
        .any(|taken| path.starts_with(taken) || path.ends_with(taken));
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'?' && byte != b'#');
    if !path.starts_with('/') || path.len() < 2 || is_taken || !is_plain {
        let text = "expected a path of its own, e.g. `/stats`";
        problems.push(http.stats_path.problem(text));
    }
    let networks = networks(&http.stats_networks, problems);
    Some(StatsOptions { path: path.clone(), form, networks })
}

fn web(sections: &Sections) -> WebOptions {
    let http = &sections.http;
    WebOptions {
        origins_allow: http.websocket_origins_allow.value.clone(),
        origins_deny: http.websocket_origins_deny.value.clone(),
        messages_per_s: http.websocket_messages_per_s.value,
        ..WebOptions::default()
    }
}

pub(super) fn addresses(
    list: &Setting<Vec<String>>,
    problems: &mut Vec<Problem>,
) -> Vec<SocketAddr> {
    let mut known = BTreeSet::new();
    list.items(problems, |text| match text.parse::<SocketAddr>() {
        Ok(address) if !known.insert(address) && address.port() != 0 => Err("is listed twice"),
        Ok(address) => Ok(address),
        Err(_) => Err("expected an IP address and a port, e.g. `0.0.0.0:6969` or `[::]:6969`"),
    })
}
