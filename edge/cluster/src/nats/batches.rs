//! Accounts for readers of the site: batches, in order, each until a reader has answered.
//!
//! A batch waits on the node's disk, not in NATS, until it is confirmed: so a reader may be away for days.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::status::Status;
use replication::{AccountBatch, SharedAccounts};

/// Time between two looks for a batch.
const PERIOD: Duration = Duration::from_millis(500);
/// Longest time until a reader answers. Then the batch comes again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pauses after attempts that failed; the last one stays.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30)];

/// Sends batches until the task is dropped.
pub(super) async fn send(link: Link, accounts: Arc<dyn SharedAccounts>, status: Arc<Status>) {
    let mut failures = 0;
    loop {
        let reading = Arc::clone(&accounts);
        let Ok(Some(batch)) = spawn_blocking(move || reading.next_batch()).await else {
            sleep(PERIOD).await;
            continue;
        };
        if !status.is_mute() && is_taken(&link, &batch).await {
            let confirming = Arc::clone(&accounts);
            // The runtime ends with the node: then it comes again.
            let _ = spawn_blocking(move || confirming.confirm(&batch.cursor)).await;
            failures = 0;
        } else {
            sleep(PAUSES[failures.min(PAUSES.len() - 1)]).await;
            failures += 1;
        }
    }
}

/// Sends all parts of a batch. Returns false as soon as a reader does not answer one by its cursor.
async fn is_taken(link: &Link, batch: &AccountBatch) -> bool {
    for part in &batch.parts {
        let inbox = link.client.new_inbox();
        let Ok(mut answers) = link.subscribe(inbox.clone()).await else { return false };
        let (subject, part) = (link.subjects.batches(), Bytes::copy_from_slice(part));
        if link.publish(subject, Some(inbox.into()), part).await.is_err() {
            return false;
        }
        let answer = timeout(ANSWER_TIMEOUT, answers.next()).await;
        // Without a reader the server answers, with nothing.
        if !matches!(answer, Ok(Some(answer)) if answer.payload == batch.cursor.as_bytes()) {
            return false;
        }
    }
    true
}
