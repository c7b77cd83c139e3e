//! `[tls.acme]`: which certificates to obtain, and how.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use types::limits;

use super::choices::Challenge;
use super::key::Problem;
use super::keys::Sections;
use super::list_source::fetch_port;
use super::setting::Setting;

const DIRECTORY: &str = "acme";

/// Certificates to obtain from an ACME server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// Host names in lower case. At least one.
    pub domains: Vec<String>,
    /// The `https:` URL of the ACME server's directory.
    pub directory: String,
    /// The directory for what must survive restarts.
    pub cache: PathBuf,
    /// The way in which the authority verifies the domains.
    pub challenge: Challenge,
    /// A file with additional roots for connections to the ACME server.
    pub ca: Option<PathBuf>,
}

impl AcmeConfig {
    pub(super) fn from_sections(sections: &Sections, problems: &mut Vec<Problem>) -> Option<Self> {
        let section = &sections.acme;
        let domains = domains(&section.domains, problems);
        let directory = &section.directory.value;
        let is_plain = directory.chars().all(|char| char.is_ascii_graphic());
        if !(directory.starts_with("https://") && is_plain && fetch_port(directory).is_some()) {
            let text = "expected a URL that begins with https://";
            problems.push(section.directory.item_problem(directory, text));
        }
        if section.domains.value.is_empty() {
            return None;
        }
        if domains.len() > limits::ACME_DOMAINS_MAX {
            let (most, found) = (limits::ACME_DOMAINS_MAX, domains.len());
            let text = format!("expected at most {most} domains, found {found}");
            problems.push(section.domains.problem(text));
        }
        let cache = cache(sections);
        if cache.is_none() {
            let text = "requires state.dir, where the certificates and their keys are kept";
            problems.push(section.domains.problem(text));
        }
        let ca = &section.ca.value;
        Some(Self {
            domains,
            directory: directory.clone(),
            cache: cache.unwrap_or_default(),
            challenge: challenge(sections),
            ca: (!ca.is_empty()).then(|| ca.into()),
        })
    }

    /// Returns the TCP port of the ACME server.
    pub fn port(&self) -> u16 {
        fetch_port(&self.directory).unwrap_or(443)
    }
}

fn cache(sections: &Sections) -> Option<PathBuf> {
    let Sections { acme, state, .. } = sections;
    if !acme.cache.value.is_empty() {
        return Some(acme.cache.value.clone().into());
    }
    state.place().map(|place| place.join(DIRECTORY))
}

/// Returns the challenge for a port that the tracker listens on. Where it is none, port 443 may be forwarded.
fn challenge(sections: &Sections) -> Challenge {
    let Sections { acme, tls, http, .. } = sections;
    let has_port = |listen: &Setting<Vec<String>>, port: &str| {
        listen.value.iter().any(|address| address.ends_with(port))
    };
    if acme.challenge.is_default()
        && !has_port(&tls.listen, ":443")
        && has_port(&http.listen, ":80")
    {
        return Challenge::Http;
    }
    acme.challenge.value
}

/// Returns the domains in lower case, without duplicates.
fn domains(list: &Setting<Vec<String>>, problems: &mut Vec<Problem>) -> Vec<String> {
    let mut known = BTreeSet::new();
    list.items(problems, |item| {
        let domain = domain(item)?;
        let is_new = known.insert(domain.clone());
        if is_new { Ok(domain) } else { Err("is listed twice") }
    })
}

/// Returns the domain in lower case if it is a host name (RFC 1123, 2.1).
fn domain(text: &str) -> Result<String, &'static str> {
    if text.starts_with("*.") {
        return Err(
            "wildcard certificates cannot be obtained with these challenges: list each host",
        );
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err("certificates for IP addresses are not supported: expected a host name");
    }
    if !text.is_ascii() {
        return Err("expected ASCII: write the name in its punycode form, which begins with xn--");
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.len() > 253 || !text.split('.').all(is_label) {
        return Err("expected a host name, e.g. `tracker.example.org`");
    }
    Ok(text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_host_names_as_domains() {
        assert_eq!(domain("Tracker.Example.ORG").unwrap(), "tracker.example.org");
        let longest = ["a."; 126].concat() + "b";
        for good in ["localhost", "a-b.c1", "xn--bcher-kva.example", &longest, "1.org"] {
            assert!(domain(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        let bad = ["", ".", "a..b", "a.", "-a.b", "a-.b", "a_b.c", "a b", "a.b:443", "https://a"];
        for bad in bad.into_iter().chain([long.as_str(), &(longest + "c")]) {
            assert!(domain(bad).unwrap_err().starts_with("expected a host name"), "{bad}");
        }
        assert!(domain("*.example.org").unwrap_err().contains("wildcard"));
        assert!(domain("192.0.2.1").unwrap_err().contains("IP addresses"));
        assert!(domain("bücher.example").unwrap_err().contains("xn--"));
    }
}
