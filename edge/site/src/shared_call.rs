//! Calls of the site as the nodes of a cluster tell each other: without the secret in their path, which each node knows.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, header};

use crate::bytes::{Reader, Writer};
use crate::config::SiteKind;

/// The methods of calls that change something, by their numbers in messages.
const METHODS: [Method; 4] = [Method::GET, Method::PUT, Method::DELETE, Method::POST];

/// A call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedCall {
    method: Method,
    /// The path after the secret, with the query.
    rest: String,
    body: Bytes,
}

/// Marks a request that another node got.
#[derive(Clone, Copy)]
pub(crate) struct Repeated;

impl SharedCall {
    /// Returns what other nodes have to know of a request, or `None` if it only asks.
    pub(crate) fn of(kind: SiteKind, parts: &Parts, body: &Bytes) -> Option<Self> {
        let path = parts.uri.path_and_query()?.as_str();
        let is_gazelle = kind == SiteKind::Gazelle;
        let rest = if is_gazelle {
            path.splitn(3, '/').nth(2).filter(|rest| rest.starts_with("update"))?
        } else {
            path.splitn(4, '/').nth(3).filter(|_| parts.method != Method::GET)?
        };
        let method = METHODS.iter().find(|method| **method == parts.method)?.clone();
        Some(Self { method, rest: rest.to_owned(), body: body.clone() })
    }

    /// Returns the request with the secret of this node.
    pub(crate) fn request(self, kind: SiteKind, secret: &str) -> Option<Request> {
        let Self { method, rest, body } = self;
        let folder = if kind == SiteKind::Gazelle { "" } else { "/announce" };
        let request = Request::builder()
            .method(method)
            .uri(format!("{folder}/{}/{rest}", percent_encode(secret)))
            .header(header::CONTENT_TYPE, "application/json")
            .extension(Repeated);
        request.body(Body::from(body)).ok()
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        let number = METHODS.iter().position(|method| *method == self.method);
        writer.varint(number.unwrap_or_default() as u64);
        writer.varint(self.rest.len() as u64);
        writer.bytes(self.rest.as_bytes());
        writer.bytes(&self.body);
    }

    /// Reads what [`Self::encode`] wrote. Returns `None` if it is malformed.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let method = METHODS.get(usize::try_from(reader.varint()?).ok()?)?.clone();
        let len = usize::try_from(reader.varint()?).ok()?;
        let rest = String::from_utf8(reader.take(len)?.to_vec()).ok()?;
        Some(Self { method, rest, body: Bytes::copy_from_slice(reader.0) })
    }
}

/// Returns a part of a path in which all but letters and digits are encoded.
fn percent_encode(part: &str) -> String {
    let encoded = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    part.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: SiteKind, method: Method, path: &str) -> Option<SharedCall> {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        SharedCall::of(kind, &request.into_parts().0, &Bytes::from_static(b"{}"))
    }

    #[test]
    fn calls_come_as_they_were_without_the_secret() {
        for (kind, method, path) in [
            (SiteKind::Unit3d, Method::PUT, "/announce/ke%2By/users"),
            (SiteKind::Gazelle, Method::GET, "/ke%2By/update?action=add_user&id=7"),
        ] {
            let sent = call(kind, method.clone(), path).unwrap();
            let mut writer = Writer::default();
            sent.encode(&mut writer);
            assert!(!String::from_utf8_lossy(&writer.0).contains("ke"));
            let read = SharedCall::decode(&mut Reader(&writer.0)).unwrap();
            assert_eq!(read, sent);
            let request = read.request(kind, "ke+y").unwrap();
            assert_eq!((request.method(), &*request.uri().to_string()), (&method, path));
            for len in 0..writer.0.len() - 2 {
                assert_eq!(SharedCall::decode(&mut Reader(&writer.0[..len])), None, "{len}");
            }
        }
        assert_eq!(call(SiteKind::Unit3d, Method::GET, "/announce/key/users/7"), None);
        assert_eq!(call(SiteKind::Gazelle, Method::GET, "/key/report?get=stats"), None);
    }
}
