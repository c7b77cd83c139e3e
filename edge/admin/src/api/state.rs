//! The API's shared state: what its handlers work with.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use serde_json::Value;
use tokio::sync::{Notify, oneshot};
use tracing::info;
use tracker::counters::ServicesReport;
use tracker::{Networks, Tracker};
use types::Tick;

use super::auth::{Authenticator, Caller};
use super::first_token::{self, FirstTokenDisplay, StartError};
use super::problem::Problem;
use super::session_store::Sessions;
use super::streams::Streams;
use super::{events, history};
use crate::announce_url::AnnounceUrl;
use crate::clock::{ClockReading, UnixTime, since_epoch};
use crate::control::Command;
use crate::events::EventHub;
use crate::log_levels::AUDIT;
use crate::outbound::SendPost;
use crate::recorder::Recorder;
use crate::records::{RecordOp, Records, Writer, tables};
use crate::sources::MetricSources;
use crate::torrent_list::TorrentList;
use crate::webhooks::{HasOwner, Webhooks};

/// Configuration of the API.
#[derive(Clone, Debug, Default)]
pub struct ApiOptions {
    /// Web origins whose pages may use the API, as `https://example.org`.
    pub cors_origins: Vec<String>,
    /// Requests per second and token; 0 = unlimited.
    pub requests_per_s: u32,
    /// Invalid tokens per minute from one address; further ones get status 429.
    pub wrong_tokens_per_min: u32,
    /// Ports that webhook URLs may name.
    pub webhook_ports: Vec<u16>,
    /// Addresses that webhook URLs may name although they are not public.
    pub webhook_private: Networks,
    /// A token with full access that must not be in the records.
    pub bootstrap_token: Option<String>,
}

