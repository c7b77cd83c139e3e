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
    make(&directory, "missing", ECDSA, "30");
    make(&directory, "broken", ECDSA, "30");
    std::fs::remove_file(directory.path("missing.pem")).unwrap();
    directory.write("broken.pem", "-----BEGIN CERTIFICATE-----\nMII");
    assert_eq!(check(&directory, "good").0, Some(0), "{:?}", check(&directory, "good"));
    for (name, expected) in [
        ("missing", "missing.pem: cannot be read: No such file"),
        ("broken", "broken.pem: is truncated: BEGIN without END"),
    ] {
        let (code, message) = check(&directory, name);
        assert!(code == Some(1) && message.contains(expected), "{name}: {message}");
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
