//! Protocol features that the TLS listener offers, and those that it refuses.

use std::io::Write;
use std::net::TcpStream;

use types::limits;

use super::*;

fn start() -> Secure {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    make(&directory, "old", RSA, "30");
    Secure::start(directory, &["host", "old"])
}

/// Returns the value behind a label in the output of `s_client -brief`.
fn brief<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(": "))
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
    for (option, expected) in [
        ("-tls1_3", Some("TLSv1.3")),
        ("-tls1_2", Some("TLSv1.2")),
        ("-tls1_1", None),
        ("-tls1", None),
    ] {
        // By default, openssl would not even offer the old versions.
        let options = [option, "-brief", "-cipher", "ALL:@SECLEVEL=0", "-verify_return_error"];
        let text = secure.s_client(&options, "");
        assert_eq!(brief(&text, "Protocol version"), expected, "{text}");
        assert!(expected.is_some() || text.contains("SSL alert number"), "{text}");
    }
}

#[test]
fn offers_authenticated_ciphers_with_ephemeral_keys_only() {
    let secure = start();
    let list = ["openssl", "ciphers", "-s", "-tls1_2", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"];
    let all = stdout(&ask(&secure.tracker.directory, &list, ""));
    let mut taken = Vec::new();
    for cipher in all.trim().split(':') {
        // openssl itself refuses ciphers that need further options.
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
fn negotiates_http_1_1_by_alpn() {
    let secure = start();
    let agreed = |offer: &str| secure.s_client(&["-alpn", offer], "");
    assert!(agreed("h2,http/1.1").contains("ALPN protocol: http/1.1"));
    assert!(agreed("h2").contains("alert no application protocol"));
    assert!(secure.s_client(&[], "").contains("No ALPN negotiated"));
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
    secure.tracker.directory.write("early", &request);
    let resume = ["-tls1_3", "-sess_in", "session", "-early_data", "early"];
    let text = secure.s_client(&resume, "");
    assert!(text.contains("Reused, TLSv1.3"), "{text}");
    assert!(text.contains("Early data was not sent"), "{text}");
}

#[test]
fn refuses_renegotiation() {
    let secure = start();
    let series = format!(
        "tidegate_tls_handshakes_total{{listener=\"{}\",protocol=\"https\"}}",
        secure.address
    );
    let text = secure.s_client(&["-tls1_2"], "R\n");
    assert!(text.contains("RENEGOTIATING"), "{text}");
    assert!(text.contains("no renegotiation"), "{text}");
    secure.tracker.wait_until(&series, |it| it.metric(&series) == 1.0);
}

/// Scanners check these besides versions and ciphers.
#[test]
fn negotiates_sound_groups_and_signatures() {
    let secure = start();
    let text = secure.s_client(&["-tls1_2"], "");
    for expected in
        ["Secure Renegotiation IS supported", "Compression: NONE", "Extended master secret: yes"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        for (group, is_there) in [
            ("X25519", true),
            ("P-256", true),
            ("P-384", true),
            ("P-521", false),
            ("X448", false),
            ("ffdhe2048", false),
        ] {
            // With an RSA certificate, which needs no group of its own.
            let options = [version, "-brief", "-servername", "old.test", "-groups", group];
            let text = secure.s_client(&options, "");
            assert_eq!(brief(&text, "Protocol version").is_some(), is_there, "{group}: {text}");
        }
        for (algorithms, is_there) in [
            ("ecdsa_secp256r1_sha256", true),
            ("rsa_pss_rsae_sha256", true),
            ("RSA+SHA1:ECDSA+SHA1:RSA+SHA224", false),
        ] {
            let options = [version, "-brief", "-cipher", "ALL:@SECLEVEL=0", "-sigalgs", algorithms];
            let text = secure.s_client(&options, "");
            assert_eq!(brief(&text, "Protocol version").is_some(), is_there, "{text}");
        }
    }
    // PKCS#1 signatures are for TLS 1.2 only, where old clients need them.
    let pkcs_1 = ["-brief", "-sigalgs", "rsa_pkcs1_sha256"];
    let agreed = |version| {
        let text = secure.s_client(&[pkcs_1.as_slice(), &[version]].concat(), "");
        brief(&text, "Protocol version").is_some()
    };
    assert!(agreed("-tls1_2") && !agreed("-tls1_3"));
}

#[test]
fn serves_beside_thousands_of_unfinished_handshakes() {
    const CLIENTS: usize = 40;
    const HELD: usize = CLIENTS * limits::HANDSHAKES_UNFINISHED_MAX as usize;
    const MORE: usize = CLIENTS * 20;
    net::process::raise_descriptor_limit().unwrap();
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    // Behind a proxy, each client has a limit of its own.
    let table = "[[listener]]\nprotocol = \"tls\"\nlisten = [\"127.0.0.2:0\"]\n\
         http.proxy_protocol = \"v1v2\"\nhttp.trusted_proxies = [\"127.0.0.1\"]\n\
         http.head_timeout_s = 3600\n";
    let more = Secure::configuration(&directory, &["host"]) + table;
    let secure = Secure::start_with(directory, &more);
    let behind = secure.tracker.listener("https", [127, 0, 0, 2]);
    let resident = || secure.tracker.metric("process_resident_memory_bytes");
    let before = resident();
    let open = |number: usize| {
        let mut stream = TcpStream::connect(behind).unwrap();
        let host = 1 + number % CLIENTS;
        // The beginning of a ClientHello of 512 bytes.
        let line =
            format!("PROXY TCP4 192.0.2.{host} 192.0.2.200 4711 443\r\n\x16\x03\x01\x02\0\x01");
        // A connection above the limit may be closed already.
        let _ = stream.write_all(line.as_bytes());
        stream
    };
    let streams: Vec<TcpStream> = (0..HELD + MORE).map(open).collect();
    let figure = |name: &str, more: &str| {
        let labels = format!("listener=\"{behind}\",protocol=\"https\"{more}");
        secure.tracker.metric(&format!("tidegate_{name}{{{labels}}}"))
    };
    let refused = || figure("drops_total", ",reason=\"handshake_limit\"");
    secure.tracker.wait_until("all addresses have all they may", |_| {
        refused() == MORE as f64 && figure("connections_open", "") == HELD as f64
    });
    let each = (resident() - before) / HELD as f64;
    assert!(each < 32.0 * 1024.0, "{each} bytes for each");
    // Other clients are served, also behind the same proxy.
    for (to, options) in [(behind, ["--haproxy-protocol"].as_slice()), (secure.address, &[])] {
        let output = secure.curl("https", to, options);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.matches("8:intervali1800e").count(), 2, "{text}{}", stderr(&output));
    }
    drop(streams);
    secure.tracker.wait_until("all are gone", |_| figure("connections_open", "") == 0.0);
    let left =
        figure("drops_total", ",reason=\"bad_tls\"") + figure("drops_total", ",reason=\"reset\"");
    assert_eq!(left, HELD as f64, "who leaves in a handshake is counted");
}
