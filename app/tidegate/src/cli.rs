//! Code shared by the client commands `announce`, `scrape` and `check`: options for reaching trackers, selection of
//! torrents, output and exit codes.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use client::tls::{self, Trust};
use client::{FailureKind, SessionConfig, Torrent, TrackerError, Url};
use config::escaped;
use rustls::RootCertStore;
use serde_json::{Value, json};
use types::{Family, InfoHash};

/// Options for reaching trackers and printing their responses.
#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// Timeout of each response.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// Use only IPv4.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use only IPv6.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// PEM file with additional trusted CAs.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Skip certificate verification (insecure).
    #[arg(long, conflicts_with = "ca")]
    no_verify: bool,
    /// Print JSON objects, one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ConnectArgs {
    pub(crate) fn session_config(&self) -> Result<SessionConfig, UsageError> {
        let trust = match self.authorities()? {
            Some(authorities) => Trust::Roots(authorities),
            None => Trust::AnyCertificate,
        };
        let tls = tls::config(&trust).map_err(|error| UsageError(error.to_string()))?;
        Ok(SessionConfig::new(self.timeout(), Arc::new(tls)))
    }

    pub(crate) fn authorities(&self) -> Result<Option<Arc<RootCertStore>>, UsageError> {
        if self.no_verify {
            return Ok(None);
        }
        let authorities = tls::authorities(self.ca.as_deref());
        authorities.map(|it| Some(Arc::new(it))).map_err(|bad| UsageError(format!("--ca: {bad}")))
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    pub(crate) fn family(&self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::V4),
            (_, true) => Some(Family::V6),
            _ => None,
        }
    }
}

/// The arguments make no sense. A sentence.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

/// Returns the exit code of a command: 0 = success, 1 = failure, 2 = invalid arguments, whose error it prints.
pub(crate) fn exit(done: Result<bool, UsageError>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(UsageError(text)) => {
            print_error(text);
            ExitCode::from(2)
        }
    }
}

/// Prints an error to standard error. If that is closed, only the exit code tells.
pub(crate) fn print_error(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "tidegate: {text}");
}

/// Prints to standard output. Returns false if the reader is gone, e.g. `head`.
pub(crate) fn print(text: &dyn fmt::Display) -> Result<bool, UsageError> {
    let mut out = io::stdout();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(UsageError(format!("cannot print: {error}"))),
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) hashes: Vec<InfoHash>,
    /// The length of the torrent in bytes, if there is only one and it is known.
    pub(crate) length: Option<u64>,
}

/// Parses `[URL|-] TORRENT…`. Without a URL, the targets are each torrent's own trackers.
pub(crate) fn targets(words: &[String]) -> Result<Vec<Target>, UsageError> {
    let (url, torrents) = match words {
        [dash, torrents @ ..] if dash == "-" => (None, torrents),
        [url, torrents @ ..] if url.contains("://") && !url.starts_with("magnet:") => {
            (Some(url), torrents)
        }
        torrents => (None, torrents),
    };
    let url =
        url.map(|url| Url::parse(url)).transpose().map_err(|bad| UsageError(bad.to_string()))?;
    if torrents.is_empty() {
        return Err(UsageError(
            "missing torrent: expected an info hash, a .torrent file or a magnet link".into(),
        ));
    }
    let read = |text: &String| Torrent::read(text).map_err(|bad| UsageError(bad.to_string()));
    let read: Vec<Torrent> = torrents.iter().map(read).collect::<Result<_, _>>()?;
    if let Some(url) = url {
        let hashes = read.iter().flat_map(|it| it.hashes.iter().copied()).collect();
        let length = if let [only] = read.as_slice() { only.length } else { None };
        return Ok(vec![Target { url, hashes, length }]);
    }
    let mut targets = Vec::new();
    for (text, torrent) in torrents.iter().zip(read) {
        let before = targets.len();
        for url in &torrent.trackers {
            match Url::parse(url) {
                Ok(url) => targets.push(Target {
                    url,
                    hashes: torrent.hashes.clone(),
                    length: torrent.length,
                }),
                Err(bad) => print_error(format_args!("{text}: skipped a tracker: {bad}")),
            }
        }
        if targets.len() == before {
            return Err(UsageError(format!(
                "{text}: names no tracker: give the tracker's URL first"
            )));
        }
    }
    Ok(targets)
}

pub(crate) fn error_json(error: &TrackerError) -> Value {
    json!({ "kind": error.kind.label(), "text": error.text })
}

pub(crate) fn error_text(error: &TrackerError) -> String {
    let text = printable(&error.text);
    match error.kind {
        FailureKind::Refused => format!("refused: {text}"),
        FailureKind::Tls if text.ends_with("unknown authority") => {
            format!("{text}: if you trust it, pass its certificate with --ca FILE")
        }
        FailureKind::Tls if text.ends_with("does not use TLS on this port") => {
            format!("{text}: try http:// or ws://")
        }
        _ => text,
    }
}

/// Escapes control characters in text from a remote host, and truncates it.
pub(crate) fn printable(text: &str) -> String {
    let mut plain = escaped(&text.chars().take(TEXT_MAX).collect::<String>());
    if text.chars().nth(TEXT_MAX).is_some() {
        plain.push('…');
    }
    plain
}

const TEXT_MAX: usize = 500;

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Vec<(String, usize, Option<u64>)>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let all = targets(&words).map_err(|UsageError(text)| text)?;
        Ok(all.into_iter().map(|it| (it.url.to_string(), it.hashes.len(), it.length)).collect())
    }

    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn parses_url_before_torrents() {
        let url = "udp://127.0.0.1:1/a";
        let one = |hashes, length| Ok(vec![(url.to_owned(), hashes, length)]);
        assert_eq!(parsed(&[url, HASH]), one(1, None));
        assert_eq!(parsed(&[url, HASH, HASH]), one(2, None));
        let magnet =
            format!("magnet:?xt=urn:btih:{HASH}&xl=7&tr=ws://h&tr=udp%3A%2F%2F127.0.0.1%3A1%2Fa");
        assert_eq!(parsed(&[url, &magnet]), one(1, Some(7)));
        assert_eq!(parsed(&[url, &magnet, HASH]), one(2, None));
        let own =
            [("ws://h/", 1, Some(7)), (url, 1, Some(7))].map(|(a, b, c)| (a.to_owned(), b, c));
        let plain = magnet.replace("ws://h", "ws%3A//h");
        assert_eq!(parsed(&["-", &magnet]), Ok(own.to_vec()));
        assert_eq!(parsed(&[&plain]), Ok(own.to_vec()));
    }

    #[test]
    fn escapes_control_characters() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("grün"), "grün");
        let long = printable(&"x".repeat(TEXT_MAX + 1));
        assert_eq!(long.len(), TEXT_MAX + "…".len());
    }
}
