//! The configuration: one table of keys ([`keys`]), read from a file and the environment ([`read`]),
//! shown and written from the same table ([`show()`]), and here turned into what the rooms take.

mod acme;
mod keys;
mod read;
mod show;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::http::{ForwardedHeader, HttpOptions};
use front::web::WebOptions;
use net::Engine;
use net::tls::CertificateFiles;
use tracker::access::Mode;
use tracker::{Limits, Networks, Policy, PrivateAddresses, Rate};

use keys::{KEYS, Key};

pub(crate) use acme::{AcmeConfig, Challenge};
pub(crate) use read::{Problem, Settings, load};
pub(crate) use show::{init, show};

/// Where a listener listens, and whether the operator asked for just that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) addresses: Vec<SocketAddr>,
    /// From the defaults: an address family that the system lacks is skipped then.
    pub(crate) is_default: bool,
}

/// Everything that serving needs, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) udp_listen: Listen,
    pub(crate) udp_workers: usize,
    pub(crate) engine: Engine,
    pub(crate) receive_buffer: usize,
    pub(crate) pin_cores: bool,
    /// Those that put Simple Proxy headers before datagrams, if that is on.
    pub(crate) simple_proxies: Option<Networks>,
    pub(crate) http_listen: Listen,
    pub(crate) http_workers: usize,
    pub(crate) http: HttpOptions,
    pub(crate) tls_listen: Listen,
    pub(crate) certificates: Vec<CertificateFiles>,
    /// Certificates to be obtained, if any.
    pub(crate) acme: Option<AcmeConfig>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) access_mode: Mode,
    pub(crate) allow: PathBuf,
    pub(crate) deny: PathBuf,
    pub(crate) memory_budget: Option<u64>,
    pub(crate) admin_listen: Vec<SocketAddr>,
    pub(crate) user: String,
    pub(crate) group: String,
    pub(crate) sandbox: bool,
    pub(crate) log_level: tracing::Level,
    pub(crate) log_json: bool,
}

