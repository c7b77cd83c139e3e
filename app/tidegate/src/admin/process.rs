//! Commands about the process: listeners, configuration, log and certificates.

use std::thread;
use std::time::Duration;

use admin::LogLevels;
use clap::Subcommand;
use serde_json::{Map, Value, json};

use super::error::ApiError;
use super::table::{Column, Format, column, date, lines, plain};
use super::{Session, items_of};
use crate::cli::printable;

pub(super) const LISTENERS: &[Column] = &[
    column("protocol", "/protocol", Format::Text),
    column("address", "/address", Format::Text),
    column("mode", "/mode", Format::Text),
    column("requests", "/traffic/requests", Format::Count),
    column("responses", "/traffic/responses", Format::Count),
    column("refusals", "/traffic/refusals", Format::Count),
    column("drops", "/traffic/drops", Format::Count),
    column("connections", "/traffic/connections_open", Format::Count),
    column("received", "/traffic/bytes_in", Format::Bytes),
    column("sent", "/traffic/bytes_out", Format::Bytes),
];

pub(super) const CLIENTS: &[Column] = &[
    column("samples", "/samples", Format::Count),
    column("peer id", "/prefix", Format::Text),
    column("client", "/name", Format::Text),
    column("version", "/version", Format::Text),
];

const CERTIFICATES: &[Column] =
    &[column("expires", "/expires", Format::Date), column("name", "/name", Format::Text)];

pub(super) fn health(session: &Session) -> Result<(), ApiError> {
    let health = session.api.request("GET /health", None)?;
    session.print_value(&health, lines)?;
    if health["ready"] == true && health["records"] == true {
        return Ok(());
    }
    Err(ApiError::Failed(format!("{}: the tracker does not serve", session.api.url())))
}

#[derive(Subcommand)]
pub(super) enum ConfigCommand {
    /// Show every key with its value, and where the value comes from.
    Show,
    /// Reload configuration and lists. If there is a mistake, nothing changes.
    Reload,
    /// Set reloadable keys, e.g. tracker.interval_s=900. They override file and environment until they are
    /// unset.
    Set {
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, Value)>,
    },
    /// Remove values that were set with `set`.
    Unset {
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
}

/// Parses a setting. Anything that is not JSON is a string.
fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() || value == "null" {
        return Err("expected KEY=VALUE; to remove a value, use `config unset KEY`".into());
    }
    Ok((key.into(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

impl ConfigCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::Show => show(session),
            Self::Reload => {
                session.print_value(&session.api.request("POST /config/reload", None)?, reloaded)
            }
            Self::Set { settings } => change(session, settings.iter().cloned().collect()),
            Self::Unset { keys } => {
                change(session, keys.iter().map(|key| (key.clone(), Value::Null)).collect())
            }
        }
    }
}

fn show(session: &Session) -> Result<(), ApiError> {
    let all = session.api.request("GET /config", None)?;
    let mut text = String::new();
    for setting in items_of(&all, "settings")? {
        text += &if session.json {
            format!("{setting}\n")
        } else {
            let (name, origin) = (plain(&setting["name"]), plain(&setting["origin"]));
            format!("{name} = {}  # {origin}\n", printable(&setting["value"].to_string()))
        };
    }
    session.print(&text)
}

fn change(session: &Session, body: Map<String, Value>) -> Result<(), ApiError> {
    let done = session.api.request("PATCH /config", Some(&body.into()))?;
    session.print_value(&done, reloaded)
}

fn reloaded(outcome: &Value) -> String {
    let names = |which: &str| outcome[which].as_array().is_some_and(|names| !names.is_empty());
    let mut text = match names("changed") {
        true => format!("Changed: {}\n", plain(&outcome["changed"])),
        false => "Nothing has changed\n".into(),
    };
    if names("needs_restart") {
        text += &format!("Needs a restart: {}\n", plain(&outcome["needs_restart"]));
    }
    text
}

#[derive(Subcommand)]
pub(super) enum LogCommand {
    /// Show the log levels, or change them until the next reload.
    Level {
        /// error, warn, info, debug or trace, and other levels for areas of the log: info,front=debug.
        level: Option<LogLevels>,
    },
    /// Show the last lines.
    Show {
        /// Keep printing new lines.
        #[arg(long, short)]
        follow: bool,
    },
}

const POLL_PERIOD: Duration = Duration::from_secs(1);

impl LogCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::Level { level } => {
                let answer = match level {
                    None => session.api.request("GET /log/level", None)?,
                    Some(level) => session
                        .api
                        .request("PUT /log/level", Some(&json!({ "level": level.to_string() })))?,
                };
                session.print_value(&answer, |answer| format!("{}\n", plain(&answer["level"])))
            }
            Self::Show { follow } => show_log(session, *follow),
        }
    }
}

fn show_log(session: &Session, follow: bool) -> Result<(), ApiError> {
    let mut after = 0;
    loop {
        let log = session.api.request(&format!("GET /log?after={after}"), None)?;
        for line in items_of(&log, "lines")? {
            after = line["id"].as_u64().unwrap_or(after).max(after);
            session.print_value(line, |line| {
                let time = line["time"].as_u64().map_or_else(|| "-".into(), date);
                let [level, area, message] =
                    ["level", "area", "message"].map(|name| plain(&line[name]));
                format!("{time}  {level:<5}  {area}: {message}\n")
            })?;
        }
        if !follow {
            return Ok(());
        }
        thread::sleep(POLL_PERIOD);
    }
}

#[derive(Subcommand)]
pub(super) enum CertificatesCommand {
    /// List host names and the expiry of their certificates.
    #[command(alias = "status")]
    List,
    /// Reload certificates and lists.
    Reload,
}

impl CertificatesCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List => session.list("/certificates", "certificates", 0, CERTIFICATES),
            Self::Reload => {
                session.api.request("POST /certificates/reload", None)?;
                session.print_done("Reloaded certificates and lists")
            }
        }
    }
}
