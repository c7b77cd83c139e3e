//! `/config`, `/log_lines/level`, `/certificates`: what the application decides.

use std::collections::BTreeMap;
use std::time::SystemTime;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::auth::Caller;
use super::input::{Body, Json, NoContent, Query};
use super::problem::Problem;
use super::route::{Route, route};
use super::scope::Scope;
use crate::control::{Command, ReloadOutcome, Setting};
use crate::log_levels::LogLevels;
use crate::log_tail::{LOG_TAIL, LogLine};
use crate::records::tables::settings;

/// Keys that one request may set.
const KEYS_MAX: usize = 100;

pub(super) fn routes() -> Vec<Route> {
    use Scope::{CertificatesWrite, ConfigRead, ConfigWrite, StatsRead};
    vec![
        route("GET /config", ConfigRead, "What is configured, and where that comes from", list),
        route("PATCH /config", ConfigWrite, "Set keys that can change while serving", change),
        route("POST /config/reload", ConfigWrite, "Read configuration and lists again", reload),
        route("GET /log", ConfigRead, "The last lines of the log", log_lines),
        route("GET /log/level", ConfigRead, "How much is logged", level),
        route("PUT /log/level", ConfigWrite, "Log more, or less, until the next reload", set_level),
        route(
            "GET /certificates",
            StatsRead,
            "Host names, and when their certificates end",
            certificates,
        ),
        route(
            "POST /certificates/reload",
            CertificatesWrite,
            "Read certificates and lists again",
            reload_files,
        ),
    ]
}

/// The configuration in force.
#[derive(Serialize, ToSchema)]
struct Settings {
    settings: Vec<Setting>,
}

/// New values, by the names of keys, as `tracker.interval_s`; null takes back what the API has set.
#[derive(Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(example = json!({ "tracker.interval_s": 900 }))]
struct SettingChanges(BTreeMap<String, Value>);

/// How much is logged: a level, and others for some areas, as in `info,front=debug`.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    #[schema(
        example = "info,front=debug",
        max_length = 1000,
        pattern = "^((serve|reload|acme|front|api|audit|webhooks|records|traces|libraries)=)?(error|warn|info|debug|trace)(,((serve|reload|acme|front|api|audit|webhooks|records|traces|libraries)=)?(error|warn|info|debug|trace))*$"
    )]
    level: String,
}

/// Characters of a level: more than naming each area takes.
const LEVEL_MAX: usize = 1000;
/// The largest number of a line: what every language's numbers hold.
const LINE_MAX: u64 = (1 << 53) - 1;

/// From where on.
#[derive(Deserialize, IntoParams)]
struct LogQuery {
    /// Lines with larger numbers than this; absent: all that are kept.
    #[param(minimum = 0, maximum = 9007199254740991u64, nullable = false)]
    after: Option<u64>,
}

/// The last lines of the log, the oldest first.
#[derive(Serialize, ToSchema)]
struct Log {
    lines: Vec<LogLine>,
}

/// A host name with its certificate.
#[derive(Serialize, ToSchema)]
struct Certificate {
    /// Empty for a certificate without a name.
    name: String,
    /// Seconds since 1970.
    expires: u64,
}

/// Every host name.
#[derive(Serialize, ToSchema)]
struct Certificates {
    certificates: Vec<Certificate>,
}

async fn list(State(api): State<Shared>) -> Result<Json<Settings>, Problem> {
    let settings = api.send_command(Command::Settings).await?;
    Ok(Json(Settings { settings }))
}

async fn reload(State(api): State<Shared>, caller: Caller) -> Result<Json<ReloadOutcome>, Problem> {
    let outcome = api.send_command(Command::Reload).await?;
    let reloaded = outcome.map_err(|sentences| Problem::settings(&sentences))?;
    api.audit(&caller, format_args!("reloaded the configuration"));
    Ok(Json(reloaded))
}

async fn change(
    State(api): State<Shared>,
    caller: Caller,
    Body(SettingChanges(changes)): Body<SettingChanges>,
) -> Result<Json<ReloadOutcome>, Problem> {
    if changes.len() > KEYS_MAX {
        return Err(Problem::conflict(format!("{KEYS_MAX} keys at a time are the most")));
    }
    let _alone = api.settings.lock().await;
    let recorded = api.records().read(settings::all).await?;
    let parse = |(name, text): (String, String)| Some((name, serde_json::from_str(&text).ok()?));
    let mut all: BTreeMap<String, Value> = recorded.into_iter().filter_map(parse).collect();
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
    let with = |dry_run| {
        let values = values.clone();
        move |reply| Command::SetOverrides { values, dry_run, reply }
    };
    let tried = api.send_command(with(true)).await?;
    tried.map_err(|sentences| Problem::settings(&sentences))?;
    api.records().change(move |db| settings::put(db, &rows), |()| ()).await?;
    let done = api.send_command(with(false)).await?;
    let reloaded = done.map_err(|sentences| Problem::settings(&sentences))?;
    api.audit(&caller, format_args!("set {}", names.join(", ")));
    Ok(Json(reloaded))
}

async fn log_lines(Query(LogQuery { after }): Query<LogQuery>) -> Result<Json<Log>, Problem> {
    let after = after.unwrap_or(0);
    if after > LINE_MAX {
        return Err(Problem::bad_request(format!("after: {LINE_MAX} is the most")));
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
    if level.len() > LEVEL_MAX {
        return Err(Problem::bad_request(format!("level: {LEVEL_MAX} characters are the most")));
    }
    let levels: LogLevels =
        level.parse().map_err(|text| Problem::bad_request(format!("level: {text}")))?;
    let levels = api.send_command(|reply| Command::LogLevels(Some(levels), reply)).await?;
    api.audit(&caller, format_args!("set the level of the log to {levels}"));
    Ok(Json(LogLevel { level: levels.to_string() }))
}

async fn certificates(State(api): State<Shared>) -> Result<Json<Certificates>, Problem> {
    let certificate = |(name, expires): (String, SystemTime)| {
        let expires = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Certificate { name, expires }
    };
    let all = (api.deps.sources.certificates)().into_iter().map(certificate);
    Ok(Json(Certificates { certificates: all.collect() }))
}

async fn reload_files(State(api): State<Shared>, caller: Caller) -> Result<NoContent, Problem> {
    let outcome = api.send_command(Command::ReloadFiles).await?;
    outcome.map_err(|sentences| Problem::settings(&sentences))?;
    api.audit(&caller, format_args!("reloaded lists and certificates"));
    Ok(NoContent)
}
