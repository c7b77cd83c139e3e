//! What `[tls.acme]` asks for.

use std::net::IpAddr;
use std::path::PathBuf;

use types::limits;

use super::Config;
use super::listeners::Transport;
use super::read::{Problem, Settings};

/// Certificates to be obtained, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmeConfig {
    /// Host names, in lower case. At least one.
    pub(crate) domains: Vec<String>,
    /// `mailto:` URLs.
    pub(crate) contact: Vec<String>,
    /// The `https:` URL of the ACME server's directory.
    pub(crate) directory: String,
    /// The folder for what must outlive restarts.
    pub(crate) cache: PathBuf,
    pub(crate) challenge: Challenge,
    /// A file with more roots to believe the ACME server by.
    pub(crate) ca: Option<PathBuf>,
}

/// How an authority sees that a host is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// It makes a TLS handshake (RFC 8737).
    TlsAlpn,
    /// It asks for a page (RFC 8555, 8.3).
    Http,
}

impl Challenge {
    /// Its name in the configuration.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TlsAlpn => "tls-alpn-01",
            Self::Http => "http-01",
        }
    }
}

impl AcmeConfig {
    /// What the settings ask for, if they name any domain.
    pub(super) fn from_settings(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Self> {
        let domains = check_all(settings, "tls.acme.domains", domain, problems);
        let contact = check_all(settings, "tls.acme.contact", contact, problems);
        let [directory, cache, ca] =
            ["tls.acme.directory", "tls.acme.cache", "tls.acme.ca"].map(|name| settings.text(name));
        let mut blame = |name, text: &str| problems.push(settings.problem(name, text.to_owned()));
        let host = directory.strip_prefix("https://").and_then(|rest| rest.split('/').next());
        if host.is_none_or(str::is_empty)
            || directory.contains(|char: char| !char.is_ascii_graphic())
        {
            let text = format!("`{directory}`: a URL that begins with https:// is due");
            blame("tls.acme.directory", &text);
        }
        if settings.list("tls.acme.domains").is_empty() {
            return None;
        }
        if domains.len() > limits::ACME_DOMAINS_MAX {
            let text = format!("{} are the most", limits::ACME_DOMAINS_MAX);
            blame("tls.acme.domains", &text);
        }
        if cache.is_empty() {
            blame("tls.acme.cache", "must name a folder when tls.acme.domains does not stay empty");
        }
        //= rfc8555#terms
        if !settings.flag("tls.acme.terms_of_service_agreed") {
            let text = "must be true, by which you agree to the terms of service of the authority \
                        that tls.acme.directory names";
            blame("tls.acme.terms_of_service_agreed", text);
        }
        Some(Self {
            domains,
            contact,
            directory: directory.to_owned(),
            cache: cache.into(),
            challenge: match settings.text("tls.acme.challenge") {
                "http-01" => Challenge::Http,
                _ => Challenge::TlsAlpn,
            },
            ca: (!ca.is_empty()).then(|| ca.into()),
        })
    }

    /// The TCP port of the ACME server.
    pub(crate) fn port(&self) -> u16 {
        let host = self.directory.strip_prefix("https://").and_then(|rest| rest.split('/').next());
        let port = host.and_then(|host| host.rsplit_once(':')?.1.parse().ok());
        port.unwrap_or(443)
    }

    /// What the rest of the configuration lacks: the key to blame, and why.
    pub(super) fn lacks(&self, config: &Config) -> Option<(&'static str, &'static str)> {
        if !config.listens(Transport::Tls) {
            return Some(("tls.acme.domains", "needs tls.listen, for which certificates are"));
        }
        let is_unheard = !config.listens(Transport::Http);
        (self.challenge == Challenge::Http && is_unheard)
            .then_some(("tls.acme.challenge", "http-01 needs http.listen"))
    }

    /// What is hardly meant: the authority may find nobody where it knocks.
    pub(super) fn doubt(&self, config: &Config) -> Option<String> {
        let (port, transport) = match self.challenge {
            Challenge::TlsAlpn => (443, Transport::Tls),
            Challenge::Http => (80, Transport::Http),
        };
        let is_there = config.addresses(transport).any(|address| address.port() == port);
        let name = transport.listen();
        (!is_there).then(|| {
            format!(
                "tls.acme.challenge is {}, for which the authority connects to port {port}, but \
                 {name} has no such port: does something lead there?",
                self.challenge.label()
            )
        })
    }
}

/// The items of a list, each of which `check` must accept, and none twice.
fn check_all(
    settings: &Settings,
    name: &'static str,
    check: fn(&str) -> Result<String, &'static str>,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let mut good = Vec::new();
    for item in settings.list(name) {
        let checked = check(item)
            .and_then(|item| if good.contains(&item) { Err("it stands twice") } else { Ok(item) });
        match checked {
            Ok(item) => good.push(item),
            Err(due) => problems.push(settings.problem(name, format!("`{item}`: {due}"))),
        }
    }
    good
}

/// The domain in lower case, if it is the name of a host (RFC 1123, 2.1).
fn domain(text: &str) -> Result<String, &'static str> {
    if text.starts_with("*.") {
        return Err("these challenges give no wildcard certificates: name each host");
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err("an address gets no certificate here: name the host");
    }
    if !text.is_ascii() {
        return Err("a name beyond ASCII is due in the form that begins with xn--");
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.len() > 253 || !text.split('.').all(is_label) {
        return Err("a host name is due, as in `tracker.example.org`");
    }
    Ok(text.to_ascii_lowercase())
}

/// The URL of one mail address.
//= rfc8555#contact-mailto
fn contact(text: &str) -> Result<String, &'static str> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_good = match address.split_once('@') {
        Some((user, host)) => {
            !user.is_empty()
                && domain(host).is_ok()
                && user.bytes().all(|byte| byte.is_ascii_graphic() && !b"?,:;<>()".contains(&byte))
        }
        None => false,
    };
    if !is_good {
        return Err("one mail address is due, as in `you@example.org`");
    }
    Ok(format!("mailto:{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_names_of_hosts() {
        assert_eq!(domain("Tracker.Example.ORG").unwrap(), "tracker.example.org");
        for good in [
            "localhost",
            "a-b.c1",
            "xn--bcher-kva.example",
            &"a.".repeat(126).replace("..", "."),
            "1.org",
        ] {
            assert!(domain(good.trim_end_matches('.')).is_ok(), "{good}");
        }
        let long = format!("{}.org", "a".repeat(64));
        let longer = format!("{}org", "abc.".repeat(63));
        for bad in [
            "",
            ".",
            "a..b",
            "a.",
            ".a",
            "-a.b",
            "a-.b",
            "a_b.c",
            "a b",
            "a.b:443",
            "https://a",
            &long,
            &longer,
        ] {
            assert_eq!(
                domain(bad).unwrap_err(),
                "a host name is due, as in `tracker.example.org`",
                "{bad}"
            );
        }
        assert!(domain("*.example.org").unwrap_err().contains("no wildcard"));
        assert!(domain("192.0.2.1").unwrap_err().contains("an address"));
        assert!(domain("::1").unwrap_err().contains("an address"));
        assert!(domain("bücher.example").unwrap_err().contains("xn--"));
    }

    #[test]
    fn the_port_is_in_the_url_or_known() {
        for (directory, port) in [
            ("https://ca.example/dir", 443),
            ("https://ca.example:14000/dir:1", 14_000),
            ("https://[2001:db8::1]", 443),
            ("https://[::1]:8443", 8443),
        ] {
            let acme = AcmeConfig {
                domains: Vec::new(),
                contact: Vec::new(),
                directory: directory.into(),
                cache: PathBuf::new(),
                challenge: Challenge::Http,
                ca: None,
            };
            assert_eq!(acme.port(), port, "{directory}");
        }
    }

    //= rfc8555#contact-mailto
    //= type=test
    #[test]
    fn contacts_are_single_mail_addresses() {
        for good in ["you@example.org", "mailto:you@example.org"] {
            assert_eq!(contact(good).unwrap(), "mailto:you@example.org");
        }
        for bad in
            ["", "you", "@b.c", "a@", "a@b@c", "a b@c.d", "a@b.c?subject=x", "a@b.c,d@e.f", "tel:1"]
        {
            assert!(contact(bad).is_err(), "{bad}");
        }
    }
}
