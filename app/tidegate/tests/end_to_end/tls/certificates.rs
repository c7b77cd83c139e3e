//! Certificates: checks, changes of files, and reloads.

use super::*;
use crate::process::{config, run};

const FAILURES: &str = "tidegate_reload_failures_total";

fn start() -> Secure {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    Secure::start(directory, &["host"])
}

#[test]
fn keeps_the_old_certificate_if_the_new_file_is_broken() {
    let secure = start();
    let before = secure.serial("host.test");
    assert_eq!(before, secure.serial_of("host.pem"));
    secure.tracker.directory.write("host.pem", "-----BEGIN CERTIFICATE-----\nMII");
    secure.tracker.wait_until("complaint", |it| it.metric(FAILURES) == 1.0);
    secure.tracker.wait_for_log("certificates not reloaded; the previous ones stay in use: ");
    secure.tracker.wait_for_log("host.pem: is truncated: BEGIN without END");
    assert_eq!(secure.serial("host.test"), before);
    secure.tracker.reload();
    secure.tracker.wait_until("refusal", |it| it.metric(FAILURES) == 2.0);
    assert_eq!(secure.serial("host.test"), before);
    make(&secure.tracker.directory, "new", ECDSA, "60");
    for kind in ["key", "pem"] {
        let [new, old] = ["new", "host"].map(|name| secure.file(&format!("{name}.{kind}")));
        std::fs::rename(new, old).unwrap();
    }
    let after = secure.serial_of("host.pem");
    assert_ne!(before, after);
    secure.tracker.wait_until("the new one", |_| secure.serial("host.test") == after);
    secure.tracker.wait_for_log("loaded certificates count=1");
}

#[test]
fn changes_certificates_on_sighup() {
    let secure = start();
    make(&secure.tracker.directory, "other", RSA, "30");
    let both = Secure::configuration(&secure.tracker.directory, &["host", "other"]);
    secure.tracker.configure(&both);
    secure.tracker.reload();
    secure.tracker.wait_for_log("reloaded the configuration changed=\"tls.certificates");
    assert_eq!(secure.serial("host.test"), secure.serial_of("host.pem"));
    assert_eq!(secure.serial("other.test"), secure.serial_of("other.pem"));
    assert_eq!(secure.serial("unknown.test"), secure.serial_of("host.pem"));
}

/// Runs `config check` for a certificate of this name. Returns the exit code and the output.
fn check(directory: &Directory, name: &str) -> (Option<i32>, String) {
    let more = Secure::configuration(directory, &[name]);
    let file = directory.write("check.toml", &config(0, 0, &more));
    let output = run(&["config", "check", "--config", file.to_str().unwrap()]);
    let message = stdout(&output) + &stderr(&output);
    (output.status.code(), message.replace(&format!("{}/", directory.path("").display()), ""))
}

#[test]
fn reports_bad_certificates_in_config_check() {
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "good", RSA, "30");
    // Six days are the lifetime of short certificates, which are renewed after four.
    make(&directory, "fresh", ECDSA, "6");
    prepare_dates(&directory);
    make_from_2020(&directory, "soon", &["-days", "3"]);
    make_from_2020(&directory, "expired", &["-enddate", "20200201000000Z"]);
    make_of_version_1(&directory);
    std::fs::copy(directory.path("good.key"), directory.path("missing.key")).unwrap();
    for name in ["good", "fresh"] {
        assert_eq!(check(&directory, name).0, Some(0), "{:?}", check(&directory, name));
    }
    for (name, expected) in [
        ("soon", "soon.pem: the certificate expires in less than 3 days: renew it"),
        ("expired", "expired.pem: the certificate has expired"),
        ("expired", "expired.pem: the certificate names no host"),
        ("version1", "version1.pem: the certificate has X.509 version 1"),
        ("missing", "missing.pem: cannot be read: No such file"),
    ] {
        let (code, message) = check(&directory, name);
        assert!(code == Some(1) && message.contains(expected), "{name}: {message}");
    }
}

/// Prepares `openssl ca`, which alone can set the dates of a certificate.
fn prepare_dates(directory: &Directory) {
    directory.write("index.txt", "");
    directory.write("serial", "01\n");
    let config = "[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\nnew_certs_dir=.\nserial=serial\n\
                  default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n\
                  [e]\nbasicConstraints=CA:FALSE\n";
    directory.write("ca.cnf", config);
}

