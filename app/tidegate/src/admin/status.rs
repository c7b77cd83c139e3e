//! Commands about the tracker as a whole: how it is, upgrades, and where its peers are.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::error::ApiError;
use super::table::{Column, Format, column, lines, plain, span};
use super::{Session, items_of};

#[derive(Args)]
pub(super) struct StatusArgs {
    /// Print nothing if all is well (for cron).
    #[arg(long, short)]
    quiet: bool,
}

const WELL: [&str; 2] = ["ok", "info"];

impl StatusArgs {
    /// Prints how the tracker is, and fails if something needs attention.
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        let status = session.api.request("GET /status", None)?;
        let is_well = status["level"].as_str().is_some_and(|level| WELL.contains(&level));
        if !(self.quiet && is_well) {
            session.print_value(&status, text)?;
        }
        if is_well {
            return Ok(());
        }
        let (url, headline) = (session.api.url(), headline(&status));
        Err(ApiError::Failed(format!("{url}: {headline}")))
    }
}

/// Returns the level in the words of the dashboard.
fn headline(status: &Value) -> &'static str {
    match status["level"].as_str() {
        Some("ok" | "info") => "all is well",
        Some("warning") => "needs attention",
        _ => "something is wrong",
    }
}

fn text(status: &Value) -> String {
    let up = status["uptime_s"].as_f64().unwrap_or_default() as u64;
    let (version, up) = (plain(&status["version"]), span(up));
    let mut text = format!("tidegate {version}, up for {up}: {}\n", headline(status));
    for item in status["health"].as_array().into_iter().flatten() {
        text += &format!("{}: {}\n", plain(&item["level"]), plain(&item["text"]));
        if item["remedy"].is_string() {
            text += &format!("  {}\n", plain(&item["remedy"]));
        }
    }
    text
}

/// The time after which a new process counts as failed. Lists of millions of hashes take seconds.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(300);
const UPGRADE_POLL: Duration = Duration::from_millis(500);
const UPGRADE_FAILED: &str = "upgrade failed";

pub(super) fn upgrade(session: &Session) -> Result<(), ApiError> {
    let mut read = 0;
    new_lines(session, &mut read);
    let begun = Instant::now();
    session.api.request("POST /process/upgrade", None)?;
    while begun.elapsed() < UPGRADE_TIMEOUT {
        thread::sleep(UPGRADE_POLL);
        // Fails while the connections of the old process end.
        let Ok(status) = session.api.request("GET /status", None) else { continue };
        // The old process started before.
        let uptime_s = status["uptime_s"].as_f64().unwrap_or(f64::INFINITY);
        if uptime_s < begun.elapsed().as_secs_f64() {
            return session.print_value(&status, |status| {
                format!("Upgraded: tidegate {} serves\n", plain(&status["version"]))
            });
        }
        let failed = |line: &String| line.starts_with(UPGRADE_FAILED);
        if let Some(line) = new_lines(session, &mut read).into_iter().find(failed) {
            return Err(ApiError::Failed(line));
        }
    }
    let (url, seconds) = (session.api.url(), UPGRADE_TIMEOUT.as_secs());
    Err(ApiError::Failed(format!("{url}: no new process serves after {seconds} s")))
}

/// Returns the lines of the log after the one with the id `last`, and sets that. A token without `config:read` finds none.
fn new_lines(session: &Session, last: &mut u64) -> Vec<String> {
    let log = session.api.request(&format!("GET /log?after={last}"), None).unwrap_or_default();
    let lines = log["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = lines.iter().filter_map(|line| line["id"].as_u64());
    *last = ids.max().unwrap_or(*last);
    lines.iter().map(|line| plain(&line["message"])).collect()
}

const SYSTEMS: &[Column] = &[
    column("peers", "/peers", Format::Count),
    column("system", "/asn", Format::Count),
    column("name", "/name", Format::Text),
];

const COUNTRIES: &[Column] =
    &[column("peers", "/peers", Format::Count), column("country", "/country", Format::Text)];

pub(super) fn networks(session: &Session) -> Result<(), ApiError> {
    let networks = session.api.request("GET /stats/networks", None)?;
    if session.json {
        return session.print_value(&networks, lines);
    }
    for problem in networks["problems"].as_array().into_iter().flatten() {
        crate::cli::print_error(plain(problem));
    }
    if items_of(&networks, "files")?.is_empty() {
        let text = "no file says where networks belong: set geo.asn and geo.country";
        return Err(ApiError::Failed(text.into()));
    }
    let mut text = String::new();
    for (of, columns) in [("systems", SYSTEMS), ("countries", COUNTRIES)] {
        let mut table = super::Table::new(columns);
        items_of(&networks, of)?.iter().for_each(|item| table.add(item));
        text += &table.drain();
        text.push('\n');
    }
    session.print(&text.trim_end_matches('\n'))?;
    session.print(&"\n")
}
