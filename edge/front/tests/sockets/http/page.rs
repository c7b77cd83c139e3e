//! The public page.

use front::http::{PageOptions, PublicPage};
use tracker::Access;

use super::*;

fn page(server: &HttpServer, host: &str) -> String {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let response = server.client().request(request);
    assert_eq!(
        (response.status, response.header("Content-Type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = response.header("Content-Security-Policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(response.body.len() < 4096 && !response.has("<script"));
    response.text()
}

/// Returns the texts between `<code>` and `</code>`.
fn urls(html: &str) -> Vec<&str> {
    let parts = html.split("<code>").skip(1);
    parts.map(|part| part.split("</code>").next().unwrap()).collect()
}

#[test]
fn page_has_the_announce_urls_of_the_host_that_was_asked_for() {
    let server = HttpServer::start();
    let html = page(&server, "tracker.test:8080");
    let expected = [
        "udp://tracker.test:6969/announce",
        "http://tracker.test/announce",
        "wss://tracker.test:8443/&lt;&amp;&gt;",
    ];
    assert_eq!(urls(&html), expected);
    assert!(!html.contains("<dl>"), "{html}");
    // Listeners of this machine only are for itself.
    let html = page(&server, "localhost");
    assert_eq!(urls(&html).last(), Some(&"http://localhost:8080/announce"));
    assert_eq!(urls(&page(&server, "[::1]:80"))[0], "udp://[::1]:6969/announce");
}

#[test]
fn page_repeats_nothing_that_is_not_a_host() {
    let server = HttpServer::start();
    for host in ["<script>alert(1)</script>", "a\"b", "a b", "a:x", "", &"a".repeat(300)] {
        let html = page(&server, host);
        assert_eq!(urls(&html)[0], "udp://HOST:6969/announce", "{host}");
        assert!(host.is_empty() || !html.contains(host), "{html}");
    }
    let old = server.client().request("GET / HTTP/1.0\r\n\r\n");
    assert!(old.closes() && old.has("udp://HOST:6969/announce"));
}

#[test]
fn page_has_figures_only_if_configured() {
    let pages = PageOptions { page: PublicPage::Figures, ..PageOptions::default() };
    let server = HttpServer::with_pages(HttpOptions::default(), pages);
    server.client().request(get(&announce(1, ""), ""));
    let html = page(&server, "t");
    assert!(html.contains("<dt>Torrents</dt><dd>1</dd><dt>Seeders</dt><dd>0</dd>"), "{html}");
    // Gathered once a second.
    server.client().request(get(&announce(2, "").replace("aaaaa", "bbbbb"), ""));
    assert!(page(&server, "t").contains("<dt>Torrents</dt><dd>1</dd>"));
    server.advance(1);
    assert!(page(&server, "t").contains("<dt>Torrents</dt><dd>2</dd>"));
    let pages = PageOptions { page: PublicPage::Off, ..PageOptions::default() };
    let off = HttpServer::with_pages(HttpOptions::default(), pages);
    assert_eq!(off.client().request(get("/", "")).status, 426);
}

#[test]
fn page_of_a_private_tracker_has_a_place_for_the_key() {
    let server = HttpServer::start();
    set_access(&server.tracker, Access::Private);
    let html = page(&server, "t");
    assert_eq!(urls(&html)[0], "udp://t:6969/announce/KEY");
    assert!(html.contains("KEY stands for"), "{html}");
}
