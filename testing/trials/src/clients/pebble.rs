//! pebble, the ACME server that Let's Encrypt provides for tests of clients, and the DNS server by which it
//! finds the tracker. Both keep nothing when they end. They reject some nonces and reuse some
//! authorizations at random, as real servers may.

use crate::command::{command, output};
use anyhow::{Context, Result, ensure};
use harness::{Process, wait_for};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The URL of its directory, by host name: the sandbox must allow the tracker to resolve it.
pub(super) const DIRECTORY: &str = "https://localhost:14000/dir";
const MANAGEMENT: &str = "https://127.0.0.1:15000";
const DNS: &str = "127.0.0.1:8053";
const START_MAX: Duration = Duration::from_secs(60);

/// A running server. It keeps no state.
pub(super) struct Pebble {
    _process: Process,
    folder: PathBuf,
}

/// Starts a DNS server that returns `address` for every host.
pub(super) fn start_dns(folder: &Path, address: &str) -> Result<Process> {
    let mut dns = program("pebble-challtestsrv");
    for (option, value) in [("http01", ""), ("https01", ""), ("doh", ""), ("tlsalpn01", "")] {
        dns.arg(format!("-{option}={value}"));
    }
    dns.args(["-management", "127.0.0.1:8055", "-dnsserver", DNS, "-defaultIPv6", ""]);
    dns.args(["-defaultIPv4", address]);
    Process::start_with_one_log(dns, folder, "dns").context("cargo xtask setup")
}

impl Pebble {
    /// Starts it. Certificates that it issues are valid for `lifetime_s`. It validates at ports 80 and 443. Its
    /// own HTTPS has a certificate by `ca.pem`.
    pub(super) fn start(folder: &Path, lifetime_s: u32) -> Result<Self> {
        let profile = json!({ "description": "the only one", "validityPeriod": lifetime_s });
        let config = json!({ "pebble": {
            "listenAddress": "127.0.0.1:14000",
            "managementListenAddress": "127.0.0.1:15000",
            "certificate": folder.join("pebble.pem"),
            "privateKey": folder.join("pebble.key"),
            "httpPort": 80,
            "tlsPort": 443,
            "keyAlgorithm": "ecdsa",
            "retryAfter": { "authz": 1, "order": 1 },
            "profiles": { "default": profile },
        } });
        let file = folder.join("pebble.json");
        fs::write(&file, config.to_string())?;
        let mut pebble = program("pebble");
        pebble.arg("-config").arg(file).args(["-dnsserver", DNS]);
        // By default it sleeps for seconds before it validates.
        pebble.env("PEBBLE_VA_NOSLEEP", "1");
        let process = Process::start_with_one_log(pebble, folder, "pebble");
        let process = process.context("cargo xtask setup")?;
        let pebble = Self { _process: process, folder: folder.to_owned() };
        wait_for(START_MAX, "pebble", || pebble.write_root().map(|()| true))?;
        Ok(pebble)
    }

    /// Writes `root.pem`, the root of the certificates that it issues, which is another at every start.
    fn write_root(&self) -> Result<()> {
        let root =
            output(curl(&["--cacert", "ca.pem", &format!("{MANAGEMENT}/roots/0")], &self.folder))?;
        ensure!(
            root.starts_with("-----BEGIN CERTIFICATE"),
            "expected a root certificate, found: {root}"
        );
        Ok(fs::write(self.folder.join("root.pem"), root)?)
    }

    /// Makes it suggest a renewal an hour ago for a certificate (RFC 9773).
    pub(super) fn call_back(&self, certificate: &Path) -> Result<()> {
        let pem = fs::read_to_string(certificate)?;
        let start = pem.find("-----BEGIN CERTIFICATE").context("no certificate")?;
        // The first certificate of the chain.
        let own = pem[start..].split_inclusive("-----END CERTIFICATE-----\n").next();
        let window = json!({ "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z" });
        let response = json!({ "suggestedWindow": window }).to_string();
        let body = json!({ "certificate": own, "ariResponse": response }).to_string();
        let url = format!("{MANAGEMENT}/set-renewal-info/");
        output(curl(&["--cacert", "ca.pem", "--data-binary", &body, &url], &self.folder)).map(drop)
    }
}

/// Returns curl with these arguments, in a folder. It prints errors.
pub(super) fn curl(words: &[&str], folder: &Path) -> Command {
    let own = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20"];
    let mut curl = command(&[&own, words].concat());
    curl.current_dir(folder);
    curl
}

fn program(name: &str) -> Command {
    Command::new(harness::pebble::folder().join(name))
}
