//! Listeners: those of `[udp]`, `[http]` and `[tls]`, which share what those sections and `[access]` say, and
//! those of `[[listener]]` tables, each of which may have some of that of its own.
//!
//! A table's settings are the file's with its own put over them, so all that is said of a key in a
//! section holds for the same key in a table.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::http::{Challenges, ForwardedHeader, HttpOptions};
use front::web::WebOptions;
use tracker::access::Mode;
use tracker::{ClientRules, ListenerPolicyId, Networks, PrivateAddresses};
use types::{PeerId, limits};

use super::read::{Problem, Settings};

const PEER_ID_LEN: usize = size_of::<PeerId>();

/// What a listener speaks. Its label names its section, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// UDP.
    Udp,
    /// HTTP and WebSocket.
    Http,
    /// The same over TLS.
    Tls,
}

impl Transport {
    pub(crate) const ALL: [Self; 3] = [Self::Udp, Self::Http, Self::Tls];
    /// The labels, in the same order.
    pub(crate) const LABELS: [&str; 3] = ["udp", "http", "tls"];

    pub(crate) fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }

    pub(crate) fn of(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.label() == label)
    }

    /// The key that says where it listens.
    pub(crate) fn listen(self) -> &'static str {
        match self {
            Self::Udp => "udp.listen",
            Self::Http => "http.listen",
            Self::Tls => "tls.listen",
        }
    }
}

/// Listeners for which the same holds.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) transport: Transport,
    pub(crate) addresses: Vec<SocketAddr>,
    /// From the defaults: an address family that the system lacks is skipped then.
    pub(crate) is_default: bool,
    /// Which of [`super::Config::listener_policies`] is theirs.
    pub(crate) listener_policy: ListenerPolicyId,
    /// Those that put Simple Proxy headers before datagrams, if that is on.
    pub(crate) simple_proxies: Option<Networks>,
    /// How HTTP is served.
    pub(crate) http: HttpOptions,
}

/// What a door is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DoorConfig {
    pub(crate) mode: Mode,
    pub(crate) allow: PathBuf,
    pub(crate) deny: PathBuf,
    pub(crate) private_addresses: PrivateAddresses,
    pub(crate) private: bool,
    pub(crate) clients: ClientRules,
}

impl DoorConfig {
    fn from_settings(settings: &Settings) -> Self {
        Self {
            mode: match settings.text("access.mode") {
                "allow" => Mode::Allow,
                "deny" => Mode::Deny,
                "both" => Mode::Both,
                _ => Mode::Open,
            },
            allow: settings.text("access.allow").into(),
            deny: settings.text("access.deny").into(),
            private_addresses: match settings.text("tracker.private_addresses") {
                "allow" => PrivateAddresses::Allow,
                "deny" => PrivateAddresses::Deny,
                _ => PrivateAddresses::Auto,
            },
            private: settings.flag("access.private"),
            clients: ClientRules {
                allow: settings.list("access.clients_allow").iter().collect(),
                deny: settings.list("access.clients_deny").iter().collect(),
            },
        }
    }

    /// Looks for keys that contradict each other.
    fn check(&self, settings: &Settings, problems: &mut Vec<Problem>) {
        // Entries may be the API's alone, if it has where to keep them.
        let is_kept = !settings.text("state.dir").is_empty();
        for (wanted, path, name) in [
            (self.wants_allow(), &self.allow, "access.allow"),
            (self.wants_deny(), &self.deny, "access.deny"),
        ] {
            if wanted && path.as_os_str().is_empty() && !is_kept {
                let mode = settings.text("access.mode");
                let text = format!("must name a file when access.mode is `{mode}`");
                problems.push(settings.problem(name, text));
            }
        }
        Self::check_clients(settings, problems);
    }

    /// Looks for what no peer id begins with.
    fn check_clients(settings: &Settings, problems: &mut Vec<Problem>) {
        for name in ["access.clients_allow", "access.clients_deny"] {
            let prefixes = settings.list(name);
            if prefixes.len() > limits::CLIENT_PREFIXES_MAX {
                let text = format!("{} are the most", limits::CLIENT_PREFIXES_MAX);
                problems.push(settings.problem(name, text));
            }
            for prefix in prefixes {
                if prefix.is_empty() || prefix.len() > PEER_ID_LEN {
                    let text = "a beginning of a peer id has 1 to 20 characters, as in `-TR`";
                    problems.push(settings.problem(name, format!("`{prefix}`: {text}")));
                }
            }
        }
    }

