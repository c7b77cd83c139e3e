//! Events, printed or posted to webhooks.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Session;
use super::api::escape;
use super::error::ApiError;
use super::rules::remove_each;
use super::table::{Column, Format, column, date, plain};
use crate::cli::{self, printable};

#[derive(Subcommand)]
pub(super) enum WebhooksCommand {
    /// List all webhooks, without their secrets.
    List,
    /// Create a webhook, and print the secret that signs its posts. It is shown only once.
    Create {
        /// The https URL to post to (http on trusted networks). admin.webhook_ports must contain its port.
        #[arg(value_name = "URL")]
        target: String,
        /// Kinds of events, separated by commas, e.g. ban,reload,warning.
        #[arg(long, value_name = "KIND", required = true, value_delimiter = ',')]
        event: Vec<String>,
    },
    /// Remove webhooks.
    Remove {
        #[arg(required = true, value_name = "ID|URL")]
        webhooks: Vec<String>,
    },
}

const WEBHOOKS: &[Column] = &[
    column("id", "/id", Format::Count),
    column("created", "/created", Format::Date),
    column("expires", "/expires", Format::Date),
    column("active", "/active", Format::Text),
    column("url", "/url", Format::Text),
    column("events", "/events", Format::Text),
];

impl WebhooksCommand {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        match self {
            Self::List => session.list("/webhooks", "webhooks", 0, WEBHOOKS),
            Self::Create { target, event } => {
                let body = json!({ "url": target, "events": event });
                let made = session.api.request("POST /webhooks", Some(&body))?;
                session.print_value(&made, |made| {
                    let secret = plain(&made["secret"]);
                    format!("Webhook {}  {secret}  (shown once)\n", plain(&made["id"]))
                })
            }
            Self::Remove { webhooks } => remove_each(session, "webhooks", "Webhook", webhooks),
        }
    }
}

#[derive(Args)]
pub(super) struct EventsArgs {
    /// Print only these kinds, separated by commas, e.g. completed,ban,key_first_used,warning.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// Stop after N events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl EventsArgs {
    pub(super) fn run(&self, session: &Session) -> Result<(), ApiError> {
        let kinds = match self.kind.as_slice() {
            [] => String::new(),
            kinds => format!("?kinds={}", escape(&kinds.join(","))),
        };
        let mut stream = session.api.stream_events(&format!("GET /events{kinds}"))?;
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let Some(message) = stream.next()? else {
                return Err(ApiError::Failed(format!(
                    "{} closed the stream of events",
                    session.api.url()
                )));
            };
            if message.name == "missed" {
                let missed = printable(&message.data);
                cli::print_error(format_args!(
                    "missed {missed} events: they arrived faster than they were read"
                ));
                continue;
            }
            let invalid =
                |error| ApiError::Failed(format!("{}: invalid event: {error}", session.api.url()));
            let event: Value = serde_json::from_str(&message.data).map_err(invalid)?;
            session.print_value(&event, line)?;
            left -= 1;
        }
        Ok(())
    }
}

fn line(event: &Value) -> String {
    let time = event["time"].as_u64().map_or_else(|| "-".into(), date);
    let mut text = format!("{time}  {:<15}", plain(&event["kind"]));
    for (name, value) in event["data"].as_object().into_iter().flatten() {
        if !value.is_null() {
            let value = match (name.as_str(), value.as_u64()) {
                ("expires", Some(seconds)) => date(seconds),
                _ => plain(value),
            };
            text += &format!("  {}: {value}", printable(name));
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
