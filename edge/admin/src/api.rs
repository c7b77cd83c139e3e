//! The management API, `/api/v1`.
//!
//! ```text
//!  request ─ guard: token, scope, rate ─▶ handler ─▶ records ─ committed ─▶ tracker ─▶ answer
//! ```
//!
//! Each route is one line in its module's table: place, scope, summary, handler. Router and OpenAPI
//! document are both made of these lines and of the handlers' types, so that they cannot differ.

mod auth;
mod bans;
mod config;
mod cors;
mod describe;
mod events;
mod input;
mod keys;
mod lists;
mod peers;
mod problem;
mod route;
mod scope;
mod session;
mod stats;
mod stats_stream;
mod tokens;
mod torrents;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::info;
use tracker::Tracker;
use types::Tick;

use crate::control::Command;
use crate::events::EventHub;
use crate::log_levels::AUDIT;
use crate::recorder::Recorder;
use crate::records::{Records, Writer, tables};
use crate::restore::ClockReading;
use crate::torrent_list::TorrentList;
use crate::traces::{self, TraceOptions, Traces};
use crate::{MetricSources, OpenError};

pub use auth::is_token;
pub(crate) use auth::{AuthError, AuthenticatedToken, Authenticator, From};
pub use webhooks::{PostRequest, SendPost};

use auth::Caller;
use problem::Problem;
use route::Route;
use session::Sessions;
use webhooks::Webhooks;

/// Where it is.
pub(crate) const PREFIX: &str = "/api/v1";

/// What the API can be told.
#[derive(Clone, Debug, Default)]
pub struct ApiOptions {
    /// Web sites whose pages may use the API, as `https://example.org`.
    pub cors_origins: Vec<String>,
    /// Requests that one token may make in a second; 0 is no bound.
    pub requests_per_s: u32,
    /// Wrong tokens that may come from one address in a minute.
    pub wrong_tokens_per_min: u32,
    /// Ports of other machines that webhooks may go to.
    pub webhook_ports: Vec<u16>,
    /// A token that may do everything, from outside the records.
    pub token: Option<String>,
}

/// What the API works with.
pub struct ApiDeps {
    /// What is shown.
    pub sources: Arc<MetricSources>,
    /// Where changes are kept.
    pub records: Arc<Records>,
    /// Takes orders for the application.
    pub control: Box<dyn Fn(Command) + Send + Sync>,
    /// The tracker's time.
    pub clock: Box<dyn Fn() -> Tick + Send + Sync>,
    /// Seconds since 1970 by the machine's clock, which may be set back.
    pub time: Box<dyn Fn() -> i64 + Send + Sync>,
    /// Sends a webhook's post.
    pub send_post: SendPost,
    /// Where spans go, if they are wanted.
    pub traces: Option<TraceOptions>,
}

/// The API, ready to be served.
pub struct Api {
    deps: ApiDeps,
    options: ApiOptions,
    authenticator: Authenticator,
    hub: Arc<EventHub>,
    sessions: Sessions,
    recorder: Recorder,
    torrent_list: Arc<TorrentList>,
    webhooks: Webhooks,
    traces: Option<Traces>,
    /// The latest time that was seen: what has expired stays so when the clock goes back.
    latest: AtomicI64,
    /// Held by whoever changes settings: they are read, tried and written in one go.
    settings: tokio::sync::Mutex<()>,
}

type Shared = Arc<Api>;

impl Api {
    /// Reads tokens and webhooks from the records, through the writer that is not running yet. Where there
    /// is no token, one is made that may do everything: it is given beside the API, this once.
    pub fn new(
        deps: ApiDeps,
        options: ApiOptions,
        writer: &Writer,
    ) -> Result<(Self, Option<String>), OpenError> {
        let connection = writer.connection();
        let read = || {
            let mut tokens = tables::tokens::all(connection)?;
            let fresh = tokens::seed(&mut tokens, options.token.as_deref(), connection)?;
            Ok((tokens, fresh, tables::webhooks::all(connection)?))
        };
        let (tokens, fresh, hooks) = read().map_err(|error| deps.records.open_error(&error))?;
        let authenticator = Authenticator::new(tokens, &options);
        let webhooks = Webhooks::new(hooks);
        let traces = deps.traces.clone().map(Traces::new);
        let torrent_list = Arc::new(TorrentList::new(Arc::clone(&deps.sources.tracker)));
        let api = Self {
            deps,
            options,
            authenticator,
            hub: Arc::default(),
            sessions: Sessions::default(),
            recorder: Recorder::default(),
            torrent_list,
            webhooks,
            traces,
            latest: AtomicI64::new(0),
            settings: tokio::sync::Mutex::default(),
        };
        Ok((api, fresh))
    }

