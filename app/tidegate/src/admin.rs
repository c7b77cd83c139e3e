//! `tidegate admin`: the management API from the command line.
//!
//! A command is one request, or a page after the other. What comes back is told as a table, or with
//! `--json` as the API gives it, an object a line. What a command may say is known to the API alone:
//! here is checked only what could not be asked for otherwise.

mod api;
mod endpoint;
mod error;
mod event_stream;
mod events;
mod process;
mod rules;
mod table;
mod torrents;
mod upload;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::{self, UsageError};
use api::escape;
use table::{Column, Table};

pub(crate) use api::{Api, Endpoint};
pub(crate) use endpoint::ApiArgs;
pub(crate) use error::ApiError;
pub(crate) use event_stream::SseMessage;
pub(crate) use table::{bytes, date, span};
pub(crate) use torrents::Sort;

/// Keys, lists, bans, tokens, torrents, peers, configuration and figures of a tracker that serves, over its
/// management API (docs/api.md). The exit code is 0 if it is done, 1 if it is not, 2 if the command makes
/// no sense.
#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    api_args: ApiArgs,
    /// Print JSON objects as the API gives them, one a line.
    #[arg(long, global = true, help_heading = endpoint::HELP_HEADING)]
    json: bool,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Users' keys for private listeners.
    #[command(subcommand)]
    Keys(rules::Keys),
    /// Torrents that are allowed or denied.
    Lists(rules::Lists),
    /// Networks that are not served.
    #[command(subcommand)]
    Bans(rules::Bans),
    /// Who may use the API, and for what.
    #[command(subcommand)]
    Tokens(rules::Tokens),
    /// Look at torrents; remove and freeze them.
    #[command(subcommand)]
    Torrents(torrents::Torrents),
    /// Find or remove the peers at an address.
    #[command(subcommand)]
    Peers(torrents::Peers),
    /// All figures: swarms, traffic, memory, records, process.
    Stats,
    /// What listens where, and what it has done.
    Listeners,
    /// Which software announces, sampled.
    Clients,
    /// Whether it serves: the exit code is 1 if it does not. Needs no token.
    Health,
    /// What is configured, and where that comes from.
    #[command(subcommand)]
    Config(process::Config),
    /// The log: its last lines, and how much is logged.
    #[command(subcommand)]
    Log(process::Log),
    /// Host names, and when their certificates end.
    #[command(subcommand)]
    Certificates(process::Certificates),
    /// Events that are posted to somebody.
    #[command(subcommand)]
    Webhooks(events::Webhooks),
    /// What happens, as it happens, a line each.
    Events(events::Events),
}

/// Does what is asked for, with the configuration in `config` to find the API by.
pub(crate) fn run(admin: &Admin, config: Option<&Path>) -> ExitCode {
    exit(admin.run(config))
}

/// How a command ends that uses the API.
pub(crate) fn exit(print_done: Result<(), ApiError>) -> ExitCode {
    cli::exit(match print_done {
        Ok(()) | Err(ApiError::OutputClosed) => Ok(true),
        Err(ApiError::Usage(text)) => Err(UsageError(text)),
        Err(ApiError::Failed(text)) => {
            cli::print_error(text);
            Ok(false)
        }
    })
}

impl Admin {
    fn run(&self, config: Option<&Path>) -> Result<(), ApiError> {
        let needs_token = !matches!(self.task, Task::Health);
        let api = Api::new(self.api_args.endpoint(config, needs_token)?)?;
        let session = Session { api, json: self.json };
        match &self.task {
            Task::Keys(keys) => keys.run(&session),
            Task::Lists(lists) => lists.run(&session),
            Task::Bans(bans) => bans.run(&session),
            Task::Tokens(tokens) => tokens.run(&session),
            Task::Torrents(torrents) => torrents.run(&session),
            Task::Peers(peers) => peers.run(&session),
            Task::Stats => session.show("GET /stats", None),
            Task::Listeners => process::listeners(&session),
            Task::Clients => process::clients(&session),
            Task::Health => process::health(&session),
            Task::Config(config) => config.run(&session),
            Task::Log(log) => log.run(&session),
            Task::Certificates(certificates) => certificates.run(&session),
            Task::Webhooks(webhooks) => webhooks.run(&session),
            Task::Events(events) => events.run(&session),
        }
    }
}

/// The API, and how its answers are told.
struct Session {
    api: Api,
    json: bool,
}

/// A list that the API gives page by page.
struct Pages<'a> {
    path: &'a str,
    /// With names and values that are escaped.
    query: String,
    /// The name of the items on a page.
    of: &'a str,
    /// On a page, at most.
    size: usize,
}

impl Session {
    /// Prints what is for people, or in JSON what is for programs.
    fn print_value(
        &self,
        value: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> Result<(), ApiError> {
        self.print(&if self.json { format!("{value}\n") } else { text(value) })
    }

    /// The same of what has been done, of which the API says nothing.
    fn print_done(&self, text: impl Display) -> Result<(), ApiError> {
        if self.json { Ok(()) } else { self.print(&format_args!("{text}\n")) }
    }

    fn print(&self, text: &dyn Display) -> Result<(), ApiError> {
        if cli::print(text)? { Ok(()) } else { Err(ApiError::OutputClosed) }
    }

    /// Prints what comes of a request, a figure a line.
    fn show(&self, request: &str, body: Option<&Value>) -> Result<(), ApiError> {
        self.print_value(&self.api.request(request, body)?, table::lines)
    }

    /// Prints the items in a list, a row each, or a line.
    fn list(&self, request: &str, of: &str, columns: &'static [Column]) -> Result<(), ApiError> {
        let mut table = Table::new(columns);
        self.rows(&self.api.request(request, None)?, of, usize::MAX, &mut table)?;
        Ok(())
    }

    /// The same, page after page, until there are so many.
    fn pages(
        &self,
        pages: &Pages<'_>,
        limit: usize,
        columns: &'static [Column],
    ) -> Result<(), ApiError> {
        let Pages { path, query, of, size } = pages;
        let (mut table, mut left, mut cursor) = (Table::new(columns), limit, String::new());
        loop {
            let size = left.min(*size);
            let page =
                self.api.request(&format!("GET {path}?limit={size}{query}{cursor}"), None)?;
            left -= self.rows(&page, of, left, &mut table)?;
            match &page["next"] {
                Value::Null => return Ok(()),
                _ if left == 0 => return Ok(()),
                Value::String(next) => cursor = format!("&cursor={}", escape(next)),
                next => cursor = format!("&cursor={next}"),
            }
        }
    }

    /// How many items a page had; `max` are printed at most.
    fn rows(
        &self,
        page: &Value,
        of: &str,
        max: usize,
        table: &mut Table,
    ) -> Result<usize, ApiError> {
        let items = page[of].as_array().map(Vec::as_slice).unwrap_or_default();
        let items = items.get(..max).unwrap_or(items);
        let text = if self.json {
            items.iter().map(|item| format!("{item}\n")).collect()
        } else {
            items.iter().for_each(|item| table.add(item));
            table.drain()
        };
        self.print(&text)?;
        Ok(items.len())
    }
}
