//! TLS as curl and openssl see it, with certificates that openssl made.

mod admin_listener;
mod certificates;
mod check_command;
mod clients;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::process::{Directory, Tracker, stderr, stdout};

/// Elliptic curves, as most have it today.
const ECDSA: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: &[&str] = &["-newkey", "rsa:2048"];

/// Runs a program on files of a directory, and says `input` to it.
fn ask(directory: &Directory, words: &[&str], input: &str) -> Output {
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .current_dir(directory.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; cargo xtask setup", words[0]));
    // It may end without having read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn openssl(directory: &Directory, words: &[&str]) {
    let output = ask(directory, &[&["openssl"], words].concat(), "");
    assert!(output.status.success(), "openssl {words:?}: {}", stderr(&output));
}

/// Makes `ca.pem`, whom the clients trust.
fn make_authority(directory: &Directory) {
    let file = ["-noenc", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"];
    openssl(directory, &[&["req", "-x509"], ECDSA, &file].concat());
}

/// Makes `NAME.pem` and `NAME.key`, good for so many days, issued by the authority.
fn make(directory: &Directory, name: &str, kind: &[&str], days: &str) {
    issue(directory, name, &format!("DNS:{name}.test"), (kind, days));
}

/// The same for a host that has this name or address.
fn issue(directory: &Directory, name: &str, host: &str, (kind, days): (&[&str], &str)) {
    let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
    let host = format!("subjectAltName={host}");
    let issuer = ["req", "-x509", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", days];
    let subject = ["-subj", "/CN=host", "-addext", &host, "-addext", "basicConstraints=CA:FALSE"];
    let files = ["-noenc", "-keyout", &key, "-out", &chain];
    openssl(directory, &[&issuer, kind, &subject, &files].concat());
}

/// A tracker that speaks TLS.
struct Secure {
    tracker: Tracker,
    /// Where it does.
    address: SocketAddr,
}

impl Secure {
    /// With certificates of these names, which are in the directory.
    fn start(directory: Directory, names: &[&str]) -> Self {
        let more = Self::configuration(&directory, names);
        Self::start_with(directory, &more)
    }

    /// The same with this behind the listeners in its configuration.
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

    fn configure(&self, names: &[&str]) {
        self.tracker.configure(&Self::configuration(&self.tracker.directory, names));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.tracker.directory.path(name)
    }

    /// What `openssl s_client` says, its standard output before its errors.
    fn s_client(&self, options: &[&str], input: &str) -> String {
        let address = self.address.to_string();
        let words = ["openssl", "s_client", "-connect", &address, "-CAfile", "ca.pem"];
        let output = ask(&self.tracker.directory, &[&words, options].concat(), input);
        stdout(&output) + &stderr(&output)
    }

    /// The serial number of the certificate that a host's clients get.
    fn serial(&self, host: &str) -> String {
        let text = self.s_client(&["-servername", host, "-verify_quiet"], "");
        let start = text.find("-----BEGIN").unwrap_or_else(|| panic!("{text}"));
        let words = ["openssl", "x509", "-noout", "-serial"];
        stdout(&ask(&self.tracker.directory, &words, &text[start..]))
    }

    fn serial_of(&self, name: &str) -> String {
        let words = ["openssl", "x509", "-noout", "-serial", "-in", name];
        stdout(&ask(&self.tracker.directory, &words, ""))
    }

    /// What curl gives for a URL without its host: body, and what `format` asks for behind it.
    fn curl(&self, scheme: &str, to: SocketAddr, options: &[&str]) -> Output {
        let port = to.port();
        let resolve = format!("host.test:{port}:{}", to.ip());
        let url = format!("{scheme}://host.test:{port}/announce?{QUERY}");
        let words =
            ["curl", "--silent", "--show-error", "--cacert", "ca.pem", "--resolve", &resolve];
        let words = [&words, options, &[&url, &url]].concat();
        ask(&self.tracker.directory, &words, "")
    }
}

/// Of an announce.
const QUERY: &str = "info_hash=%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa%aa\
                     &peer_id=-XX0001-000000000000&port=1001&left=1&compact=1";
