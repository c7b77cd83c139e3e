//! `tidegate scrape`: the statistics of torrents.

use std::fmt::Write as _;
use std::time::Instant;

use clap::Args;
use client::{Fault, Figures, Manner, Session};
use serde_json::json;
use types::InfoHash;

use crate::cli::{self, ConnectArgs, Target, UsageError};

/// Ask any tracker for the number of seeders, leechers and downloads of torrents.
///
/// Prints one torrent per line. Exit code 1 if a tracker leaves out a torrent.
#[derive(Args)]
#[command(override_usage = "tidegate scrape [OPTIONS] [URL] TORRENT...")]
pub(crate) struct Scrape {
    /// The tracker's announce URL (udp, http, https, ws, wss), then torrents: info hashes of 40 or 64 hex
    /// digits, .torrent files, magnet links. Without a URL, or with `-`, the trackers of each torrent are
    /// asked.
    #[arg(required = true, value_name = "[URL] TORRENT...", hide_possible_values = true)]
    words: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

impl Scrape {
    /// Scrapes, and prints the responses. Returns false if any tracker failed.
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        let targets = cli::targets(&self.words)?;
        let manner = self.connect.manner()?;
        let mut is_well = true;
        for target in &targets {
            let start = Instant::now();
            let answer = self.ask(target, &manner);
            let took = cli::milliseconds(start.elapsed());
            is_well &= answer.as_ref().is_ok_and(|all| all.iter().all(Option::is_some));
            if !self.report(target, took, &answer)? {
                break;
            }
        }
        Ok(is_well)
    }

    fn ask(&self, target: &Target, manner: &Manner) -> Result<Vec<Option<Figures>>, Fault> {
        let (mut session, _) = Session::reach(&target.url, self.connect.family(), manner)?;
        session.scrape(&target.hashes)
    }

    fn report(
        &self,
        target: &Target,
        took: f64,
        answer: &Result<Vec<Option<Figures>>, Fault>,
    ) -> Result<bool, UsageError> {
        let Target { url, hashes, .. } = target;
        let (url, mut text) = (url.to_string(), String::new());
        match answer {
            Ok(all) if self.connect.json => {
                let files: Vec<_> =
                    hashes.iter().zip(all).map(|(hash, it)| file(hash, *it)).collect();
                let line = json!({ "tracker": url, "ms": took, "files": files });
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{line}");
            }
            Ok(all) => {
                let _ = writeln!(text, "{url}: response in {took} ms");
                for (hash, figures) in hashes.iter().zip(all) {
                    let _ = writeln!(text, "  {hash}  {}", line(*figures));
                }
            }
            Err(fault) if self.connect.json => {
                let line = json!({ "tracker": url, "ms": took, "error": cli::fault_json(fault) });
                let _ = writeln!(text, "{line}");
            }
            Err(fault) => cli::print_error(format_args!("{url}: {}", cli::fault_text(fault))),
        }
        cli::print(&text)
    }
}

fn file(hash: &InfoHash, figures: Option<Figures>) -> serde_json::Value {
    let hash = hash.to_string();
    match figures {
        Some(Figures { seeders, downloads, leechers }) => json!({
            "info_hash": hash, "seeders": seeders, "downloads": downloads, "leechers": leechers,
        }),
        None => json!({ "info_hash": hash, "missing": true }),
    }
}

fn line(figures: Option<Figures>) -> String {
    let Some(Figures { seeders, downloads, leechers }) = figures else {
        return "not in the response".into();
    };
    let downloads = downloads.map_or_else(|| "?".into(), |it| it.to_string());
    format!("{seeders} seeders, {leechers} leechers, {downloads} downloads")
}
