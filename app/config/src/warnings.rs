//! Warnings about a valid configuration that is probably not what the operator wants.

use std::net::SocketAddr;
use std::path::{self, Path};

use net::process::memory_bytes;
use tracker::Access;
use types::Scope;

use super::choices::SiteKind;
use super::constants;
use super::key::{Problem, unique};
use super::{AcmeConfig, Challenge, Config, ListenerGroup, ListenerPolicyConfig, Transport};

fn policy_warnings(policy: &ListenerPolicyConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    let external = policy.external.as_ref();
    let addresses = external.into_iter().flat_map(|external| external.addresses());
    for ip in addresses.filter(|ip| Scope::of(*ip) != Scope::Public) {
        warnings.push(format!(
            "tracker.external_address has {ip}, which is not a public address: peers elsewhere cannot reach it"
        ));
    }
    if !policy.torrents.as_os_str().is_empty() && !policy.uses_allow() {
        warnings.push(
            "access.allow_torrents names a folder, but access.mode does not use the allow list: set it to \
             \"allow\" or \"both\""
                .into(),
        );
    }
    warnings
}

/// Returns a warning if the place of the state depends on the directory in which the process is started.
fn place_warning(dir: &Path) -> Option<String> {
    let here = path::absolute(dir).ok().filter(|_| dir.is_relative())?;
    Some(format!(
        "state.dir is the relative path {}, which is {} here: a start in another directory does not find what is kept \
         there; write the whole path",
        dir.display(),
        here.display()
    ))
}

/// Returns a warning if torrents and peers may take more bytes than the machine or the container has.
fn memory_warning(budget: u64, machine: u64) -> Option<String> {
    (budget > machine).then(|| {
        format!(
            "limits.memory_mib is {}, but there are only {} MiB of memory here, so the kernel may end the process first: \
             lower it, or write \"auto\" for half of the memory",
            budget >> 20,
            machine >> 20
        )
    })
}

impl Config {
    /// Returns warnings for the log, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let policy = &self.policy;
        let interval_s = policy.interval_s + policy.interval_jitter_s;
        let mut warnings: Vec<String> =
            self.setting_warnings.iter().map(Problem::to_string).collect();
        if policy.peer_lifetime_s <= interval_s {
            warnings.push(format!(
                "tracker.interval_s is {}, but peers are removed {} s after their announce: lower it",
                policy.interval_s, policy.peer_lifetime_s
            ));
        }
        let is_short = self.swarms.as_ref().is_some_and(|swarms| swarms.is_lifetime_short);
        if is_short && policy.peer_lifetime_s > interval_s {
            warnings.push(format!(
                "tracker.interval_s is {}: peers are removed {} s after their announce, so after a restart, restored \
                 peers may expire before they announce; 400 or more avoids that",
                policy.interval_s, policy.peer_lifetime_s
            ));
        }
        let is_private =
            self.listener_policies.iter().any(|policy| policy.access == Access::Private);
        let has_users = self.site.as_ref().is_some_and(|site| site.kind != SiteKind::Feed);
        let may_add = !self.admin_listen.is_empty();
        if is_private && self.keys.as_os_str().is_empty() && !has_users && !may_add {
            warnings.push(
                "access.private is on, but no user has a key: name a file in access.keys, or turn on \
                 the API with admin.listen"
                    .into(),
            );
        }
        warnings.extend(self.state_dir.as_deref().and_then(place_warning));
        let bytes = self.memory_budget.zip(memory_bytes());
        warnings.extend(bytes.and_then(|(budget, machine)| memory_warning(budget, machine)));
        warnings.extend(self.admin_warning());
        warnings.extend(unique(self.listener_policies.iter().flat_map(policy_warnings).collect()));
        warnings.extend(self.cluster.as_ref().and_then(|_| self.cluster_warning()));
        warnings.extend(self.acme.iter().filter_map(|acme| self.acme_warning(acme)));
        warnings.extend(unique(self.groups.iter().filter_map(ListenerGroup::warning).collect()));
        warnings
    }

    /// Returns true if the file has keys that are no longer settings.
    pub fn has_removed_keys(&self) -> bool {
        self.setting_warnings.iter().any(constants::is_in_file)
    }

    /// Returns a warning if peers live too short for a cluster.
    fn cluster_warning(&self) -> Option<String> {
        let policy = &self.policy;
        let spare_s = policy
            .peer_lifetime_s
            .saturating_sub(policy.interval_s + policy.interval_jitter_s + 120);
        (spare_s < 64).then(|| {
            format!(
                "tracker.interval_s is {}: each announce is sent to all nodes, instead of one in several minutes; 410 \
                 or more avoids that",
                policy.interval_s
            )
        })
    }

    /// Returns a warning if others on the way can read tokens and sessions.
    fn admin_warning(&self) -> Option<String> {
        let is_open = |address: &&SocketAddr| {
            let ip = address.ip().to_canonical();
            ip.is_unspecified() || Scope::of(ip) == Scope::Public
        };
        let address = self.admin_listen.iter().find(is_open).filter(|_| !self.admin_tls)?;
        Some(format!(
            "admin.listen has {address} without TLS, so others on the way can read tokens: set admin.tls, or listen on \
             127.0.0.1 and connect through an SSH tunnel or a proxy; in a container, publish the port on 127.0.0.1 only"
        ))
    }

    /// Returns a warning if the authority may not reach a listener.
    fn acme_warning(&self, acme: &AcmeConfig) -> Option<String> {
        let (port, transport) = match acme.challenge {
            Challenge::TlsAlpn => (443, Transport::Tls),
            Challenge::Http => (80, Transport::Http),
        };
        let is_bound = self.addresses(transport).any(|address| address.port() == port);
        (!is_bound).then(|| {
            format!(
                "tls.acme.domains: for certificates, the authority connects to port {port} ({}), but {}.listen does not \
                 have that port: make sure it is forwarded there",
                acme.challenge.label(),
                transport.label()
            )
        })
    }
}
