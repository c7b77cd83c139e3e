//! What is offered, and what is not.

use super::*;

fn start() -> Secure {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    make(&directory, "old", RSA, "30");
    Secure::start(directory, &["host", "old"])
}

/// The value behind a label of `s_client -brief`.
fn brief<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "))
}

#[test]
fn curl_announces_and_keeps_the_connection() {
    let secure = start();
    for version in ["1.2", "1.3"] {
        let (least, most) = (format!("--tlsv{version}"), version);
        let format = "\\n%{num_connects} %{http_version} %{ssl_verify_result}\\n";
        let output = secure.curl("https", secure.port, &[&least, "--tls-max", most, "-w", format]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(text.matches("8:intervali1800e").count(), 2, "{text}");
        let ends: Vec<&str> = text.lines().filter(|line| line.ends_with(" 1.1 0")).collect();
        assert_eq!(ends, ["1 1.1 0", "0 1.1 0"], "{text}");
    }
    let series = format!(
        "tidegate_tls_handshakes_total{{listener=\"127.0.0.1:{}\",protocol=\"https\"}}",
        secure.port
    );
    secure.tracker.wait_until(&series, |it| it.metric(&series) == 2.0);
}

#[test]
fn who_mistakes_the_port_is_told_so() {
    let secure = start();
    let output = secure.curl("http", secure.port, &[]);
    assert!(stdout(&output).contains("the URL must begin with https:// or wss://"));
    let output = secure.curl("https", secure.tracker.port, &[]);
    assert!(!output.status.success() && stderr(&output).contains("wrong version number"));
}

#[test]
fn versions_are_1_2_and_1_3() {
    let secure = start();
    for (option, expected) in [
        ("-tls1_3", Some("TLSv1.3")),
        ("-tls1_2", Some("TLSv1.2")),
        ("-tls1_1", None),
        ("-tls1", None),
    ] {
        // Of itself, openssl would not even try the old ones.
        let options = [option, "-brief", "-cipher", "ALL:@SECLEVEL=0", "-verify_return_error"];
        let text = secure.s_client(&options, "");
        assert_eq!(brief(&text, "Protocol version"), expected, "{text}");
        assert!(expected.is_some() || text.contains("SSL alert number"), "{text}");
    }
}

#[test]
fn ciphers_authenticate_and_keys_are_ephemeral() {
    let secure = start();
    let list = ["openssl", "ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"];
    let all = stdout(&ask(&secure.tracker.directory, &list, ""));
    let mut taken = Vec::new();
    for cipher in all.trim().split(':') {
        // One that cannot be used without more options is refused by openssl itself.
        let text = secure.s_client(&["-tls1_2", "-brief", "-cipher", cipher], "");
        taken.extend(brief(&text, "Ciphersuite").map(String::from));
    }
    taken.sort();
    assert_eq!(
        taken,
        [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ]
    );
    for (suite, is_there) in [
        ("TLS_AES_128_GCM_SHA256", true),
        ("TLS_AES_256_GCM_SHA384", true),
        ("TLS_CHACHA20_POLY1305_SHA256", true),
        ("TLS_AES_128_CCM_SHA256", false),
        ("TLS_AES_128_CCM_8_SHA256", false),
    ] {
        let text = secure.s_client(&["-tls1_3", "-brief", "-ciphersuites", suite], "");
        assert_eq!(brief(&text, "Ciphersuite"), is_there.then_some(suite), "{text}");
    }
}

#[test]
fn the_protocol_is_http_1_1() {
    let secure = start();
    let agreed = |offer: &str| secure.s_client(&["-alpn", offer], "");
    assert!(agreed("h2,http/1.1").contains("ALPN protocol: http/1.1"));
    assert!(agreed("h2").contains("alert no application protocol"));
    assert!(secure.s_client(&[], "").contains("No ALPN negotiated"));
}

#[test]
fn sessions_are_resumed_but_never_begin_with_data() {
    let secure = start();
    let text = secure.s_client(&["-tls1_2", "-reconnect"], "");
    assert_eq!(text.matches("Reused, TLSv1.2").count(), 5, "{text}");
    // Of TLS 1.3 the ticket comes behind the handshake.
    let request = format!("GET /announce?{QUERY} HTTP/1.1\r\nConnection: close\r\n\r\n");
    let text = secure.s_client(&["-tls1_3", "-sess_out", "session", "-ign_eof"], &request);
    assert!(text.contains("8:intervali1800e") && text.contains("Max Early Data: 0"), "{text}");
    secure.tracker.directory.write("early", &request);
    let resume = ["-tls1_3", "-sess_in", "session", "-early_data", "early"];
    let text = secure.s_client(&resume, "");
    assert!(text.contains("Reused, TLSv1.3"), "{text}");
    assert!(text.contains("Early data was not sent"), "{text}");
}

#[test]
fn nobody_renegotiates() {
    let secure = start();
    let series = format!(
        "tidegate_tls_handshakes_total{{listener=\"127.0.0.1:{}\",protocol=\"https\"}}",
        secure.port
    );
    let text = secure.s_client(&["-tls1_2"], "R\n");
    assert!(text.contains("RENEGOTIATING"), "{text}");
    assert!(text.contains("no renegotiation"), "{text}");
    secure.tracker.wait_until(&series, |it| it.metric(&series) == 1.0);
}