/// Dependencies of the API, which the application provides.
pub struct ApiDeps {
    /// Sources of statistics.
    pub sources: Arc<MetricSources>,
    /// Where changes are committed.
    pub records: Arc<Records>,
    /// Sends a command to the application.
    pub control: Box<dyn Fn(Command) + Send + Sync>,
    /// Returns the Unix time.
    pub time: UnixTime,
    /// Where users announce.
    pub announce_urls: Vec<AnnounceUrl>,
    /// Posts events to webhooks.
    pub send_post: SendPost,
    /// Shows the first token.
    pub first_token: FirstTokenDisplay,
    /// Returns whether an upgrade would start another program than the one that runs.
    pub is_upgrade_pending: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The management API, ready to be served.
pub struct Api {
    pub(super) deps: ApiDeps,
    pub(super) options: ApiOptions,
    authenticator: Arc<Authenticator>,
    hub: Arc<EventHub>,
    pub(super) sessions: Sessions,
    pub(super) event_streams: Arc<Streams>,
    /// Downloads of backups. Each makes a copy of the records first.
    pub(super) backup_streams: Arc<Streams>,
    pub(super) stats_streams: Arc<Streams>,
    pub(crate) recorder: Recorder,
    pub(super) torrent_list: Arc<TorrentList>,
    webhooks: Arc<Webhooks>,
    /// The latest time seen: what has expired stays expired when the clock goes back.
    latest: Arc<AtomicI64>,
    /// Notified when a token is revoked or a session is closed.
    pub(super) access_changed: Notify,
    /// Held while settings are changed, so that reading, validating and writing them is one step.
    pub(super) settings_lock: tokio::sync::Mutex<()>,
}

/// Returns `now`, or the latest time seen if that is later.
fn never_back(latest: &AtomicI64, now: i64) -> i64 {
    latest.fetch_max(now, Ordering::Relaxed).max(now)
}

/// Returns what tells whether the token that a webhook ends with is valid.
fn has_owner(
    authenticator: &Arc<Authenticator>,
    latest: &Arc<AtomicI64>,
    time: &UnixTime,
) -> HasOwner {
    let (authenticator, latest) = (Arc::clone(authenticator), Arc::clone(latest));
    let time = Arc::clone(time);
    Box::new(move |row| {
        let now = never_back(&latest, time());
        let is_valid =
            |digest| authenticator.by_digest(digest).is_some_and(|token| !token.has_expired(now));
        row.token.as_ref().is_none_or(is_valid)
    })
}

/// The API as handlers share it.
pub(super) type Shared = Arc<Api>;

impl Api {
    /// Builds the API with the tokens and webhooks in the records. Call before the writer runs.
    ///
    /// # Errors
    ///
    /// If the records cannot be read or written, if the bootstrap token is in them, or if there is no token
    /// and the first one cannot be shown.
    pub fn new(
        deps: ApiDeps,
        options: ApiOptions,
        writer: &mut Writer,
    ) -> Result<Self, StartError> {
        let start_error = |error| StartError::Records(deps.records.open_error(error));
        let records_error = |error: rusqlite::Error| start_error(error.into());
        let mut tokens = tables::tokens::all(writer.connection()).map_err(records_error)?;
        let bootstrap = options.bootstrap_token.as_deref();
        let created =
            first_token::create(&mut tokens, bootstrap, (deps.time)(), &deps.first_token)?;
        if let Some(mut token) = created {
            let created = writer.change(RecordOp::TokenPut(token.clone()));
            token.id = created.map_err(start_error)?.id;
            tokens.push(token);
        }
        let webhooks = tables::webhooks::all(writer.connection()).map_err(records_error)?;
        let authenticator =
            Authenticator::new(tokens, options.requests_per_s, options.wrong_tokens_per_min);
        let (authenticator, latest) = (Arc::new(authenticator), Arc::<AtomicI64>::default());
        let has_owner = has_owner(&authenticator, &latest, &deps.time);
        let (send_post, time) = (Arc::clone(&deps.send_post), Arc::clone(&deps.time));
        let webhooks = Arc::new(Webhooks::new(webhooks, send_post, time, has_owner));
        let recorder = Recorder::default();
        recorder.restore(tables::history::all(writer.connection()).map_err(records_error)?);
        let torrent_list = Arc::new(TorrentList::new(Arc::clone(&deps.sources.tracker)));
        Ok(Self {
            deps,
            options,
            authenticator,
            hub: Arc::default(),
            sessions: Sessions::default(),
            event_streams: Streams::new(events::STREAMS_MAX),
            backup_streams: Streams::new(1),
            stats_streams: Streams::new(history::STREAMS_MAX),
            recorder,
            torrent_list,
            webhooks,
            latest,
            access_changed: Notify::new(),
            settings_lock: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the hub that events are published to.
    pub fn hub(&self) -> &Arc<EventHub> {
        &self.hub
    }

    /// Returns the traffic of the last 24 hours and the uptime of 90 days of all services.
    pub fn services(&self) -> ServicesReport {
        self.recorder.services(since_epoch(SystemTime::now()).as_secs())
    }

    /// Keeps what was annotated since the last call in the history of statistics.
    pub(crate) fn keep_annotations(&self) {
        self.hub.take_annotations().into_iter().for_each(|one| self.recorder.annotate(one));
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    pub(crate) fn webhooks(&self) -> &Arc<Webhooks> {
        &self.webhooks
    }

    pub(crate) fn records(&self) -> &Records {
        &self.deps.records
    }

    pub(super) fn sources(&self) -> &MetricSources {
        &self.deps.sources
    }

    /// Returns the URLs at which a user announces with `key`: those of all private listeners.
    pub(super) fn announce_urls(&self, key: &str) -> Vec<String> {
        let settings = self.tracker().settings();
        let is_private = |url: &&AnnounceUrl| {
            let policy = settings.listener(url.listener_policy);
            policy.is_some_and(|policy| policy.is_private())
        };
        let urls = self.deps.announce_urls.iter().filter(is_private);
        urls.map(|url| url.with_key(key)).collect()
    }

    pub(crate) fn tracker(&self) -> &Tracker {
        &self.deps.sources.tracker
    }

    pub(super) fn tick(&self) -> Tick {
        (self.deps.sources.clock)()
    }

    /// Returns the Unix time in seconds. It never goes back.
    pub(super) fn now(&self) -> i64 {
        never_back(&self.latest, self.time())
    }

    /// Returns the Unix time in seconds by the machine's clock, as other machines expect it.
    pub(super) fn time(&self) -> i64 {
        (self.deps.time)()
    }

    pub(crate) fn clock_reading(&self) -> ClockReading {
        ClockReading { time: self.now(), tick: self.tick() }
    }

    pub(crate) fn control(&self, command: Command) {
        (self.deps.control)(command);
    }

    /// Sends the application a command and waits for its reply.
    pub(super) async fn send_command<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        (self.deps.control)(command(reply));
        answer.await.map_err(|_| Problem::shutting_down())
    }

    /// Removes a row from the records. `absent` says that there is none.
    pub(super) async fn remove(
        &self,
        removal: RecordOp,
        absent: impl FnOnce() -> String,
    ) -> Result<(), Problem> {
        match self.records().change(removal).await?.changed {
            0 => Err(Problem::not_found(absent())),
            _ => Ok(()),
        }
    }

    /// Does work that takes a while on a blocking thread.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let api = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&api)).await;
        done.map_err(|_| Problem::shutting_down())
    }

    /// Has the application apply settings that another node has set.
    pub(crate) fn apply_settings(&self, values: Vec<(String, Value)>) {
        // A failed reload is logged by the application.
        let (reply, _) = oneshot::channel();
        (self.deps.control)(Command::SetOverrides { values, dry_run: false, reply });
    }

    /// Logs a change and who made it. `action` never contains secrets.
    pub(super) fn audit(&self, caller: &Caller, action: std::fmt::Arguments<'_>) {
        let Caller { token, name, client, .. } = caller;
        info!(target: AUDIT, token, token_name = name.as_str(), %client, "{action}");
    }
}
