//! pebble, the ACME server that Let's Encrypt provides for tests of clients, and the DNS server by which it
//! finds the tracker. Both keep nothing when they end. They reject some nonces and reuse some
//! authorizations at random, as real servers may.

use super::case::wait_for;
use crate::command::{command, output};
use crate::workspace::root;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The argument of `go install`; NAME is one of its programs. The version pins its dependencies as well: Go
/// takes the versions of its `go.mod`, never newer ones.
pub(crate) const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd/NAME@v2.10.1";
/// The URL of its directory, by host name: the sandbox must allow the tracker to resolve it.
pub(super) const DIRECTORY: &str = "https://localhost:14000/dir";
const MANAGEMENT: &str = "https://127.0.0.1:15000";
const DNS: &str = "127.0.0.1:8053";
const START_MAX: Duration = Duration::from_secs(60);

/// The folder of its programs, by version.
pub(crate) fn pebble_folder() -> PathBuf {
    let version = PEBBLE.rsplit('@').next().unwrap_or_default();
    root().join("target/tools").join(format!("pebble-{version}"))
}

/// A running server.
pub(super) struct Pebble {
    child: Child,
    folder: PathBuf,
}

/// A DNS server that gives one address for every host.
pub(super) struct Dns(Child);

impl Dns {
    /// Starts it. Every host resolves to `address`.
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
    /// Starts it. Certificates that it issues are valid for `lifetime_s`. It validates at ports 80 and 443.
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
        // By default it sleeps for seconds before it validates.
        pebble.env("PEBBLE_VA_NOSLEEP", "1");
        let child = pebble.spawn().context("pebble: cargo xtask setup")?;
        let pebble = Self { child, folder: folder.to_owned() };
        wait_for(START_MAX, "pebble", || pebble.write_root().map(|()| true))?;
        Ok(pebble)
    }

    /// Makes the certificate of its own HTTPS, and `ca.pem`, the authority of that certificate.
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
        // The first certificate of the chain, with line ends escaped for JSON.
        let end = "-----END CERTIFICATE-----\n";
        let own = pem[start..].split_inclusive(end).next().unwrap_or_default().replace('\n', "\\n");
        let [start, end] = ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"];
        let window = format!("{{\"suggestedWindow\":{{\"start\":{start:?},\"end\":{end:?}}}}}");
        let body = format!("{{\"certificate\":\"{own}\",\"ariResponse\":{window:?}}}");
        let url = format!("{MANAGEMENT}/set-renewal-info/");
        output(curl(&["--cacert", "ca.pem", "--data-binary", &body, &url], &self.folder)).map(drop)
    }

    /// Kills it. It keeps no state.
    pub(super) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Returns curl with these arguments, in a folder. It prints errors.
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
