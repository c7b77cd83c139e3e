//! Actions of the operator only: making and changing the stream, and removing users. Each has its own user at the
//! servers.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::link::{Link, is_refusal};
use super::options::NatsOptions;
use super::rights::{OPERATOR, UPDATE_ACCOUNT};
use super::streams::{self, StreamChanges, StreamSettings};

/// The time limit for all of it: a cluster of servers that has just started elects leaders first.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for the answers of further servers.
const ANSWERS: Duration = Duration::from_secs(2);

/// The outcome for a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The change that was made, in a sentence.
    pub done: String,
    /// The settings that the stream has now.
    pub settings: StreamSettings,
}

/// Makes the stream of a cluster with the settings in `recorded`, or changes those in `changes` of the stream that there
/// is. Settings that no stream of a cluster may have are undone.
///
/// `options` have the operator's user; their node does not matter. A stream becomes smaller, which deletes messages of all
/// nodes, only if it `may_shrink`.
///
/// # Errors
///
/// If no server can be reached, or it refuses: a sentence with a remedy.
pub fn make_stream(
    options: &NatsOptions,
    recorded: StreamSettings,
    changes: StreamChanges,
    may_shrink: bool,
) -> io::Result<Made> {
    run(options, async |link| {
        let needs = streams::data_config(link, options);
        streams::make(&link.jetstream, &needs, recorded, changes, may_shrink).await
    })
}

/// Sends the servers a new JWT of the cluster's account. It names the removed users, whom the servers disconnect.
/// `options` must have a user of the system account.
///
/// Returns the names of the servers that have it now. The other servers get it from them when they are back.
///
/// # Errors
///
/// If no server can be reached, or one refuses: a sentence with a remedy.
pub fn update_account(options: &NatsOptions, jwt: &str) -> io::Result<Vec<String>> {
    run(options, async |link| {
        let failed = |error: String| format!("cannot reach the NATS servers: {error}");
        let inbox = link.client.new_inbox();
        let answers = link.client.subscribe(inbox.clone()).await;
        let mut answers = answers.map_err(|error| failed(error.to_string()))?;
        let sent = link.client.publish_with_reply(UPDATE_ACCOUNT, inbox, jwt.to_owned().into());
        sent.await.map_err(|error| failed(error.to_string()))?;
        let mut servers = Vec::new();
        let deadline = Instant::now() + ANSWERS;
        while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
            let answer: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            let name = answer["server"]["name"].as_str().unwrap_or("a server");
            if let Some(error) = answer["error"]["description"].as_str() {
                return Err(format!("{name} refuses to remove the user: {error}"));
            }
            servers.push(name.to_owned());
            if servers.len() == options.servers.len() {
                break;
            }
        }
        if servers.is_empty() {
            return Err(
                "no NATS server takes removed users: run them with the configuration that `tidegate cluster init` \
                 made"
                .into(),
            );
        }
        servers.sort();
        Ok(servers)
    })
}

/// Connects, and does something as the operator.
fn run<T>(
    options: &NatsOptions,
    action: impl AsyncFnOnce(&Link) -> Result<T, String>,
) -> io::Result<T> {
    let options = NatsOptions { node: OPERATOR, ..options.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let acting = async {
        // Events say nothing that errors do not.
        let (events, _) = mpsc::unbounded_channel();
        let link = Link::connect_once(&options, events).await.map_err(|error| {
            let error = error.to_string();
            let remedy = if is_refusal(&error) {
                "another operator's folder has set them up, or their clocks differ by minutes"
            } else {
                "check that they run, and their addresses"
            };
            format!("cannot connect to the NATS servers: {error}: {remedy}")
        })?;
        action(&link).await
    };
    let done = runtime.block_on(async { timeout(TIMEOUT, acting).await });
    runtime.shutdown_background();
    let done = done.unwrap_or_else(|_| {
        Err("the NATS servers answer too slowly: check that JetStream has a leader".into())
    });
    done.map_err(io::Error::other)
}
