//! Durable records: entries of this node go to the stream one at a time, messages of the stream are applied in
//! order, and a snapshot of all records goes from node to node.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Message, Subject, Subscriber};
use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::driver::PubAck;
use super::link::Link;
use super::reader::{LogMessage, Progress, Reader, Reading};
use super::snapshots;
use super::status::Status;
use super::streams::StreamState;
use crate::host::{Position, RecordError, RecordLog};
use crate::node::{DropReason, Start};
use crate::snapshot::{MemberState, Warmth};

/// How long an acknowledgement may take.
const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// The pauses between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long heartbeats of other nodes are waited for by a node that joins.
const JOIN_WAIT: Duration = Duration::from_millis(1500);
/// Messages of the stream that wait to be applied.
const READ_AHEAD: usize = 16;

/// What the tasks of records share.
#[derive(Clone)]
pub(super) struct RecordTasks {
    pub(super) link: Link,
    pub(super) records: Arc<dyn RecordLog>,
    pub(super) status: Arc<Status>,
    /// The stream as it was last looked up; `None` while NATS is away.
    pub(super) stream: watch::Receiver<Option<StreamState>>,
    /// Where messages that are dropped are reported.
    pub(super) dropped: mpsc::UnboundedSender<DropReason>,
    /// Asks for a snapshot.
    pub(super) resync: Arc<Notify>,
    /// A snapshot has been merged.
    pub(super) resynced: Arc<Notify>,
}

