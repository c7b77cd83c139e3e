//! The URL of the tracker under load.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::Scheme;

/// A tracker's URL with its resolved address.
#[derive(Clone, Debug)]
pub struct TrackerUrl {
    url: client::Url,
    /// The address to connect to.
    pub(crate) address: SocketAddr,
    /// Path and query of each user, for trackers whose users have keys.
    targets: Arc<[Box<str>]>,
}

/// Placeholder for a user's key.
const KEY: &str = "{key}";

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);

impl TrackerUrl {
    /// Parses `ws://HOST[:PORT][/PATH]` or `wss://…` and resolves the host.
    pub fn web(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Ws, Scheme::Wss])
    }

    /// Parses `http://HOST[:PORT][/PATH]` or `https://…` and resolves the host.
    pub fn http(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Http, Scheme::Https])
    }

    /// Parses `udp://HOST:PORT[/PATH]` and resolves the host.
    pub fn udp(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Udp])
    }

    fn resolve(text: &str, schemes: &[Scheme]) -> Result<Self> {
        let url = client::Url::parse(text);
        let is_expected = url.as_ref().is_ok_and(|url| schemes.contains(&url.scheme));
        let expected: Vec<String> =
            schemes.iter().map(|scheme| format!("{}://", scheme.label())).collect();
        ensure!(
            is_expected || url.is_err(),
            "{text}: expected a URL with {}",
            expected.join(" or ")
        );
        let url = url?;
        let addresses = url.addresses(RESOLVE_TIMEOUT)?;
        let address = *addresses.first().context("no address")?;
        Ok(Self { url, address, targets: Arc::default() })
    }

    /// Sets the users' keys: peers use them in turn, each in place of `{key}`. Keys must have equal
    /// lengths, because datagrams sent as one batch do.
    ///
    /// # Errors
    ///
    /// Fails if key lengths differ, or if the URL contains `{key}` without keys or the reverse.
    pub fn with_keys(self, keys: &[String]) -> Result<Self> {
        let has_place = self.url.target.contains(KEY);
        ensure!(has_place || keys.is_empty(), "{self}: must contain {KEY} if --keys is given");
        ensure!(!has_place || !keys.is_empty(), "{self}: --keys is required for {KEY}");
        let len = keys.first().map_or(0, String::len);
        if let Some(at) = keys.iter().position(|key| key.len() != len) {
            bail!("key {} differs in length from those before", at + 1);
        }
        let targets = keys.iter().map(|key| self.url.target.replace(KEY, key).into()).collect();
        Ok(Self { targets, ..self })
    }

    /// Returns the path and query of the peer with this number.
    pub(crate) fn target(&self, peer: u32) -> &str {
        let at = peer as usize % self.targets.len().max(1);
        self.targets.get(at).map_or(&self.url.target, |target| target)
    }

    /// Returns whether the address is on this machine or in a private network.
    pub fn is_private(&self) -> bool {
        match self.address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
        }
    }
}

/// Dereferences to the URL's parts.
impl Deref for TrackerUrl {
    type Target = client::Url;

    fn deref(&self) -> &client::Url {
        &self.url
    }
}

impl fmt::Display for TrackerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_urls() {
        let url = TrackerUrl::web("ws://127.0.0.1:3000?a").unwrap();
        assert_eq!((url.address, url.target.as_str()), ("127.0.0.1:3000".parse().unwrap(), "/?a"));
        let url = TrackerUrl::http("https://[::1]/announce").unwrap();
        assert_eq!(url.address, "[::1]:443".parse().unwrap());
        let error = TrackerUrl::web("udp://127.0.0.1:1").unwrap_err().to_string();
        assert!(error.contains("expected a URL with ws:// or wss://"), "{error}");
    }

    #[test]
    fn peers_use_keys_in_turn() {
        let url = TrackerUrl::udp("udp://127.0.0.1:1/{key}/announce?a={key}").unwrap();
        let keys = ["one", "two"].map(String::from);
        let keyed = url.clone().with_keys(&keys).unwrap();
        assert_eq!([0, 1, 2].map(|peer| keyed.target(peer).len()), [19; 3]);
        assert_eq!(
            [0, 3].map(|peer| keyed.target(peer)),
            ["/one/announce?a=one", "/two/announce?a=two"]
        );
        assert_eq!(keyed.to_string(), url.to_string(), "keys are secrets");
        let why = |url: &TrackerUrl, keys: &[String]| {
            url.clone().with_keys(keys).unwrap_err().to_string()
        };
        assert!(why(&url, &[]).ends_with("--keys is required for {key}"));
        assert!(
            why(&url, &[keys[0].clone(), "three".into()]).starts_with("key 2 differs in length")
        );
        let open = TrackerUrl::udp("udp://127.0.0.1:1").unwrap();
        assert!(why(&open, &keys).contains("must contain {key}"));
        assert_eq!(open.with_keys(&[]).unwrap().target(7), "/");
    }

    #[test]
    fn recognizes_private_networks() {
        let is_private =
            |host: &str| TrackerUrl::web(&format!("ws://{host}")).unwrap().is_private();
        for own in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "[::1]", "[fd00::1]", "[fe80::1]"] {
            assert!(is_private(own), "{own}");
        }
        for foreign in ["192.0.2.1", "[2001:db8::1]", "[::ffff:192.0.2.1]"] {
            assert!(!is_private(foreign), "{foreign}");
        }
    }
}
