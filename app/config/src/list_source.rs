//! Where lists are: files, or URLs whose last good copy is kept in `state.dir`.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use hyper::Uri;
use types::from_hex;

use super::keys::AccessSection;
use super::without_secrets;

const COPIES: &str = "lists";

/// The place of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource {
    /// A file.
    File(PathBuf),
    /// A server.
    Url(ListUrl),
}

/// A URL of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListUrl {
    /// The URL, without the digest.
    pub url: String,
    /// The TCP port of that URL.
    pub port: u16,
    /// The SHA-256 that the list must have, if one is pinned.
    pub sha256: Option<[u8; 32]>,
    /// The file of the last good copy.
    pub copy: PathBuf,
}

/// Options of fetching lists from URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchConfig {
    /// A file of authorities that are trusted besides those of browsers, or an empty path.
    pub ca: PathBuf,
    /// Seconds between requests for a list.
    pub refresh_s: u32,
    /// Longest time of a request until its response is complete.
    pub timeout_s: u32,
}

/// The form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Info hashes.
    Torrents,
    /// Networks.
    Networks,
}

/// A list that the configuration names.
#[derive(Clone, Copy, Debug)]
pub struct ConfiguredList<'a> {
    /// The key that names it.
    pub key: &'static str,
    /// Its form.
    pub kind: ListKind,
    /// Its place.
    pub source: &'a ListSource,
    /// False if it decides nothing, because `access.mode` does not use it.
    pub is_used: bool,
}

impl ListSource {
    /// Parses the value of a key: a path, perhaps after `file:`, or a URL, perhaps followed by `#sha256=` and the
    /// digest. Returns a sentence about what was expected if it is neither. `state` is the directory for the copy.
    pub(super) fn parse(text: &str, kind: ListKind, state: Option<&Path>) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::File(text.strip_prefix("file:").unwrap_or(text).into()));
        }
        let (url, fragment) =
            text.split_once('#').map_or((text, None), |(url, end)| (url, Some(end)));
        let sha256 = match fragment {
            None => None,
            Some(fragment) => Some(fragment.strip_prefix("sha256=").and_then(from_hex).ok_or(
                "expected nothing after # but `sha256=` and 64 hex digits, the digest of the list",
            )?),
        };
        let port = fetch_port(url).ok_or(
            "expected a file or an https:// URL; http:// is accepted with an address of this machine only, e.g. \
             `http://127.0.0.1:8000/list.txt`",
        )?;
        let state =
            state.ok_or("a list at a URL requires state.dir, where its last good copy is kept")?;
        let name = format!("{kind}-{:016x}", fnv1a(url.as_bytes()));
        Ok(Self::Url(ListUrl {
            url: url.to_owned(),
            port,
            sha256,
            copy: state.join(COPIES).join(name),
        }))
    }

    /// Returns the file of the list, or `None` if it is at a URL.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Url(_) => None,
        }
    }

    /// Returns the URL of the list, or `None` if it is a file.
    pub fn url(&self) -> Option<&ListUrl> {
        match self {
            Self::File(_) => None,
            Self::Url(url) => Some(url),
        }
    }
}

impl FetchConfig {
    pub(super) fn from_section(access: &AccessSection) -> Self {
        Self {
            ca: access.urls_ca.value.clone().into(),
            refresh_s: access.lists_refresh_s.value,
            timeout_s: access.lists_timeout_s.value,
        }
    }

    /// Returns the file of further authorities, if there is one.
    pub fn ca(&self) -> Option<&Path> {
        Some(self.ca.as_path()).filter(|path| !path.as_os_str().is_empty())
    }
}

/// Returns the folder of the copies of lists at URLs.
pub fn list_copies(state: &Path) -> PathBuf {
    state.join(COPIES)
}

/// Returns the port of a URL that lists, keys and certificates may be fetched from: a host that can change them on the
/// way decides who is served.
pub fn fetch_port(url: &str) -> Option<u16> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_own = bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match uri.scheme_str()? {
        "https" => Some(uri.port_u16().unwrap_or(443)),
        "http" if is_own => Some(uri.port_u16().unwrap_or(80)),
        _ => None,
    }
}

/// FNV-1a: a name for a URL that later versions know, too. The copy's own record has the URL.
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl fmt::Display for ListKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torrents => "torrents",
            Self::Networks => "networks",
        })
    }
}

impl fmt::Display for ListSource {
    /// Writes the path, or the URL without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&without_secrets(&url.url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_keys_come_over_tls_or_from_this_machine() {
        assert_eq!(fetch_port("https://id.example.org/keys.json"), Some(443));
        assert_eq!(fetch_port("https://id.example.org:8443/dir:1"), Some(8443));
        assert_eq!(fetch_port("https://[2001:db8::1]"), Some(443));
        assert_eq!(fetch_port("https://[::1]:8443"), Some(8443));
        assert_eq!(fetch_port("http://127.0.0.1:8000/keys.json"), Some(8000));
        assert_eq!(fetch_port("http://[::1]/"), Some(80));
        for bad in ["http://id.example.org/", "http://10.0.0.1/", "ftp://a/", "https://", "://"] {
            assert_eq!(fetch_port(bad), None, "{bad}");
        }
    }

    #[test]
    fn sources_are_files_or_urls() {
        let state = Path::new("/var/lib/tidegate");
        let parse = |text: &str| ListSource::parse(text, ListKind::Networks, Some(state));
        assert_eq!(parse("/etc/bad.txt"), Ok(ListSource::File("/etc/bad.txt".into())));
        assert_eq!(parse("file:bad.txt"), Ok(ListSource::File("bad.txt".into())));
        let digest = "0a".repeat(32);
        let pinned = parse(&format!("https://example.org/a.txt?b=c#sha256={digest}")).unwrap();
        let pinned = pinned.url().unwrap();
        assert_eq!((pinned.url.as_str(), pinned.port), ("https://example.org/a.txt?b=c", 443));
        assert_eq!(pinned.sha256, Some([10; 32]));
        let copy = pinned.copy.strip_prefix(state).unwrap().to_str().unwrap();
        assert!(copy.starts_with("lists/networks-") && copy.len() == 31, "{copy}");
        for bad in ["https://a/#", "https://a/#sha256=ab", "https://a/#md5=00", "http://a/"] {
            assert!(parse(bad).unwrap_err().starts_with("expected "), "{bad}");
        }
        let memory = ListSource::parse("https://a/", ListKind::Torrents, None).unwrap_err();
        assert!(memory.contains("requires state.dir"), "{memory}");
    }
}
