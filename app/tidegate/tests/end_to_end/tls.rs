//! TLS with curl and openssl as clients, and certificates made by openssl.

mod admin_listener;
mod certificates;
mod check_command;
mod clients;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

pub(crate) use harness::certificates::ECDSA;

use crate::process::{Directory, Tracker, run_with_input, stderr, stdout};

const RSA: &[&str] = &["-newkey", "rsa:2048"];

/// Runs a program in a directory with `input` on its standard input.
fn ask(directory: &Directory, words: &[&str], input: &str) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(directory.path(""));
    run_with_input(command, input.as_bytes())
}

fn openssl(directory: &Directory, words: &[&str]) {
    harness::certificates::openssl(&directory.path(""), words).unwrap();
}

/// Makes `ca.pem`, the authority that clients trust.
pub(crate) fn make_authority(directory: &Directory) {
    harness::certificates::make_authority(&directory.path("")).unwrap();
}

/// Makes `NAME.pem` and `NAME.key` for `NAME.test`, issued by the authority and valid for `days`.
fn make(directory: &Directory, name: &str, kind: &[&str], days: &str) {
    issue(directory, name, &format!("DNS:{name}.test"), (kind, days));
}

/// The same for this host, as in `DNS:name` or `IP:address`.
pub(crate) fn issue(directory: &Directory, name: &str, host: &str, (kind, days): (&[&str], &str)) {
    harness::certificates::issue(&directory.path(""), name, host, kind, days).unwrap();
}

/// Returns the serial number of the certificate that is presented there for a host.
fn presented(directory: &Directory, address: SocketAddr, host: &str) -> String {
    let address = address.to_string();
    let words = ["openssl", "s_client", "-connect", &address, "-servername", host, "-verify_quiet"];
    let text = stdout(&ask(directory, &words, ""));
    let start = text.find("-----BEGIN").unwrap_or_else(|| panic!("{text}"));
    stdout(&ask(directory, &["openssl", "x509", "-noout", "-serial"], &text[start..]))
}

struct Secure {
    tracker: Tracker,
    /// The address of its TLS listener.
    address: SocketAddr,
}

impl Secure {
    /// Starts it with certificates of these names in the directory.
    fn start(directory: Directory, names: &[&str]) -> Self {
        let more = Self::configuration(&directory, names);
        Self::start_with(directory, &more)
    }

    /// Starts it with `more` behind the listeners in its configuration.
    fn start_with(directory: Directory, more: &str) -> Self {
        let tracker = Tracker::start(directory, more);
        let address = tracker.listener("https", [127, 0, 0, 1]);
        Self { tracker, address }
    }

    fn configuration(directory: &Directory, names: &[&str]) -> String {
        let path = |name: String| directory.path(&name).display().to_string();
        let pair = |name: &&str| {
            let (chain, key) = (path(format!("{name}.pem")), path(format!("{name}.key")));
            format!("{{ chain = \"{chain}\", key = \"{key}\" }}")
        };
        let certificates: Vec<String> = names.iter().map(pair).collect();
        let certificates = certificates.join(", ");
        format!("[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificates = [{certificates}]\n")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.tracker.directory.path(name)
    }

    /// Runs `openssl s_client` and returns its standard output, then its standard error.
    fn s_client(&self, options: &[&str], input: &str) -> String {
        let address = self.address.to_string();
        let words = ["openssl", "s_client", "-connect", &address, "-CAfile", "ca.pem"];
        let output = ask(&self.tracker.directory, &[&words, options].concat(), input);
        stdout(&output) + &stderr(&output)
    }

    /// Returns the serial number of the certificate presented for a host.
    fn serial(&self, host: &str) -> String {
        presented(&self.tracker.directory, self.address, host)
    }

    fn serial_of(&self, name: &str) -> String {
        let words = ["openssl", "x509", "-noout", "-serial", "-in", name];
        stdout(&ask(&self.tracker.directory, &words, ""))
    }

    /// Runs curl for two announces over one connection to `to`.
    fn curl(&self, scheme: &str, to: SocketAddr, options: &[&str]) -> Output {
        let port = to.port();
        let resolve = format!("host.test:{port}:{}", to.ip());
        let url = format!("{scheme}://host.test:{port}/announce?{QUERY}");
        let words =
            ["curl", "--silent", "--show-error", "--cacert", "ca.pem", "--resolve", &resolve];
        let words = [&words, NO_PROXY, options, &[&url, &url]].concat();
        ask(&self.tracker.directory, &words, "")
    }
}

/// Makes curl ignore a proxy that the environment names.
const NO_PROXY: &[&str] = &["--noproxy", "*"];

const QUERY: &str = "info_hash=%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa\
                     &peer_id=-XX0001-000000000000&port=1001&left=1&compact=1";