    /// The files of both lists, in use or not.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [self.allow.as_path(), self.deny.as_path()].into_iter()
    }

    pub(crate) fn wants_allow(&self) -> bool {
        matches!(self.mode, Mode::Allow | Mode::Both)
    }

    pub(crate) fn wants_deny(&self) -> bool {
        matches!(self.mode, Mode::Deny | Mode::Both)
    }
}

/// The sections' door, and that of each `[[listener]]`.
pub(crate) fn listener_policies(settings: &Settings) -> Result<Vec<DoorConfig>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut listener_policy = |settings: &Settings| {
        let listener_policy = DoorConfig::from_settings(settings);
        listener_policy.check(settings, &mut problems);
        listener_policy
    };
    let mut listener_policies = vec![listener_policy(settings)];
    listener_policies
        .extend(settings.listeners().iter().map(|table| listener_policy(&settings.with(table))));
    if problems.is_empty() { Ok(listener_policies) } else { Err(problems) }
}

/// The sections' listeners, and those of each `[[listener]]`.
pub(super) fn groups(
    settings: &Settings,
    challenges: &Arc<Challenges>,
    problems: &mut Vec<Problem>,
) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut open = |settings: &Settings, listener_policy, transports: &[Transport]| {
        let common =
            Group::common(settings, ListenerPolicyId(listener_policy), challenges, problems);
        common.check(settings, problems);
        for transport in transports {
            groups.push(common.clone().at(*transport, settings, problems));
        }
    };
    open(settings, 0, &Transport::ALL);
    for (number, table) in (1..).zip(settings.listeners()) {
        open(&settings.with(table), number, &[table.transport]);
    }
    groups
}

impl Group {
    /// What is the same for listeners of all kinds.
    fn common(
        settings: &Settings,
        listener_policy: ListenerPolicyId,
        challenges: &Arc<Challenges>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let udp_proxies = networks(settings, "udp.trusted_proxies", problems);
        let trusted_proxies = networks(settings, "http.trusted_proxies", problems);
        let http = HttpOptions {
            listener_policy,
            connections_max: settings.size("http.connections_max"),
            head_timeout_s: settings.int("http.head_timeout_s"),
            idle_timeout_s: settings.int("http.idle_timeout_s"),
            write_timeout_s: settings.int("http.write_timeout_s"),
            trusted_proxies,
            proxy_protocol: settings.text("http.proxy_protocol") == "v1v2",
            forwarded_header: match settings.text("http.forwarded_header") {
                "forwarded" => ForwardedHeader::Forwarded,
                _ => ForwardedHeader::XForwardedFor,
            },
            non_compact: settings.flag("http.non_compact"),
            shutdown_timeout_s: settings.int("process.shutdown_timeout_s"),
            web: settings.flag("http.websocket").then(|| web(settings)),
            challenges: Arc::clone(challenges),
        };
        Self {
            transport: Transport::Udp,
            addresses: Vec::new(),
            is_default: false,
            listener_policy,
            simple_proxies: settings.flag("udp.simple_proxy").then_some(udp_proxies),
            http,
        }
    }

    /// The same at the addresses that the settings have for a transport.
    fn at(self, transport: Transport, settings: &Settings, problems: &mut Vec<Problem>) -> Self {
        let name = transport.listen();
        let addresses = addresses(settings, name, problems);
        Self { transport, addresses, is_default: settings.is_default(name), ..self }
    }

    /// What is in force, but hardly meant.
    pub(super) fn doubts(&self) -> impl Iterator<Item = String> {
        let (proxies, name) = match self.transport {
            Transport::Udp => (self.simple_proxies.as_ref(), "udp.trusted_proxies"),
            Transport::Http | Transport::Tls => {
                (Some(&self.http.trusted_proxies), "http.trusted_proxies")
            }
        };
        let is_doubtful = proxies.is_some_and(Networks::contains_whole_family);
        let doubt = format!("{name} holds everybody: anybody may claim to be anybody");
        is_doubtful.then_some(doubt).into_iter()
    }

