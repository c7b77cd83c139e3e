//! Findings of `tidegate config check` about the XDP program.

use std::fs;
use std::process::Command;

use xdp::{Inspection, Listener};

use crate::serve::module::Findings;
use config::{Config, Transport, worker_count};

/// Adds what there is to say about `config`'s engine. See [`crate::serve::module::Module::check`].
pub(super) fn check(config: &Config, is_running: bool, findings: &mut Findings) {
    let addresses: Vec<_> = config.addresses(Transport::Udp).collect();
    if addresses.is_empty() || !config.engine.has_program() {
        return;
    }
    let options = match super::options(config, worker_count(config.udp_workers)) {
        Ok(options) => options,
        Err(error) => return findings.problems.push(format!("{error:#}")),
    };
    let listener = |address| Listener { address, is_direct: true };
    let found = Inspection::new(&options, addresses.into_iter().map(listener).collect());
    let engine = config.engine.label();
    let xdp = |text: &String| format!("xdp: {text}");
    findings.notes.extend(found.notes.iter().map(xdp));
    findings.warnings.extend(found.warnings.iter().map(xdp));
    findings.warnings.extend(firewall_warning());
    match found.obstacle {
        // In the way now, like its ports, and not at the next start.
        Some(reason) if is_running && reason.contains("has another XDP program already") => {
            findings.notes.push(format!("xdp: {reason}: probably that of the running tidegate"));
        }
        Some(reason) if config.xdp.required => {
            findings
                .problems
                .push(format!("xdp.required: engine {engine} is not available: {reason}"));
        }
        Some(reason) if reason.ends_with(" missing") => {
            findings.warnings.push(format!("xdp: the program was not tried: {reason}"));
        }
        Some(reason) => {
            let sockets = config.engine.of_sockets().label();
            findings.warnings.push(format!(
                "xdp: engine {engine} is not available: the tracker would serve with {sockets}: {reason}"
            ));
        }
        None => {}
    }
}

/// Returns a warning if the machine has firewall rules, or if that cannot be known.
fn firewall_warning() -> Option<String> {
    let nft = output("nft", &["list", "ruleset"]);
    let has_rules =
        |text: &String| text.lines().any(|line| line.trim_start().starts_with("chain "));
    if nft.as_ref().is_some_and(has_rules) {
        return Some(unseen("nftables"));
    }
    let is_rule = |text: String| text.lines().any(|line| line.starts_with("-A "));
    let has_iptables = ["iptables-save", "ip6tables-save"]
        .iter()
        .any(|program| output(program, &[]).is_some_and(is_rule));
    if has_iptables {
        return Some(unseen("iptables"));
    }
    // Without the programs, the kernel lists at least the tables that have ever been used.
    let names = ["ip_tables_names", "ip6_tables_names"].iter();
    let tables = names.filter_map(|name| fs::read_to_string(format!("/proc/net/{name}")).ok());
    let has_tables = tables.into_iter().any(|names| !names.trim().is_empty());
    (nft.is_none() && has_tables).then(|| unseen("iptables"))
}

fn unseen(firewall: &str) -> String {
    format!(
        "xdp: {firewall} has rules, which do not see what the XDP program answers, drops or takes: put bans \
         into tidegate (docs/xdp.md)"
    )
}

/// Returns what a program prints, or `None` if it is not there or fails.
fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let run = |program: &str| Command::new(program).args(arguments).output();
    // The path of users may lack the folder.
    let output = run(program).or_else(|_| run(&format!("/usr/sbin/{program}"))).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into())
}
