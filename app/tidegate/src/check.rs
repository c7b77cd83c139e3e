//! `tidegate check`: checks trackers, once or periodically.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use client::tls::{self, Trust};
use client::{CheckItem, CheckOptions, CheckReport, Torrent, Url, Verdict};
use serde_json::{Value, json};

use crate::cli::{self, ConnectArgs, UsageError, printable};
use crate::dates;

/// Check that a tracker works correctly.
///
/// At each of its addresses, everything is checked that clients depend on. Two simulated clients announce a random torrent and leave again. Exit code: 0 = no check failed,
/// 1 = at least one failed, 2 = invalid arguments.
#[derive(Args)]
pub(crate) struct Check {
    /// Announce URLs: udp, http, https, ws, wss.
    #[arg(required_unless_present = "file", value_name = "URL")]
    urls: Vec<String>,
    /// File with more announce URLs, one per line; # starts a comment.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Check again every SECONDS until stopped, and print only changes.
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..))]
    watch: Option<u32>,
    /// Print only trackers with failed checks (for cron).
    #[arg(long, short)]
    quiet: bool,
    /// Announce this torrent (info hash, .torrent file or magnet link) instead of a random one, for trackers
    /// that serve only their own torrents.
    #[arg(long, value_name = "TORRENT")]
    torrent: Option<String>,
    /// Warn if a certificate expires within DAYS.
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    expiry_days: u32,
    /// Also try an invalid connection id. Some trackers block addresses that do this often.
    #[arg(long)]
    thorough: bool,
    /// Look up the host's TXT record (BEP 34) at this DNS server instead of those of /etc/resolv.conf.
    #[arg(long, value_name = "ADDRESS", value_parser = dns_server)]
    resolver: Option<SocketAddr>,
    #[command(flatten)]
    connect: ConnectArgs,
}

const PARALLEL_MAX: usize = 16;

/// The verdicts of the previous round, by URL.
type LastVerdicts = HashMap<String, Vec<(&'static str, Option<SocketAddr>, Verdict)>>;

#[derive(Default)]
struct Round {
    failed: usize,
    is_unread: bool,
}

impl Check {
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        let urls = self.urls()?;
        let options = self.options()?;
        let mut last = LastVerdicts::new();
        loop {
            let start = Instant::now();
            let round = self.round(&urls, &options, &mut last)?;
            let Some(pause) = self.watch.filter(|_| !round.is_unread) else {
                return Ok(round.failed == 0);
            };
            let pause = Duration::from_secs(pause.into());
            thread::sleep(pause.saturating_sub(start.elapsed()));
        }
    }

    fn round(
        &self,
        urls: &[Url],
        options: &CheckOptions,
        last: &mut LastVerdicts,
    ) -> Result<Round, UsageError> {
        let (mut round, mut printed) = (Round::default(), Ok(true));
        check_all(urls, options, |report| {
            round.failed += usize::from(report.verdict() == Verdict::Failed);
            let text = self.rendered(&report, last);
            if let Ok(true) = printed {
                printed = cli::print(&text);
            }
        });
        if self.watch.is_some() && !self.connect.json && !self.quiet && matches!(printed, Ok(true))
        {
            let line = format!(
                "{}: {} of {} failed\n",
                dates::utc(dates::now()),
                round.failed,
                urls.len()
            );
            printed = cli::print(&line);
        }
        round.is_unread = !printed?;
        Ok(round)
    }

    fn rendered(&self, report: &CheckReport, last: &mut LastVerdicts) -> String {
        let verdicts = report.items.iter().map(|it| (it.name, it.address, it.verdict)).collect();
        let before = last.insert(report.url.clone(), verdicts);
        let is_changed = before.as_ref() != last.get(&report.url);
        let had_failed = before.is_some_and(|it| it.iter().any(|it| it.2 == Verdict::Failed));
        let has_failed = report.verdict() == Verdict::Failed;
        if self.quiet && !has_failed && !had_failed {
            return String::new();
        }
        if self.connect.json {
            return format!("{}\n", json(report));
        }
        if is_changed { text(report) } else { String::new() }
    }

    fn urls(&self) -> Result<Vec<Url>, UsageError> {
        let given = self.urls.iter().map(|url| Url::parse(url).map_err(|bad| bad.to_string()));
        let mut urls = given.collect::<Result<Vec<Url>, String>>().map_err(UsageError)?;
        if let Some(file) = &self.file {
            urls.extend(listed(file).map_err(UsageError)?);
        }
        Ok(urls)
    }

    fn options(&self) -> Result<CheckOptions, UsageError> {
        let torrent = match &self.torrent {
            Some(text) => {
                let read = Torrent::read(text);
                let read = read.map_err(|bad| UsageError(format!("--torrent: {bad}")))?;
                read.hashes.first().copied()
            }
            None => None,
        };
        // The check verifies certificates itself, to report what is wrong with them.
        let tls =
            tls::config(&Trust::AnyCertificate).map_err(|error| UsageError(error.to_string()))?;
        Ok(CheckOptions {
            timeout: self.connect.timeout(),
            tls: Arc::new(tls),
            authorities: self.connect.authorities()?,
            expiry_days: self.expiry_days,
            torrent,
            family: self.connect.family(),
            thorough: self.thorough,
            dns_server: self.resolver,
        })
    }
}

fn dns_server(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>().ok();
    let address = with_port.or_else(|| Some((text.parse::<IpAddr>().ok()?, 53).into()));
    address.ok_or_else(|| "expected an IP address, or one with a port".to_owned())
}

fn listed(file: &Path) -> Result<Vec<Url>, String> {
    let name = file.display();
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("cannot read {name}: {error}"))?;
    let mut urls = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        // A # within a URL would start a fragment, which is never sent.
        let url = text.split_once('#').map_or(text, |(url, _)| url).trim();
        if !url.is_empty() {
            urls.push(Url::parse(url).map_err(|bad| format!("{name}:{line}: {bad}"))?);
        }
    }
    if urls.is_empty() {
        return Err(format!("{name}: expected at least one announce URL"));
    }
    Ok(urls)
}

/// Passes a report of each tracker to `give`, in order. Checks some at a time.
fn check_all(urls: &[Url], options: &CheckOptions, mut give: impl FnMut(CheckReport)) {
    for some in urls.chunks(PARALLEL_MAX) {
        thread::scope(|scope| {
            let checks = some.iter().map(|url| scope.spawn(|| client::check(url, options)));
            let checks: Vec<_> = checks.collect();
            for check in checks {
                give(check.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        });
    }
}

fn json(report: &CheckReport) -> Value {
    let item = |item: &CheckItem| {
        json!({
            "item": item.name,
            "address": item.address,
            "verdict": item.verdict.label(),
            "text": item.text,
        })
    };
    json!({
        "url": report.url,
        "verdict": report.verdict().label(),
        "at": dates::utc(dates::now()),
        "ms": cli::milliseconds(report.took),
        "items": report.items.iter().map(item).collect::<Vec<_>>(),
    })
}

fn text(report: &CheckReport) -> String {
    let mut text = format!("{}: {}\n", report.url, report.verdict());
    let mut address = None;
    for item in &report.items {
        if item.address != address {
            address = item.address;
            text.extend(address.map(|address| format!("  at {address}\n")));
        }
        let (verdict, name) = (item.verdict, item.name);
        text += &format!("  {verdict:<7}  {name:<13}  {}\n", printable(&item.text));
    }
    text
}
