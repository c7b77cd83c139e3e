//! Durable records and the management API: opened before anything is served, closed last.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use admin::records::Writer;
use admin::{Api, ApiDeps, ApiOptions, ClockReading, Command, CountCollector, Records};
use anyhow::{Context, Result, bail};
use front::Clock;
use serde_json::Value;
use tracing::warn;
use tracker::Tracker;

use super::workers::Workers;
use super::{Happening, courier};
use crate::acme::{cache, owner};
use crate::config::Config;

/// How mistakes about the folder are headed.
const NAME: &str = "state.dir";
/// A token for the API from outside: for machines that are set up by programs.
const TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

/// Does what only root may.
pub(super) fn prepare(config: &Config) -> Result<()> {
    config.state_dir.as_deref().map_or(Ok(()), |dir| cache::make_folder(NAME, dir, owner(config)))
}

/// What is wrong with the folder, if something is.
pub(super) fn check(config: &Config) -> Option<String> {
    let dir = config.state_dir.as_deref()?;
    cache::probe(NAME, dir, owner(config)).err().map(|error| format!("{error:#}"))
}

/// Opens the records.
pub(super) fn open(config: &Config) -> Result<(Arc<Records>, Writer)> {
    let (records, writer) = Records::open(config.state_dir.as_deref())?;
    Ok((Arc::new(records), writer))
}

/// What the API has set of the configuration.
pub(super) fn settings(writer: &Writer) -> Result<Vec<(String, Value)>> {
    writer.settings().context(NAME)
}

/// Puts in force what is recorded.
pub(super) fn fill(
    config: &Config,
    tracker: &Tracker,
    writer: &Writer,
    clock: Clock,
) -> Result<()> {
    let is_durable = config.state_dir.is_some();
    admin::restore(tracker, writer, moment(clock), is_durable).with_context(|| {
        let dir = config.state_dir.as_deref().unwrap_or_else(|| Path::new("memory"));
        format!(
            "{NAME}: the records in {} cannot be read: put a copy in their place",
            dir.display()
        )
    })
}

/// Builds the API and starts the writer. Gives the first token, if there was none before.
pub(super) fn start(
    workers: &mut Workers,
    config: &Config,
    (records, writer): (Arc<Records>, Writer),
    clock: Clock,
    happen: Sender<Happening>,
) -> Result<(Arc<Api>, Option<String>)> {
    let options = ApiOptions {
        cors_origins: config.cors_origins.clone(),
        requests_per_s: config.requests_per_s,
        wrong_tokens_per_min: config.wrong_tokens_per_min,
        webhook_ports: config.webhook_ports.clone(),
        token: given_token()?,
    };
    let (send_post, traces) = courier::hire(config)?;
    let deps = ApiDeps {
        sources: workers.shared_figures(),
        records,
        control: Box::new(move |command: Command| {
            // Where nobody listens any more, whoever waits for an answer hears so.
            let _ = happen.send(Happening::Command(command));
        }),
        time: Arc::new(move || moment(clock).time),
        send_post,
        traces,
    };
    let (api, token) = Api::new(deps, options, &writer)?;
    let api = Arc::new(api);
    let tracker = Arc::clone(&workers.shared_figures().tracker);
    let collector = CountCollector::new(tracker, Arc::clone(api.hub()), move || moment(clock));
    let period = Duration::from_secs(config.flush_s.into());
    workers.start_records(move || {
        let mut collector = collector;
        writer.run(&mut collector, period);
    })?;
    Ok((api, token))
}

/// Has the records written out, when nothing is counted any more.
pub(super) fn close(records: &Records, deadline: Instant) {
    let mut closed = records.close();
    while closed
        .try_recv()
        .is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty)
    {
        if Instant::now() >= deadline {
            warn!("stopping without the last counts: the disk of the records does not answer");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn moment(clock: Clock) -> ClockReading {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ClockReading { time: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tick: clock.now() }
}

fn given_token() -> Result<Option<String>> {
    let Some(token) = std::env::var_os(TOKEN).filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    // It is not shown: whatever it is, somebody means it to be a secret.
    let token = token.into_string().ok().filter(|token| admin::is_token(token));
    match token {
        Some(token) => Ok(Some(token)),
        None => bail!("{TOKEN}: tg_ and 32 letters and digits are due"),
    }
}
