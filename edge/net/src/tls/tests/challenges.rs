//! The certificate that answers a challenge, and the precedence of certificates from files.

use std::io::{self, Write};

use rustls::SupportedProtocolVersion;

use super::sessions::{AUTHORITY, Pair, VERSIONS, client_config};
use super::*;

/// Connects a client of `host` that offers `protocols` and sends a request as soon as possible.
fn connect(
    certificates: &Arc<Certificates>,
    host: &'static str,
    protocols: &[&[u8]],
    version: &'static SupportedProtocolVersion,
) -> io::Result<Pair> {
    let mut config = client_config(version);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let mut pair = Pair::of_host(host, &TlsConfig::new(certificates), &config.into());
    pair.client.writer().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    pair.run().map(|()| pair)
}

/// Returns the certificate that the client has seen.
fn shown(pair: &Pair) -> Option<&CertificateDer<'static>> {
    pair.client.peer_certificates()?.first()
}

//= rfc8737#only-alpn
//= type=test
//= rfc8737#no-data
//= type=test
#[test]
fn challenge_certificate_is_for_challenges_only() {
    for version in VERSIONS {
        let certificates = Arc::new(Certificates::default());
        let [usual, proof] = [(); 2].map(|()| AUTHORITY.host(&["t.example"]));
        certificates.replace_obtained(vec![usual.clone()]);
        // There is no challenge.
        let refused = |host| connect(&certificates, host, &[ACME_PROTOCOL], version).is_err();
        assert!(refused("t.example"));
        certificates.set_challenge(Some(proof.clone()));
        let pair = connect(&certificates, "t.example", &[ACME_PROTOCOL], version).unwrap();
        assert_eq!(shown(&pair), proof.der());
        assert_eq!(pair.client.alpn_protocol(), Some(ACME_PROTOCOL));
        assert!(pair.read.is_empty() && pair.server.is_over(), "no request is taken over it");
        assert!(refused("other.example"));
        // Other clients do not see it.
        let http: &[u8] = b"http/1.1";
        for protocols in [&[][..], &[http], &[http, ACME_PROTOCOL], &[ACME_PROTOCOL, http]] {
            let pair = connect(&certificates, "t.example", protocols, version).unwrap();
            assert_eq!(shown(&pair), usual.der());
            assert_ne!(pair.client.alpn_protocol(), Some(ACME_PROTOCOL));
            assert!(!pair.read.is_empty() && !pair.server.is_over());
        }
        certificates.set_challenge(None);
        assert!(refused("t.example"));
    }
}

#[test]
fn certificates_from_files_take_precedence() {
    let certificates = Arc::new(Certificates::default());
    let [a, b, c] = ["a.test", "b.test", "b.test"].map(|host| AUTHORITY.host(&[host]));
    let found = |host| {
        let found = certificates.find(Some(host), &[SignatureScheme::ECDSA_NISTP256_SHA256]);
        found.map(|key| key.cert[0].clone())
    };
    assert_eq!(found("a.test"), None);
    certificates.replace_obtained(vec![a.clone(), b]);
    assert_eq!(found("unknown.test").as_ref(), a.der());
    certificates.replace(vec![c.clone()]);
    assert_eq!(found("a.test").as_ref(), a.der());
    for host in ["b.test", "unknown.test"] {
        assert_eq!(found(host).as_ref(), c.der());
    }
    let validities = certificates.validities();
    assert_eq!(validities.keys().collect::<Vec<_>>(), ["a.test", "b.test"]);
    assert_eq!(validities["b.test"], c.begins()..c.expires());
    assert!(!validities["a.test"].is_empty());
}
