//! The configuration: one table of keys ([`keys`]), read from a file and the environment ([`read`]),
//! shown and written from the same table ([`show()`]), and here turned into what the rooms take.

mod acme;
mod key;
mod keys;
mod listeners;
mod log;
mod read;
mod sections;
mod show;
mod tables;
mod trace;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::http::Challenges;
use net::Engine;
use net::tls::CertificateFiles;
use tracker::{BanRules, Limits, Networks, Policy, Rate};

use key::Key;
use keys::KEYS;

pub(crate) use acme::{AcmeConfig, Challenge};
pub(crate) use listeners::{DoorConfig, Group, Transport, listener_policies};
pub(crate) use log::{LogConfig, Repeat};
pub(crate) use read::{Problem, Settings, load};
pub(crate) use show::{init, list, show};
pub(crate) use trace::TraceConfig;

/// Everything that serving needs, checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Those of `[udp]`, `[http]` and `[tls]`, then those of each `[[listener]]`.
    pub(crate) groups: Vec<Group>,
    /// What groups refer to: that of the sections, then that of each `[[listener]]`.
    pub(crate) listener_policies: Vec<DoorConfig>,
    pub(crate) udp_workers: usize,
    pub(crate) engine: Engine,
    pub(crate) receive_buffer: usize,
    pub(crate) pin_cores: bool,
    pub(crate) http_workers: usize,
    /// Whether peer ids are stored.
    pub(crate) keep_peer_ids: bool,
    /// Answers to an ACME authority.
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) certificates: Vec<CertificateFiles>,
    /// Certificates to be obtained, if any.
    pub(crate) acme: Option<AcmeConfig>,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) bans: BanRules,
    /// The users' keys, or an empty path.
    pub(crate) keys: PathBuf,
    pub(crate) memory_budget: Option<u64>,
    pub(crate) admin_listen: Vec<SocketAddr>,
    /// Whether it speaks TLS.
    pub(crate) admin_tls: bool,
    pub(crate) requests_per_s: u32,
    pub(crate) wrong_tokens_per_min: u32,
    pub(crate) cors_origins: Vec<String>,
    pub(crate) webhook_ports: Vec<u16>,
    /// Where durable records are; `None` is nowhere.
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) flush_s: u32,
    pub(crate) user: String,
    pub(crate) group: String,
    pub(crate) sandbox: bool,
    pub(crate) shutdown_timeout_s: u32,
    /// Where traces go, if anywhere.
    pub(crate) trace: Option<TraceConfig>,
    pub(crate) log: LogConfig,
}

