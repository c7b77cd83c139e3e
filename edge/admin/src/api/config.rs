//! `/config`, `/log`, `/certificates`: what the application manages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::SystemTime;

use serde_json::Value;

use super::handler::*;
use super::input::check_length;
use crate::clock::since_epoch;
use crate::control::{Command, ReloadOutcome, Settings};
use crate::log_levels::LogLevels;
use crate::log_tail::{LOG_TAIL, LogLine};
use crate::records::RecordOp;
use crate::records::tables::settings;

/// Keys in one request.
const KEYS_MAX: usize = 100;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{CertificatesWrite, ConfigRead, ConfigWrite, StatsRead};
    vec![
        route("GET /config", ConfigRead, "List settings and where their values come from", list),
        route("PATCH /config", ConfigWrite, "Change settings that need no restart", change),
        route(
            "POST /process/upgrade",
            ConfigWrite,
            "Start a new process that takes over, as SIGUSR2 does",
            upgrade,
        ),
        route(
            "POST /config/reload",
            ConfigWrite,
            "Reload configuration, lists and certificates",
            reload,
        ),
        route("GET /log", ConfigRead, "Show the last lines of the log", log_lines),
        route("GET /log/level", ConfigRead, "Show the log levels", level),
        route("PUT /log/level", ConfigWrite, "Set the log levels until the next reload", set_level),
        route(
            "GET /certificates",
            StatsRead,
            "List host names and when their certificates expire",
            certificates,
        ),
        route(
            "POST /certificates/reload",
            CertificatesWrite,
            "Reload certificates and lists",
            reload_files,
        ),
    ]
}

/// New values by setting name, as `tracker.interval_s`; null removes the override that the API has set.
#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(example = json!({ "tracker.interval_s": 900 }))]
struct SettingChanges(BTreeMap<String, Value>);

/// Query parameter that makes a change a dry run.
#[derive(Deserialize, IntoParams)]
struct ChangeQuery {
    /// Only say what the change would do, or what is wrong with it.
    #[param(nullable = false)]
    dry_run: Option<bool>,
}

/// Log levels: a default, and others for some areas, as in `info,front=debug`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    #[schema(
        example = "info,front=debug",
        max_length = 1000,
        pattern = "^((serve|reload|acme|front|api|audit|webhooks|records|journal|cluster|site|traces|libraries)=)?(error|warn|info|debug|trace)(,((serve|reload|acme|front|api|audit|webhooks|records|journal|cluster|site|traces|libraries)=)?(error|warn|info|debug|trace))*$"
    )]
    level: String,
}

/// Characters of log levels: more than it takes to name each area.
const LEVEL_MAX: usize = 1000;
/// The largest line id: the largest integer that a JSON number holds in every language.
const LINE_MAX: u64 = (1 << 53) - 1;

/// Query parameter that selects lines of the log.
#[derive(Deserialize, IntoParams)]
struct LogQuery {
    /// Lines with ids above this; absent: all that are kept.
    #[param(minimum = 0, maximum = 9007199254740991u64, nullable = false)]
    after: Option<u64>,
}

/// The last lines of the log, oldest first.
#[derive(Serialize, ToSchema)]
struct Log {
    lines: Vec<LogLine>,
}

/// The certificate of a host name.
#[derive(Serialize, ToSchema)]
struct Certificate {
    /// The host name or IP address; empty for a certificate without any.
    name: String,
    /// Unix time, seconds.
    expires: u64,
}

/// The certificates of all host names.
#[derive(Serialize, ToSchema)]
struct Certificates {
    certificates: Vec<Certificate>,
}

async fn list(State(api): State<Shared>) -> Result<Json<Settings>, Problem> {
    Ok(Json(api.send_command(Command::Settings).await?))
}

async fn upgrade(State(api): State<Shared>, caller: Caller) -> Result<NoContent, Problem> {
    api.send_command(Command::Upgrade).await?.map_err(Problem::conflict)?;
    api.audit(&caller, format_args!("started an upgrade"));
    Ok(NoContent)
}

