//! The configuration.
//!
//! ```text
//! keys: one table of all keys ─▶ read: file, environment, API ─▶ Settings ─▶ Config
//!                                       show: init, show, list ◀──┘
//! ```
//!
//! [`Settings`] hold the value of each key and where it comes from; [`Config`] is what the tracker is
//! built from, checked as a whole.
#![forbid(unsafe_code)]

mod access;
mod acme;
mod choices;
mod cluster;
mod constants;
mod features;
mod key;
mod keys;
mod list_source;
mod listener_table;
mod listeners;
mod load_rules;
mod log;
mod place;
mod read;
mod schema;
mod setting;
mod show;
mod site;
mod source;
mod swarms;
mod warnings;
mod xdp;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::http::host_of;
use net::Engine;
use net::process::{cores, memory_bytes};
use net::tls::CertificateFiles;
use pages::Challenges;
use tracker::{BanRules, Limits, Networks, PeerCaps, Policy, QuietRefusals, Rate};
use types::limits::{
    ANNOUNCES_PER_S, BURST_S, CONNECTIONS_PER_NETWORK_PERCENT, CONNECTIONS_PER_S, CONNECTS_PER_S,
    HANDSHAKES_BURST, HANDSHAKES_PER_S, HANDSHAKES_UNFINISHED_MAX, JITTER_SHARE, MEMORY_SHARE,
    MEMORY_UNKNOWN_MIB, OTHERS_PER_S, PAGE_TEXT_BYTES_MAX, PEER_LIFETIME_S_MAX, SCRAPES_PER_S,
};

use choices::Sandboxing;
use keys::{BansSection, LimitsSection, Sections, TrackerSection};
use setting::Setting;

pub use access::{
    GeoConfig, KeySource, NearConfig, NetworkRule, NetworkRules, NetworkSet, TokenConfig,
};
pub use acme::AcmeConfig;
pub use choices::{Challenge, LogFormat, SiteKind, Transport};
pub use cluster::{ClusterConfig, is_name as is_cluster_name};
pub use key::{Problem, escaped};
pub use list_source::{
    ConfiguredList, FetchConfig, ListKind, ListSource, ListUrl, fetch_port, list_copies,
};
pub use listeners::{ListenerGroup, ListenerPolicyConfig, access_kinds, listener_policies};
pub use load_rules::LoadConfig;
pub use log::LogConfig;
pub use read::{Settings, load, parse};
pub use show::{init, list, show, without_secrets};
pub use site::{SiteConfig, SiteFactors, SiteListWindow};
pub use swarms::SwarmsConfig;
pub use xdp::XdpConfig;

/// Connections that one client prefix may hold over all workers.
const CONNECTIONS_PER_PREFIX: u32 = 5000;

