//! The public page: what this is, the operator's text, the announce URLs, and figures if the operator wants them. It
//! has no scripts, and nothing of it comes from the request but a host name of plain characters.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::json;
use tracker::View;
use wire::http::{RequestHead, is_loopback_host};

use crate::services::ServiceTexts;
use crate::site::{Figures, PublicUrl, Site};

/// The page that a browser gets at `/`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PublicPage {
    /// Nothing: status 426 where WebSockets are served, 404 elsewhere.
    Off,
    /// The announce URLs.
    #[default]
    Urls,
    /// The announce URLs, and how many torrents and peers there are.
    Figures,
}

/// Headers of pages. They may load nothing but the style below, which is named by its SHA-256.
pub(crate) const PAGE_HEADERS: &str = "Content-Security-Policy: default-src 'none'; style-src \
     'sha256-Q/xwgLnz8ii6iCC0506gs2yyoB5VPQERYhwmOHsmsYY='; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";

const STYLE: &str = ":root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;max-width:42rem;\
    margin:3rem auto;padding:0 1rem}h1{font-size:1.6rem}h2{font-size:1.1rem;margin-top:2rem}ul{list-style:none;\
    padding:0}li,dd{margin:.25rem 0}code{overflow-wrap:anywhere}dl{display:grid;grid-template-columns:max-content \
    1fr;gap:.25rem 1.5rem}dd{margin:0;font-variant-numeric:tabular-nums}footer{margin-top:3rem;opacity:.75}table{border-spacing:0;\
    width:100%}th,td{text-align:left;font-variant-numeric:tabular-nums}svg{width:100%;background:#8885}\
    .up{fill:#2a9d4a}.part{fill:#d9a400}.down{fill:#c33}";

/// Headers of the JSON. Any web site may read it: it has nothing that the page does not show.
pub(crate) const JSON_HEADERS: &str =
    "Access-Control-Allow-Origin: *\r\nCache-Control: max-age=10\r\n";

/// The contents of the page for one request.
pub(crate) struct Page<'a> {
    /// Announce URLs, as text.
    urls: Vec<String>,
    /// True if one of them has a place for a user's key.
    needs_key: bool,
    /// The operator's own text.
    text: &'a str,
    figures: Option<(Arc<Figures>, Arc<ServiceTexts>)>,
}

impl<'a> Page<'a> {
    /// Returns the page for the host that a request names. `figures` are shown if there are any.
    pub(crate) fn new(
        site: &'a Site,
        view: &View<'_>,
        request: &RequestHead<'_>,
        figures: Option<(Arc<Figures>, Arc<ServiceTexts>)>,
    ) -> Self {
        let host = site.options.host.as_deref().or_else(|| request.host());
        let is_local = host.is_some_and(is_loopback_host);
        let mut page =
            Self { urls: Vec::new(), needs_key: false, text: &site.options.text, figures };
        for url in site.options.urls.iter().filter(|url| is_local || !url.is_loopback) {
            let is_private = view.is_private(url.listener_policy);
            page.needs_key |= is_private;
            let text = url_text(url, host.unwrap_or("HOST"), is_private);
            if !page.urls.contains(&text) {
                page.urls.push(text);
            }
        }
        page
    }

    pub(crate) fn html(&self) -> String {
        let mut html = format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><title>BitTorrent tracker</title>\
             <style>{STYLE}</style></head><body><main><h1>BitTorrent tracker</h1>\
             <p>This server tells BitTorrent clients which peers share the same torrent. It stores none of \
             their files.</p>"
        );
        for paragraph in self.text.split("\n\n").map(str::trim).filter(|it| !it.is_empty()) {
            // Writing to a `String` cannot fail, here and below.
            let _ = write!(html, "<p>{}</p>", escaped(paragraph).replace('\n', "<br>"));
        }
        if !self.urls.is_empty() {
            html += "<h2>Announce URLs</h2><ul>";
            for url in &self.urls {
                let _ = write!(html, "<li><code>{}</code></li>", escaped(url));
            }
            html += "</ul>";
        }
        if self.needs_key {
            html += "<p>KEY stands for a user&rsquo;s own key: the site where you got the torrent puts it into \
                     the file.</p>";
        }
        if let Some((figures, services)) = &self.figures {
            html += "<h2>Now</h2><dl>";
            for (name, count) in [
                ("Torrents", figures.totals.torrents),
                ("Seeders", figures.seeders()),
                ("Leechers", figures.leechers()),
            ] {
                let _ = write!(html, "<dt>{name}</dt><dd>{count}</dd>");
            }
            html += "</dl>";
            html += &services.html;
        }
        html + "<footer>Served by tidegate.</footer></main></body></html>\n"
    }

    /// Returns the same for programs.
    pub(crate) fn json(&self) -> String {
        let mut page = json!({ "urls": self.urls, "text": self.text });
        if let Some((figures, services)) = &self.figures {
            page["torrents"] = figures.totals.torrents.into();
            page["seeders"] = figures.seeders().into();
            page["leechers"] = figures.leechers().into();
            for name in ["since", "services"] {
                page[name] = services.json[name].clone();
            }
        }
        format!("{page}\n")
    }
}

fn url_text(url: &PublicUrl, host: &str, is_private: bool) -> String {
    let PublicUrl { scheme, port, path, .. } = url;
    let is_default = matches!((*scheme, port), ("http" | "ws", 80) | ("https" | "wss", 443));
    let shown_port = if is_default { String::new() } else { format!(":{port}") };
    let mut text = format!("{scheme}://{host}{shown_port}{path}");
    if is_private {
        text.truncate(text.trim_end_matches('/').len());
        text += "/KEY";
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;

    use super::*;

    #[test]
    fn policy_names_the_style_by_its_hash() {
        let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
        let hash = STANDARD.encode(suite.common.hash_provider.hash(STYLE.as_bytes()));
        assert!(PAGE_HEADERS.contains(&format!("'sha256-{hash}'")), "expected {hash}");
    }
}
