//! The admin listener over TLS, and `tidegate admin` as its client.

use super::*;
use crate::admin_command::VARIABLE;
use crate::api::{TOKEN, start_in};
use crate::clients::try_http;
use crate::process::tidegate;

/// A tracker whose admin listener presents this certificate.
fn tracker(directory: Directory, name: &str) -> Tracker {
    let [chain, key] = ["pem", "key"].map(|end| directory.path(&format!("{name}.{end}")));
    let more = format!(
        "tls = true\n[tls]\nlisten = []\ncertificates = [{{ chain = {chain:?}, key = {key:?} }}]\n"
    );
    start_in(directory, &more).0
}

#[test]
fn serves_the_api_to_clients_that_trust_its_certificate() {
    let directory = Directory::new();
    make_authority(&directory);
    issue(&directory, "here", "IP:127.0.0.1", (ECDSA, "30"));
    let tracker = tracker(directory, "here");
    let ca = tracker.directory.path("ca.pem");
    let url = format!("https://{}", tracker.admin_address());
    let ask = |task: &str, more: &[&str]| {
        let mut command = tidegate(&["admin", task, "--url", &url]);
        command.args(more).env(VARIABLE, TOKEN).output().unwrap()
    };
    let trusting = ["--ca", ca.to_str().unwrap()];
    tracker.wait_until("ready", |_| ask("health", &trusting).status.success());
    assert!(stdout(&ask("stats", &trusting)).contains("uptime_s"));
    let untrusting = ask("stats", &[]);
    assert_eq!(untrusting.status.code(), Some(1));
    let message = stderr(&untrusting);
    assert!(
        message.contains("from an unknown authority") && message.contains("--ca FILE"),
        "{message}"
    );
    // The certificate is for the address alone.
    let url = format!("https://localhost:{}", tracker.admin_address().port());
    let mut command = tidegate(&["admin", "stats", "--url", &url]);
    let other = command.args(trusting).env(VARIABLE, TOKEN).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("cannot reach"), "{}", stderr(&other));
}

#[test]
fn speaks_tls_only_and_reloads_its_certificates() {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    let tracker = tracker(directory, "host");
    let (directory, admin) = (&tracker.directory, tracker.admin_address().port());
    let resolve = format!("host.test:{admin}:127.0.0.1");
    let curl = |scheme: &str, target: &str, options: &[&str]| {
        let url = format!("{scheme}://host.test:{admin}{target}");
        let words = ["curl", "--silent", "--show-error", "--cacert", "ca.pem", "--resolve"];
        let format = ["-w", "%{http_code}", "--max-time", "60"];
        let output = ask(
            directory,
            &[&words[..], &[&resolve], &format, NO_PROXY, options, &[&url]].concat(),
            "",
        );
        stdout(&output)
    };
    tracker.wait_until("ready", |_| curl("https", "/health/ready", &[]) == "ready\n200");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let authorized = ["-H", bearer.as_str()];
    assert!(curl("https", "/metrics", &[]).ends_with("200"));
    assert!(curl("https", "/api/v1/stats", &authorized).ends_with("200"));
    assert!(curl("https", "/api/v1/stats", &[]).ends_with("401"));
    let made = curl("https", "/api/v1/keys", &[&authorized[..], &["--json", "{}"]].concat());
    assert!(made.ends_with("201"), "{made}");
    // Plain HTTP gets an explanation, and clients with another authority reject the certificate.
    let address = ([127, 0, 0, 1], admin).into();
    let (status, text) = try_http(address, "/health/ready").unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!((status, &*text), (400, "this port speaks TLS: the URL must begin with https://\n"));
    let url = format!("http://127.0.0.1:{admin}");
    let told = tidegate(&["admin", "health", "--url", &url]).output().unwrap();
    assert!(stderr(&told).contains("whether it uses TLS (https://)"), "{}", stderr(&told));
    make(directory, "stranger", ECDSA, "30");
    assert_eq!(curl("https", "/health/ready", &["--cacert", "stranger.pem"]), "000");
    let first = presented(directory, address, "host.test");
    make(directory, "host", ECDSA, "60");
    let post = [&authorized[..], &["-X", "POST"]].concat();
    assert_eq!(curl("https", "/api/v1/certificates/reload", &post), "204");
    assert_ne!(presented(directory, address, "host.test"), first);
}
