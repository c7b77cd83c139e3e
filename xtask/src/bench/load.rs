//! The load generators: packaged load testers, and tidegate's own for WebTorrent, pinned to core 1.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::subject::Subject;
use crate::command::output;
use crate::workspace::{release, root};

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// aquatic_udp_load_test by default: as many connects as announces, few scrapes.
    Udp,
    /// The same with announces only.
    UdpAnnounce,
    /// aquatic_http_load_test without TLS: 128 connections kept alive.
    Http,
    /// `tidegate load http`: a connection for each announce.
    HttpClose,
    /// `tidegate load ws`: 128 connections, 10 offers an announce, all of them answered.
    Ws,
    /// The same over TLS, beside the same without.
    Wss,
    /// `tidegate load http`: 64 connections kept alive, over TLS and without.
    Https,
    /// The same with a connection, and so a full handshake of TLS, for each announce.
    HttpsHandshake,
}

/// The results of a load.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    /// Messages to clients a second.
    pub(super) responses_s: f64,
    /// Duration of the load.
    pub(super) seconds: f64,
    /// The tracker's user and system time during the load, if the load tester measured it.
    pub(super) cpu_s: Option<(f64, f64)>,
}

impl Load {
    pub(super) fn parse(name: &str) -> Result<Self> {
        let all = [
            Self::Udp,
            Self::UdpAnnounce,
            Self::Http,
            Self::HttpClose,
            Self::Https,
            Self::HttpsHandshake,
            Self::Ws,
            Self::Wss,
        ];
        let found = all.into_iter().find(|load| load.name() == name);
        found.with_context(|| format!("unknown benchmark {name}: {NAMES}"))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::UdpAnnounce => "udp-announce",
            Self::Http => "http",
            Self::HttpClose => "http-close",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Https => "https",
            Self::HttpsHandshake => "https-handshake",
        }
    }

    /// Returns the subjects that support it. The first one is compared with the others.
    pub(super) fn subjects(self) -> &'static [Subject] {
        match self {
            Self::Udp | Self::UdpAnnounce => &[
                Subject::Tidegate,
                Subject::TidegateLimited,
                Subject::AquaticUdp,
                Subject::AquaticUdpUring,
            ],
            Self::Http | Self::HttpClose => &[Subject::Tidegate, Subject::AquaticHttp],
            Self::Ws => WEBSOCKET,
            Self::Wss => SECURE_WEBSOCKET,
            Self::Https => &[
                Subject::TidegateTls,
                Subject::Tidegate,
                Subject::AquaticHttpTls,
                Subject::HitchTidegate,
            ],
            Self::HttpsHandshake => {
                &[Subject::TidegateTls, Subject::AquaticHttpTls, Subject::HitchTidegate]
            }
        }
    }

    /// Runs it for `seconds` against a tracker in the process `pid`.
    pub(super) fn run(
        self,
        subject: Subject,
        pid: u32,
        testers: &Path,
        seconds: u32,
    ) -> Result<Seen> {
        let at = subject.address();
        match self {
            Self::Udp => aquatic(testers, "aquatic_udp_load_test", &udp(at, 50, seconds)),
            Self::UdpAnnounce => aquatic(testers, "aquatic_udp_load_test", &udp(at, 0, seconds)),
            Self::Http => aquatic(testers, "aquatic_http_load_test", &http(at, seconds)),
            Self::Https => announces(subject, seconds, &[]),
            Self::HttpClose | Self::HttpsHandshake => announces(subject, seconds, &["--close"]),
            Self::Ws | Self::Wss => {
                let text = output(websocket(subject, pid, seconds))?;
                let user_s = figure(&text, "tracker's user seconds:")?;
                let system_s = figure(&text, "tracker's system seconds:")?;
                Ok(Seen {
                    responses_s: figure(&text, "responses per second:")?,
                    seconds: figure(&text, "measured:")?,
                    cpu_s: Some((user_s, system_s)),
                })
            }
        }
    }
}

/// Subjects with WebTorrent.
pub(super) const WEBSOCKET: &[Subject] =
    &[Subject::Tidegate, Subject::AquaticWs, Subject::BittorrentTracker];