    /// Looks for keys that contradict each other.
    fn check(&self, settings: &Settings, problems: &mut Vec<Problem>) {
        let mut blame = |name: &'static str, text: String| {
            problems.push(settings.problem(name, text));
        };
        for (is_on, name, by) in [
            (self.http.proxy_protocol, "http.trusted_proxies", "http.proxy_protocol"),
            (self.simple_proxies.is_some(), "udp.trusted_proxies", "udp.simple_proxy"),
        ] {
            if is_on && settings.list(name).is_empty() {
                blame(name, format!("must name the proxies when {by} is on"));
            }
        }
        for path in settings.list("http.websocket_paths") {
            if !path.starts_with('/') {
                blame("http.websocket_paths", format!("`{path}`: a path begins with `/`"));
            }
        }
        for name in ["http.websocket_origins_allow", "http.websocket_origins_deny"] {
            for origin in settings.list(name) {
                let host = origin.split_once("://").map_or("", |(_, host)| host);
                if !origin.is_empty() && (host.is_empty() || host.contains('/')) {
                    let text = "an origin has a scheme and a host and no path, as in \
                                `https://example.org`";
                    blame(name, format!("`{origin}`: {text}"));
                }
            }
        }
        if let Some(web) = &self.http.web
            && web.idle_timeout_s <= web.ping_s
        {
            let text = "must be above http.websocket_ping_s, or no ping could be answered in time";
            blame("http.websocket_idle_timeout_s", text.into());
        }
    }
}

/// Looks for addresses that two listeners want.
pub(super) fn check_addresses(
    settings: &Settings,
    groups: &[Group],
    admin: &[SocketAddr],
    problems: &mut Vec<Problem>,
) {
    let (mut udp, mut tcp) = (BTreeMap::new(), BTreeMap::new());
    let mut take = |is_udp: bool, address: SocketAddr, owner: String| {
        let seen = if is_udp { &mut udp } else { &mut tcp };
        if address.port() == 0 { None } else { seen.insert(address, owner) }
    };
    let (sections, tables) = groups.split_at(Transport::ALL.len());
    let mut blame = |(other, address), problem: &dyn Fn(String) -> Problem| {
        problems.push(problem(format!("{address} is taken by {other} already")));
    };
    for group in sections {
        let (transport, name) = (group.transport, group.transport.listen());
        for address in &group.addresses {
            let owner = format!("[{}]", transport.label());
            if let Some(other) = take(transport == Transport::Udp, *address, owner) {
                blame((other, address), &|text| settings.problem(name, text));
            }
        }
    }
    for address in admin {
        if let Some(other) = take(false, *address, "[admin]".into()) {
            blame((other, address), &|text| settings.problem("admin.listen", text));
        }
    }
    for (group, table) in tables.iter().zip(settings.listeners()) {
        for address in &group.addresses {
            let owner = format!("the [[listener]] at {}", table.origin);
            if let Some(other) = take(group.transport == Transport::Udp, *address, owner) {
                blame((other, address), &|text| table.problem(text));
            }
        }
    }
}

fn web(settings: &Settings) -> WebOptions {
    WebOptions {
        paths: settings.list("http.websocket_paths").to_vec(),
        origins_allow: settings.list("http.websocket_origins_allow").to_vec(),
        origins_deny: settings.list("http.websocket_origins_deny").to_vec(),
        message_max: settings.size("http.websocket_message_bytes"),
        messages_per_s: settings.int("http.websocket_messages_per_s"),
        torrents_max: settings.size("http.websocket_torrents_max"),
        unread_max: settings.size("http.websocket_unread_bytes"),
        write_timeout_s: settings.int("http.write_timeout_s"),
        ping_s: settings.int("http.websocket_ping_s"),
        idle_timeout_s: settings.int("http.websocket_idle_timeout_s"),
    }
}

/// A list of networks.
pub(super) fn networks(
    settings: &Settings,
    name: &'static str,
    problems: &mut Vec<Problem>,
) -> Networks {
    let networks = Networks::parse(settings.list(name).iter().map(String::as_str));
    networks.unwrap_or_else(|error| {
        problems.push(settings.problem(name, error.to_string()));
        Networks::default()
    })
}

/// The addresses of a list of listeners.
pub(super) fn addresses(
    settings: &Settings,
    name: &'static str,
    problems: &mut Vec<Problem>,
) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for text in settings.list(name) {
        match text.parse() {
            Ok(address) if addresses.contains(&address) && address.port() != 0 => {
                problems.push(settings.problem(name, format!("`{text}` stands twice")));
            }
            Ok(address) => addresses.push(address),
            Err(_) => {
                let advice = "an address and a port are due, as in `0.0.0.0:6969` or `[::]:6969`";
                problems.push(settings.problem(name, format!("`{text}`: {advice}")));
            }
        }
    }
    addresses
}