/// Everything that serving needs, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Warnings about values that are ignored or deprecated.
    setting_warnings: Vec<Problem>,
    /// Those of `[udp]`, `[http]` and `[tls]`, then those of each `[[listener]]`.
    pub groups: Vec<ListenerGroup>,
    /// That of the sections, then that of each `[[listener]]`. Groups refer to them by index.
    pub listener_policies: Vec<ListenerPolicyConfig>,
    /// The kinds of listeners that serve; see [`access_kinds`].
    pub access_kinds: String,
    /// True if listeners of different kinds may share swarms.
    pub private_and_open: bool,
    /// 0 = one per core.
    pub udp_workers: usize,
    /// The engine of UDP.
    pub engine: Engine,
    /// The XDP program of that engine, if it has one.
    pub xdp: XdpConfig,
    /// Bytes.
    pub receive_buffer: usize,
    /// 0 = one per core.
    pub http_workers: usize,
    /// True if peer ids are stored.
    pub keep_peer_ids: bool,
    /// The name of this host in announce URLs of the public page; `None` = that of the request.
    pub public_host: Option<String>,
    /// The operator's own text on the public page.
    pub page_text: String,
    /// Responses to HTTP challenges of an ACME server.
    pub challenges: Arc<Challenges>,
    /// Files of certificates and their keys.
    pub certificates: Vec<CertificateFiles>,
    /// Certificates to obtain, if any.
    pub acme: Option<AcmeConfig>,
    /// Intervals and numbers of peers in responses.
    pub policy: Policy,
    /// Reactions to load.
    pub load: LoadConfig,
    /// Bounds on what clients may use.
    pub limits: Limits,
    /// Offences after which a network is banned.
    pub bans: BanRules,
    /// The file of users' keys, or an empty path.
    pub keys: PathBuf,
    /// The refusals that clients do not see as errors.
    pub quiet: QuietRefusals,
    /// Networks that are served, and networks that are refused.
    pub networks: NetworkRules,
    /// Options of the verification of tokens, if there are keys for it.
    pub tokens: Option<TokenConfig>,
    /// Options of fetching lists from URLs.
    pub fetch: FetchConfig,
    /// Files that tell the systems and countries of networks.
    pub geo: GeoConfig,
    /// Bytes, or unlimited.
    pub memory_budget: Option<u64>,
    /// True if the budget is a guess, because the system does not report how much memory there is.
    pub assumes_memory: bool,
    /// Addresses of the admin listener.
    pub admin_listen: Vec<SocketAddr>,
    /// True if the admin listener uses TLS.
    pub admin_tls: bool,
    /// Host names that requests to the admin listener may name.
    pub admin_hosts: Vec<String>,
    /// True if `/metrics` requires a token.
    pub metrics_token: bool,
    /// API requests per second and token. 0 = unlimited.
    pub requests_per_s: u32,
    /// Invalid tokens per minute from one address.
    pub wrong_tokens_per_min: u32,
    /// Web sites whose pages may use the API.
    pub cors_origins: Vec<String>,
    /// TCP ports to which webhooks may be posted.
    pub webhook_ports: Vec<u16>,
    /// Addresses that are not public and that webhooks may be posted to.
    pub webhook_private: Networks,
    /// The directory of durable records. Without one, records are kept in memory.
    pub state_dir: Option<PathBuf>,
    /// Seconds between writes of counters to the records.
    pub flush_s: u32,
    /// The journal of swarms, if it is on.
    pub swarms: Option<SwarmsConfig>,
    /// The cluster that this node is part of, if any.
    pub cluster: Option<ClusterConfig>,
    /// The site whose users announce, if any.
    pub site: Option<SiteConfig>,
    /// The user to switch to, or an empty string.
    pub user: String,
    /// True if the process gives up the rights that it does not need.
    pub sandbox: bool,
    /// Seconds that responses in progress have at the end.
    pub shutdown_timeout_s: u32,
    /// Lines of the log.
    pub log: LogConfig,
}