impl RecordTasks {
    /// Publishes entries. `acknowledgements` are answers to subjects that begin with `inbox`.
    pub(super) async fn publish(mut self, mut acknowledgements: Subscriber, inbox: String) {
        loop {
            let entry = retry("read the outbox", || self.records.next_outgoing()).await;
            let mut pause = RETRY_PAUSE;
            while !self.try_publish(&entry, &mut acknowledgements, &inbox).await {
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
            self.status.records.sent.fetch_add(1, Ordering::Relaxed);
            retry("mark an entry as stored", || self.records.mark_stored(entry.number)).await;
        }
    }

    /// Returns whether the stream has stored the entry.
    async fn try_publish(
        &mut self,
        entry: &crate::host::Entry,
        acknowledgements: &mut Subscriber,
        inbox: &str,
    ) -> bool {
        // Fails only while the thread ends.
        let _ = self.stream.wait_for(Option::is_some).await;
        if self.status.is_mute() {
            return false;
        }
        let number = entry.number.to_string();
        let reply = Subject::from(format!("{inbox}.{number}"));
        let body = entry.body.clone().into();
        if self.link.publish(self.link.subjects.records(), Some(reply), body).await.is_err() {
            return false;
        }
        let acknowledged = async {
            while let Some(message) = acknowledgements.next().await {
                if message.subject.rsplit('.').next() == Some(&number) {
                    return PubAck::sequence(&message).is_some();
                }
            }
            false
        };
        timeout(ACK_TIMEOUT, acknowledged).await.unwrap_or(false)
    }

    /// Applies what the stream has, from the last message that was applied on.
    pub(super) async fn apply(mut self) {
        loop {
            let Ok(stream) = self.stream.wait_for(Option::is_some).await.map(|it| (*it).clone())
            else {
                return;
            };
            let Some(stream) = stream else { continue };
            if !self.records.has_joined() {
                self.join().await;
            }
            let start = self.start(&stream).await;
            let (sender, mut readings) = mpsc::channel(READ_AHEAD);
            let name = self.link.subjects.stream("r");
            let reader = Reader::start(&self.link, name, start, sender);
            self.status.records.last.store(stream.last, Ordering::Relaxed);
            self.apply_all(&stream, &mut readings).await;
            drop(reader);
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Merges the records with those of another node, or publishes them if no other one is there.
    async fn join(&self) {
        // Every node sends a heartbeat each second.
        sleep(JOIN_WAIT).await;
        if !self.resync_once().await {
            retry("publish all records", || self.records.join_alone()).await;
        }
    }

    /// Returns where to begin. Messages that are lost are reported.
    async fn start(&self, stream: &StreamState) -> Start {
        let position = self.records.position();
        let is_same = position.stream == stream.created_ns;
        let expected = if is_same { position.sequence + 1 } else { 1 };
        let is_other = position.stream != 0 && !is_same;
        if is_other || stream.first > expected {
            let next = Position { stream: stream.created_ns, sequence: stream.first };
            retry("note that changes are missing", || self.records.missed(next)).await;
        }
        if is_other {
            retry("publish changes again", || self.records.publish_again()).await;
        }
        if is_same { Start::Sequence(expected) } else { Start::First }
    }

    /// Applies messages until reading ends or stalls, the stream is another, or a snapshot was merged.
    async fn apply_all(&mut self, stream: &StreamState, readings: &mut mpsc::Receiver<Reading>) {
        let mut progress = Progress::default();
        loop {
            let reading = tokio::select! {
                reading = readings.recv() => reading,
                () = self.resynced.notified() => return,
                changed = self.stream.changed() => {
                    let now = self.stream.borrow().clone();
                    let now = now.filter(|it| changed.is_ok() && it.created_ns == stream.created_ns);
                    let Some(now) = now else { return };
                    self.status.records.last.fetch_max(now.last, Ordering::Relaxed);
                    if progress.has_stalled(&now, self.records.position().sequence) {
                        return;
                    }
                    continue;
                }
            };
            let Some(Reading::Message(LogMessage { sequence, message, .. })) = reading else {
                return;
            };
            progress.note(sequence);
            let position = Position { stream: stream.created_ns, sequence };
            self.apply_one(position, &message).await;
        }
    }

    async fn apply_one(&self, position: Position, message: &Message) {
        let counts = &self.status.records;
        let origin = match self.link.origin("r", message) {
            Ok(from) if self.status.is_ignored(from) => Err(DropReason::Ignored),
            origin => origin,
        };
        match origin {
            Ok(from) => {
                let body = &message.payload;
                retry("apply a change of another node", || {
                    self.records.apply(position, from, body)
                })
                .await;
                counts.applied.fetch_add(1, Ordering::Relaxed);
            }
            Err(reason) => self.count_drop(reason),
        }
        counts.position.store(position.sequence, Ordering::Relaxed);
        counts.last.fetch_max(position.sequence, Ordering::Relaxed);
    }

    fn count_drop(&self, reason: DropReason) {
        // Fails only while the thread ends.
        let _ = self.dropped.send(reason);
    }

    /// Answers other nodes' questions for records.
    pub(super) async fn answer(self, mut questions: Subscriber) {
        while let Some(question) = questions.next().await {
            let Some(reply) = question.reply.clone() else { continue };
            match self.link.origin("q", &question) {
                // Anywhere else, the answer would be a message of this node that another one has asked for.
                Ok(from) if !reply.starts_with(&self.link.subjects.answers_to(from)) => {
                    self.count_drop(DropReason::Origin);
                }
                Ok(from) if !self.status.is_ignored(from) => {
                    let answer = if self.status.is_warm() {
                        let part = self.records.snapshot(question.payload.to_vec()).await;
                        part.map_err(|error| error.to_string())
                    } else {
                        Err("this node is not warm itself".to_owned())
                    };
                    if let Err(error) = &answer {
                        info!(node = from, error, "cannot send records to another node");
                    }
                    let answer = snapshots::encode(answer.ok());
                    // If it is lost, the other node asks another one.
                    let _ = self.link.publish(reply, None, answer.into()).await;
                }
                Ok(_) => self.count_drop(DropReason::Ignored),
                Err(reason) => self.count_drop(reason),
            }
        }
    }

    /// Fetches snapshots when asked to.
    pub(super) async fn resync(self) {
        loop {
            self.resync.notified().await;
            self.status.records.is_resyncing.store(true, Ordering::Relaxed);
            if !self.resync_once().await {
                error!(
                    "no other node could send its records: check that one is warm, then `tidegate cluster resync`"
                );
            }
            self.status.records.is_resyncing.store(false, Ordering::Relaxed);
            self.resynced.notify_one();
        }
    }

    /// Merges the records of another node. Returns whether one could send them.
    async fn resync_once(&self) -> bool {
        let overview = self.status.overview();
        let is_good = |node: &&crate::snapshot::NodeSnapshot| {
            node.state == MemberState::Alive && node.warmth == Warmth::Warm && !node.is_ignored
        };
        let nodes: Vec<u8> = overview.node.nodes.iter().filter(is_good).map(|it| it.node).collect();
        for node in nodes {
            match snapshots::fetch_from(&self.link, node, &*self.records).await {
                Ok(parts) => {
                    info!(node, parts, "merged the records of another node");
                    return true;
                }
                Err(error) => warn!(node, %error, "cannot fetch records"),
            }
        }
        false
    }
}

/// Repeats an operation on the records until it succeeds. The log says what fails, once.
async fn retry<T, F>(what: &str, mut operation: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, RecordError>>,
{
    let mut has_failed = false;
    loop {
        match operation().await {
            Ok(result) => return result,
            Err(error) => {
                if !has_failed {
                    error!(%error, "cannot {what}: trying again");
                }
                has_failed = true;
                sleep(RETRY_PAUSE_MAX).await;
            }
        }
    }
}
