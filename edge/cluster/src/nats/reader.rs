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
use tracing::info;

use super::link::Link;
use super::streams::StreamState;
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

/// A message of a stream.
#[derive(Debug)]
pub(super) struct StoredMessage {
    /// Its sequence in the stream.
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

/// Progress of reading, which shows whether it has stalled. The server that has the consumer may be behind the others,
/// such as after a partition, and reports that there is nothing to read: that is no error. A new consumer may be at
/// another server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// The sequence of the last message that came.
    came: u64,
    /// The same when the stream was last looked up.
    came_before: u64,
    /// Where the stream ended then; 0 if it was empty.
    ended: u64,
}

impl Progress {
    /// Notes that a message came.
    pub(super) fn note(&mut self, sequence: u64) {
        self.came = sequence;
    }

    /// Takes what a look-up found, and up to where the stream was applied. Returns whether reading has stopped
    /// without an error: nothing came since the last look-up of what the stream had then.
    pub(super) fn has_stalled(&mut self, stream: &StreamState, applied: u64) -> bool {
        let has_stalled = self.came == self.came_before && self.came.max(applied) < self.ended;
        self.came_before = self.came;
        self.ended = if stream.last < stream.first { 0 } else { stream.last };
        if has_stalled {
            info!(why = "nothing came of what the stream has", "reading the log again");
        }
        has_stalled
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
    let node = link.subjects.inbox();
    let node = node.rsplit('.').next().unwrap_or_default();
    let config = pull::Config {
        // Its own name, so that a node's rights are for its own consumers.
        name: Some(format!("n{node}-{}", random_name(&link.client.new_inbox()))),
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

/// Returns the random part of an inbox.
fn random_name(inbox: &str) -> &str {
    inbox.rsplit('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(last: u64) -> StreamState {
        let info = crate::status::ClusterStream::default();
        StreamState { created_ns: 1, first: 1, last, last_ms: 0, server_ms: 0, info, doubt: None }
    }

    #[test]
    fn reading_has_stalled_if_nothing_comes_of_what_there_was() {
        let mut reading = Progress::default();
        // It has only been looked up.
        assert!(!reading.has_stalled(&ending(9), 4));
        // One of them came meanwhile, then none.
        reading.note(5);
        assert!(!reading.has_stalled(&ending(12), 5));
        assert!(reading.has_stalled(&ending(12), 5));
        reading = Progress::default();
        assert!(!reading.has_stalled(&ending(12), 5));
        // All of them came.
        reading.note(12);
        for _ in 0..3 {
            assert!(!reading.has_stalled(&ending(12), 12));
        }
        // The new ones have had no time.
        assert!(!reading.has_stalled(&ending(13), 12));
        assert!(reading.has_stalled(&ending(13), 12));
    }

    #[test]
    fn nothing_comes_of_an_empty_stream_or_of_one_that_is_applied() {
        let mut reading = Progress::default();
        for _ in 0..3 {
            // Reading began later than the end of the stream.
            assert!(!reading.has_stalled(&ending(7), 7));
        }
        let mut reading = Progress::default();
        for _ in 0..3 {
            // Its messages have expired.
            assert!(!reading.has_stalled(&StreamState { first: 8, ..ending(7) }, 3));
        }
    }
}