impl Config {
    /// Checks what single keys cannot show, and converts.
    pub fn from_settings(settings: &Settings) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let sections = &settings.sections;
        let Sections { udp, tls, admin, state, process, access, bans, .. } = sections;
        let exempt = setting::networks(&sections.limits.exempt, &mut problems);
        let admin_listen = listeners::addresses(&admin.listen, &mut problems);
        let challenges = Arc::default();
        let groups = listeners::groups(settings, &challenges, &mut problems);
        let listener_policies = listener_policies(settings).unwrap_or_else(|found| {
            problems.extend(found);
            Vec::new()
        });
        listeners::check_addresses(settings, &groups, &admin_listen, &mut problems);
        let config = Self {
            setting_warnings: settings.warnings.clone(),
            listener_policies,
            access_kinds: access_kinds(settings),
            private_and_open: sections.access.private_and_open.value,
            udp_workers: udp.workers.size(),
            engine: udp.engine.value,
            xdp: XdpConfig::from_section(&sections.xdp, &mut problems),
            receive_buffer: udp.receive_buffer_bytes.size(),
            http_workers: sections.http.workers.size(),
            keep_peer_ids: sections.http.non_compact.value,
            public_host: public_host(&sections.http.public_host, &mut problems),
            page_text: page_text(&sections.http.page_text, &mut problems),
            challenges,
            certificates: tls.certificates.value.clone(),
            acme: AcmeConfig::from_sections(sections, &mut problems),
            policy: policy(sections),
            load: LoadConfig::from_sections(sections, &mut problems),
            limits: Limits {
                network_connections: network_connections(sections, &groups),
                ..limits(sections, exempt)
            },
            bans: ban_rules(bans),
            keys: access.keys.value.clone().into(),
            quiet: access::quiet_refusals(access, &mut problems),
            networks: NetworkRules::from_sections(sections, &mut problems),
            tokens: TokenConfig::from_section(access, &mut problems),
            fetch: FetchConfig::from_section(access),
            geo: GeoConfig::from_section(&sections.geo, &mut problems),
            memory_budget: memory_budget(sections.limits.memory_mib.value, memory_bytes()),
            assumes_memory: assumes_memory(sections),
            admin_listen,
            admin_tls: admin.tls.value,
            admin_hosts: hosts(&admin.hosts, &mut problems),
            metrics_token: admin.metrics_token.value,
            requests_per_s: admin.requests_per_s.value,
            wrong_tokens_per_min: admin.wrong_tokens_per_min.value,
            cors_origins: origins(&admin.cors_origins, &mut problems),
            webhook_ports: ports(&admin.webhook_ports, &mut problems),
            webhook_private: setting::networks(&admin.webhook_private, &mut problems),
            state_dir: state.place().map(Path::to_owned),
            flush_s: state.flush_s.value,
            swarms: SwarmsConfig::from_sections(sections),
            cluster: ClusterConfig::from_section(&sections.cluster),
            site: SiteConfig::from_section(&sections.site, &mut problems),
            user: process.user.value.clone(),
            sandbox: process.sandbox.value == Sandboxing::Auto,
            shutdown_timeout_s: process.shutdown_timeout_s.value,
            log: LogConfig::from_section(&sections.log, &mut problems),
            groups,
        };
        config.cross_check(sections, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(Problem::sorted(problems)) }
    }

    /// Returns the addresses of all listeners of a protocol.
    pub fn addresses(&self, transport: Transport) -> impl Iterator<Item = SocketAddr> {
        let groups = self.groups.iter().filter(move |group| group.transport == transport);
        groups.flat_map(|group| group.addresses.iter().copied())
    }

    /// Returns true if any listener has this protocol.
    pub fn listens(&self, transport: Transport) -> bool {
        self.addresses(transport).next().is_some()
    }

    /// Returns the files, beside the configuration itself, that a reload reads.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
        let lists = self.lists().filter_map(|list| list.source.file());
        let tokens = self.tokens.as_ref().and_then(TokenConfig::file);
        let own = [&self.keys, &self.fetch.ca]
            .into_iter()
            .map(PathBuf::as_path)
            .chain(tokens)
            .chain(self.geo.files());
        let all = lists.chain(own).chain(certificates.map(PathBuf::as_path));
        all.filter(|path| !path.as_os_str().is_empty())
    }

    /// Returns the lists of torrents and networks, each as often as it is named.
    pub fn lists(&self) -> impl Iterator<Item = ConfiguredList<'_>> {
        let torrents = self.listener_policies.iter().flat_map(ListenerPolicyConfig::lists);
        torrents.chain(self.networks.lists())
    }

    /// Returns the lists at URLs that decide something, and their forms, each as often as it is named.
    pub fn list_urls(&self) -> impl Iterator<Item = (ListKind, &ListUrl)> {
        let used = self.lists().filter(|list| list.is_used);
        used.filter_map(|list| Some((list.kind, list.source.url()?)))
    }

    /// Returns the folders of torrent files.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let folders = self.listener_policies.iter().map(|policy| policy.torrents.as_path());
        folders.filter(|path| !path.as_os_str().is_empty())
    }

    fn cross_check(&self, sections: &Sections, problems: &mut Vec<Problem>) {
        let Sections { tls, admin, acme, udp, .. } = sections;
        if self.engine.has_program() && !features::XDP {
            problems.push(udp.engine.problem(features::lacks("xdp")));
        }
        sections.state.check(problems);
        self.check_site(sections, problems);
        let lacks_path = |files: &CertificateFiles| {
            [&files.chain, &files.key].iter().any(|path| path.as_os_str().is_empty())
        };
        if self.certificates.iter().any(lacks_path) {
            problems.push(tls.certificates.problem("chain and key must both name a file"));
        }
        let has_tls = self.listens(Transport::Tls);
        if has_tls && self.certificates.is_empty() && acme.domains.value.is_empty() {
            problems.push(tls.listen.problem("requires tls.certificates or tls.acme.domains"));
        }
        if self.admin_tls && self.certificates.is_empty() && !has_tls {
            let text = "requires tls.certificates, or tls.acme.domains with tls.listen";
            problems.push(admin.tls.problem(text));
        }
        if let Some(config) = &self.acme {
            if !has_tls {
                let text = "requires tls.listen, where the certificates are used";
                problems.push(acme.domains.problem(text));
            } else if config.challenge == Challenge::Http && !self.listens(Transport::Http) {
                problems.push(acme.challenge.problem("\"http-01\" requires http.listen"));
            }
        }
    }
}

