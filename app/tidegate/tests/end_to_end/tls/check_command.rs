//! `tidegate check` on certificates.

use super::*;
use crate::process::run;

/// Starts a tracker with a certificate for 127.0.0.1, and variables in its environment.
fn start(variables: &[(&str, &str)]) -> Secure {
    let directory = Directory::new();
    make_authority(&directory);
    issue(&directory, "host", "IP:127.0.0.1", (ECDSA, "30"));
    let more = Secure::configuration(&directory, &["host"]);
    let tracker = Tracker::start_with(directory, &more, variables);
    let address = tracker.listener("https", [127, 0, 0, 1]);
    Secure { tracker, address }
}

/// Runs a check and returns the exit code, and verdict and text of an item.
fn check(secure: &Secure, scheme: &str, options: &[&str], name: &str) -> (Option<i32>, String) {
    let path = if scheme == "https" { "/announce" } else { "/" };
    let url = format!("{scheme}://{}{path}", secure.address);
    let output = run(&[&["check", "--json", &url], options].concat());
    let report: serde_json::Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let items = report["items"].as_array().unwrap();
    let item = items.iter().find(|it| it["item"] == name);
    let item = item.unwrap_or_else(|| panic!("no {name} in {report}"));
    let [verdict, text] = ["verdict", "text"].map(|key| item[key].as_str().unwrap());
    (output.status.code(), format!("{verdict}: {text}"))
}

#[test]
fn passes_a_good_certificate() {
    let secure = start(&[]);
    let ca = secure.file("ca.pem");
    let ca = ["--ca", ca.to_str().unwrap()];
    for scheme in ["https", "wss"] {
        let item = |name| check(&secure, scheme, &ca, name);
        assert_eq!(item("certificate"), (Some(0), "ok: for 127.0.0.1, issued by CN=ca".into()));
        // 30 in the second in which it was made.
        let good = ["ok: valid for 29 more days", "ok: valid for 30 more days"];
        assert!(good.contains(&item("expiry").1.as_str()), "{:?}", item("expiry"));
        assert!(item("tls").1.starts_with("ok: TLSv1_3, TLS13_AES_"), "{:?}", item("tls"));
        assert!(item("introduction").1.starts_with("ok: "), "{:?}", item("introduction"));
        let soon =
            check(&secure, scheme, &[ca.as_slice(), &["--expiry-days", "31"]].concat(), "expiry");
        assert!(soon.0 == Some(0) && soon.1.starts_with("warning: valid for"), "{soon:?}");
    }
}

#[test]
fn fails_a_certificate_of_an_unknown_issuer() {
    let secure = start(&[]);
    let (code, message) = check(&secure, "https", &[], "certificate");
    assert!(
        code == Some(1) && message.starts_with("failed: no chain was sent and the issuer"),
        "{message}"
    );
    // The other items are still checked, and the certificate also if a later item fails.
    assert!(check(&secure, "https", &[], "announce").1.starts_with("ok: "));
    let other = start(&[("TIDEGATE_HTTP__WEBSOCKET", "false")]);
    let text = stdout(&run(&["check", &format!("wss://{}/announce", other.address)]));
    assert!(
        text.contains(
            "failed   connect        refused: expected a WebSocket, found HTTP status 200"
        ),
        "{text}"
    );
    assert!(text.contains("failed   certificate    no chain was sent"), "{text}");
    let unseen = check(&secure, "https", &["--no-verify"], "certificate");
    assert_eq!(unseen, (Some(0), "n/a: certificate verification is off".into()));
}

/// `openssl req -x509` makes such certificates by default.
#[test]
fn says_that_servers_may_not_use_the_certificate_of_an_authority() {
    let directory = Directory::new();
    let file = ["-noenc", "-keyout", "host.key", "-out", "host.pem", "-subj", "/CN=host"];
    let host = ["-addext", "subjectAltName=IP:127.0.0.1"];
    openssl(&directory, &[&["req", "-x509"], ECDSA, &file, &host].concat());
    let secure = Secure::start(directory, &["host"]);
    let ca = secure.file("host.pem");
    let item = check(&secure, "https", &["--ca", ca.to_str().unwrap()], "certificate");
    let why = "failed: the server's certificate is that of an authority (CA), which servers may not use \
               (issued by CN=host)";
    assert_eq!(item, (Some(1), why.into()));
}

#[test]
fn explains_tls_errors() {
    let secure = start(&[]);
    let (tls, plain) = (secure.address, secure.tracker.http4());
    let announce = |url: &str| {
        let output = run(&["announce", url, &"a".repeat(40)]);
        assert!(!output.status.success());
        stderr(&output)
    };
    let failed = |url: String, address: SocketAddr, why: &str| {
        assert_eq!(announce(&url), format!("tidegate: {url}: TLS with {address} failed: {why}\n"));
    };
    let authority = "the server's certificate is from an unknown authority: if you trust it, pass its \
                     certificate with --ca FILE";
    failed(format!("https://{tls}/announce"), tls, authority);
    let no_tls = "the server does not use TLS on this port: try http:// or ws://";
    failed(format!("https://{plain}/announce"), plain, no_tls);
    failed(format!("wss://{plain}/"), plain, no_tls);
    let url = format!("http://{tls}/announce");
    let why = "refused: HTTP status 400: this port speaks TLS: the URL must begin with https:// or wss://";
    assert_eq!(announce(&url), format!("tidegate: {url}: {why}\n"));
}

#[test]
fn fails_a_certificate_for_another_host() {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    let secure = Secure::start(directory, &["host"]);
    let ca = secure.file("ca.pem");
    let (code, message) = check(&secure, "https", &["--ca", ca.to_str().unwrap()], "certificate");
    let expected = "failed: not valid for 127.0.0.1, only for host.test";
    assert_eq!((code, message.as_str()), (Some(1), expected));
}
