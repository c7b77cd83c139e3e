//! `/webhooks`: events that are posted to somebody, signed, and again if that fails.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tracing::warn;
use utoipa::ToSchema;

use super::auth::{Caller, random_text};
use super::events::kinds;
use super::input::{Body, Created, Id, Json, NoContent, PathParam};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use super::{Api, Shared};
use crate::events::{Event, EventKind};
use crate::records::tables::webhooks::{self, WebhookRow};

/// Webhooks there may be.
const WEBHOOKS_MAX: usize = 32;
/// Characters of a URL.
const URL_MAX: usize = 2000;
/// Events that wait for one webhook. Of more, the newest are dropped.
const QUEUE_MAX: usize = 1000;
/// Pauses before each further try.
const PAUSES_S: [u64; 5] = [1, 5, 30, 120, 600];

pub(super) fn routes() -> Vec<Route> {
    vec![
        route("GET /webhooks", Scope::ConfigRead, "All webhooks, without their secrets", list),
        route("POST /webhooks", Scope::ConfigWrite, "Have events posted to a URL", create),
        route("DELETE /webhooks/{id}", Scope::ConfigWrite, "Post no more", remove),
    ]
}

/// Something to be posted.
#[derive(Clone, Debug)]
pub struct PostRequest {
    /// Where to; of a webhook, its port is among [`super::ApiOptions::webhook_ports`].
    pub url: String,
    /// JSON.
    pub body: String,
    /// The header `Tidegate-Signature` of webhooks: `t=SECONDS,sha256=HEX`, where HEX is the HMAC-SHA256 of
    /// `SECONDS.BODY` under the webhook's secret.
    pub signature: Option<String>,
}

/// Posts, and gives the status of the answer, or why there is none.
pub type SendPost = Arc<
    dyn Fn(PostRequest) -> Pin<Box<dyn Future<Output = Result<u16, String>> + Send>> + Send + Sync,
>;

/// The webhooks in force, and how they fare.
#[derive(Default)]
pub(crate) struct Webhooks {
    rows: RwLock<Vec<WebhookRow>>,
    /// Told when there is another.
    added: Notify,
    /// Posts that were taken.
    pub(crate) delivered: AtomicU64,
    /// Tries that failed.
    pub(crate) failed: AtomicU64,
    /// Events that were given up, or found no room.
    pub(crate) dropped: AtomicU64,
}

impl Webhooks {
    pub(super) fn new(rows: Vec<WebhookRow>) -> Self {
        Self { rows: RwLock::new(rows), ..Self::default() }
    }

    fn has(&self, id: i64) -> bool {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        rows.iter().any(|row| row.id == id)
    }

    fn rows(&self) -> Vec<WebhookRow> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A webhook.
#[derive(Serialize, ToSchema)]
struct Webhook {
    #[schema(minimum = 1)]
    id: i64,
    url: String,
    events: Vec<EventKind>,
    /// Seconds since 1970.
    created: i64,
}

/// All webhooks.
#[derive(Serialize, ToSchema)]
struct WebhookList {
    webhooks: Vec<Webhook>,
}

/// A webhook that has just been made.
#[derive(Serialize, ToSchema)]
struct CreatedWebhook {
    #[serde(flatten)]
    webhook: Webhook,
    /// What posts are signed with: shown now, and never again.
    secret: String,
}

/// What a new webhook shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct WebhookWish {
    /// https, or http if the network is to be trusted; its port must be among [admin] webhook_ports.
    #[schema(
        max_length = 2000,
        pattern = "^https?://[a-z0-9]+([.-][a-z0-9]+)*(:[1-9][0-9]{0,3})?(/[A-Za-z0-9/_.-]*)?$"
    )]
    url: String,
    /// Of which kinds.
    #[schema(min_items = 1, max_items = 7)]
    events: Vec<EventKind>,
}

impl From<WebhookRow> for Webhook {
    fn from(row: WebhookRow) -> Self {
        let events = kinds(row.events.split(' ')).unwrap_or_default();
        let events = EventKind::ALL.into_iter().filter(|kind| events.contains(kind)).collect();
        Self { id: row.id, url: row.url, events, created: row.created }
    }
}

async fn list(State(api): State<Shared>) -> Result<Json<WebhookList>, Problem> {
    let webhooks = api.webhooks.rows().into_iter().map(Webhook::from).collect();
    Ok(Json(WebhookList { webhooks }))
}

async fn create(
    State(api): State<Shared>,
    caller: Caller,
    Body(new): Body<WebhookWish>,
) -> Result<Created<CreatedWebhook>, Problem> {
    check_url(&new.url, &api.options.webhook_ports)?;
    if new.events.is_empty() || new.events.len() > EventKind::ALL.len() {
        let all = EventKind::ALL.len();
        return Err(Problem::bad_request(format!("events: 1 to {all} are due")));
    }
    if api.webhooks.rows().len() >= WEBHOOKS_MAX {
        return Err(Problem::conflict(format!("{WEBHOOKS_MAX} webhooks are the most")));
    }
    let secret =
        random_text(32).map_err(|_| Problem::unavailable("the system gives no random numbers"))?;
    let events: Vec<_> = new.events.iter().map(|kind| kind.label()).collect();
    let row = WebhookRow {
        id: 0,
        url: new.url,
        events: events.join(" "),
        secret: secret.clone(),
        created: api.now(),
    };
    let shared = Shared::clone(&api);
    let put = move |row: &WebhookRow| {
        shared.webhooks.rows.write().unwrap_or_else(PoisonError::into_inner).push(row.clone());
        shared.webhooks.added.notify_one();
    };
    let row = api.records().change(move |db| webhooks::insert(db, row), put).await?;
    api.audit(&caller, format_args!("made webhook {} to {}", row.id, row.url));
    Ok(Created(CreatedWebhook { webhook: row.into(), secret }))
}