fn origins(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    list.items(problems, |origin| {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        match host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
            true => Ok(origin.to_owned()),
            false => Err("expected https:// and a host without a path, e.g. `https://example.org`"),
        }
    })
}

fn hosts(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    let is_name = |host: &str| {
        let labels = host.strip_prefix("*.").unwrap_or(host);
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        !labels.is_empty() && labels.bytes().all(is_allowed)
    };
    list.items(problems, |host| match host == "*" || is_name(host) {
        true => Ok(host.to_owned()),
        false => {
            Err("expected a host name without scheme and port, e.g. `tracker.example.org`, or `*`")
        }
    })
}

fn ports(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<u16> {
    list.items(problems, |text| match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("expected a port, e.g. `443`"),
    })
}

/// Returns the bytes for torrents and peers, if they are limited. `machine` is the memory there is, if known.
fn memory_budget(memory_mib: Option<u32>, machine: Option<u64>) -> Option<u64> {
    match memory_mib {
        Some(0) => None,
        Some(mib) => Some(u64::from(mib) << 20),
        None => Some(machine.map_or(MEMORY_UNKNOWN_MIB << 20, |bytes| bytes / MEMORY_SHARE)),
    }
}

fn assumes_memory(sections: &Sections) -> bool {
    sections.limits.memory_mib.value.is_none() && memory_bytes().is_none()
}

/// Converts a value whose key has bounds within `max`, the maximum of the smaller type.
fn narrow<T: TryFrom<u32>>(setting: &Setting<u32>, max: T) -> T {
    let converted = T::try_from(setting.value);
    debug_assert!(converted.is_ok(), "the bounds of {} are too wide", setting.key.name);
    converted.unwrap_or(max)
}

fn public_host(setting: &Setting<String>, problems: &mut Vec<Problem>) -> Option<String> {
    let host = Some(&setting.value).filter(|host| !host.is_empty())?;
    if host_of(host) != Some(host) {
        let text = "expected a host name without scheme and port, e.g. `tracker.example.org`, or an address";
        problems.push(setting.problem(text));
    }
    Some(host.clone())
}

fn page_text(setting: &Setting<String>, problems: &mut Vec<Problem>) -> String {
    let length = setting.value.len();
    if length > PAGE_TEXT_BYTES_MAX {
        let text = format!("expected at most {PAGE_TEXT_BYTES_MAX} bytes, found {length}");
        problems.push(setting.problem(text));
    }
    setting.value.clone()
}

/// Returns the maximum of the random seconds added to the interval.
fn interval_jitter_s(tracker: &TrackerSection) -> u32 {
    let by_default = || tracker.interval_s.value / JITTER_SHARE;
    tracker.interval_jitter_s.value.unwrap_or_else(by_default)
}

/// Returns the seconds without an announce after which a peer is removed: one and a half intervals.
fn peer_lifetime_s(tracker: &TrackerSection) -> u32 {
    let by_default = || (tracker.interval_s.value * 3 / 2).clamp(2, PEER_LIFETIME_S_MAX);
    tracker.peer_lifetime_s.value.unwrap_or_else(by_default)
}

fn policy(sections: &Sections) -> Policy {
    let Sections { tracker, limits, access, .. } = sections;
    let peers = |numwant: &Setting<u32>| narrow(numwant, u16::MAX);
    Policy {
        interval_s: tracker.interval_s.value,
        // The minimum cannot exceed the interval: an operator may lower only that one.
        interval_min_s: tracker.interval_min_s.value.min(tracker.interval_s.value),
        enforce_interval_min: tracker.enforce_interval_min.value,
        interval_jitter_s: interval_jitter_s(tracker),
        peer_lifetime_s: peer_lifetime_s(tracker),
        websocket_interval_s: tracker.websocket_interval_s.value,
        numwant_max: peers(&tracker.numwant_max),
        peer_caps: PeerCaps {
            per_address: peers(&limits.peers_per_address),
            per_network: peers(&limits.peers_per_network),
        },
        key_mbit_per_s: access.key_mbit_per_s.value,
        ..Policy::default()
    }
}

