//! Delivers events to webhooks: signed POST requests, retried if they fail.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use parking_lot::RwLock;
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tracing::{debug, warn};
use types::to_hex;

use crate::clock::UnixTime;
use crate::events::{Event, EventHub, EventKind};
use crate::outbound::{PostRequest, SendPost};
use crate::records::tables::webhooks::WebhookRow;
use deliveries::{DeliveryLog, DeliveryOutcome};

mod accounting;
mod deliveries;

pub(crate) use accounting::post_feed;
pub(crate) use deliveries::Delivery;

/// Events queued for one webhook. When the queue is full, new events are dropped.
const QUEUE_MAX: usize = 1000;
/// The kind of a test event. No event has it.
const TEST: &str = "test";
/// Pauses before the second and each further attempt.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
];

/// Returns whether the token that a webhook ends with is valid, or there is none.
pub(crate) type HasOwner = Box<dyn Fn(&WebhookRow) -> bool + Send + Sync>;

/// The webhooks, and counts of their deliveries.
pub(crate) struct Webhooks {
    rows: RwLock<Vec<WebhookRow>>,
    send_post: SendPost,
    /// Between attempts.
    pauses: [Duration; 5],
    time: UnixTime,
    /// Checked at each post: a token ends on another node, or by its expiry, without a change of the webhook.
    has_owner: HasOwner,
    /// The latest attempts.
    pub(crate) log: DeliveryLog,
    /// Notified when a webhook is added.
    added: Notify,
    /// The same, for batches of a site.
    added_for_site: Notify,
    /// Events delivered.
    pub(crate) delivered: AtomicU64,
    /// Attempts that failed.
    pub(crate) failed: AtomicU64,
    /// Events dropped: after the last attempt, or because a queue was full.
    pub(crate) dropped: AtomicU64,
}

