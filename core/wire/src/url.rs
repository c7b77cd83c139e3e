//! What the path and query of a tracker's URL say: over HTTP the request target, over UDP the URLData
//! of BEP 41.

use types::UserKey;

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
    /// KEY of `/announce/KEY`, `/KEY/announce`, or the same with `/scrape`: by it a private tracker
    /// knows its users. Never empty, and as it came; before `/announce` it has the form of a key.
    pub key: Option<&'a [u8]>,
    /// The path alone, from `/` up to the query.
    pub path: &'a [u8],
    /// What is behind the `?`.
    pub query: &'a [u8],
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
    let (target, key) = if let Some(rest) = path.strip_prefix(b"/announce") {
        behind(rest, Target::Announce(query))
    //= bep48#scrape-url
    } else if let Some(rest) = path.strip_prefix(b"/scrape") {
        behind(rest, Target::Scrape(query))
    } else if let Some(rest) = path.strip_suffix(b"/announce") {
        before(rest, Target::Announce(query))
    } else if let Some(rest) = path.strip_suffix(b"/scrape") {
        before(rest, Target::Scrape(query))
    } else {
        (Target::Unknown, None)
    };
    Url { target, key, path, query }
}

/// What `rest` behind a target's name makes of it.
fn behind<'a>(rest: &'a [u8], target: Target<'a>) -> (Target<'a>, Option<&'a [u8]>) {
    match rest {
        [] | [b'/'] => (target, None),
        [b'/', key @ ..] => (target, Some(key)),
        _ => (Target::Unknown, None),
    }
}

/// What `rest` before a target's name makes of it: a key, or no target at all.
fn before<'a>(rest: &'a [u8], target: Target<'a>) -> (Target<'a>, Option<&'a [u8]>) {
    match rest {
        [b'/', key @ ..] if UserKey::parse(key).is_ok() => (target, Some(key)),
        _ => (Target::Unknown, None),
    }
}

/// The key that a private tracker's user has in the query: `passkey=KEY`, or else `key=KEY`.
///
/// `key` is also what clients call a random number of theirs, of 8 hex digits mostly, which they put
/// behind the query of the announce URL: what has not the form of a user's key is none.
pub fn query_key(query: &[u8]) -> Option<&[u8]> {
    let named = |wanted: &[u8]| {
        parameters(query)
            .filter(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
            .find(|value| UserKey::parse(value).is_ok())
    };
    named(b"passkey").or_else(|| named(b"key"))
}

/// Names and values of a query, in order. What has no `=` has an empty value.
pub(crate) fn parameters(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = Some(query);
    std::iter::from_fn(move || {
        let text = rest?;
        let (parameter, behind) = split(text, b'&');
        rest = behind;
        let (name, value) = split(parameter, b'=');
        Some((name, value.unwrap_or_default()))
    })
}

/// What stands before the first `byte`, and what behind it.
fn split(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(byte, text) {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at + 1..)),
        None => (text, None),
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
        let key = "0123456789abcdef";
        let by_key = |target: &str| (target.to_owned(), Some(key.to_owned()));
        assert_eq!(said(&format!("/{key}/announce?x")), by_key("announce x"));
        assert_eq!(said(&format!("/{key}/scrape")), by_key("scrape "));
        let others = ["http://host", "/announcex", "/", "", "?", "announce", "/Announce"];
        let almost =
            ["/short/announce", "/0123456789abcde%/announce", "/a/0123456789abcdef/scrape"];
        for other in others.into_iter().chain(almost) {
            assert_eq!(said(other), open("unknown"), "{other}");
        }
    }

    #[test]
    fn keys_in_queries_are_told_from_what_clients_call_so() {
        let found = |query: &str| {
            query_key(query.as_bytes()).map(|key| String::from_utf8_lossy(key).into_owned())
        };
        let (a, b) = ("a".repeat(32), "b".repeat(16));
        assert_eq!(found(&format!("passkey={a}&info_hash=x&key=1A2B3C4D")), Some(a.clone()));
        assert_eq!(found(&format!("key={a}&info_hash=x&key=1A2B3C4D")), Some(a.clone()));
        assert_eq!(found(&format!("info_hash=x&key=1A2B3C4D&key={a}")), Some(a.clone()));
        assert_eq!(found(&format!("key={b}&passkey={a}")), Some(a.clone()));
        assert_eq!(found(&format!("passkey=&key={b}")), Some(b.clone()));
        for none in
            ["", "key", "key=", "key=1A2B3C4D", "passkey=short", "xpasskey=0123456789abcdef"]
        {
            assert_eq!(found(none), None, "{none}");
        }
        assert_eq!(found(&format!("key={a}{a}{b}")), None);
    }
}