async fn reload(State(api): State<Shared>, caller: Caller) -> Result<Json<ReloadOutcome>, Problem> {
    let reloaded = api.send_command(Command::Reload).await?.map_err(Problem::invalid_settings)?;
    api.audit(&caller, format_args!("reloaded the configuration"));
    Ok(Json(reloaded))
}

async fn change(
    State(api): State<Shared>,
    caller: Caller,
    Query(ChangeQuery { dry_run }): Query<ChangeQuery>,
    Body(SettingChanges(changes)): Body<SettingChanges>,
) -> Result<Json<ReloadOutcome>, Problem> {
    if changes.len() > KEYS_MAX {
        let found = changes.len();
        return Err(Problem::conflict(format!(
            "expected at most {KEYS_MAX} settings in one request, found {found}"
        )));
    }
    let _guard = api.settings_lock.lock().await;
    let recorded = api.records().read(settings::all).await?;
    let mut all: BTreeMap<String, Value> = recorded.into_iter().collect();
    let mut names = Vec::new();
    let mut rows = Vec::new();
    for (name, value) in changes {
        names.push(name.clone());
        rows.push((name.clone(), (!value.is_null()).then(|| value.to_string())));
        match value {
            Value::Null => drop(all.remove(&name)),
            value => drop(all.insert(name, value)),
        }
    }
    let values: Vec<_> = all.into_iter().collect();
    let command = |dry_run| {
        let values = values.clone();
        move |reply| Command::SetOverrides { values, dry_run, reply }
    };
    // Validate first: an invalid change is not recorded.
    let validated = api.send_command(command(true)).await?.map_err(Problem::invalid_settings)?;
    if dry_run.unwrap_or(false) {
        return Ok(Json(validated));
    }
    api.records().change(RecordOp::SettingsPut(rows)).await?;
    let reloaded = api.send_command(command(false)).await?.map_err(Problem::invalid_settings)?;
    api.audit(&caller, format_args!("set {}", names.join(", ")));
    Ok(Json(reloaded))
}

async fn log_lines(Query(LogQuery { after }): Query<LogQuery>) -> Result<Json<Log>, Problem> {
    let after = after.unwrap_or(0);
    if after > LINE_MAX {
        return Err(Problem::bad_request(format!(
            "after: expected at most {LINE_MAX}, found {after}"
        )));
    }
    Ok(Json(Log { lines: LOG_TAIL.after(after) }))
}

async fn level(State(api): State<Shared>) -> Result<Json<LogLevel>, Problem> {
    let levels = api.send_command(|reply| Command::LogLevels(None, reply)).await?;
    Ok(Json(LogLevel { level: levels.to_string() }))
}

async fn set_level(
    State(api): State<Shared>,
    caller: Caller,
    Body(LogLevel { level }): Body<LogLevel>,
) -> Result<Json<LogLevel>, Problem> {
    check_length("level", level.len(), LEVEL_MAX)?;
    let levels: LogLevels =
        level.parse().map_err(|text| Problem::bad_request(format!("level: {text}")))?;
    let levels = api.send_command(|reply| Command::LogLevels(Some(levels), reply)).await?;
    api.audit(&caller, format_args!("set the log levels to {levels}"));
    Ok(Json(LogLevel { level: levels.to_string() }))
}

async fn certificates(State(api): State<Shared>) -> Result<Json<Certificates>, Problem> {
    let certificate = |(name, validity): (String, Range<SystemTime>)| {
        let expires = since_epoch(validity.end).as_secs();
        Certificate { name, expires }
    };
    let all = (api.sources().certificates)().into_iter().map(certificate);
    Ok(Json(Certificates { certificates: all.collect() }))
}

async fn reload_files(State(api): State<Shared>, caller: Caller) -> Result<NoContent, Problem> {
    api.send_command(Command::ReloadFiles).await?.map_err(Problem::invalid_settings)?;
    api.audit(&caller, format_args!("reloaded lists and certificates"));
    Ok(NoContent)
}
