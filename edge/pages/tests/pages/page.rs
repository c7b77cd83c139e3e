//! The public page.

use pages::PublicPage;
use tracker::Access;

use super::*;

/// Returns the page that a browser gets.
fn page(server: &HttpServer, host: &str) -> String {
    let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nReferer: http://forum.test/\r\n";
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{browser}\r\n");
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
    let server = start(HttpOptions::default(), PageOptions::default());
    let html = page(&server, "tracker.test:8080");
    let expected = [
        "udp://tracker.test:6969/announce",
        "http://tracker.test/announce",
        "https://tracker.test/a&amp;b&quot;&lt;c&gt;&#39;",
        "wss://tracker.test:8443/",
    ];
    assert_eq!(urls(&html), expected);
    assert!(!html.contains("<dl>"), "{html}");
    let text = "<p>Run by &lt;Ann&gt;<br>&amp;amp; Bob</p><p>ann@tracker.test</p><h2>";
    assert!(html.contains(text), "{html}");
    // Listeners of this machine only are for itself.
    let html = page(&server, "localhost");
    assert_eq!(urls(&html).last(), Some(&"http://localhost:8080/announce"));
    assert_eq!(urls(&page(&server, "[::1]:80"))[0], "udp://[::1]:6969/announce");
    // Nothing is repeated that is not a host.
    assert_eq!(urls(&page(&server, "a\"b"))[0], "udp://HOST:6969/announce");
    // The page of a private tracker has a place for the key.
    set_access(&server.tracker, Access::Private);
    let html = page(&server, "t");
    assert_eq!([0, 3].map(|at| urls(&html)[at]), ["udp://t:6969/announce/KEY", "wss://t:8443/KEY"]);
    assert!(html.contains("KEY stands for"), "{html}");
}

/// Returns the page for programs.
fn json(server: &HttpServer) -> serde_json::Value {
    let response = server.client().request(get("/page.json", "Host: t\r\n"));
    let headers = ["Content-Type", "Access-Control-Allow-Origin"].map(|it| response.header(it));
    assert_eq!((response.status, headers), (200, [Some("application/json"), Some("*")]));
    serde_json::from_slice(&response.body).unwrap()
}

#[test]
fn json_has_what_the_page_shows() {
    let server = start(HttpOptions::default(), PageOptions::default());
    let page = json(&server);
    assert_eq!(page["urls"][2], "https://HOST/a&b\"<c>'");
    assert_eq!(page["text"], "Run by <Ann>\n&amp; Bob\n\nann@tracker.test");
    assert_eq!((page.get("torrents"), page.get("services")), (None, None));
    let figures = PageOptions { page: PublicPage::Figures, ..PageOptions::default() };
    let server = start(HttpOptions::default(), figures);
    server.client().request(get(&announce(1, ""), ""));
    let page = json(&server);
    assert_eq!(
        (&page["torrents"], &page["seeders"], &page["leechers"]),
        (&1.into(), &0.into(), &1.into())
    );
    let service = &page["services"][0];
    assert_eq!((&service["service"], &service["announces"]), (&"udp4".into(), &12.into()));
    assert_eq!(
        (&service["uptime"], &service["days"][89]),
        (&0.75.into(), &serde_json::json!([600, 200]))
    );
    let off = PageOptions { page: PublicPage::Off, ..PageOptions::default() };
    let off = start(HttpOptions::default(), off);
    assert_ne!(off.client().request(get("/page.json", "")).status, 200);
}

#[test]
fn page_has_figures_only_if_configured() {
    let pages = PageOptions { page: PublicPage::Figures, ..PageOptions::default() };
    let server = start(HttpOptions::default(), pages);
    server.client().request(get(&announce(1, ""), ""));
    let html = page(&server, "t");
    assert!(html.contains("<dt>Torrents</dt><dd>1</dd><dt>Seeders</dt><dd>0</dd>"), "{html}");
    assert!(html.contains("<td>UDP over IPv4<td>12<td>5.6 kB<td>75.00 %"), "{html}");
    assert!(html.contains("<path class=\"part\" d=\"M89 0h1v5h-1z\"/>"), "{html}");
    // Gathered once a second.
    server.client().request(get(&announce(2, "").replace("aaaaa", "bbbbb"), ""));
    assert!(page(&server, "t").contains("<dt>Torrents</dt><dd>1</dd>"));
    server.advance(1);
    assert!(page(&server, "t").contains("<dt>Torrents</dt><dd>2</dd>"));
    let pages = PageOptions { page: PublicPage::Off, ..PageOptions::default() };
    let off = start(HttpOptions::default(), pages);
    assert_eq!(off.client().request(get("/", "")).status, 426);
}
