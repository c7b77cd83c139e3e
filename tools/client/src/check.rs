//! Is a tracker alive, and does it do what it should?
//!
//! [`check()`] goes to every address of a tracker as two clients would who share a torrent that nobody
//! else has, and gives a verdict on each thing that it sees. It leaves no peer behind.

mod certificate;
mod steps;
#[cfg(test)]
mod tests;
mod web;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, RootCertStore};
use types::{Family, InfoHash};

use crate::{Fault, Kind, Url};

/// What is checked, and against what.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long each answer is waited for.
    pub timeout: Duration,
    /// TLS that believes whoever holds a certificate's key: the check looks at certificates itself.
    pub tls: Arc<ClientConfig>,
    /// Who must have issued certificates; nothing: they are not looked at.
    pub authorities: Option<Arc<RootCertStore>>,
    /// Days for which a certificate should be good still.
    pub expiry_days: u32,
    /// The torrent to announce; without one, torrents that nobody has.
    pub torrent: Option<InfoHash>,
    /// Only addresses of this family.
    pub family: Option<Family>,
    /// Try also what no client would do: a wrong connection id. Some trackers shut those out who do it
    /// often.
    pub thorough: bool,
}

/// What was found about one tracker.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its URL.
    pub url: String,
    /// A verdict for each thing, in the order in which they were looked at.
    pub items: Vec<Item>,
    /// How long it took.
    pub took: Duration,
}

/// A verdict on one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which thing.
    pub name: &'static str,
    /// At which address, if at one.
    pub address: Option<SocketAddr>,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen: a sentence.
    pub text: String,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// There is no such thing here.
    NotApplicable,
    /// As it should be.
    Ok,
    /// Clients can live with it, but it should be otherwise.
    Warning,
    /// Not as it must be.
    Failed,
}

/// Addresses of one family that are looked at, if a name has many.
const ADDRESSES_MAX: usize = 4;

/// Looks at a tracker at all its addresses, and waits for it.
pub fn check(url: &Url, options: &Options) -> Report {
    let start = Instant::now();
    let mut found = Findings::default();
    for address in addresses(url, options, &mut found) {
        found.address = Some(address);
        steps::Visit::new(url, address, options, &mut found).run();
    }
    Report { url: url.to_string(), items: found.items, took: start.elapsed() }
}

/// The addresses that can be looked at.
fn addresses(url: &Url, options: &Options, found: &mut Findings) -> Vec<SocketAddr> {
    let all = match url.addresses(options.timeout) {
        Ok(all) => all,
        Err(fault) => {
            found.fault("name", &fault);
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
    match url.literal() {
        Some(_) => found.say("name", Verdict::NotApplicable, "the URL has an address"),
        None => found.say("name", Verdict::Ok, format!("{} is {}", url.name, texts.join(", "))),
    }
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
            // What was asked for must be there.
            let verdict =
                if options.family.is_some() { Verdict::Failed } else { Verdict::NotApplicable };
            found.say(name, verdict, format!("{} has no {label} address", url.name));
            continue;
        };
        if has_way_to(*first) {
            good.extend(own);
        } else {
            let is_alone = options.family.is_some() || own.len() == distinct.len();
            let verdict = if is_alone { Verdict::Failed } else { Verdict::NotApplicable };
            let text = format!("this machine has no way to {label} addresses: {}", first.ip());
            found.say(name, verdict, text);
        }
    }
    good
}

/// Whether this machine knows a way to an address. Nothing is sent.
fn has_way_to(address: SocketAddr) -> bool {
    let own: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(own).and_then(|socket| socket.connect(address)).is_ok()
}

/// Items, as they are found.
#[derive(Default)]
struct Findings {
    items: Vec<Item>,
    /// Where things are looked at now.
    address: Option<SocketAddr>,
}

impl Findings {
    fn say(&mut self, name: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.items.push(Item { name, address: self.address, verdict, text: text.into() });
    }

    fn fault(&mut self, name: &'static str, fault: &Fault) {
        self.say(name, Verdict::Failed, told(fault));
    }

    /// What cannot be looked at.
    fn skip(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            self.say(name, Verdict::NotApplicable, why);
        }
    }
}

/// A tracker's own words are marked as such.
fn told(fault: &Fault) -> String {
    match fault.kind {
        Kind::Refused => format!("refused: {}", fault.text),
        _ => fault.text.clone(),
    }
}

impl Report {
    /// The worst of its verdicts.
    pub fn verdict(&self) -> Verdict {
        let worst = self.items.iter().map(|item| item.verdict).max();
        worst.unwrap_or(Verdict::NotApplicable)
    }
}

impl Verdict {
    /// As it is printed.
    pub fn word(self) -> &'static str {
        match self {
            Self::NotApplicable => "n/a",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
