//! `tidegate scrape`: the statistics of torrents.

use std::time::Instant;

use clap::Args;
use client::{ScrapeStats, Session, SessionConfig, TrackerError, counted};
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
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        let targets = cli::targets(&self.words)?;
        let config = self.connect.session_config()?;
        let mut is_well = true;
        for target in &targets {
            let start = Instant::now();
            let answer = self.ask(target, &config);
            let took = cli::milliseconds(start.elapsed());
            is_well &= answer.as_ref().is_ok_and(|all| all.iter().all(Option::is_some));
            if !self.report(target, took, &answer)? {
                break;
            }
        }
        Ok(is_well)
    }

    fn ask(
        &self,
        target: &Target,
        config: &SessionConfig,
    ) -> Result<Vec<Option<ScrapeStats>>, TrackerError> {
        let (mut session, _) = Session::connect(&target.url, self.connect.family(), config)?;
        session.scrape(&target.hashes)
    }

    fn report(
        &self,
        target: &Target,
        took: f64,
        answer: &Result<Vec<Option<ScrapeStats>>, TrackerError>,
    ) -> Result<bool, UsageError> {
        let Target { url, hashes, .. } = target;
        let url = url.to_string();
        let text = match answer {
            Ok(all) if self.connect.json => {
                let files: Vec<_> =
                    hashes.iter().zip(all).map(|(hash, it)| file(hash, *it)).collect();
                format!("{}\n", json!({ "tracker": url, "ms": took, "files": files }))
            }
            Ok(all) => {
                let lines = hashes.iter().zip(all).map(|(hash, it)| line(hash, *it));
                format!("{url}: response in {took} ms\n{}", lines.collect::<String>())
            }
            Err(error) if self.connect.json => {
                let error = cli::error_json(error);
                format!("{}\n", json!({ "tracker": url, "ms": took, "error": error }))
            }
            Err(error) => {
                cli::print_error(format_args!("{url}: {}", cli::error_text(error)));
                String::new()
            }
        };
        cli::print(&text)
    }
}

fn file(hash: &InfoHash, stats: Option<ScrapeStats>) -> serde_json::Value {
    let hash = hash.to_string();
    match stats {
        Some(ScrapeStats { seeders, downloads, leechers }) => json!({
            "info_hash": hash, "seeders": seeders, "downloads": downloads, "leechers": leechers,
        }),
        None => json!({ "info_hash": hash, "missing": true }),
    }
}

fn line(hash: &InfoHash, stats: Option<ScrapeStats>) -> String {
    let Some(ScrapeStats { seeders, downloads, leechers }) = stats else {
        return format!("  {hash}  not in the response\n");
    };
    let seeders = counted(Some(seeders), "seeder");
    let leechers = counted(Some(leechers), "leecher");
    let downloads = counted(downloads, "download");
    format!("  {hash}  {seeders}, {leechers}, {downloads}\n")
}
