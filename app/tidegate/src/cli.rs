//! What `tidegate announce`, `scrape` and `check` have in common: how trackers are reached, which
//! torrents are meant, and how it ends.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, value_parser};
use client::tls::{self, Trust};
use client::{Fault, Kind, Manner, Torrent, Url};
use rustls::RootCertStore;
use serde_json::{Value, json};
use types::{Family, InfoHash};

/// How trackers are reached.
#[derive(Args)]
pub(crate) struct ConnectArgs {
    /// How long each answer is waited for.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = value_parser!(u32).range(1..=3600))]
    timeout: u32,
    /// Only IPv4 addresses.
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6 addresses.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// PEM file of authorities that are believed besides those that browsers trust.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Believe every certificate.
    #[arg(long, conflicts_with = "ca")]
    no_verify: bool,
    /// Print JSON objects, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ConnectArgs {
    /// The same for sessions.
    pub(crate) fn manner(&self) -> Result<Manner, UsageError> {
        let trust = match self.authorities()? {
            Some(authorities) => Trust::Authorities(authorities),
            None => Trust::KeyHolder,
        };
        let tls = tls::config(&trust).map_err(|error| UsageError(error.to_string()))?;
        Ok(Manner::new(self.timeout(), Arc::new(tls)))
    }

    /// Who is believed; nothing: everybody.
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

/// The command makes no sense as it was given: a sentence.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

/// How a command ends: 0 if all was well, 1 if something was not, 2 if it was not understood.
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

/// Says what is wrong. Standard error is the last resort; if it is closed, the exit code still tells.
pub(crate) fn print_error(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "tidegate: {text}");
}

/// Prints, and says whether anybody still reads: `head` may have seen enough.
pub(crate) fn print(text: &dyn fmt::Display) -> Result<bool, UsageError> {
    let mut out = io::stdout();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(UsageError(format!("cannot print: {error}"))),
    }
}

/// A tracker, and the torrents that it is asked about.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) hashes: Vec<InfoHash>,
    /// Bytes of the torrent, if there is only one and they are known.
    pub(crate) length: Option<u64>,
}

/// Reads `[URL|-] TORRENT…`. Without a URL, each torrent's own trackers are meant.
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
            "which torrent? A hash, a .torrent file or a magnet link is due".into(),
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
                Err(bad) => print_error(format_args!("{text}: a tracker is passed over: {bad}")),
            }
        }
        if targets.len() == before {
            return Err(UsageError(format!("{text}: it names no tracker: say which")));
        }
    }
    Ok(targets)
}

/// A fault, for programs.
pub(crate) fn fault_json(fault: &Fault) -> Value {
    json!({ "kind": fault.kind.word(), "text": fault.text })
}

/// A fault, for people.
pub(crate) fn fault_text(fault: &Fault) -> String {
    let text = printable(&fault.text);
    match fault.kind {
        Kind::Refused => format!("refused: {text}"),
        _ => text,
    }
}

/// What a stranger says, without what a terminal would take for a command, and not without end.
pub(crate) fn printable(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars().take(TEXT_MAX) {
        if character.is_control() {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    if text.chars().nth(TEXT_MAX).is_some() {
        plain.push('…');
    }
    plain
}

/// Characters of a stranger's text.
const TEXT_MAX: usize = 500;

/// Thousandths of a second, with a tenth of them.
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
    fn a_url_goes_before_the_torrents() {
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
    fn what_is_missing_is_told() {
        for (words, why) in [
            (["udp://h:1"].as_slice(), "which torrent?"),
            (&["-"], "which torrent?"),
            (&[HASH], "it names no tracker"),
            (&["gopher://h", HASH], "its scheme is none"),
            (&["udp://h:1", "abc"], "abc: no torrent"),
        ] {
            let error = parsed(words).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn strangers_say_nothing_to_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("grün"), "grün");
        let long = printable(&"x".repeat(TEXT_MAX + 1));
        assert_eq!(long.len(), TEXT_MAX + "…".len());
    }
}
