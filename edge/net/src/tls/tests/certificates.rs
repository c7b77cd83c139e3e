//! Certificates that are read or refused, the texts of errors, and the certificate for each client.

use std::time::{Duration, SystemTime};

use harness::Directory;
use rcgen::PKCS_RSA_SHA256;

use super::*;

/// Reads a certificate from files with this content. Errors are returned without the folder's name.
fn read(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Certificate, String> {
    let folder = Directory::new().unwrap();
    let files = CertificateFiles {
        chain: folder.write("chain.pem", chain).unwrap(),
        key: folder.write("key.pem", key).unwrap(),
    };
    let short = |error: CertificateError| {
        assert!(error.path.starts_with(folder.root()));
        error.to_string().replace(&format!("{}/", folder.root().display()), "")
    };
    Certificate::read(&files).map_err(short)
}

fn pem(label: &str, base64: &str) -> String {
    format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
}

#[test]
fn errors_name_the_right_file() {
    let (authority, own) = (Authority::new("ca"), ecdsa());
    let chain = authority.issue(&params(&["tracker.test"]), &own);
    let key = own.serialize_pem();
    let empty = String::new();
    let short = |text: &str| text[..text.len() / 2].to_owned();
    let not_base64 = |text: &str| text.replace("\nM", "\n!");
    let no_der = pem("CERTIFICATE", "dGhpcyBpcyBubyBjZXJ0aWZpY2F0ZQ==");
    let locked = pem("ENCRYPTED PRIVATE KEY", "MDAwMDAwMDAw");
    let locked_of_old = key.replace(
        "PRIVATE KEY-----\nM",
        "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nM",
    );
    let der = String::from_utf8_lossy(authority.der.as_ref()).into_owned();
    for (chain, key, expected) in [
        (&empty, &key, "chain.pem: contains no certificate: expected PEM"),
        (&chain, &empty, "key.pem: contains no private key: expected PEM"),
        (&der, &key, "chain.pem: is binary (DER): convert it"),
        (&chain, &der, "key.pem: is binary (DER): convert it"),
        (&short(&chain), &key, "chain.pem: is truncated: BEGIN without END"),
        (&chain, &short(&key), "key.pem: is truncated: BEGIN without END"),
        (&not_base64(&chain), &key, "chain.pem: is not PEM: expected base64"),
        (&chain, &not_base64(&key), "key.pem: is not PEM: expected base64"),
        (&no_der, &key, "chain.pem: certificate 1 is not a valid X.509 certificate"),
        (&format!("{chain}{no_der}"), &key, "chain.pem: certificate 2 is not a valid X.509"),
        (&chain, &locked, "key.pem: is encrypted: remove its password"),
        (&chain, &locked_of_old, "key.pem: is encrypted: remove its password"),
        (&chain, &pem("PRIVATE KEY", "MAA="), "key.pem: unsupported key: expected RSA"),
        (&chain, &ecdsa().serialize_pem(), "key.pem: does not match the certificate"),
        (&authority.pem, &key, "key.pem: does not match the certificate"),
        (&key, &chain, "chain.pem: contains what the other file should"),
        (&chain, &chain, "key.pem: contains what the other file should"),
    ] {
        let error = read(chain, key).unwrap_err();
        assert!(error.starts_with(expected), "expected {expected}, found {error}");
    }
}

#[test]
fn reads_names_and_validity() {
    let own = ecdsa();
    let mut params = params(&["Tracker.TEST", "*.example.test", "192.0.2.1", "2001:db8::1"]);
    let (day, now) = (Duration::from_secs(86_400), SystemTime::now());
    params.not_before = (now - 2 * day).into();
    params.not_after = (now + 3 * day).into();
    let chain = params.self_signed(&own).unwrap().pem();
    let certificate = read(chain, own.serialize_pem()).unwrap();
    assert_eq!(certificate.names(), ["tracker.test", "*.example.test", "192.0.2.1", "2001:db8::1"]);
    for (days, expected) in [(0, true), (2, true), (4, false)] {
        assert_eq!(certificate.is_valid_at(now + days * day), expected, "{days}");
    }
    assert!(!certificate.is_valid_at(now - 3 * day));
    assert!(certificate.is_valid_at(certificate.expires()));
    assert!(!certificate.is_valid_at(certificate.expires() + Duration::from_secs(1)));
    for (host, expected) in [
        ("tracker.test", true),
        ("TRACKER.test", true),
        ("x.tracker.test", false),
        ("test", false),
        ("a.example.test", true),
        ("A.EXAMPLE.TEST", true),
        ("example.test", false),
        ("a.b.example.test", false),
        ("aexample.test", false),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("", false),
    ] {
        assert_eq!(certificate.covers_host(host), expected, "{host}");
    }
}

#[test]
fn checks_chains() {
    let (root, own) = (Authority::new("root"), ecdsa());
    let between = root.beneath("between");
    let mut of_the_web = params(&["a.test"]);
    of_the_web.custom_extensions = vec![authority_information_access()];
    let leaf = between.issue(&of_the_web, &own);
    let plain_leaf = root.issue(&params(&["a.test"]), &own);
    let itself = of_the_web.self_signed(&own).unwrap().pem();
    for (chain, expected) in [
        (vec![&leaf, &between.pem], ChainStatus::Complete),
        (vec![&leaf, &between.pem, &root.pem], ChainStatus::Complete),
        (vec![&leaf], ChainStatus::MissingIntermediate),
        (vec![&plain_leaf], ChainStatus::Complete),
        (vec![&itself], ChainStatus::Complete),
        (vec![&leaf, &root.pem], ChainStatus::OutOfOrder),
        (vec![&leaf, &root.pem, &between.pem], ChainStatus::OutOfOrder),
        (vec![&leaf, &leaf], ChainStatus::OutOfOrder),
    ] {
        let chain: String = chain.into_iter().map(String::as_str).collect();
        assert_eq!(in_memory(&chain, &own).chain(), expected, "{chain}");
    }
}

#[test]
fn selects_certificate_by_host_name_and_signature_scheme() {
    let authority = Authority::new("ca");
    let hosts: [&[&str]; 4] =
        [&["first.test"], &["a.test", "*.a.test"], &["b.test"], &["x.a.test"]];
    let mut own: Vec<Certificate> = hosts.iter().map(|names| authority.host(names)).collect();
    let rsa_key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    own.push(in_memory(&authority.issue(&params(&["a.test"]), &rsa_key), &rsa_key));
    let certificates = Certificates::default();
    let (ecdsa, pss) = (SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256);
    assert!(certificates.find(None, &[ecdsa]).is_none());
    certificates.replace(own);
    let all = certificates.load();
    for (host, schemes, expected) in [
        (None, [ecdsa].as_slice(), Some(0)),
        (Some("first.test"), &[ecdsa], Some(0)),
        (Some("A.test"), &[ecdsa], Some(1)),
        (Some("any.a.test"), &[ecdsa], Some(1)),
        (Some("b.test"), &[ecdsa], Some(2)),
        (Some("x.a.test"), &[ecdsa], Some(1)),
        (Some("unknown.test"), &[ecdsa], Some(0)),
        (Some("a.test"), &[ecdsa, pss], Some(1)),
        (Some("a.test"), &[pss], Some(4)),
        (Some("b.test"), &[pss], Some(4)),
        (None, &[pss], Some(4)),
        (Some("a.test"), &[SignatureScheme::ED25519], None),
    ] {
        let found = certificates.find(host, schemes);
        let place = found.map(|found| all.iter().position(|one| Arc::ptr_eq(&found, &one.key())));
        assert_eq!(place.flatten(), expected, "{host:?} {schemes:?}");
    }
}
