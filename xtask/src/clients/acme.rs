//! The tracker obtains certificates from an ACME server, and clients accept them.

use super::case::wait_for;
use super::pebble::{DIRECTORY, Dns, Pebble, curl};
use super::tracker::Tracker;
use crate::command::output;
use anyhow::{Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

/// What happens to the tracker and the ACME server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Story {
    /// The server starts after the tracker and validates by tls-alpn-01. The certificate survives a
    /// restart, a reload adds a host, and the server suggests an early renewal.
    TlsAlpn,
    /// The server validates by http-01.
    Http,
    /// Certificates are valid for half a minute, and the server is down for longer.
    Renewal,
    /// The directory URL is wrong, and then the host name resolves to another address.
    Refused,
}

const DAY_S: u32 = 24 * 3600;
/// Covers several pauses after failures, and a slow server on a busy machine.
const OBTAIN_MAX: Duration = Duration::from_secs(150);
/// Long enough for a second order to arrive, if there were one.
const QUIET: Duration = Duration::from_secs(5);
const HOST: &str = "tracker.test";

impl Story {
    /// Runs it in a network of its own, where ports 80 and 443 are free.
    pub(super) fn play(self, folder: &Path) -> Result<()> {
        Pebble::make_certificate(folder)?;
        let stage = Stage { folder: folder.to_owned() };
        match self {
            Self::TlsAlpn => stage.play_tls_alpn(),
            Self::Http => stage.play_http(),
            Self::Renewal => stage.play_renewal(),
            Self::Refused => stage.play_refused(),
        }
    }
}

struct Stage {
    folder: PathBuf,
}

impl Stage {
    fn play_tls_alpn(&self) -> Result<()> {
        let _dns = Dns::start(&self.folder, "127.0.0.1")?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "unreachable", 1)?;
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
        self.wait_for_attempts(&tracker, "obtained", 1)?;
        self.ask_host(HOST, true)?;
        let expires =
            tracker.metric("tidegate_certificate_expiry_timestamp_seconds", &[("name", HOST)])?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        ensure!((89..91).contains(&((expires - now) / u64::from(DAY_S))), "expires at {expires}");
        tracker.stop()?;

        let kept = fs::read(self.certificate())?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.ask_host(HOST, true)?;
        sleep(QUIET);
        ensure!(
            attempts(&tracker, "obtained")? == 0,
            "the tracker ordered another certificate after a restart"
        );
        ensure!(fs::read(self.certificate())? == kept, "the certificate changed with a restart");

        fs::write(
            self.folder.join("tidegate.toml"),
            self.configuration(&[HOST, "second.test"], ""),
        )?;
        tracker.reload()?;
        self.wait_for_attempts(&tracker, "obtained", 1)?;
        self.ask_host("second.test", true)?;
        self.ask_host(HOST, true)?;
        tracker.stop()?;

        pebble.call_back(&self.certificate())?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "obtained", 1)?;
        ensure!(
            fs::read(self.certificate())? != kept,
            "the certificate was not renewed, although the server suggested it"
        );
        self.ask_host(HOST, true)?;
        tracker.stop()
    }

    fn play_http(&self) -> Result<()> {
        let _dns = Dns::start(&self.folder, "127.0.0.1")?;
        let _pebble = Pebble::start(&self.folder, 90 * DAY_S)?;
        let more = "challenge = \"http-01\"\n[http]\nlisten = [\"0.0.0.0:80\"]\n";
        let tracker = self.start_tracker(&[HOST], more)?;
        self.wait_for_attempts(&tracker, "obtained", 1)?;
        self.ask_host(HOST, true)?;
        self.ask("http://127.0.0.1")?;
        tracker.stop()
    }

    fn play_renewal(&self) -> Result<()> {
        let _dns = Dns::start(&self.folder, "127.0.0.1")?;
        let pebble = Pebble::start(&self.folder, 30)?;
        let tracker = self.start_tracker(&[HOST], "")?;
        for obtained in 1..=3 {
            self.wait_for_attempts(&tracker, "obtained", obtained)?;
            self.ask_host(HOST, true)?;
        }
        pebble.kill()?;
        let before = attempts(&tracker, "unreachable")?;
        self.wait_for_attempts(&tracker, "unreachable", before + 2)?;
        ensure!(self.log()?.contains("status=\"the current certificate "), "not told");
        // The certificate may have expired by now; it is shown all the same.
        self.ask_host(HOST, false)?;
        self.ask("http://127.0.0.1:6969")?;
        // The new server knows neither our account nor the old root.
        let obtained = attempts(&tracker, "obtained")?;
        let _pebble = Pebble::start(&self.folder, 30)?;
        self.wait_for_attempts(&tracker, "obtained", obtained + 1)?;
        self.ask_host(HOST, true)?;
        ensure!(self.log()?.contains("no longer knows our account"), "the same account");
        tracker.stop()
    }

    fn play_refused(&self) -> Result<()> {
        // Nothing listens at that address.
        let _dns = Dns::start(&self.folder, "127.0.0.9")?;
        let _pebble = Pebble::start(&self.folder, 90 * DAY_S)?;
        let wrong = DIRECTORY.replace("/dir", "/nonsense");
        let tracker = self.start_tracker(&[HOST], &format!("directory = {wrong:?}\n"))?;
        let sentence =
            format!("{wrong} is not the directory of an ACME server (tls.acme.directory)");
        self.wait_for_log(&sentence)?;
        tracker.stop()?;
        let tracker = self.start_tracker(&[HOST], "")?;
        self.wait_for_attempts(&tracker, "refused", 1)?;
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
            "[tls]\nlisten = [\"127.0.0.1:443\"]\n[tls.acme]\ndomains = {domains:?}\nterms_of_service_agreed = true\n\
             contact = [\"ops@example.org\"]\ncache = {:?}\nca = {:?}\n{directory}{more}",
            place("cache"),
            place("ca.pem"),
        )
    }

    fn start_tracker(&self, domains: &[&str], more: &str) -> Result<Tracker> {
        Tracker::start(&self.folder, &self.configuration(domains, more))
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

    fn wait_for_attempts(&self, tracker: &Tracker, result: &str, count: u64) -> Result<()> {
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

fn attempts(tracker: &Tracker, result: &str) -> Result<u64> {
    tracker.metric("tidegate_acme_attempts_total", &[("result", result)])
}
