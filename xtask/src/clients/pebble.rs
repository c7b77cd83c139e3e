//! pebble, the ACME server that Let's Encrypt gives to those who test clients, and the DNS server by
//! which it finds the tracker. Both forget everything when they end; some nonces and authorizations
//! they refuse or repeat at random, as real servers may.

use super::case::wait_for;
use crate::command::{command, output};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What `go install` is told; NAME is one of its programs. The version pins its dependencies as well:
/// Go takes them as its `go.mod` has them, never newer ones.
pub(crate) const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/NAME@v2.10.1";
/// Where the directory of its ACME server is, by name: the sandbox must let the tracker look it up.
pub(super) const DIRECTORY: &str = "https://localhost:14000/dir";
const MANAGEMENT: &str = "https://127.0.0.1:15000";
const DNS: &str = "127.0.0.1:8053";
const START_MAX: Duration = Duration::from_secs(60);

/// Where its programs are, by version.
pub(crate) fn pebble_folder() -> PathBuf {
    let version = PEBBLE.rsplit('@').next().unwrap_or_default();
    root().join("target/tools").join(format!("pebble-{version}"))
}

/// A running server.
pub(super) struct Pebble {
    child: Child,
    folder: PathBuf,
}

/// Answers every question for an address.
pub(super) struct Dns(Child);

impl Dns {
    /// Says of every host that it is at `address`.
    pub(super) fn start(folder: &Path, address: &str) -> Result<Self> {
        let mut dns = program("pebble-challtestsrv", &folder.join("dns.log"))?;
        for (option, value) in [("http01", ""), ("https01", ""), ("doh", ""), ("tlsalpn01", "")] {
            dns.arg(format!("-{option}={value}"));
        }
        dns.args(["-management", "127.0.0.1:8055", "-dnsserver", DNS, "-defaultIPv6", ""]);
        dns.args(["-defaultIPv4", address]);
        Ok(Self(dns.spawn().context("pebble-challtestsrv: cargo xtask setup")?))
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

impl Pebble {
    /// Starts it; certificates that it issues live for `lifetime_s`. It will ask ports 80 and 443.
    pub(super) fn start(folder: &Path, lifetime_s: u32) -> Result<Self> {
        let place = |name: &str| folder.join(name).display().to_string();
        let config = format!(
            "{{\"pebble\": {{\"listenAddress\": \"127.0.0.1:14000\", \"managementListenAddress\": \
             \"127.0.0.1:15000\", \"certificate\": {:?}, \"privateKey\": {:?}, \"httpPort\": 80, \
             \"tlsPort\": 443, \"keyAlgorithm\": \"ecdsa\", \"retryAfter\": {{\"authz\": 1, \
             \"order\": 1}}, \"profiles\": {{\"default\": {{\"description\": \"the only one\", \
             \"validityPeriod\": {lifetime_s}}}}}}}}}",
            place("pebble.pem"),
            place("pebble.key"),
        );
        fs::write(folder.join("pebble.json"), config)?;
        let mut pebble = program("pebble", &folder.join("pebble.log"))?;
        pebble.args(["-config", &place("pebble.json"), "-dnsserver", DNS]);
        // It would sleep for seconds before it looks.
        pebble.env("PEBBLE_VA_NOSLEEP", "1");
        let child = pebble.spawn().context("pebble: cargo xtask setup")?;
        let pebble = Self { child, folder: folder.to_owned() };
        wait_for(START_MAX, "pebble", || pebble.write_root().map(|()| true))?;
        Ok(pebble)
    }

    /// Makes the certificate of its own HTTPS, and `ca.pem`, which issued that.
    pub(super) fn make_certificate(folder: &Path) -> Result<()> {
        let make = |name: &str, more: &[&str]| {
            let (key, pem) = (format!("{name}.key"), format!("{name}.pem"));
            let words = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "30"];
            let subject = format!("/CN={name}");
            let own = ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", &subject];
            let mut made = command(&[&words, own.as_slice(), more].concat());
            made.args(["-keyout", &key, "-out", &pem]).current_dir(folder);
            output(made)
        };
        make("ca", &[])?;
        let names = "subjectAltName=IP:127.0.0.1,DNS:localhost";
        let plain = "basicConstraints=critical,CA:FALSE";
        let by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", names, "-addext", plain];
        make("pebble", &by).map(drop)
    }

    /// Writes `root.pem`, which issued the certificates, in a way of its own at every start.
    fn write_root(&self) -> Result<()> {
        let root =
            output(curl(&["--cacert", "ca.pem", &format!("{MANAGEMENT}/roots/0")], &self.folder))?;
        ensure!(root.starts_with("-----BEGIN CERTIFICATE"), "no root: {root}");
        Ok(fs::write(self.folder.join("root.pem"), root)?)
    }

    /// Has it suggest that a certificate should have been renewed an hour ago (RFC 9773).
    pub(super) fn call_back(&self, certificate: &Path) -> Result<()> {
        let pem = fs::read_to_string(certificate)?;
        let start = pem.find("-----BEGIN CERTIFICATE").context("no certificate")?;
        // The first one; line ends as JSON has them.
        let end = "-----END CERTIFICATE-----\n";
        let own = pem[start..].split_inclusive(end).next().unwrap_or_default().replace('\n', "\\n");
        let [start, end] = ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"];
        let window = format!("{{\"suggestedWindow\":{{\"start\":{start:?},\"end\":{end:?}}}}}");
        let body = format!("{{\"certificate\":\"{own}\",\"ariResponse\":{window:?}}}");
        let url = format!("{MANAGEMENT}/set-renewal-info/");
        output(curl(&["--cacert", "ca.pem", "--data-binary", &body, &url], &self.folder)).map(drop)
    }

    /// Ends it at once, with all that it knew.
    pub(super) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // It may be over already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// curl, which says why it fails, in a folder.
pub(super) fn curl(words: &[&str], folder: &Path) -> Command {
    let own = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20"];
    let mut curl = command(&[&own, words].concat());
    curl.current_dir(folder);
    curl
}

fn program(name: &str, log: &Path) -> Result<Command> {
    let log = File::options().create(true).append(true).open(log)?;
    let mut command = Command::new(pebble_folder().join(name));
    command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
    Ok(command)
}
