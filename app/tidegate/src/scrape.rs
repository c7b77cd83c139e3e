//! `tidegate scrape`: the figures of torrents.

use std::fmt::Write as _;
use std::time::Instant;

use clap::Args;
use client::{Fault, Figures, Manner, Session};
use serde_json::json;
use types::InfoHash;

use crate::ask::{self, Question, Way, WrongUse};

/// The figures are printed one torrent a line. A torrent that the tracker does not speak of is an error.
#[derive(Args)]
#[command(override_usage = "tidegate scrape [OPTIONS] [URL] TORRENT...")]
pub(crate) struct Scrape {
    /// The tracker's announce URL (udp, http, https, ws, wss), without which, or with `-`, the torrents'
    /// own trackers are asked; then torrents: hashes of 40 or 64 digits, .torrent files, magnet links.
    #[arg(required = true, value_name = "[URL] TORRENT...", hide_possible_values = true)]
    words: Vec<String>,
    #[command(flatten)]
    way: Way,
}

impl Scrape {
    /// Asks, and prints. False if something went wrong at a tracker.
    pub(crate) fn run(&self) -> Result<bool, WrongUse> {
        let questions = ask::questions(&self.words)?;
        let manner = self.way.manner()?;
        let mut is_well = true;
        for question in &questions {
            let start = Instant::now();
            let answer = self.ask(question, &manner);
            let took = ask::milliseconds(start.elapsed());
            is_well &= answer.as_ref().is_ok_and(|all| all.iter().all(Option::is_some));
            if !self.report(question, took, &answer)? {
                break;
            }
        }
        Ok(is_well)
    }

    fn ask(&self, question: &Question, manner: &Manner) -> Result<Vec<Option<Figures>>, Fault> {
        let (mut session, _) = Session::reach(&question.url, self.way.family(), manner)?;
        session.scrape(&question.hashes)
    }

    fn report(
        &self,
        question: &Question,
        took: f64,
        answer: &Result<Vec<Option<Figures>>, Fault>,
    ) -> Result<bool, WrongUse> {
        let Question { url, hashes, .. } = question;
        let (url, mut text) = (url.to_string(), String::new());
        match answer {
            Ok(all) if self.way.json => {
                let files: Vec<_> =
                    hashes.iter().zip(all).map(|(hash, it)| file(hash, *it)).collect();
                let line = json!({ "tracker": url, "ms": took, "files": files });
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{line}");
            }
            Ok(all) => {
                let _ = writeln!(text, "{url}: in {took} ms");
                for (hash, figures) in hashes.iter().zip(all) {
                    let _ = writeln!(text, "  {hash}  {}", line(*figures));
                }
            }
            Err(fault) if self.way.json => {
                let line = json!({ "tracker": url, "ms": took, "error": ask::fault_json(fault) });
                let _ = writeln!(text, "{line}");
            }
            Err(fault) => ask::complain(format_args!("{url}: {}", ask::fault_text(fault))),
        }
        ask::print(&text)
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
        return "the tracker says nothing of it".into();
    };
    let downloads = downloads.map_or_else(|| "?".into(), |it| it.to_string());
    format!("{seeders} seeders, {leechers} leechers, {downloads} downloads")
}
