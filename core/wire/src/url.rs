//! What the path and query of a tracker's URL say: over HTTP the request target, over UDP the URLData
//! of BEP 41.

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/announce`, with the query behind `?`.
    Announce(&'a [u8]),
    /// `/scrape`, with the query behind `?`.
    Scrape(&'a [u8]),
    /// Any other path.
    Unknown,
}

/// A target, and who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// What is asked for.
    pub target: Target<'a>,
    /// KEY of `/announce/KEY` or `/scrape/KEY`: by it a private tracker knows its users. Never empty,
    /// and as it came.
    pub key: Option<&'a [u8]>,
    /// The path alone, from `/` up to the query.
    pub path: &'a [u8],
}

/// Takes the origin form, and the absolute form that proxies may send (RFC 9112, 3.2.2).
pub fn read(uri: &[u8]) -> Url<'_> {
    let uri = match uri.strip_prefix(b"http://").or_else(|| uri.strip_prefix(b"https://")) {
        Some(rest) => {
            let path = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            rest.get(path..).unwrap_or_default()
        }
        None => uri,
    };
    let (path, query) = match memchr::memchr(b'?', uri) {
        Some(at) => (uri.get(..at).unwrap_or_default(), uri.get(at + 1..).unwrap_or_default()),
        None => (uri, [].as_slice()),
    };
    let (target, rest) = if let Some(rest) = path.strip_prefix(b"/announce") {
        (Target::Announce(query), rest)
    //= bep48#scrape-url
    } else if let Some(rest) = path.strip_prefix(b"/scrape") {
        (Target::Scrape(query), rest)
    } else {
        return Url { target: Target::Unknown, key: None, path };
    };
    match rest {
        [] | [b'/'] => Url { target, key: None, path },
        [b'/', key @ ..] => Url { target, key: Some(key), path },
        _ => Url { target: Target::Unknown, key: None, path },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= bep48#scrape-url
    //= type=test
    #[test]
    fn paths_are_told_apart() {
        let said = |uri: &str| {
            let Url { target, key, .. } = read(uri.as_bytes());
            let target = match target {
                Target::Announce(query) => format!("announce {}", query.escape_ascii()),
                Target::Scrape(query) => format!("scrape {}", query.escape_ascii()),
                Target::Unknown => "unknown".into(),
            };
            (target, key.map(|key| key.escape_ascii().to_string()))
        };
        let open = |target: &str| (target.to_owned(), None);
        assert_eq!(said("/announce"), open("announce "));
        assert_eq!(said("/announce/"), open("announce "));
        assert_eq!(said("/announce?a?b"), open("announce a?b"));
        assert_eq!(said("http://host:1/scrape?x"), open("scrape x"));
        assert_eq!(said("/announce/0123?a"), ("announce a".into(), Some("0123".into())));
        assert_eq!(said("/scrape/a/b"), ("scrape ".into(), Some("a/b".into())));
        for other in ["http://host", "/announcex", "/", "", "?", "announce", "/Announce"] {
            assert_eq!(said(other), open("unknown"), "{other}");
        }
    }
}
