//! Checks that a tracker works correctly.
//!
//! [`check()`] contacts every address of a tracker as two clients that share a torrent no other
//! peer has, and returns a verdict on each item. Both clients leave the swarm at the end.

mod certificate;
mod dns_record;
mod steps;
#[cfg(test)]
mod tests;
mod webtorrent;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, RootCertStore};
use types::{Family, InfoHash};

use crate::udp::connected_socket;
use crate::{FailureKind, TrackerError, Url};
use steps::AddressCheck;

pub use dns_record::{DnsRecord, RecordPort, Transport};

/// The scope of a check, and the limits to check against.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Timeout of each response.
    pub timeout: Duration,
    /// TLS configuration that accepts every certificate
    /// ([`Trust::AnyCertificate`](crate::tls::Trust)):
    /// the check verifies certificates itself, so that it can say what is wrong with them.
    pub tls: Arc<ClientConfig>,
    /// Trusted CAs; `None` skips certificate verification.
    pub authorities: Option<Arc<RootCertStore>>,
    /// Warn if a certificate is valid for fewer days than this.
    pub expiry_days: u32,
    /// The torrent to announce; `None` makes up a random one.
    pub torrent: Option<InfoHash>,
    /// Check only addresses of this family.
    pub family: Option<Family>,
    /// Also try a wrong connection id. Some trackers ban clients that do so often.
    pub thorough: bool,
    /// The DNS server for TXT records (BEP 34); `None` uses those of the system.
    pub dns_server: Option<SocketAddr>,
}

/// The result of checking one tracker.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckReport {
    /// The tracker's URL.
    pub url: String,
    /// The checked items, in order.
    pub items: Vec<CheckItem>,
    /// Duration of the check.
    pub took: Duration,
}

/// The verdict on one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckItem {
    /// The item's name.
    pub name: &'static str,
    /// The address it was checked at, if it concerns one.
    pub address: Option<SocketAddr>,
    /// The verdict.
    pub verdict: Verdict,
    /// The observation: a sentence.
    pub text: String,
}

types::labelled! {
    /// A verdict, from harmless to severe.
    #[derive(PartialOrd, Ord)]
    pub enum Verdict {
        /// Could not be checked, or does not apply.
        NotApplicable = "n/a",
        /// Works as it should.
        Ok = "ok",
        /// Clients cope with it, but it should be fixed.
        Warning = "warning",
        /// Broken.
        Failed = "failed",
    }
}

/// Addresses of each family checked at most, for names that have many.
const ADDRESSES_MAX: usize = 4;

/// Checks a tracker at all its addresses and blocks until done.
pub fn check(url: &Url, options: &CheckOptions) -> CheckReport {
    let start = Instant::now();
    let mut findings = Findings::default();
    let addresses = addresses(url, options, &mut findings);
    if let Some(first) = addresses.first() {
        dns_record::check(url, options, *first, &mut findings);
    }
    for address in addresses {
        findings.address = Some(address);
        AddressCheck::new(url, address, options, &mut findings).run();
    }
    CheckReport { url: url.to_string(), items: findings.items, took: start.elapsed() }
}

/// Returns the addresses to check, and adds the findings on names and families.
fn addresses(url: &Url, options: &CheckOptions, findings: &mut Findings) -> Vec<SocketAddr> {
    let all = match url.addresses(options.timeout) {
        Ok(all) => all,
        Err(error) => {
            findings.add("name", failed_by(&error));
            return Vec::new();
        }
    };
    let mut distinct: Vec<SocketAddr> = Vec::new();
    for address in all {
        if !distinct.contains(&address) {
            distinct.push(address);
        }
    }
    let texts: Vec<String> = distinct.iter().map(|it| it.ip().to_string()).collect();
    findings.add(
        "name",
        match url.literal() {
            Some(_) => skipped("the URL contains an address"),
            None => ok(format!("{} resolves to {}", url.name, texts.join(", "))),
        },
    );
    let mut good = Vec::new();
    for family in Family::ALL {
        if options.family.is_some_and(|only| only != family) {
            continue;
        }
        let (name, label) = match family {
            Family::V4 => ("ipv4", "IPv4"),
            Family::V6 => ("ipv6", "IPv6"),
        };
        let own = distinct.iter().filter(|it| it.is_ipv4() == (family == Family::V4));
        let own: Vec<SocketAddr> = own.copied().take(ADDRESSES_MAX).collect();
        let Some(first) = own.first() else {
            let text = format!("{} has no {label} address", url.name);
            // A family that was requested explicitly must exist.
            let must_be = options.family.is_some();
            findings.add(name, if must_be { failed(text) } else { skipped(text) });
            continue;
        };
        // Fails if this machine has no route to the address.
        if connected_socket(*first).is_ok() {
            good.extend(own);
        } else {
            let is_alone = options.family.is_some() || own.len() == distinct.len();
            let text = format!("this machine has no route to {label} addresses: {}", first.ip());
            findings.add(name, if is_alone { failed(text) } else { skipped(text) });
        }
    }
    good
}

/// The items checked so far.
#[derive(Default)]
struct Findings {
    items: Vec<CheckItem>,
    address: Option<SocketAddr>,
}

/// A verdict, and what was observed: a sentence.
struct Finding {
    verdict: Verdict,
    text: String,
}

fn ok(text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Ok, text: text.into() }
}

fn warning(text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Warning, text: text.into() }
}

fn failed(text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Failed, text: text.into() }
}

fn skipped(text: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::NotApplicable, text: text.into() }
}

impl Finding {
    /// Returns the finding about a request that a tracker may refuse.
    fn of_refusable(error: &TrackerError) -> Self {
        let finding = failed_by(error);
        if error.kind == FailureKind::Refused { warning(finding.text) } else { finding }
    }
}

/// Returns the finding about a failed request. Marks the tracker's own words as such.
fn failed_by(error: &TrackerError) -> Finding {
    match error.kind {
        FailureKind::Refused => failed(format!("refused: {}", error.text)),
        _ => failed(&error.text),
    }
}

impl Findings {
    fn add(&mut self, name: &'static str, finding: Finding) {
        let Finding { verdict, text } = finding;
        self.items.push(CheckItem { name, address: self.address, verdict, text });
    }

    /// Adds items that cannot be checked.
    fn skip(&mut self, names: &[&'static str], why: &str) {
        names.iter().for_each(|name| self.add(name, skipped(why)));
    }
}

impl CheckReport {
    /// Returns the worst verdict.
    pub fn verdict(&self) -> Verdict {
        let worst = self.items.iter().map(|item| item.verdict).max();
        worst.unwrap_or(Verdict::NotApplicable)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}
