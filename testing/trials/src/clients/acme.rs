//! The tracker obtains certificates from an ACME server, and clients accept them.

use super::pebble::{DIRECTORY, Pebble, curl, start_dns};
use crate::command::output;
use crate::tracker;
use anyhow::{Result, bail, ensure};
use harness::certificates::{ECDSA, issue, make_authority};
use harness::{Signal, Tracker, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY_S: u32 = 24 * 3600;
/// Covers several pauses after failures, and a slow server on a busy machine.
const OBTAIN_MAX: Duration = Duration::from_secs(150);
const HOST: &str = "tracker.test";

/// A case with certificates, in a network of its own, where ports 80 and 443 are free.
pub(super) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes the certificate of the ACME server itself.
    pub(super) fn set_up(folder: &Path) -> Result<Self> {
        make_authority(folder)?;
        issue(folder, "pebble", "IP:127.0.0.1,DNS:localhost", ECDSA, "30")?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// The server starts after the tracker and validates by tls-alpn-01. The certificate survives a restart, a
    /// reload adds a host, and the server suggests an early renewal.
    pub(super) fn tls_alpn(&self) -> Result<()> {
        let _dns = start_dns(&self.folder, "127.0.0.1")?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "unreachable", 1.0)?;
        ensure!(
            self.log()?.contains("reason=\"cannot reach https://localhost:14000/dir"),
            "the log does not say why"
        );
        // TLS handshakes get an alert, and everything else is served.
        let Err(refused) = self.ask_host(HOST, true) else {
            bail!("expected a TLS alert without a certificate, found a response")
        };
        ensure!(
            format!("{refused:#}").contains("alert"),
            "expected a TLS alert, found: {refused:#}"
        );
        self.ask("http://127.0.0.1:6969")?;
        let pebble = Pebble::start(&self.folder, 90 * DAY_S)?;
        self.wait_for_attempts(&tracker, "obtained", 1.0)?;
        self.ask_host(HOST, true)?;
        let expires =
            tracker.metric("tidegate_certificate_expiry_timestamp_seconds", &[("name", HOST)])?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
        let days = (expires - now) / f64::from(DAY_S);
        ensure!((89.0..91.0).contains(&days), "expires at {expires}");
        tracker.stop()?;

        let kept = fs::read(self.certificate())?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.ask_host(HOST, true)?;
        // Hosts are looked at in their order: by the time of the second, the first would have another
        // certificate, if it got one.
        tracker.configure(&self.configuration(&[HOST, "second.test"], ""))?;
        tracker.signal(Signal::SIGHUP)?;
        self.wait_for_attempts(&tracker, "obtained", 1.0)?;
        self.ask_host("second.test", true)?;
        self.ask_host(HOST, true)?;
        ensure!(
            attempts(&tracker, "obtained")? == 1.0 && fs::read(self.certificate())? == kept,
            "the tracker ordered another certificate after a restart"
        );
        tracker.stop()?;

        pebble.call_back(&self.certificate())?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "obtained", 1.0)?;
        ensure!(
            fs::read(self.certificate())? != kept,
            "the certificate was not renewed, although the server suggested it"
        );
        self.ask_host(HOST, true)?;
        tracker.stop()
    }

    /// The server validates by http-01.
    pub(super) fn http(&self) -> Result<()> {
        let _dns = start_dns(&self.folder, "127.0.0.1")?;
        let _pebble = Pebble::start(&self.folder, 90 * DAY_S)?;
        let more = "challenge = \"http-01\"\n[http]\nlisten = [\"0.0.0.0:80\"]\n";
        let tracker = self.start_tracker(&[HOST], more)?;
        self.wait_for_attempts(&tracker, "obtained", 1.0)?;
        self.ask_host(HOST, true)?;
        self.ask("http://127.0.0.1")?;
        tracker.stop()
    }

    /// Certificates are valid for half a minute, and the server is down for longer.
    pub(super) fn renewal(&self) -> Result<()> {
        let _dns = start_dns(&self.folder, "127.0.0.1")?;
        let pebble = Pebble::start(&self.folder, 30)?;
        let tracker = self.start_tracker(&[HOST], "")?;
        for obtained in [1.0, 2.0, 3.0] {
            self.wait_for_attempts(&tracker, "obtained", obtained)?;
            self.ask_host(HOST, true)?;
        }
        drop(pebble);
        let before = attempts(&tracker, "unreachable")?;
        self.wait_for_attempts(&tracker, "unreachable", before + 2.0)?;
        ensure!(self.log()?.contains("status=\"the current certificate "), "not told");
        // The certificate may have expired by now; it is shown all the same.
        self.ask_host(HOST, false)?;
        self.ask("http://127.0.0.1:6969")?;
        // The new server knows neither our account nor the old root.
        let obtained = attempts(&tracker, "obtained")?;
        let _pebble = Pebble::start(&self.folder, 30)?;
        self.wait_for_attempts(&tracker, "obtained", obtained + 1.0)?;
        self.ask_host(HOST, true)?;
        ensure!(self.log()?.contains("no longer knows our account"), "the same account");
        tracker.stop()
    }

    /// The directory URL is wrong, and then the host name resolves to another address.
    pub(super) fn refused(&self) -> Result<()> {
        // Nothing listens at that address.
        let _dns = start_dns(&self.folder, "127.0.0.9")?;
        let _pebble = Pebble::start(&self.folder, 90 * DAY_S)?;
        let wrong = DIRECTORY.replace("/dir", "/nonsense");
        let tracker = self.start_tracker(&[HOST], &format!("directory = {wrong:?}\n"))?;
        let sentence =
            format!("{wrong} is not the directory of an ACME server (tls.acme.directory)");
        self.wait_for_log(&sentence)?;
        tracker.stop()?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "refused", 1.0)?;
        self.wait_for_log("the server refused: Failed to connect to 127.0.0.9:443")?;
        self.ask("http://127.0.0.1:6969")?;
        tracker.stop()
    }

    /// `more` continues the section `[tls.acme]`, and may set another directory.
    fn configuration(&self, domains: &[&str], more: &str) -> String {
        let directory = match more.contains("directory = ") {
            true => String::new(),
            false => format!("directory = {DIRECTORY:?}\n"),
        };
        let place = |name: &str| self.folder.join(name);
        format!(
            "[tls]\nlisten = [\"127.0.0.1:443\"]\n[tls.acme]\ndomains = {domains:?}\ncache = {:?}\nca = {:?}\n{directory}{more}",
            place("cache"),
            place("ca.pem"),
        )
    }

    fn start_tracker(&self, domains: &[&str], more: &str) -> Result<Tracker> {
        tracker::start(&self.folder, &self.configuration(domains, more))
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("cache/localhost_14000_dir").join(format!("{HOST}.pem"))
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join("tracker.log"))?)
    }

    fn wait_for_log(&self, sentence: &str) -> Result<()> {
        wait_for(OBTAIN_MAX, sentence, || Ok(self.log()?.contains(sentence)))
    }

    fn wait_for_attempts(&self, tracker: &Tracker, result: &str, count: f64) -> Result<()> {
        let what = format!("{count} {result}");
        wait_for(OBTAIN_MAX, &what, || Ok(attempts(tracker, result)? >= count))
    }

    /// Announces over HTTPS as a client that verifies certificates by pebble's root, or not at all.
    fn ask_host(&self, host: &str, believes: bool) -> Result<()> {
        let place = format!("{host}:443:127.0.0.1");
        let belief: &[&str] = if believes { &["--cacert", "root.pem"] } else { &["--insecure"] };
        self.announce(&[belief, &["--resolve", &place]].concat(), &format!("https://{host}"))
    }

    fn ask(&self, url: &str) -> Result<()> {
        self.announce(&[], url)
    }

    fn announce(&self, words: &[&str], url: &str) -> Result<()> {
        if !self.folder.join("root.pem").is_file() {
            // Until the server has started once, the authority of its own HTTPS takes the root's place.
            fs::copy(self.folder.join("ca.pem"), self.folder.join("root.pem"))?;
        }
        let hash = "%ab".repeat(20);
        let url =
            format!("{url}/announce?info_hash={hash}&peer_id=-XX0001-000000000000&port=1&left=1");
        let answer = output(curl(&[words, &[&url]].concat(), &self.folder))?;
        ensure!(
            answer.contains("8:interval"),
            "expected a response to an announce, found: {answer}"
        );
        Ok(())
    }
}

fn attempts(tracker: &Tracker, result: &str) -> Result<f64> {
    tracker.metric("tidegate_acme_attempts_total", &[("result", result)])
}
