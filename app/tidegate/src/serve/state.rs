//! Durable records and the management API: opened before serving starts, closed last.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use admin::records::{FILE as RECORDS_FILE, Writer};
use admin::{
    AnnotationKind, AnnounceUrl, Api, ApiDeps, ApiOptions, ClockReading, Command, Live, Records,
    StartError,
};
use anyhow::{Context, Result, anyhow};
use front::Clock;
use net::process::{self, Identity};
use tracing::warn;
use tracker::Tracker;

use super::module::Shared;
use super::program::ProgramFile;
use super::serving::Event;
use super::time::unix_ms;
use super::tokens::{self, FirstToken};
use super::webhooks;
use super::workers::Workers;
use crate::permissions::{
    STATE_DIRECTORY, check_directory, check_writable, chown, future_owner, may_write,
};
use config::Config;

pub(super) fn check(config: &Config) -> Option<String> {
    let dir = config.state_dir.as_deref()?;
    let owner = future_owner(config);
    let mut checked = check_writable(STATE_DIRECTORY, dir, owner);
    if checked.is_ok() && dir.is_dir() {
        // Root checks what a service manager may start as another user, which the configuration does not name.
        let is_other = process::is_root() && config.user.is_empty();
        let owner_there = || is_other.then(|| Identity::owner_of(dir).ok()).flatten();
        checked = check_directory(dir, owner.or_else(owner_there)).context(STATE_DIRECTORY);
    }
    let remedy = || ownership_problem(dir, owner?);
    checked.err().map(|error| format!("{error:#}")).or_else(remedy)
}

pub(super) fn open(config: &Config) -> Result<(Arc<Records>, Writer)> {
    let dir = config.state_dir.as_deref();
    let (records, writer) = Records::open(dir).map_err(|error| {
        let problem = dir.and_then(|dir| ownership_problem(dir, Identity::of_process()));
        match problem.filter(|_| !config.user.is_empty()) {
            Some(problem) => anyhow!(problem),
            None => error.into(),
        }
    })?;
    Ok((Arc::new(records), writer))
}

/// Returns the problem that `user` may not write to what an earlier start as root has made, with its remedy.
fn ownership_problem(dir: &Path, user: Identity) -> Option<String> {
    let records = dir.join(RECORDS_FILE);
    let lacks = |path: &&Path| may_write(path, user).is_ok_and(|may| !may);
    let path = [dir, records.as_path()].into_iter().find(lacks)?;
    Some(format!(
        "{STATE_DIRECTORY}: {}: process.user has no permission to write to it: {}",
        path.display(),
        chown(dir, user)
    ))
}

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
            "{STATE_DIRECTORY}: cannot read the records in {}: restore them from a backup",
            dir.display()
        )
    })
}

/// Builds the API and starts the writer of records. Returns the first token, if there was none before.
pub(super) fn start(
    workers: &mut Workers,
    config: &Config,
    shared: &Shared,
    mut writer: Writer,
    announce_urls: &[AnnounceUrl],
    events: &Sender<Event>,
) -> Result<(Arc<Api>, FirstToken)> {
    let options = ApiOptions {
        cors_origins: config.cors_origins.clone(),
        requests_per_s: config.requests_per_s,
        wrong_tokens_per_min: config.wrong_tokens_per_min,
        webhook_ports: config.webhook_ports.clone(),
        webhook_private: config.webhook_private.clone(),
        bootstrap_token: tokens::bootstrap()?,
    };
    let send_post = webhooks::client(config)?;
    let program = ProgramFile::running();
    let first_token = FirstToken::default();
    let clock = shared.clock;
    let events = events.clone();
    let deps = ApiDeps {
        sources: Arc::clone(workers.metric_sources()),
        records: Arc::clone(&shared.records),
        control: Box::new(move |command: Command| {
            // If the process is going down, the reply's channel closes, which the requester sees.
            let _ = events.send(Event::Command(command));
        }),
        time: Arc::new(move || moment(clock).time),
        announce_urls: announce_urls.to_vec(),
        send_post,
        first_token: first_token.display(config),
        is_upgrade_pending: Box::new(move || program.has_changed()),
    };
    let api = Arc::new(Api::new(deps, options, &mut writer).map_err(start_error)?);
    let mut live = Live::new(Arc::clone(&api));
    let period = Duration::from_secs(config.flush_s.into());
    // Normal priority: changes through the API wait for this thread. It ends after all others.
    workers.spawn(
        "records",
        || Ok(()),
        move || {
            writer.run(&mut live, period);
            Ok(())
        },
    )?;
    Ok((api, first_token))
}

pub(super) fn annotate_start(api: &Api, is_upgrade: bool) {
    let (kind, started) = match is_upgrade {
        true => (AnnotationKind::Upgrade, "Upgraded to"),
        false => (AnnotationKind::Start, "Started"),
    };
    api.hub().annotate(kind, format!("{started} tidegate {}", env!("CARGO_PKG_VERSION")));
}

fn start_error(error: StartError) -> anyhow::Error {
    match error {
        StartError::Records(_) => error.into(),
        StartError::RecordedToken(..) => anyhow!("{}: {error}", tokens::BOOTSTRAP_VARIABLE),
        StartError::FirstToken(_) => anyhow!("{STATE_DIRECTORY}: {error}"),
    }
}

/// Writes the last records, once all workers have stopped. Gives up at `deadline`.
pub(super) fn close(records: &Records, deadline: Instant) {
    let mut closed = records.close();
    while closed
        .try_recv()
        .is_err_and(|error| error == tokio::sync::oneshot::error::TryRecvError::Empty)
    {
        if Instant::now() >= deadline {
            warn!("stopping without the last counters: cannot write to the disk of state.dir");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn moment(clock: Clock) -> ClockReading {
    ClockReading { time: (unix_ms() / 1000).cast_signed(), tick: clock.now() }
}
