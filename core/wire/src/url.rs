//! The path and query of a tracker's URL: the request target over HTTP, the URLData of BEP 41 over
//! UDP.

use types::UserKey;

/// The endpoint that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// `/announce`, with the query after `?`.
    Announce(&'a [u8]),
    /// `/scrape`, with the query after `?`.
    Scrape(&'a [u8]),
    /// Any other path.
    Unknown,
}

/// A parsed path and query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Url<'a> {
    /// The endpoint.
    pub target: Target<'a>,
    /// The passkey of a private tracker's user: `KEY` of `/announce/KEY` or `/KEY/announce`, likewise
    /// for `/scrape`. Never empty, and not decoded. It is checked for a key's form only if it stands
    /// before `/announce` or `/scrape`.
    pub key: Option<&'a [u8]>,
    /// The path from its first `/` up to the query.
    pub path: &'a [u8],
    /// The text after the `?`.
    pub query: &'a [u8],
}

/// Parses a request target in origin form or in the absolute form that proxies may send (RFC 9112,
/// 3.2.2).
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
        key_after(rest, Target::Announce(query))
    //= bep48#scrape-url
    } else if let Some(rest) = path.strip_prefix(b"/scrape") {
        key_after(rest, Target::Scrape(query))
    } else if let Some(rest) = path.strip_suffix(b"/announce") {
        key_before(rest, Target::Announce(query))
    } else if let Some(rest) = path.strip_suffix(b"/scrape") {
        key_before(rest, Target::Scrape(query))
    } else {
        (Target::Unknown, None)
    };
    Url { target, key, path, query }
}

/// Parses `rest`, the part of a path after `/announce` or `/scrape`, which may be a key.
fn key_after<'a>(rest: &'a [u8], target: Target<'a>) -> (Target<'a>, Option<&'a [u8]>) {
    match rest {
        [] | [b'/'] => (target, None),
        [b'/', key @ ..] => (target, Some(key)),
        _ => (Target::Unknown, None),
    }
}

/// Parses `rest`, the part of a path before `/announce` or `/scrape`, which must be a key.
fn key_before<'a>(rest: &'a [u8], target: Target<'a>) -> (Target<'a>, Option<&'a [u8]>) {
    match rest {
        [b'/', key @ ..] if UserKey::parse(key).is_ok() => (target, Some(key)),
        _ => (Target::Unknown, None),
    }
}

/// Returns the passkey in a query: that of `passkey=KEY`, or else that of `key=KEY`.
///
/// Clients also send a random number of their own as `key`, mostly 8 hex digits, after the query of
/// the announce URL. Values without the form of a user's key are therefore ignored.
pub fn query_key(query: &[u8]) -> Option<&[u8]> {
    let named = |wanted: &[u8]| {
        parameters(query)
            .filter(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
            .find(|value| UserKey::parse(value).is_ok())
    };
    named(b"passkey").or_else(|| named(b"key"))
}

/// Returns the token in a query: that of `jwt=TOKEN`. It is not decoded: tokens consist of letters, digits,
/// `-`, `_` and `.`, which clients do not escape.
pub fn query_token(query: &[u8]) -> Option<&[u8]> {
    parameters(query).find(|(name, _)| *name == b"jwt").map(|(_, value)| value)
}

/// Returns the names and values of a query, in order. A parameter without `=` has an empty value.
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

/// Returns the text before the first `byte`, and the text after it if there is such a byte.
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
    fn parses_endpoint_and_key_of_a_path() {
        let parsed = |uri: &str| {
            let Url { target, key, .. } = read(uri.as_bytes());
            let target = match target {
                Target::Announce(query) => format!("announce {}", query.escape_ascii()),
                Target::Scrape(query) => format!("scrape {}", query.escape_ascii()),
                Target::Unknown => "unknown".into(),
            };
            (target, key.map(|key| key.escape_ascii().to_string()))
        };
        let open = |target: &str| (target.to_owned(), None);
        assert_eq!(parsed("/announce"), open("announce "));
        assert_eq!(parsed("/announce/"), open("announce "));
        assert_eq!(parsed("/announce?a?b"), open("announce a?b"));
        assert_eq!(parsed("http://host:1/scrape?x"), open("scrape x"));
        assert_eq!(parsed("/announce/0123?a"), ("announce a".into(), Some("0123".into())));
        assert_eq!(parsed("/scrape/a/b"), ("scrape ".into(), Some("a/b".into())));
        let key = "0123456789abcdef";
        let by_key = |target: &str| (target.to_owned(), Some(key.to_owned()));
        assert_eq!(parsed(&format!("/{key}/announce?x")), by_key("announce x"));
        assert_eq!(parsed(&format!("/{key}/scrape")), by_key("scrape "));
        let others = ["http://host", "/announcex", "/", "", "?", "announce", "/Announce"];
        let almost =
            ["/short/announce", "/0123456789abcde%/announce", "/a/0123456789abcdef/scrape"];
        for other in others.into_iter().chain(almost) {
            assert_eq!(parsed(other), open("unknown"), "{other}");
        }
    }

    #[test]
    fn finds_the_token_of_a_query() {
        let found = |query: &'static str| query_token(query.as_bytes());
        assert_eq!(found("jwt=a.b-_.c&info_hash=x"), Some(&b"a.b-_.c"[..]));
        assert_eq!(found("info_hash=x&jwt=a&jwt=b"), Some(&b"a"[..]));
        assert_eq!(found("jwt"), Some(&b""[..]));
        assert_eq!([found(""), found("xjwt=a&jwtx=b")], [None, None]);
    }

    #[test]
    fn ignores_client_numbers_in_the_key_parameter() {
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
