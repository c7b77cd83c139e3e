//! Checks of `tidegate config check` besides those of the configuration itself.

use std::fs;
use std::path::Path;

use net::process::Identity;

use super::module::Findings;
use super::modules::modules;
use super::{listeners, places, state};
use crate::access::{self, TorrentFolders};
use crate::certificates;
use config::{Config, Transport};

/// Returns what there is to say about serving `config`, which was read from `file`, on this machine.
pub(crate) fn check(config: &Config, file: Option<&Path>) -> Findings {
    let mut problems = Vec::new();
    problems.extend(places::check(config, file).err().map(|error| format!("{error:#}")));
    if let Err(error) = access::read(config, &TorrentFolders::default()) {
        problems.push(format!("{error:#}"));
    }
    match certificates::read(config) {
        Ok(read) => problems.extend(certificates::warnings(config, &read)),
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems.extend(state::check(config));
    let listeners::BindProblems { in_use_by_tidegate, others } = listeners::check(config);
    problems.extend(others);
    if !config.user.is_empty()
        && let Err(error) = Identity::find(&config.user, "")
    {
        problems.push(format!("process.user: {error}"));
    }
    let is_running = !in_use_by_tidegate.is_empty();
    let warnings = certificates::key_warnings(config);
    let mut notes = in_use_by_tidegate;
    notes.extend(conntrack_note(config));
    let mut findings = Findings { problems, warnings, notes };
    for module in modules() {
        module.check(config, is_running, &mut findings);
    }
    findings
}

/// Returns a note if connections of UDP are tracked, which costs time and a place in a table for each client.
fn conntrack_note(config: &Config) -> Option<String> {
    let mut ports: Vec<_> =
        config.addresses(Transport::Udp).map(|address| address.port().to_string()).collect();
    ports.dedup();
    let ports = ports.join(", ");
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").ok()?;
    let count: u64 = count.trim().parse().ok()?;
    // The table exists as soon as the module is there; connections are in it if a rule asks for them.
    (count > 0 && !ports.is_empty()).then(|| {
        format!(
            "the kernel tracks connections: each client of port {ports} takes a place in its table; to exempt \
             them: nft 'add table inet tidegate; add chain inet tidegate in {{ type filter hook prerouting \
             priority raw; }}; add rule inet tidegate in udp dport {{ {ports} }} notrack; add chain inet \
             tidegate out {{ type filter hook output priority raw; }}; add rule inet tidegate out udp sport \
             {{ {ports} }} notrack'"
        )
    })
}
