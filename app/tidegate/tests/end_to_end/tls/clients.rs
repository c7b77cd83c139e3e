//! Protocol features that the TLS listener offers, and those that it refuses.

use super::*;

fn start() -> Secure {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    Secure::start(directory, &["host"])
}

#[test]
fn serves_curl_over_a_kept_connection() {
    let secure = start();
    for version in ["1.2", "1.3"] {
        let (least, most) = (format!("--tlsv{version}"), version);
        let format = "\\n%{num_connects} %{http_version} %{ssl_verify_result}\\n";
        let output =
            secure.curl("https", secure.address, &[&least, "--tls-max", most, "-w", format]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(text.matches("8:intervali1800e").count(), 2, "{text}");
        let ends: Vec<&str> = text.lines().filter(|line| line.ends_with(" 1.1 0")).collect();
        assert_eq!(ends, ["1 1.1 0", "0 1.1 0"], "{text}");
    }
    let series = format!(
        "tidegate_tls_handshakes_total{{listener=\"{}\",protocol=\"https\"}}",
        secure.address
    );
    secure.tracker.wait_until(&series, |it| it.metric(&series) == 2.0);
}

#[test]
fn offers_tls_1_2_and_1_3_only() {
    let secure = start();
    // By default, openssl would not even offer the old versions and ciphers.
    let weakest = ["-brief", "-cipher", "ALL@SECLEVEL=0", "-verify_return_error"];
    let connect = |options: &[&str]| secure.s_client(&[options, &weakest].concat(), "");
    for (option, version) in [("-tls1_3", "TLSv1.3"), ("-tls1_2", "TLSv1.2")] {
        let text = connect(&[option]);
        assert!(text.contains(&format!("Protocol version: {version}\n")), "{text}");
    }
    for option in ["-tls1_1", "-tls1"] {
        let text = connect(&[option]);
        assert!(text.contains("SSL alert number"), "{option}: {text}");
    }
    // Without forward secrecy or authentication, and of HTTP/2 alone.
    for options in [
        ["-tls1_2", "-cipher", "AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"],
        ["-tls1_3", "-alpn", "h2"],
    ] {
        let text = secure.s_client(&options, "");
        assert!(text.contains("alert"), "{options:?}: {text}");
    }
    let text = secure.s_client(&["-alpn", "h2,http/1.1"], "");
    assert!(text.contains("ALPN protocol: http/1.1"), "{text}");
}

#[test]
fn resumes_sessions_without_early_data() {
    let secure = start();
    let text = secure.s_client(&["-tls1_2", "-reconnect"], "");
    assert_eq!(text.matches("Reused, TLSv1.2").count(), 5, "{text}");
    // In TLS 1.3, tickets follow the handshake.
    let request = format!("GET /announce?{QUERY} HTTP/1.1\r\nConnection: close\r\n\r\n");
    let text = secure.s_client(&["-tls1_3", "-sess_out", "session", "-ign_eof"], &request);
    assert!(text.contains("8:intervali1800e") && text.contains("Max Early Data: 0"), "{text}");
    let text = secure.s_client(&["-tls1_3", "-sess_in", "session"], "");
    assert!(text.contains("Reused, TLSv1.3"), "{text}");
}
