//! Serves the dashboard's files, which are compiled in, compressed if the browser accepts it. Their data comes from the
//! API.

use std::io::Write;
use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use types::to_hex;

/// A file of the dashboard.
struct Asset {
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal)*) => {
        [$(Asset { path: concat!("/", $name), bytes: include_bytes!(concat!("../assets/", $name)) }),*]
    };
}

static FILES: [Asset; 27] = files![
    "index.html" "style.css" "pages.css" "vendor/uplot.css" "icon.svg" "licences.json"
    "main.js" "client.js" "dom.js" "charts.js" "format.js" "names.js" "components.js" "forms.js"
    "pages/overview.js" "pages/torrents.js" "pages/lists.js" "pages/access.js" "pages/settings.js"
    "pages/log.js" "pages/nodes.js" "pages/peers.js" "pages/site.js" "pages/webhooks.js" "pages/about.js"
    "vendor/uplot.js" "vendor/lean-qr.js"
];

impl Asset {
    fn url(&self) -> &'static str {
        if self.path == "/index.html" { "/" } else { self.path }
    }

    fn content_type(&self) -> &'static str {
        match self.path.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            Some("json") => "application/json",
            _ => "text/javascript; charset=utf-8",
        }
    }
}

/// Permits no resources from other origins, no inline code, no framing by other sites, and no markup made from
/// text by scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of every file. Browsers revalidate their copy each time.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::VARY, "accept-encoding"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// A file in the forms in which it is served.
struct Prepared {
    kind: &'static str,
    plain: &'static [u8],
    gzip: Vec<u8>,
    /// Entity tag, without quotes. That of the compressed form has a suffix.
    tag: String,
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().enumerate().fold(Router::new(), |router, (at, file)| {
        let serve = move |headers: HeaderMap| async move { respond(&prepared()[at], &headers) };
        router.route(file.url(), get(serve))
    })
}

/// Returns all files, prepared when the first is asked for.
fn prepared() -> &'static [Prepared] {
    static PREPARED: OnceLock<Vec<Prepared>> = OnceLock::new();
    PREPARED.get_or_init(|| FILES.iter().map(prepare).collect())
}

fn prepare(file: &Asset) -> Prepared {
    let digest = digest(&SHA256, file.bytes);
    let tag = to_hex(&digest.as_ref()[..12]);
    let kind = file.content_type();
    Prepared { kind, plain: file.bytes, gzip: compress(file.bytes), tag }
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory does not fail.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

fn respond(file: &'static Prepared, headers: &HeaderMap) -> Response {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let accepts = |encoding: &str| match encoding.trim().split_once(';') {
        Some((name, weight)) => name == "gzip" && weight.trim() != "q=0",
        None => encoding.trim() == "gzip",
    };
    let is_gzip =
        text(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.split(',').any(accepts));
    let suffix = if is_gzip { "-gzip" } else { "" };
    let etag = format!("\"{}{suffix}\"", file.tag);
    let is_known = text(header::IF_NONE_MATCH)
        .is_some_and(|tags| tags.split(',').any(|known| known.trim() == etag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else if is_gzip {
        let headers = [(header::CONTENT_TYPE, file.kind), (header::CONTENT_ENCODING, "gzip")];
        (headers, file.gzip.as_slice()).into_response()
    } else {
        ([(header::CONTENT_TYPE, file.kind)], file.plain).into_response()
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    // Quotes, hex digits and letters are valid in headers.
    headers.extend(HeaderValue::from_str(&etag).map(|etag| (header::ETAG, etag)));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_library(file: &Asset) -> bool {
        file.path.starts_with("/vendor/")
    }

    fn request(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn files_have_policy_and_entity_tag() {
        for file in prepared() {
            let first = respond(file, &HeaderMap::new());
            assert_eq!(first.status(), StatusCode::OK);
            assert_eq!(first.headers()[header::CONTENT_TYPE], file.kind);
            assert_eq!(first.headers()[header::CONTENT_SECURITY_POLICY], CONTENT_SECURITY_POLICY);
            assert!(!first.headers().contains_key(header::CONTENT_ENCODING));
            let etag = first.headers()[header::ETAG].to_str().unwrap();
            let conditional = request(header::IF_NONE_MATCH, &format!("\"x\", {etag}"));
            let again = respond(file, &conditional);
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(again.headers()[header::ETAG], etag);
        }
    }

    #[test]
    fn files_are_compressed_for_those_who_accept_it() {
        use std::io::Read;
        for file in prepared() {
            let response = respond(file, &request(header::ACCEPT_ENCODING, "br, gzip;q=0.8"));
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            assert_eq!(response.headers()[header::VARY], "accept-encoding");
            assert!(response.headers()[header::ETAG].to_str().unwrap().ends_with("-gzip\""));
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(&file.gzip[..]).read_to_end(&mut plain).unwrap();
            assert_eq!(plain, file.plain);
            let response = respond(file, &request(header::ACCEPT_ENCODING, "br, deflate"));
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING));
        }
    }

    /// The policy would block it and break the page.
    #[test]
    fn files_contain_no_inline_code_and_no_foreign_urls() {
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in ["innerHTML", "onclick=", "style=\"", "eval("] {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
            // Libraries name their homes in comments.
            let foreign = text.matches("https://").count() + text.matches("http://").count()
                - text.matches("http://www.w3.org/").count();
            assert!(is_library(file) || foreign == 0, "{}", file.path);
        }
    }

    /// Limits the compressed bytes that a browser loads: see docs/dashboard.md.
    #[test]
    fn files_are_small() {
        let files = FILES.iter().zip(prepared());
        // Files that only other pages need are fetched when those are opened.
        let (later, first): (Vec<_>, Vec<_>) = files.partition(|(file, _)| {
            let is_page = file.path.starts_with("/pages/") && file.path != "/pages/overview.js";
            is_page || ["/forms.js", "/licences.json"].contains(&file.path)
        });
        let bytes = |files: &[(&Asset, &Prepared)]| -> usize {
            files.iter().map(|(_, file)| file.gzip.len()).sum()
        };
        let (of_first, all) = (bytes(&first), bytes(&first) + bytes(&later));
        assert!(of_first <= 60_000, "{of_first} bytes of the first page");
        assert!(all <= 95_000, "{all} bytes of all files");
    }

    /// Else a browser learns of each only when it has read the script that imports it.
    #[test]
    fn scripts_of_the_first_page_are_fetched_at_once() {
        let page = include_str!("../assets/index.html");
        let is_first = |file: &&Asset| page.contains(&format!("\"{}\"", file.path));
        let is_script = |file: &&Asset| file.path.ends_with(".js") && !is_library(file);
        let first = FILES.iter().filter(is_first).filter(is_script);
        assert!(first.clone().count() > 5);
        for file in first {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for import in text.lines().filter(|line| line.starts_with("import ")) {
                let name = import.trim_end_matches('\'').rsplit('/').next().unwrap();
                assert!(page.contains(&format!("/{name}\"")), "{}: {import}", file.path);
            }
        }
    }

    /// Libraries are those that their registry has: `file` beside them has version, licence and digest.
    #[test]
    fn libraries_are_unchanged() {
        let listed = include_str!("../assets/vendor/README.md");
        let libraries = FILES.iter().filter(|file| is_library(file));
        for file in libraries {
            let digest = digest(&SHA256, file.bytes);
            let hex = to_hex(digest.as_ref());
            let name = file.path.trim_start_matches("/vendor/");
            let is_listed = |line: &str| line.contains(&format!("`{name}`")) && line.contains(&hex);
            assert!(listed.lines().any(is_listed), "{name} {hex}");
        }
    }
}