async fn remove(
    State(api): State<Shared>,
    caller: Caller,
    PathParam(Id(id)): PathParam<Id>,
) -> Result<NoContent, Problem> {
    let shared = Shared::clone(&api);
    let id = i64::from(id);
    let forget = move |_: &bool| {
        let mut rows = shared.webhooks.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|row| row.id != id);
    };
    if !api.records().change(move |db| webhooks::remove(db, id), forget).await? {
        return Err(Problem::not_found("there is no webhook of this number"));
    }
    api.audit(&caller, format_args!("removed webhook {id}"));
    Ok(NoContent)
}

/// Whether events may be posted there.
fn check_url(url: &str, ports: &[u16]) -> Result<(), Problem> {
    let bad = |due: &str| Problem::bad_request(format!("url: {due}"));
    let uri: axum::http::Uri = url.parse().map_err(|_| bad("a URL is due"))?;
    let port = match uri.scheme_str() {
        Some("https") => uri.port_u16().unwrap_or(443),
        Some("http") => uri.port_u16().unwrap_or(80),
        _ => return Err(bad("https:// or http:// is due")),
    };
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if url.len() > URL_MAX || uri.host().is_none_or(str::is_empty) || authority.contains('@') {
        return Err(bad("a host is due, no user, and 2000 characters at most"));
    }
    if !ports.contains(&port) {
        return Err(Problem::forbidden(format!(
            "[admin] webhook_ports does not name {port}: the tracker connects to no other ports"
        )));
    }
    Ok(())
}

/// Posts what happens, for ever. Listens only while there is somebody to post to: what nobody listens
/// to costs the tracker nothing.
pub(super) async fn work(api: &Arc<Api>) {
    loop {
        while api.webhooks.rows().is_empty() {
            api.webhooks.added.notified().await;
        }
        serve(api).await;
    }
}

/// Posts what happens until there are no webhooks.
async fn serve(api: &Arc<Api>) {
    let mut listener = api.hub.listen();
    let mut deliveries: HashMap<i64, DeliveryTask> = HashMap::new();
    loop {
        let event = match listener.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(count)) => {
                api.webhooks.dropped.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        let rows = api.webhooks.rows();
        if rows.is_empty() {
            return;
        }
        // With a webhook goes what waits for it.
        deliveries.retain(|id, _| rows.iter().any(|row| row.id == *id));
        for row in rows {
            let delivery = deliveries
                .entry(row.id)
                .or_insert_with(|| DeliveryTask::start(Arc::clone(api), row));
            if delivery.kinds.contains(&event.kind)
                && delivery.queue.try_send(Arc::clone(&event)).is_err()
            {
                api.webhooks.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Carries events to one webhook, one after the other.
struct DeliveryTask {
    kinds: HashSet<EventKind>,
    queue: Sender<Arc<Event>>,
    task: JoinHandle<()>,
}

impl DeliveryTask {
    fn start(api: Arc<Api>, row: WebhookRow) -> Self {
        let kinds = kinds(row.events.split(' ')).unwrap_or_default();
        let (queue, mut events) = channel::<Arc<Event>>(QUEUE_MAX);
        let task = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                deliver(&api, &row, &event).await;
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

/// Posts an event until it is taken, or not worth it any more.
async fn deliver(api: &Api, row: &WebhookRow, event: &Event) {
    let counts = &api.webhooks;
    let body = serde_json::to_string(event).unwrap_or_default();
    for pause_s in PAUSES_S.into_iter().map(Some).chain([None]) {
        // It may have been removed meanwhile.
        if !counts.has(row.id) {
            return;
        }
        let signature = Some(sign(&row.secret, api.time(), &body));
        let post = PostRequest { url: row.url.clone(), body: body.clone(), signature };
        let why = match (api.deps.send_post)(post).await {
            Ok(200..=299) => {
                counts.delivered.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(status) => format!("it answers {status}"),
            Err(why) => why,
        };
        counts.failed.fetch_add(1, Ordering::Relaxed);
        let Some(pause_s) = pause_s else {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
            warn!("webhook {}: event {} is given up: {why}", row.id, event.id);
            return;
        };
        tokio::time::sleep(Duration::from_secs(pause_s)).await;
    }
}

/// The header of a post.
fn sign(secret: &str, now: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{now}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={now},sha256={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_signed_as_the_documentation_says() {
        // printf '12.{"a":1}' | openssl dgst -sha256 -hmac secret
        assert_eq!(
            sign("secret", 12, r#"{"a":1}"#),
            "t=12,sha256=f9fb45a73b5891a58b574508a347cffcfb5ed9b43e9ad6026adc952f9e3cafb4"
        );
    }

    #[test]
    fn urls_lead_only_where_they_may() {
        let may =
            |url: &str| check_url(url, &[443, 8080]).map_err(|problem| problem.status().as_u16());
        assert_eq!(may("https://hooks.example.org/x?y=1"), Ok(()));
        assert_eq!(may("http://127.0.0.1:8080/"), Ok(()));
        assert_eq!(may("http://hooks.example.org/"), Err(403));
        assert_eq!(may("https://hooks.example.org:22/"), Err(403));
        for bad in [
            "",
            "/etc/passwd",
            "file:///etc/passwd",
            "https://",
            "ftp://a:443/",
            "https://u:p@host/",
            "https:///x",
        ] {
            assert_eq!(may(bad), Err(400), "{bad}");
        }
    }
}
