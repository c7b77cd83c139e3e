//! Delivers events to webhooks: signed POST requests, retried if they fail.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::clock::UnixTime;
use crate::events::{Event, EventHub, EventKind};
use crate::outbound::{PostRequest, SendPost};
use crate::records::tables::webhooks::WebhookRow;

/// Events queued for one webhook. When the queue is full, new events are dropped.
const QUEUE_MAX: usize = 1000;
/// Pauses before the second and each further attempt.
const PAUSES_S: [u64; 5] = [1, 5, 30, 120, 600];

/// The webhooks, and counts of their deliveries.
pub(crate) struct Webhooks {
    rows: RwLock<Vec<WebhookRow>>,
    send_post: SendPost,
    time: UnixTime,
    /// Notified when a webhook is added.
    added: Notify,
    /// Events delivered.
    pub(crate) delivered: AtomicU64,
    /// Attempts that failed.
    pub(crate) failed: AtomicU64,
    /// Events dropped: after the last attempt, or because a queue was full.
    pub(crate) dropped: AtomicU64,
}

impl Webhooks {
    pub(crate) fn new(rows: Vec<WebhookRow>, send_post: SendPost, time: UnixTime) -> Self {
        Self {
            rows: RwLock::new(rows),
            send_post,
            time,
            added: Notify::new(),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn rows(&self) -> Vec<WebhookRow> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add(&self, row: WebhookRow) {
        self.rows.write().unwrap_or_else(PoisonError::into_inner).push(row);
        self.added.notify_one();
    }

    pub(crate) fn remove(&self, id: i64) {
        self.rows.write().unwrap_or_else(PoisonError::into_inner).retain(|row| row.id != id);
    }

    fn contains(&self, id: i64) -> bool {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.iter().any(|row| row.id == id)
    }

    /// Posts an event until it is accepted, the webhook is removed, or the last attempt has failed.
    async fn deliver(&self, row: &WebhookRow, event: &Event) {
        let body = event.to_json();
        for pause_s in PAUSES_S.into_iter().map(Some).chain([None]) {
            // It may have been removed during the pause.
            if !self.contains(row.id) {
                return;
            }
            let signature = Some(sign(&row.secret, (self.time)(), &body));
            let post = PostRequest { url: row.url.clone(), body: body.clone(), signature };
            let reason = match (self.send_post)(post).await {
                Ok(200..=299) => {
                    self.delivered.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Ok(status) => format!("the response has status {status}"),
                Err(reason) => reason,
            };
            self.failed.fetch_add(1, Ordering::Relaxed);
            let Some(pause_s) = pause_s else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                warn!(webhook = row.id, event = event.id, reason, "webhook event dropped");
                return;
            };
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        }
    }
}

/// Delivers events to all webhooks for ever. Subscribes to the hub only while there are webhooks: events
/// without a subscriber cost the tracker nothing.
pub(crate) async fn run(webhooks: &Arc<Webhooks>, hub: &EventHub) {
    loop {
        while webhooks.rows().is_empty() {
            webhooks.added.notified().await;
        }
        dispatch(webhooks, hub).await;
    }
}

/// Passes events to a delivery task for each webhook, until there are no webhooks.
async fn dispatch(webhooks: &Arc<Webhooks>, hub: &EventHub) {
    let mut events = hub.subscribe();
    let mut deliveries: HashMap<i64, DeliveryTask> = HashMap::new();
    loop {
        let event = match events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(count)) => {
                webhooks.dropped.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let rows = webhooks.rows();
        if rows.is_empty() {
            return;
        }
        // Events queued for a removed webhook are dropped with its task.
        deliveries.retain(|id, _| rows.iter().any(|row| row.id == *id));
        for row in rows {
            let start = || DeliveryTask::start(Arc::clone(webhooks), row.clone());
            let delivery = deliveries.entry(row.id).or_insert_with(start);
            if delivery.kinds.contains(&event.kind)
                && delivery.queue.try_send(Arc::clone(&event)).is_err()
            {
                webhooks.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A task that delivers the events of one webhook in order. Dropping it ends the task.
struct DeliveryTask {
    kinds: HashSet<EventKind>,
    queue: Sender<Arc<Event>>,
    task: JoinHandle<()>,
}

impl DeliveryTask {
    fn start(webhooks: Arc<Webhooks>, row: WebhookRow) -> Self {
        let kinds = recorded_kinds(&row.events);
        let (queue, mut events) = channel::<Arc<Event>>(QUEUE_MAX);
        let task = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                webhooks.deliver(&row, &event).await;
            }
        });
        Self { kinds, queue, task }
    }
}

impl Drop for DeliveryTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the header that signs a post.
fn sign(secret: &str, now: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{now}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={now},sha256={hex}")
}

/// Parses the kinds of a recorded webhook, separated by spaces. Kinds of a later version are ignored.
pub(crate) fn recorded_kinds(events: &str) -> HashSet<EventKind> {
    events.split(' ').filter_map(EventKind::from_label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_posts_as_documented() {
        // printf '12.{"a":1}' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            sign("secret", 12, r#"{"a":1}"#),
            "t=12,sha256=f9fb45a73b5891a58b574508a347cffcfb5ed9b43e9ad6026adc952f9e3cafb4"
        );
    }
}
