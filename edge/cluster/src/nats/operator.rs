//! Makes the stream, as the operator, who has a user of its own at the servers.

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::link::Link;
use super::options::NatsOptions;
use super::rights::OPERATOR;
use super::streams;

/// The time limit for all of it: a cluster of servers that has just started elects leaders first.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Makes the stream of a cluster, or changes it to be as `options` say. Returns what was done.
/// `options` have the nkey or certificate of the operator; their node does not matter. A stream becomes smaller, which
/// deletes messages of all nodes, only if it `may_shrink`.
///
/// # Errors
///
/// If no server can be reached, or it refuses: a sentence with a remedy.
pub fn make_streams(options: &NatsOptions, may_shrink: bool) -> io::Result<String> {
    let options = NatsOptions { node: OPERATOR, ..options.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let made = runtime.block_on(async { timeout(TIMEOUT, make(&options, may_shrink)).await });
    runtime.shutdown_background();
    let made = made.unwrap_or_else(|_| {
        Err("the NATS servers answer too slowly: check that JetStream has a leader".into())
    });
    made.map_err(io::Error::other)
}

async fn make(options: &NatsOptions, may_shrink: bool) -> Result<String, String> {
    // Events say nothing that errors do not.
    let (events, _) = mpsc::unbounded_channel();
    let link = Link::connect_once(options, events).await;
    let link = link.map_err(|error| {
        format!(
            "cannot connect to NATS: {error}: check cluster.servers, and the nkey of the operator"
        )
    })?;
    streams::make(&link.jetstream, streams::data_config(&link, options), may_shrink).await
}
