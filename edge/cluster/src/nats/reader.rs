//! Reads a stream in order: a pull consumer that is made again after any error.
//!
//! The consumer acknowledges nothing and lives in the memory of one server: what it would remember is known
//! here, as the sequence of the last message. The client's own ordered consumers are not used, because what they
//! do after an error is not ours to see.

use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::link::Link;
use crate::node::Start;

/// Messages of a request. The next request goes out when half of them have come: at a round trip of 150 ms, 13,000
/// messages a second.
const BATCH: usize = 4096;
/// Bytes of a request. A server drops a client that does not take 64 MiB in time, and has less for each than that.
const BATCH_BYTES: usize = 16 << 20;
/// Time after which a request expires.
const EXPIRES: Duration = Duration::from_secs(30);
/// Period of heartbeats of a server that has nothing to send. Two periods of silence end the reading.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// When the server forgets a consumer that nothing asks.
const INACTIVE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct StoredMessage {
    pub(super) sequence: u64,
    /// When the server stored it, unix ms by its clock.
    pub(super) stored_ms: u64,
    pub(super) message: async_nats::Message,
}

/// Result of reading: a message, or the end.
#[derive(Debug)]
pub(super) enum Reading {
    Message(StoredMessage),
    /// Reading has ended, for this reason.
    Ended(String),
}

/// A reader. Dropping it ends the reading.
#[derive(Debug)]
pub(super) struct Reader(tokio::task::JoinHandle<()>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reader {
    /// Reads `stream` from `start` on and passes what comes to `sink`, until an error ends it.
    pub(super) fn start(
        link: &Link,
        stream: String,
        start: Start,
        sink: mpsc::Sender<Reading>,
    ) -> Self {
        let link = link.clone();
        Self(tokio::spawn(async move {
            let why = match read(&link, &stream, start, &sink).await {
                Ok(()) => "the consumer has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            // Fails only while the thread ends.
            let _ = sink.send(Reading::Ended(why)).await;
        }))
    }
}

async fn read(
    link: &Link,
    stream: &str,
    start: Start,
    sink: &mpsc::Sender<Reading>,
) -> Result<(), async_nats::Error> {
    let node = link.subjects.node();
    let inbox = link.client.new_inbox();
    let random = inbox.rsplit('.').next().unwrap_or_default();
    let config = pull::Config {
        // Its own name, so that a node's rights are for its own consumers.
        name: Some(format!("n{node}-{random}")),
        description: Some("tidegate".into()),
        deliver_policy: deliver_policy(start)?,
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: INACTIVE,
        ..pull::Config::default()
    };
    let consumer = link.jetstream.create_consumer_on_stream(config, stream).await?;
    let messages = consumer
        .stream()
        .max_messages_per_batch(BATCH)
        .max_bytes_per_batch(BATCH_BYTES)
        .expires(EXPIRES);
    let mut messages = messages.heartbeat(HEARTBEAT).messages().await?;
    let mut last = None;
    while let Some(message) = messages.next().await {
        let message: Message = message?;
        let info = message.info()?;
        let sequence = info.stream_sequence;
        // The consumer counts what it delivers: a message that the client dropped leaves a gap there.
        let delivered = info.consumer_sequence;
        if last.is_some_and(|last| delivered != last + 1) {
            return Err("a message was lost on the way".into());
        }
        last = Some(delivered);
        let stored_ms = u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000)?;
        let message = StoredMessage { sequence, stored_ms, message: message.into() };
        if sink.send(Reading::Message(message)).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn deliver_policy(start: Start) -> Result<DeliverPolicy, async_nats::Error> {
    Ok(match start {
        Start::First => DeliverPolicy::All,
        Start::Sequence(start_sequence) => {
            DeliverPolicy::ByStartSequence { start_sequence: start_sequence.max(1) }
        }
        Start::Time(ms) => DeliverPolicy::ByStartTime {
            start_time: async_nats::datetime::from_nanos(i128::from(ms) * 1_000_000)?,
        },
    })
}