impl Webhooks {
    pub(crate) fn new(
        rows: Vec<WebhookRow>,
        send_post: SendPost,
        time: UnixTime,
        has_owner: HasOwner,
    ) -> Self {
        Self {
            rows: RwLock::new(rows),
            send_post,
            pauses: PAUSES,
            time,
            has_owner,
            log: DeliveryLog::default(),
            added: Notify::new(),
            added_for_site: Notify::new(),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn rows(&self) -> Vec<WebhookRow> {
        self.rows.read().clone()
    }

    /// Adds a webhook, or replaces that of the same id.
    pub(crate) fn add(&self, row: WebhookRow) {
        let mut rows = self.rows.write();
        rows.retain(|known| known.id != row.id);
        rows.push(row);
        drop(rows);
        self.added.notify_one();
        self.added_for_site.notify_one();
    }

    pub(crate) fn remove(&self, id: i64) {
        self.rows.write().retain(|row| row.id != id);
        self.log.remove(id);
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        let rows = self.rows.read();
        rows.iter().any(|row| row.id == id)
    }

    /// Returns whether events are posted to a webhook: not once the token that created it has ended.
    pub(crate) fn is_active(&self, row: &WebhookRow) -> bool {
        (self.has_owner)(row)
    }

    /// Posts a test event once, and returns the attempt.
    pub(crate) async fn test(&self, row: &WebhookRow) -> Delivery {
        let time = (self.time)();
        let data = json!({ "message": "A test of this webhook." });
        let body = json!({ "id": 0, "time": time, "kind": TEST, "data": data });
        let delivery = self.post(row, &body.to_string(), (0, TEST, 1)).await;
        self.log.add(row.id, delivery.clone());
        delivery
    }

    /// Posts a body once. `about` are the event's id and kind, and which attempt it is.
    async fn post(
        &self,
        row: &WebhookRow,
        body: &str,
        about: (u64, &'static str, u32),
    ) -> Delivery {
        let (time, started) = ((self.time)(), Instant::now());
        let signature = sign(&row.secret, time, body);
        let post = PostRequest { url: row.url.clone(), body: body.into(), signature };
        let (status, error) = match (self.send_post)(post).await {
            Ok(status) => (Some(status), None),
            Err(reason) => (None, Some(reason)),
        };
        let is_accepted = status.is_some_and(|status| (200..=299).contains(&status));
        let (event_id, kind, attempt) = about;
        let outcome =
            if is_accepted { DeliveryOutcome::Delivered } else { DeliveryOutcome::Failed };
        let duration_ms = started.elapsed().as_millis() as u64;
        Delivery { time, event_id, kind, attempt, outcome, status, error, duration_ms }
    }

    /// Posts an event until it is accepted, the webhook is removed, or the last attempt has failed.
    async fn deliver(&self, row: &WebhookRow, event: &Event) {
        let body = event.to_json();
        for (attempt, pause) in (1..).zip(self.pauses.into_iter().map(Some).chain([None])) {
            // It may have been removed, or its token have ended, during the pause.
            if !self.contains(row.id) || !self.is_active(row) {
                return;
            }
            let about = (event.id, event.kind.label(), attempt);
            let mut delivery = self.post(row, &body, about).await;
            if delivery.outcome == DeliveryOutcome::Failed && pause.is_none() {
                delivery.outcome = DeliveryOutcome::Dropped;
            }
            // It may have been removed meanwhile; then its log is gone and stays so.
            if self.contains(row.id) {
                self.log.add(row.id, delivery.clone());
            }
            if delivery.outcome == DeliveryOutcome::Delivered {
                self.delivered.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let reason = delivery.failure();
            self.failed.fetch_add(1, Ordering::Relaxed);
            debug!(webhook = row.id, event = event.id, reason, "webhook post failed");
            let Some(pause) = pause else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                warn!(webhook = row.id, event = event.id, reason, "webhook event dropped");
                return;
            };
            tokio::time::sleep(pause).await;
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
        for row in rows.into_iter().filter(|row| webhooks.is_active(row)) {
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
    format!("t={now},sha256={}", to_hex(tag.as_ref()))
}

/// Parses the kinds of a recorded webhook, separated by spaces. Kinds of a later version are ignored.
pub(crate) fn recorded_kinds(events: &str) -> HashSet<EventKind> {
    events.split(' ').filter_map(EventKind::from_label).collect()
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::sync::oneshot;

    use super::*;

    /// Returns a webhook for these kinds of events.
    pub(super) fn row(id: i64, events: &str) -> WebhookRow {
        let (url, events) = (format!("http://receiver-{id}/"), events.into());
        WebhookRow { id, url, events, secret: "secret".into(), created: 0, token: None }
    }

    /// Returns webhooks that do not pause between attempts.
    pub(super) fn webhooks(rows: Vec<WebhookRow>, send_post: SendPost) -> Arc<Webhooks> {
        let webhooks = Webhooks::new(rows, send_post, Arc::new(|| 12), Box::new(|_| true));
        Arc::new(Webhooks { pauses: [Duration::ZERO; 5], ..webhooks })
    }

    fn event(id: u64) -> Event {
        Event { id, time: 5, kind: EventKind::Ban, data: json!({}) }
    }

    pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future)
    }

    /// The outcome of the delivery of an event to a webhook.
    struct Delivered {
        posts: Vec<PostRequest>,
        /// Events that were delivered, attempts that failed, and events that were dropped.
        counts: [u64; 3],
        log: Vec<Delivery>,
    }

    /// Delivers an event to a webhook whose posts get these answers, and then the last of them again.
    fn deliver(answers: &[Result<u16, String>]) -> Delivered {
        let posts = Arc::<Mutex<Vec<PostRequest>>>::default();
        let (sink, answers) = (Arc::clone(&posts), answers.to_vec());
        let send_post: SendPost = Arc::new(move |post| {
            let mut posts = sink.lock().unwrap();
            let answer = answers[posts.len().min(answers.len() - 1)].clone();
            posts.push(post);
            Box::pin(async { answer })
        });
        let webhooks = webhooks(vec![row(1, "ban")], send_post);
        run(webhooks.deliver(&row(1, "ban"), &event(7)));
        let Webhooks { delivered, failed, dropped, .. } = &*webhooks;
        let counts = [delivered, failed, dropped].map(|count| count.load(Ordering::Relaxed));
        let posts = std::mem::take(&mut *posts.lock().unwrap());
        Delivered { posts, counts, log: webhooks.log.of(1) }
    }

    #[test]
    fn posts_an_event_until_it_is_accepted_and_logs_every_attempt() {
        let done = deliver(&[Ok(503), Err("timed out".into()), Ok(302), Ok(204)]);
        assert_eq!((done.posts.len(), done.counts), (4, [1, 3, 0]));
        let expected = event(7).to_json();
        assert!(done.posts.iter().all(|post| post.url == row(1, "").url && post.body == expected));
        assert!(done.log.iter().all(|it| (it.event_id, it.kind) == (7, "ban")));
        let attempt = |it: &Delivery| (it.attempt, it.outcome, it.status, it.error.clone());
        let failed = DeliveryOutcome::Failed;
        let expected = [
            (4, DeliveryOutcome::Delivered, Some(204), None),
            (3, failed, Some(302), None),
            (2, failed, None, Some("timed out".into())),
            (1, failed, Some(503), None),
        ];
        assert_eq!(done.log.iter().map(attempt).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn drops_an_event_after_the_last_attempt() {
        let done = deliver(&[Err("refused".into())]);
        assert_eq!((done.posts.len(), done.counts), (6, [0, 6, 1]));
    }

    #[test]
    fn posts_nothing_more_to_a_removed_webhook() {
        let (sent, mut posts) = unbounded_channel();
        let send_post: SendPost = Arc::new(move |_| {
            let (reply, answer) = oneshot::channel();
            sent.send(reply).unwrap();
            Box::pin(async { Ok(answer.await.unwrap()) })
        });
        let webhooks = webhooks(vec![row(1, "ban")], send_post);
        let (removed, event) = (row(1, "ban"), event(7));
        run(async {
            let removing = async {
                let reply = posts.recv().await.unwrap();
                webhooks.remove(1);
                reply.send(500).unwrap();
            };
            tokio::join!(webhooks.deliver(&removed, &event), removing);
        });
        assert!(posts.try_recv().is_err());
        assert_eq!(webhooks.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_webhook_that_hangs_delays_no_other() {
        let (sent, mut posts) = unbounded_channel();
        let send_post: SendPost = Arc::new(move |post| {
            let hangs = post.url == row(1, "").url;
            sent.send(post).unwrap();
            Box::pin(async move { if hangs { pending().await } else { Ok(200) } })
        });
        let rows = vec![row(1, "ban"), row(2, "ban warning"), row(3, "reload")];
        let (webhooks, hub) = (webhooks(rows, send_post), EventHub::default());
        let mut received = [const { Vec::new() }; 2];
        run(async {
            let delivering = async {
                while !hub.has_subscribers() {
                    tokio::task::yield_now().await;
                }
                for kind in [EventKind::Ban, EventKind::Warning, EventKind::Ban] {
                    hub.publish(kind, json!({}));
                }
                while received.iter().flatten().count() < 4 {
                    let post = posts.recv().await.unwrap();
                    let event: serde_json::Value = serde_json::from_str(&post.body).unwrap();
                    let receiver = if post.url == row(1, "").url { 0 } else { 1 };
                    assert_ne!(post.url, row(3, "").url);
                    received[receiver].push(event["id"].as_u64().unwrap());
                }
            };
            tokio::select! {
                () = super::run(&webhooks, &hub) => {}
                () = delivering => {}
            }
        });
        assert_eq!(received, [vec![1], vec![1, 2, 3]]);
    }
}
