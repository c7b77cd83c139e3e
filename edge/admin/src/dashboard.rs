//! Serves the dashboard's files, which are compiled in. Their data comes from the API.

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// A file of the dashboard.
struct Asset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! file {
    ($path:literal, $kind:literal, $name:literal) => {
        Asset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../assets/", $name)) }
    };
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(Asset {
            path: concat!("/", $name),
            kind: SCRIPT,
            bytes: include_bytes!(concat!("../assets/", $name)),
        }),*]
    };
}

static DOCUMENTS: [Asset; 3] = [
    file!("/", "text/html; charset=utf-8", "index.html"),
    file!("/style.css", "text/css; charset=utf-8", "style.css"),
    file!("/icon.svg", "image/svg+xml", "icon.svg"),
];

static SCRIPTS: [Asset; 12] = scripts![
    "main.js" "client.js" "dom.js" "charts.js" "format.js"
    "pages/overview.js" "pages/torrents.js" "pages/lists.js" "pages/access.js" "pages/settings.js"
    "pages/log.js" "pages/nodes.js"
];

/// Permits no resources from other origins, no inline code, no framing by other sites, and no markup made from
/// text by scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every file. Browsers revalidate their copy each time.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Returns the routes of all files.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    DOCUMENTS.iter().chain(&SCRIPTS).fold(Router::new(), |router, file| {
        let etag = etag(file.bytes);
        router.route(
            file.path,
            get(move |headers: HeaderMap| async move { respond(file, &etag, &headers) }),
        )
    })
}

/// Returns the entity tag of a file: a digest of its content.
fn etag(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let hex = digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}"));
    format!("\"{}\"", hex.collect::<String>())
}

fn respond(file: &'static Asset, etag: &str, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|tags| tags.split(',').any(|known| known.trim() == etag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, file.kind)], file.bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    // Quotes and hex digits are valid in headers.
    headers.extend(HeaderValue::from_str(etag).map(|etag| (header::ETAG, etag)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_policy_and_entity_tag() {
        for file in DOCUMENTS.iter().chain(&SCRIPTS) {
            let etag = etag(file.bytes);
            let first = respond(file, &etag, &HeaderMap::new());
            assert_eq!(first.status(), StatusCode::OK);
            assert_eq!(first.headers()[header::CONTENT_TYPE], file.kind);
            assert_eq!(first.headers()[header::CONTENT_SECURITY_POLICY], CONTENT_SECURITY_POLICY);
            let conditional = HeaderMap::from_iter([(
                header::IF_NONE_MATCH,
                format!("\"x\", {etag}").parse().unwrap(),
            )]);
            let again = respond(file, &etag, &conditional);
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(again.headers()[header::ETAG], etag.as_str());
        }
    }

    /// The policy would block it and break the page.
    #[test]
    fn files_contain_no_inline_code_and_no_foreign_urls() {
        for file in DOCUMENTS.iter().chain(&SCRIPTS) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in ["https://", "innerHTML", "onclick=", "style=\"", "eval("] {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
            let others =
                text.matches("http://").count() - text.matches("http://www.w3.org/").count();
            assert_eq!(others, 0, "{}", file.path);
        }
    }
}