    /// What happens is told here.
    pub fn hub(&self) -> &Arc<EventHub> {
        &self.hub
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.webhooks
    }

    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    pub(crate) fn records(&self) -> &Records {
        &self.deps.records
    }

    /// The tracker's time.
    pub(crate) fn tick(&self) -> Tick {
        (self.deps.clock)()
    }

    /// Seconds since 1970; never less than before.
    fn now(&self) -> i64 {
        let now = self.time();
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Seconds since 1970, as others have them, too.
    fn time(&self) -> i64 {
        (self.deps.time)()
    }

    fn tracker(&self) -> &Tracker {
        &self.deps.sources.tracker
    }

    /// Now, on both clocks.
    fn clock_reading(&self) -> ClockReading {
        ClockReading { time: self.now(), tick: (self.deps.clock)() }
    }

    /// Gives the application an order, and waits for what comes of it.
    async fn send_command<T>(
        &self,
        send_command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        (self.deps.control)(send_command(reply));
        answer.await.map_err(|_| Problem::unavailable("the tracker is stopping"))
    }

    /// Writes down who has changed what. Secrets are never part of it.
    fn audit(&self, caller: &Caller, action: std::fmt::Arguments<'_>) {
        let (token, name, from) = (caller.token, caller.name.as_str(), caller.from);
        info!(target: AUDIT, "token {token} ({name:?}) at {from}: {action}");
    }

    /// Does what happens beside requests, for ever.
    pub(crate) async fn work(self: Arc<Self>) {
        let (webhooks, events) = (webhooks::work(&self), events::forward_tracker_events(&self));
        tokio::join!(webhooks, events, self.record(), self.send_traces());
    }

    async fn send_traces(&self) {
        if let Some(traces) = &self.traces {
            traces.work(self.deps.sources.version).await;
        }
    }

    /// Takes a sample each second, and lets go of lists that nobody looks at.
    async fn record(&self) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        loop {
            seconds.tick().await;
            self.recorder.record(&self.deps.sources);
            self.torrent_list.forget_if_idle();
        }
    }
}

/// Every route there is.
fn routes() -> Vec<Route> {
    let tables = [
        stats::routes(),
        keys::routes(),
        bans::routes(),
        lists::routes(),
        tokens::routes(),
        config::routes(),
        events::routes(),
        stats_stream::routes(),
        torrents::routes(),
        peers::routes(),
        webhooks::routes(),
    ];
    tables.into_iter().flatten().collect()
}

/// The OpenAPI document.
pub(crate) fn document(version: &str) -> Value {
    describe::document(routes(), version)
}

/// The routes, below [`PREFIX`].
pub(crate) fn router(api: &Arc<Api>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let handler = match route.scope {
            Some(scope) => {
                route.handler.route_layer(from_fn_with_state((Arc::clone(api), scope), auth::guard))
            }
            None => route.handler,
        };
        router = router.route(route.path, handler);
    }
    let document = document(api.deps.sources.version).to_string();
    let kind = [("content-type", "application/json")];
    router = router.route("/openapi.json", get(move || async move { (kind, document) }));
    let origins: Arc<[String]> = api.options.cors_origins.clone().into();
    let router = Router::new()
        .nest(PREFIX, router)
        .merge(session::router())
        .fallback(|| async {
            Problem::not_found("docs/api.md and /api/v1/openapi.json tell what there is")
        })
        .method_not_allowed_fallback(|| async { Problem::method() })
        .layer(from_fn_with_state(Arc::clone(api), session::apply_session))
        .layer(from_fn(move |request, next| {
            cors::allow_origins(Arc::clone(&origins), request, next)
        }));
    let router = match api.traces {
        Some(_) => router.layer(from_fn_with_state(Arc::clone(api), traces::follow)),
        None => router,
    };
    router.with_state(Arc::clone(api))
}

#[cfg(test)]
mod tests;