impl Config {
    /// Checks what single keys cannot show, and converts. All problems are named at once.
    pub(crate) fn from_settings(settings: &Settings) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut networks = |name| networks(settings, name, &mut problems);
        let udp_proxies = networks("udp.trusted_proxies");
        let trusted_proxies = networks("http.trusted_proxies");
        let exempt = networks("limits.exempt");
        let mut addresses = |name| addresses(settings, name, &mut problems);
        let [udp, http, tls, admin] =
            ["udp.listen", "http.listen", "tls.listen", "admin.listen"].map(&mut addresses);
        let acme = AcmeConfig::from_settings(settings, &mut problems);
        let config = Self {
            udp_listen: Listen { addresses: udp, is_default: settings.is_default("udp.listen") },
            udp_workers: settings.size("udp.workers"),
            engine: match settings.text("udp.engine") {
                "mmsg" => Engine::Mmsg,
                "portable" => Engine::Portable,
                _ => Engine::Auto,
            },
            receive_buffer: settings.size("udp.receive_buffer_bytes"),
            pin_cores: settings.flag("udp.pin_cores"),
            simple_proxies: settings.flag("udp.simple_proxy").then_some(udp_proxies),
            http_listen: Listen { addresses: http, is_default: settings.is_default("http.listen") },
            http_workers: settings.size("http.workers"),
            http: HttpOptions {
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
                dict_model: settings.flag("http.dict_model"),
                drain_s: settings.int("process.drain_s"),
                web: settings.flag("http.websocket").then(|| web(settings)),
                challenges: Arc::default(),
            },
            tls_listen: Listen { addresses: tls, is_default: false },
            certificates: certificates(settings),
            acme,
            policy: policy(settings),
            limits: limits(settings, exempt),
            access_mode: match settings.text("access.mode") {
                "allow" => Mode::Allow,
                "deny" => Mode::Deny,
                "both" => Mode::Both,
                _ => Mode::Open,
            },
            allow: settings.text("access.allow").into(),
            deny: settings.text("access.deny").into(),
            memory_budget: Some(settings.int("limits.memory_mib"))
                .filter(|mib| *mib > 0)
                .map(|mib: u32| u64::from(mib) << 20),
            admin_listen: admin,
            user: settings.text("process.user").into(),
            group: settings.text("process.group").into(),
            sandbox: settings.text("process.sandbox") == "auto",
            // The key's choices are exactly the levels.
            log_level: settings.text("log.level").parse().unwrap_or(tracing::Level::INFO),
            log_json: settings.text("log.format") == "json",
        };
        config.cross_check(settings, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    /// The files, beside the configuration itself, that a reload reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
        let all = [&self.allow, &self.deny].into_iter().chain(certificates);
        all.map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty())
    }

    /// What is in force, but hardly meant: the log says so at the start.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let policy = &self.policy;
        let due = policy.interval_s + policy.interval_jitter_s;
        let mut doubts = Vec::new();
        if policy.peer_lifetime_s <= due {
            doubts.push(format!(
                "tracker.peer_lifetime_s is {}, but clients announce only every {due} s: they are \
                 forgotten in between",
                policy.peer_lifetime_s
            ));
        }
        doubts.extend(self.acme.iter().filter_map(|acme| acme.doubt(self)));
        for (proxies, name) in [
            (Some(&self.http.trusted_proxies), "http.trusted_proxies"),
            (self.simple_proxies.as_ref(), "udp.trusted_proxies"),
        ] {
            if proxies.is_some_and(Networks::holds_everybody) {
                doubts.push(format!("{name} holds everybody: anybody may claim to be anybody"));
            }
        }
        for (rate, name) in [
            (self.limits.connects, "connects"),
            (self.limits.announces, "announces"),
            (self.limits.scrapes, "scrapes"),
        ] {
            if rate.burst < rate.per_s {
                doubts.push(format!(
                    "limits.{name}_burst is below limits.{name}_per_s: {} may come at once all the \
                     same",
                    rate.per_s
                ));
            }
        }
        doubts
    }

    /// Keys that contradict each other.
    fn cross_check(&self, settings: &Settings, problems: &mut Vec<Problem>) {
        let mut blame = |name: &'static str, text: String| {
            problems.push(settings.problem(name, text));
        };
        let wants_allow = matches!(self.access_mode, Mode::Allow | Mode::Both);
        let wants_deny = matches!(self.access_mode, Mode::Deny | Mode::Both);
        for (wanted, path, name) in
            [(wants_allow, &self.allow, "access.allow"), (wants_deny, &self.deny, "access.deny")]
        {
            if wanted && path.as_os_str().is_empty() {
                let mode = settings.text("access.mode");
                blame(name, format!("must name a file when access.mode is `{mode}`"));
            }
        }
        for (is_on, name, by) in [
            (self.http.proxy_protocol, "http.trusted_proxies", "http.proxy_protocol"),
            (self.simple_proxies.is_some(), "udp.trusted_proxies", "udp.simple_proxy"),
        ] {
            if is_on && settings.list(name).is_empty() {
                blame(name, format!("must name the proxies when {by} is on"));
            }
        }
        self.check_websocket(settings, &mut blame);
        if self.user.is_empty() && !self.group.is_empty() {
            blame("process.group", "needs process.user as well".into());
        }
        if !self.tls_listen.addresses.is_empty()
            && self.certificates.is_empty()
            && settings.list("tls.acme.domains").is_empty()
        {
            let text = "needs tls.certificates: a chain and a key, or tls.acme.domains";
            blame("tls.listen", text.into());
        }
        if let Some((name, text)) = self.acme.as_ref().and_then(|acme| acme.lacks(self)) {
            blame(name, text.into());
        }
        let mut seen = BTreeMap::new();
        for (name, section, addresses) in [
            ("http.listen", "http", &self.http_listen.addresses),
            ("tls.listen", "tls", &self.tls_listen.addresses),
            ("admin.listen", "admin", &self.admin_listen),
        ] {
            for address in addresses.iter().filter(|address| address.port() != 0) {
                if let Some(other) = seen.insert(*address, section) {
                    blame(name, format!("{address} is taken by [{other}] already"));
                }
            }
        }
    }

    fn check_websocket(&self, settings: &Settings, blame: &mut impl FnMut(&'static str, String)) {
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

fn certificates(settings: &Settings) -> Vec<CertificateFiles> {
    let files = |table: &Vec<String>| match table.as_slice() {
        [chain, key] => Some(CertificateFiles { chain: chain.into(), key: key.into() }),
        _ => None,
    };
    settings.tables("tls.certificates").iter().filter_map(files).collect()
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

fn policy(settings: &Settings) -> Policy {
    let peers = |name| u16::try_from(settings.int(name)).unwrap_or(u16::MAX);
    Policy {
        interval_s: settings.int("tracker.interval_s"),
        // Who sets only the interval gets no longer a pause than that.
        interval_min_s: settings
            .int("tracker.interval_min_s")
            .min(settings.int("tracker.interval_s")),
        enforce_interval_min: settings.flag("tracker.enforce_interval_min"),
        interval_jitter_s: settings.int("tracker.interval_jitter_s"),
        peer_lifetime_s: settings.int("tracker.peer_lifetime_s"),
        websocket_interval_s: settings.int("tracker.websocket_interval_s"),
        numwant_default: peers("tracker.numwant_default"),
        numwant_max: peers("tracker.numwant_max"),
        connection_id_lifetime_s: settings.int("tracker.connection_id_lifetime_s"),
        private_addresses: match settings.text("tracker.private_addresses") {
            "allow" => PrivateAddresses::Allow,
            "deny" => PrivateAddresses::Deny,
            _ => PrivateAddresses::Auto,
        },
    }
}

/// A list of networks.
fn networks(settings: &Settings, name: &'static str, problems: &mut Vec<Problem>) -> Networks {
    let networks = Networks::parse(settings.list(name).iter().map(String::as_str));
    networks.unwrap_or_else(|error| {
        problems.push(settings.problem(name, error.to_string()));
        Networks::default()
    })
}

fn limits(settings: &Settings, exempt: Networks) -> Limits {
    let rate = |per_s, burst| {
        let (per_s, burst) = (settings.int(per_s), settings.int(burst));
        Rate { per_s, burst: if burst == 0 { per_s.saturating_mul(10) } else { burst } }
    };
    // Their keys' ranges fit.
    let bits = |name| u8::try_from(settings.int(name)).unwrap_or(u8::MAX);
    Limits {
        connects: rate("limits.connects_per_s", "limits.connects_burst"),
        announces: rate("limits.announces_per_s", "limits.announces_burst"),
        scrapes: rate("limits.scrapes_per_s", "limits.scrapes_burst"),
        connections: settings.int("http.connections_per_prefix_max"),
        shut_out_per_s: settings.int("limits.shut_out_per_s"),
        shut_out_s: settings.int("limits.shut_out_s"),
        prefix_v4: bits("limits.prefix_v4_bits"),
        prefix_v6: bits("limits.prefix_v6_bits"),
        buckets: settings.int("limits.buckets"),
        exempt,
    }
}

/// The addresses of a list of listeners.
fn addresses(
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

/// Names of keys whose values differ, by whether they can change while serving.
pub(crate) fn changes(old: &Settings, new: &Settings) -> (Vec<&'static str>, Vec<&'static str>) {
    let differs = |key: &&Key| old.value(key.name) != new.value(key.name);
    KEYS.iter().filter(differs).map(|key| (key.name, key.live)).fold(
        (Vec::new(), Vec::new()),
        |(mut live, mut fixed), (name, is_live)| {
            if is_live {
                live.push(name)
            } else {
                fixed.push(name)
            }
            (live, fixed)
        },
    )
}

#[cfg(test)]
mod tests;