fn ban_rules(bans: &BansSection) -> BanRules {
    BanRules {
        malformed_per_min: bans.malformed_per_min.value,
        wrong_keys_per_min: bans.wrong_keys_per_min.value,
        time_s: bans.duration_s.value,
    }
}

fn limits(sections: &Sections, exempt: Networks) -> Limits {
    let limits: &LimitsSection = &sections.limits;
    let rate = |per_s: u32, burst: &Setting<u32>| Rate {
        per_s,
        burst: if burst.value == 0 { per_s.saturating_mul(BURST_S) } else { burst.value },
    };
    let announces = rate(limits.announces_per_s.value, &limits.announces_burst);
    let other_rate = |setting: &Setting<Option<u32>>, per_s: u32, burst: &Setting<u32>| {
        let by_default = || per_announce(announces, Rate { per_s, burst: 0 }).per_s;
        rate(setting.value.unwrap_or_else(by_default), burst)
    };
    let openings = Rate { per_s: CONNECTIONS_PER_S, burst: CONNECTIONS_PER_S * BURST_S };
    let handshakes = Rate { per_s: HANDSHAKES_PER_S, burst: HANDSHAKES_BURST };
    let others = Rate { per_s: OTHERS_PER_S, burst: OTHERS_PER_S * BURST_S };
    Limits {
        connects: other_rate(&limits.connects_per_s, CONNECTS_PER_S, &limits.connects_burst),
        announces,
        scrapes: other_rate(&limits.scrapes_per_s, SCRAPES_PER_S, &limits.scrapes_burst),
        openings: per_announce(announces, openings),
        handshakes: per_announce(announces, handshakes),
        unfinished_handshakes: HANDSHAKES_UNFINISHED_MAX,
        others: per_announce(announces, others),
        connections: CONNECTIONS_PER_PREFIX,
        kernel_block_per_s: limits.kernel_block_per_s.value,
        kernel_block_s: limits.kernel_block_s.value,
        prefix_v6: narrow(&limits.prefix_v6_bits, u8::MAX),
        exempt,
        ..Limits::default()
    }
}

/// Returns `rate`, of new connections, handshakes or other requests, or more where more announces than by default are
/// allowed: many clients open a connection for each, and each may be refused.
fn per_announce(announces: Rate, rate: Rate) -> Rate {
    if announces.per_s == 0 {
        return Rate::default();
    }
    let scale = |value: u32| {
        let scaled = u64::from(value) * u64::from(announces.per_s.max(ANNOUNCES_PER_S));
        u32::try_from(scaled / u64::from(ANNOUNCES_PER_S)).unwrap_or(u32::MAX)
    };
    Rate { per_s: scale(rate.per_s), burst: scale(rate.burst) }
}

fn network_connections(sections: &Sections, groups: &[ListenerGroup]) -> u32 {
    // The largest value of a worker's listeners limits the worker.
    let tcp = groups.iter().filter(|group| group.transport != Transport::Udp);
    let of_worker = tcp.map(|group| group.http.connections_max).max().unwrap_or(0);
    let seats =
        (of_worker as u64).saturating_mul(worker_count(sections.http.workers.size()) as u64);
    u32::try_from(seats * CONNECTIONS_PER_NETWORK_PERCENT / 100).unwrap_or(u32::MAX).max(1)
}

/// Returns the number of workers for a setting; 0 = one per core.
pub fn worker_count(setting: usize) -> usize {
    if setting == 0 { cores().len().max(1) } else { setting }
}

/// Returns what differs between two configurations: what a reload applies, and what only a restart
/// does.
pub fn changes(old: &Settings, new: &Settings) -> (Vec<String>, Vec<String>) {
    let (mut reloadable, mut fixed) = listener_table::changes(&old.listeners, &new.listeners);
    for key in old.sections.changed_keys(&new.sections) {
        let list = if key.reloadable { &mut reloadable } else { &mut fixed };
        list.push(key.name.to_owned());
    }
    (reloadable, fixed)
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