impl Config {
    /// Checks what single keys cannot show, and converts. All problems are named at once.
    pub(crate) fn from_settings(settings: &Settings) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let exempt = listeners::networks(settings, "limits.exempt", &mut problems);
        let admin = listeners::addresses(settings, "admin.listen", &mut problems);
        let challenges = Arc::default();
        let groups = listeners::groups(settings, &challenges, &mut problems);
        let listener_policies = listener_policies(settings).unwrap_or_else(|found| {
            problems.extend(found);
            Vec::new()
        });
        listeners::check_addresses(settings, &groups, &admin, &mut problems);
        let acme = AcmeConfig::from_settings(settings, &mut problems);
        let trace = TraceConfig::from_settings(settings, &mut problems);
        let log = LogConfig::from_settings(settings, &mut problems);
        let config = Self {
            groups,
            listener_policies,
            udp_workers: settings.size("udp.workers"),
            engine: match settings.text("udp.engine") {
                "mmsg" => Engine::Mmsg,
                "portable" => Engine::Portable,
                _ => Engine::Auto,
            },
            receive_buffer: settings.size("udp.receive_buffer_bytes"),
            pin_cores: settings.flag("udp.pin_cores"),
            http_workers: settings.size("http.workers"),
            keep_peer_ids: settings.flag("http.non_compact"),
            challenges,
            certificates: certificates(settings),
            acme,
            policy: policy(settings),
            limits: limits(settings, exempt),
            bans: BanRules {
                malformed_per_min: settings.int("bans.malformed_per_min"),
                wrong_keys_per_min: settings.int("bans.wrong_keys_per_min"),
                bad_connection_ids_per_min: settings.int("bans.bad_connection_ids_per_min"),
                time_s: settings.int("bans.time_s"),
            },
            keys: settings.text("access.keys").into(),
            memory_budget: Some(settings.int("limits.memory_mib"))
                .filter(|mib| *mib > 0)
                .map(|mib: u32| u64::from(mib) << 20),
            admin_listen: admin,
            admin_tls: settings.flag("admin.tls"),
            requests_per_s: settings.int("admin.requests_per_s"),
            wrong_tokens_per_min: settings.int("admin.wrong_tokens_per_min"),
            cors_origins: origins(settings, &mut problems),
            webhook_ports: ports(settings, &mut problems),
            state_dir: Some(settings.text("state.dir"))
                .filter(|dir| !dir.is_empty())
                .map(PathBuf::from),
            flush_s: settings.int("state.flush_s"),
            user: settings.text("process.user").into(),
            group: settings.text("process.group").into(),
            sandbox: settings.text("process.sandbox") == "auto",
            shutdown_timeout_s: settings.int("process.shutdown_timeout_s"),
            trace,
            log,
        };
        config.cross_check(settings, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(unique(problems)) }
    }

    /// Where listeners of a kind listen.
    pub(crate) fn addresses(&self, transport: Transport) -> impl Iterator<Item = SocketAddr> {
        let groups = self.groups.iter().filter(move |group| group.transport == transport);
        groups.flat_map(|group| group.addresses.iter().copied())
    }

    /// Whether there are any.
    pub(crate) fn listens(&self, transport: Transport) -> bool {
        self.addresses(transport).next().is_some()
    }

    /// The files, beside the configuration itself, that a reload reads.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
        let lists = self.listener_policies.iter().flat_map(DoorConfig::files);
        let all = lists.chain([self.keys.as_path()]).chain(certificates.map(PathBuf::as_path));
        all.filter(|path| !path.as_os_str().is_empty())
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
        let is_private =
            self.listener_policies.iter().any(|listener_policy| listener_policy.private);
        if is_private && self.keys.as_os_str().is_empty() && self.admin_listen.is_empty() {
            doubts.push(
                "access.private is on, but there are no keys: name a file in access.keys".into(),
            );
        }
        if self.bans.bad_connection_ids_per_min > 0 {
            doubts.push(
                "bans.bad_connection_ids_per_min is on: whoever forges UDP sources can have whom he \
                 likes banned"
                    .into(),
            );
        }
        doubts.extend(self.acme.iter().filter_map(|acme| acme.doubt(self)));
        doubts.extend(unique(self.groups.iter().flat_map(Group::doubts).collect()));
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
        if self.user.is_empty() && !self.group.is_empty() {
            blame("process.group", "needs process.user as well".into());
        }
        if self.listens(Transport::Tls)
            && self.certificates.is_empty()
            && settings.list("tls.acme.domains").is_empty()
        {
            let text = "needs tls.certificates: a chain and a key, or tls.acme.domains";
            blame("tls.listen", text.into());
        }
        if self.admin_tls && self.certificates.is_empty() && !self.listens(Transport::Tls) {
            blame("admin.tls", "needs tls.certificates, or tls.acme with tls.listen".into());
        }
        if let Some((name, text)) = self.acme.as_ref().and_then(|acme| acme.lacks(self)) {
            blame(name, text.into());
        }
    }
}

/// Each of `all` once.
fn unique<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut unique = Vec::new();
    for one in all {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique
}

fn origins(settings: &Settings, problems: &mut Vec<Problem>) -> Vec<String> {
    let name = "admin.cors_origins";
    for origin in settings.list(name) {
        let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains('/')) {
            let due =
                "https:// and a host are due, and nothing behind it, as in `https://example.org`";
            problems.push(settings.problem(name, format!("`{origin}`: {due}")));
        }
    }
    settings.list(name).to_vec()
}

fn ports(settings: &Settings, problems: &mut Vec<Problem>) -> Vec<u16> {
    let name = "admin.webhook_ports";
    let mut ports = Vec::new();
    for text in settings.list(name) {
        match text.parse() {
            Ok(port) if port > 0 => ports.push(port),
            _ => problems
                .push(settings.problem(name, format!("`{text}`: a port is due, as in `443`"))),
        }
    }
    ports
}

fn certificates(settings: &Settings) -> Vec<CertificateFiles> {
    let files = |table: &Vec<String>| match table.as_slice() {
        [chain, key] => Some(CertificateFiles { chain: chain.into(), key: key.into() }),
        _ => None,
    };
    settings.tables("tls.certificates").iter().filter_map(files).collect()
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
    }
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
        kernel_block_per_s: settings.int("limits.kernel_block_per_s"),
        kernel_block_s: settings.int("limits.kernel_block_s"),
        prefix_v4: bits("limits.prefix_v4_bits"),
        prefix_v6: bits("limits.prefix_v6_bits"),
        buckets: settings.int("limits.buckets"),
        exempt,
    }
}

/// What differs between two configurations, by name and by whether it can change while serving.
pub(crate) fn changes(old: &Settings, new: &Settings) -> (Vec<String>, Vec<String>) {
    let (mut live, mut fixed) = tables::changes(old, new);
    let differs = |key: &&Key| old.value(key.name) != new.value(key.name);
    for key in KEYS.iter().filter(differs) {
        let list = if key.live { &mut live } else { &mut fixed };
        list.push(key.name.to_owned());
    }
    (live, fixed)
}

#[cfg(test)]
mod tests;
