//! Where the tracker is that is put under load.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use client::Scheme;

/// A tracker's URL, resolved.
#[derive(Clone, Debug)]
pub struct TrackerUrl {
    url: client::Url,
    /// Where to connect to.
    pub(crate) address: SocketAddr,
    /// Path and query as each user has them, of a tracker whose users have keys.
    targets: Arc<[Box<str>]>,
}

/// Stands for a user's key.
const KEY: &str = "{key}";

/// How long its name may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);

impl TrackerUrl {
    /// Reads `ws://HOST[:PORT][/PATH]`, or `wss://`, and asks the system for the host's address.
    pub fn web(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Ws, Scheme::Wss])
    }

    /// Reads `http://HOST[:PORT][/PATH]`, or `https://`, and asks the system for the host's address.
    pub fn http(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Http, Scheme::Https])
    }

    /// Reads `udp://HOST:PORT[/PATH]`, and asks the system for the host's address.
    pub fn udp(text: &str) -> Result<Self> {
        Self::resolve(text, &[Scheme::Udp])
    }

    fn resolve(text: &str, schemes: &[Scheme]) -> Result<Self> {
        let url = client::Url::parse(text);
        let is_due = url.as_ref().is_ok_and(|url| schemes.contains(&url.scheme));
        let due: Vec<String> =
            schemes.iter().map(|scheme| format!("{}://", scheme.word())).collect();
        ensure!(is_due || url.is_err(), "{text}: a URL with {} is due", due.join(" or "));
        let url = url?;
        let addresses = url.addresses(RESOLVE_TIMEOUT)?;
        let address = *addresses.first().context("no address")?;
        Ok(Self { url, address, targets: Arc::default() })
    }

    /// The same with these keys for users: peers have them in turn, each in the place of `{key}`. They must
    /// be as long as each other, since a train of datagrams is, and there must be such a place if there
    /// are keys, and none if there are not.
    pub fn with_keys(self, keys: &[String]) -> Result<Self> {
        let has_place = self.url.target.contains(KEY);
        ensure!(has_place || keys.is_empty(), "{self}: nowhere is {KEY}, where the keys belong");
        ensure!(!has_place || !keys.is_empty(), "{self}: a file of keys is due, for {KEY}");
        let len = keys.first().map_or(0, String::len);
        if let Some(at) = keys.iter().position(|key| key.len() != len) {
            bail!("key {} is of another length than those before", at + 1);
        }
        let targets = keys.iter().map(|key| self.url.target.replace(KEY, key).into()).collect();
        Ok(Self { targets, ..self })
    }

    /// Path and query as the peer with this number has them.
    pub(crate) fn target(&self, peer: u32) -> &str {
        let at = peer as usize % self.targets.len().max(1);
        self.targets.get(at).map_or(&self.url.target, |target| target)
    }

    /// Where its host is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it leads to this machine or to a private network.
    pub fn is_private(&self) -> bool {
        match self.address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => {
                ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()
            }
        }
    }
}

/// It is a URL.
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
    fn urls_are_resolved() {
        let url = TrackerUrl::web("ws://127.0.0.1:3000?a").unwrap();
        assert_eq!((url.address, url.target.as_str()), ("127.0.0.1:3000".parse().unwrap(), "/?a"));
        assert_eq!(url.to_string(), "ws://127.0.0.1:3000/?a");
        assert!(TrackerUrl::web("wss://127.0.0.1:1").unwrap().scheme.is_secure());
        let url = TrackerUrl::http("https://[::1]/announce").unwrap();
        assert_eq!(url.address, "[::1]:443".parse().unwrap());
        let url = TrackerUrl::udp("udp://[::1]:6969/announce").unwrap();
        assert_eq!(url.address, "[::1]:6969".parse().unwrap());
        assert!(TrackerUrl::udp("http://[::1]").unwrap_err().to_string().contains("udp:// is due"));
        for (bad, why) in [
            ("https://127.0.0.1", "a URL with ws:// or wss:// is due"),
            ("udp://127.0.0.1:1", "a URL with ws:// or wss:// is due"),
            ("127.0.0.1:1", "no URL"),
        ] {
            let error = TrackerUrl::web(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn peers_have_keys_in_turn() {
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
        assert!(why(&url, &[]).ends_with("a file of keys is due, for {key}"));
        assert!(why(&url, &[keys[0].clone(), "three".into()]).starts_with("key 2 is of another"));
        let open = TrackerUrl::udp("udp://127.0.0.1:1").unwrap();
        assert!(why(&open, &keys).contains("nowhere is {key}"));
        assert_eq!(open.with_keys(&[]).unwrap().target(7), "/");
    }

    #[test]
    fn private_networks_are_told_from_others() {
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