/// Makes the certificate `name`, valid from the beginning of 2020 until `end`, two words for `openssl ca`. It names no
/// host.
fn make_from_2020(directory: &Directory, name: &str, end: &[&str; 2]) {
    let [key, request, chain] = ["key", "csr", "pem"].map(|end| format!("{name}.{end}"));
    let subject = format!("/CN={name}");
    let words = ["-noenc", "-keyout", &key, "-out", &request, "-subj", &subject];
    openssl(directory, &[&["req", "-new"], ECDSA, &words].concat());
    let begin = ["-startdate", "20200101000000Z"];
    let files = ["-config", "ca.cnf", "-in", &request, "-out", &chain, "-notext"];
    let itself = ["ca", "-batch", "-selfsign", "-keyfile", &key];
    openssl(directory, &[itself.as_slice(), &begin, end, &files].concat());
}

/// Makes `version1.pem`, without extensions, as openssl does by default.
fn make_of_version_1(directory: &Directory) {
    let request = ["-noenc", "-keyout", "version1.key", "-out", "v1.csr", "-subj", "/CN=v1"];
    openssl(directory, &[&["req", "-new"], ECDSA, &request].concat());
    let files = ["-in", "v1.csr", "-signkey", "version1.key", "-out", "version1.pem"];
    openssl(directory, &[["x509", "-req"].as_slice(), &files].concat());
}

/// Keys in the current and the traditional format, in one file with the chain and in a separate one.
#[test]
fn serves_keys_in_every_file_format() {
    const KINDS: &[(&str, &[&str])] = &[
        ("rsa", RSA),
        ("rsa3072", &["-newkey", "rsa:3072"]),
        ("p256", ECDSA),
        ("p384", &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384"]),
        ("ed25519", &["-newkey", "ed25519"]),
    ];
    let directory = Directory::new();
    make_authority(&directory);
    let mut names: Vec<String> = Vec::new();
    for (name, kind) in KINDS {
        make(&directory, name, kind, "30");
        names.push((*name).into());
        if *name == "ed25519" {
            continue;
        }
        let old = format!("old-{name}");
        let (from, to) = (format!("{name}.key"), format!("{old}.key"));
        openssl(&directory, &["pkey", "-in", &from, "-traditional", "-out", &to]);
        let read = |name: &str| std::fs::read_to_string(directory.path(name)).unwrap();
        let label = if name.starts_with("rsa") { "RSA PRIVATE KEY" } else { "EC PRIVATE KEY" };
        assert!(read(&to).contains(label) && read(&from).contains("BEGIN PRIVATE KEY"));
        // The same key for another host, in one file with the certificate.
        let host = format!("subjectAltName=DNS:{old}.test");
        let chain = format!("{old}.pem");
        let issuer = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-key", &to];
        let subject =
            ["-subj", "/CN=host", "-addext", &host, "-addext", "basicConstraints=CA:FALSE"];
        openssl(&directory, &[issuer.as_slice(), &subject, &["-out", &chain]].concat());
        let both = read(&to) + &read(&chain);
        directory.write(&to, &both);
        directory.write(&chain, &both);
        names.push(old);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let secure = Secure::start(directory, &names);
    for name in names {
        assert_eq!(
            secure.serial(&format!("{name}.test")),
            secure.serial_of(&format!("{name}.pem"))
        );
        let options = ["-servername", &format!("{name}.test"), "-verify_return_error"];
        let text = secure.s_client(&options, "");
        assert!(text.contains("Verify return code: 0 (ok)"), "{name}: {text}");
    }
}

#[test]
fn warns_about_keys_that_everyone_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new();
    make_authority(&directory);
    make(&directory, "host", ECDSA, "30");
    let (code, output) = check(&directory, "host");
    assert!(code == Some(0) && !output.contains("every user"), "{output}");
    let key = directory.path("host.key");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let warning = "host.key: every user of this machine can read this key";
    let (code, output) = check(&directory, "host");
    assert!(code == Some(0) && output.contains(warning), "{output}");
    let secure = Secure::start(directory, &["host"]);
    secure.tracker.wait_for_log(warning);
}