/// tidegate with TLS and without, which shows the cost of TLS.
pub(super) const SECURE_WEBSOCKET: &[Subject] = &[Subject::TidegateTls, Subject::Tidegate];

/// All benchmarks except `flood`.
pub(super) const NAMES: &str = "udp, udp-announce, http, http-close, https, https-handshake, ws, wss, ws-idle, wss-idle, udp-testers, \
     http-testers, wss-testers, latency, private, api";

/// Runs `tidegate load http` against a subject.
fn announces(subject: Subject, seconds: u32, options: &[&str]) -> Result<Seen> {
    let mut command = pinned();
    command.arg(release().join("tidegate")).args(["load", "http"]).arg(url(subject, "http"));
    command.args(["--warm-up", "0", "--seconds", &seconds.to_string()]).args(options);
    let text = output(command)?;
    Ok(Seen {
        responses_s: figure(&text, "responses per second:")?,
        seconds: figure(&text, "measured:")?,
        cpu_s: None,
    })
}

/// Returns the announce URL of a subject.
pub(super) fn url(subject: Subject, scheme: &str) -> String {
    let secure = if subject.is_secure() { "s" } else { "" };
    let path = if scheme == "http" { "announce" } else { "" };
    format!("{scheme}{secure}://{}/{path}", subject.address())
}

/// Returns the command of `tidegate load ws` against a subject.
pub(super) fn websocket(subject: Subject, pid: u32, seconds: u32) -> Command {
    let mut command = pinned();
    command.arg(release().join("tidegate")).args(["load", "ws"]);
    command.arg(url(subject, "ws"));
    command.args(["--seconds", &seconds.to_string(), "--pid", &pid.to_string()]);
    command
}

pub(super) fn udp(address: &str, connects: u32, seconds: u32) -> String {
    let scrapes = u32::from(connects > 0);
    format!(
        "server_address = \"{address}\"\nduration = {seconds}\nextra_statistics = false\n[requests]\n\
         weight_connect = {connects}\nweight_announce = 50\nweight_scrape = {scrapes}\n"
    )
}

pub(super) fn http(address: &str, seconds: u32) -> String {
    format!(
        "server_address = \"{address}\"\nduration = {seconds}\nenable_tls = false\nnum_connections = 128\n\
         connection_creation_interval_ms = 10\n"
    )
}

pub(super) fn aquatic(testers: &Path, program: &str, configuration: &str) -> Result<Seen> {
    let file = root().join("target/bench/load.toml");
    fs::write(&file, configuration)?;
    let mut command = pinned();
    command.arg(testers.join(program)).arg("-c").arg(&file);
    let text = output(command)?;
    averages(&text, "Average responses per second:", "Test ran for")
}

/// Returns the last values after the two labels.
pub(super) fn averages(text: &str, rate: &str, duration: &str) -> Result<Seen> {
    let (responses_s, seconds) = (figure(text, rate)?, figure(text, duration)?);
    Ok(Seen { responses_s, seconds, cpu_s: None })
}

/// Returns the last value after a label. Fails if it is 0, because nothing was measured then.
pub(super) fn figure(text: &str, label: &str) -> Result<f64> {
    let rest = text.lines().rev().find_map(|line| line.trim().strip_prefix(label));
    match rest.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()) {
        Some(figure) if figure > 0.0 => Ok(figure),
        _ => bail!("no value after `{label}` in the load tester's output:\n{text}"),
    }
}

/// Returns the first value of that name in a line of JSON.
pub(super) fn json_figure(json: &str, name: &str) -> Result<f64> {
    let figure = json.split_once(&format!("\"{name}\":"));
    let figure = figure.and_then(|(_, rest)| rest.split([',', '}']).next()?.parse().ok());
    figure.with_context(|| format!("no {name} in {json}"))
}

pub(super) fn pinned() -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "1"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_testers_print() {
        let text = "# aquatic load test report\n\nTest ran for 10 seconds \n\
                    Average responses per second: 1234.50\n  - Connect responses:  1.00\n";
        let read = averages(text, "Average responses per second:", "Test ran for").unwrap();
        assert_eq!((read.responses_s, read.seconds), (1234.5, 10.0));
        assert!(averages("nothing", "Average", "Test").is_err());
    }
}
