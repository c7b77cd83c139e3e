//! `tidegate admin`: the management API from the command line.
//!
//! A command is one request, or one per page. The response is printed as a table, or with `--json` as the
//! API sends it, one object per line. The API validates what commands send; this module checks only
//! what it needs to build the request.

mod api;
#[cfg(feature = "cluster")]
mod cluster;
mod endpoint;
mod error;
mod event_stream;
mod events;
mod process;
mod rules;
mod status;
mod table;
mod torrents;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::{self, UsageError};
use api::escape;
use table::{Column, Table};

pub(crate) use api::Api;
#[cfg(feature = "cluster")]
pub(crate) use cluster::{ClusterApi, NodeArgs, NodeCommand};
pub(crate) use endpoint::{ApiArgs, here};
pub(crate) use error::ApiError;
pub(crate) use event_stream::SseMessage;
pub(crate) use table::{bytes, date, span};
pub(crate) use torrents::Sort;

/// Manage a running tidegate over its API.
///
/// See docs/api.md for tokens and their permissions. Exit code: 0 = success, 1 = failure, 2 = invalid arguments.
#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    api_args: ApiArgs,
    /// Print the API's JSON objects, one per line.
    #[arg(long, global = true, help_heading = endpoint::HELP_HEADING)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Manage users' keys for private trackers.
    #[command(subcommand)]
    Keys(rules::KeysCommand),
    /// Manage the lists of allowed and denied torrents.
    Lists(rules::ListsArgs),
    /// Manage banned networks.
    #[command(subcommand)]
    Bans(rules::BansCommand),
    /// Manage the tokens that give access to the API.
    #[command(subcommand)]
    Tokens(rules::TokensCommand),
    /// List, show, remove, freeze and refuse torrents.
    #[command(subcommand)]
    Torrents(torrents::TorrentsCommand),
    /// List or remove the peers at an IP address.
    #[command(subcommand)]
    Peers(torrents::PeersCommand),
    /// Show all statistics: swarms, traffic, memory, records, process.
    Stats,
    /// List the listeners and their traffic.
    Listeners,
    /// List the client software that announces, from a sample.
    Clients,
    /// Show the part of the tracker for its site (site.kind): what reaches it, and what waits.
    Site,
    /// Show whether all is well, what is wrong, and what to do. Exit code 1 if something needs attention.
    Status(status::StatusArgs),
    /// Start a new process from the program file, without downtime, and wait until it serves.
    Upgrade,
    /// List the autonomous systems and countries with the most peers.
    Networks,
    /// Show whether the tracker serves. Exit code 1 if it does not. Needs no token.
    Health,
    /// Show and change the configuration.
    #[command(subcommand)]
    Config(process::ConfigCommand),
    /// Show the log, and change its level.
    #[command(subcommand)]
    Log(process::LogCommand),
    /// Show and reload the certificates.
    #[command(subcommand)]
    Certificates(process::CertificatesCommand),
    /// Manage webhooks, which post events to a URL.
    #[command(subcommand)]
    Webhooks(events::WebhooksCommand),
    /// Print events as they happen, one per line.
    Events(events::EventsArgs),
}

pub(crate) fn run(admin: &Admin, config: Option<&Path>) -> ExitCode {
    exit(admin.run(config))
}

/// Prints the error of a command that uses the API, and returns its exit code.
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
        let needs_token = !matches!(self.command, AdminCommand::Health);
        let api = Api::new(self.api_args.endpoint(config, needs_token)?)?;
        let session = Session { api, json: self.json };
        match &self.command {
            AdminCommand::Keys(keys) => keys.run(&session),
            AdminCommand::Lists(lists) => lists.run(&session),
            AdminCommand::Bans(bans) => bans.run(&session),
            AdminCommand::Tokens(tokens) => tokens.run(&session),
            AdminCommand::Torrents(torrents) => torrents.run(&session),
            AdminCommand::Peers(peers) => peers.run(&session),
            AdminCommand::Stats => session.show("GET /stats", None),
            AdminCommand::Listeners => {
                session.list("/listeners", "listeners", 0, process::LISTENERS)
            }
            AdminCommand::Clients => session.list("/clients", "clients", 0, process::CLIENTS),
            AdminCommand::Site => session.show("GET /site", None),
            AdminCommand::Status(status) => status.run(&session),
            AdminCommand::Upgrade => status::upgrade(&session),
            AdminCommand::Networks => status::networks(&session),
            AdminCommand::Health => process::health(&session),
            AdminCommand::Config(config) => config.run(&session),
            AdminCommand::Log(log) => log.run(&session),
            AdminCommand::Certificates(certificates) => certificates.run(&session),
            AdminCommand::Webhooks(webhooks) => webhooks.run(&session),
            AdminCommand::Events(events) => events.run(&session),
        }
    }
}

struct Session {
    api: Api,
    json: bool,
}

impl Session {
    fn print_value(
        &self,
        value: &Value,
        text: impl FnOnce(&Value) -> String,
    ) -> Result<(), ApiError> {
        self.print(&if self.json { format!("{value}\n") } else { text(value) })
    }

    /// Prints what has been done, unless JSON is wanted: the API's response is empty then.
    fn print_done(&self, text: impl Display) -> Result<(), ApiError> {
        if self.json { Ok(()) } else { self.print(&format_args!("{text}\n")) }
    }

    fn print(&self, text: &dyn Display) -> Result<(), ApiError> {
        if cli::print(text)? { Ok(()) } else { Err(ApiError::OutputClosed) }
    }

    fn show(&self, request: &str, body: Option<&Value>) -> Result<(), ApiError> {
        self.print_value(&self.api.request(request, body)?, table::lines)
    }

    /// Prints up to `limit` items of a list, 0 = all, one row each. `path` is that of the first page.
    fn list(
        &self,
        path: &str,
        of: &str,
        limit: usize,
        columns: &'static [Column],
    ) -> Result<(), ApiError> {
        let mut table = Table::new(columns);
        let mut left = if limit == 0 { usize::MAX } else { limit };
        let mut cursor = String::new();
        loop {
            let page = self.api.request(&format!("GET {path}{cursor}"), None)?;
            let items = items_of(&page, of)?;
            let items = items.get(..left).unwrap_or(items);
            let text = if self.json {
                items.iter().map(|item| format!("{item}\n")).collect()
            } else {
                items.iter().for_each(|item| table.add(item));
                table.drain()
            };
            self.print(&text)?;
            left -= items.len();
            match &page["next"] {
                Value::Null => return Ok(()),
                _ if left == 0 => return Ok(()),
                Value::String(next) => cursor = format!("&cursor={}", escape(next)),
                next => cursor = format!("&cursor={next}"),
            }
        }
    }
}

fn items_of<'a>(response: &'a Value, name: &str) -> Result<&'a [Value], ApiError> {
    response[name].as_array().map(Vec::as_slice).ok_or_else(|| {
        ApiError::Failed(format!(
            "unexpected response of the API: expected a list `{name}`; check that the tracker has the \
             same version as this program"
        ))
    })
}
