//! The stream of the log. It is the home of its own settings: only the operator's command changes them, and nodes look
//! whether it has what they need.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use async_nats::datetime::{DateTime, parse_rfc3339};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::operator::Made;
use super::options::NatsOptions;
use crate::status::ClusterStream;

/// Time that the log keeps messages beyond a peer's lifetime: a node that starts reads from before the end of its
/// journal.
const SPARE: Duration = Duration::from_secs(300);
/// Repetitions of a request that was not answered: servers that have just started may lose one. Making a
/// stream twice changes nothing.
const CREATE_RETRIES: u32 = 2;
/// The time limit of the look-up before a stream is made.
const MAKE_PATIENCE: Duration = Duration::from_secs(5);
/// The time that servers may take to start.
const START_PATIENCE: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(250);
/// Nodes have no right to change the stream.
const REMEDY: &str = "run `tidegate cluster set`";
/// Percent of its size from which a stream may soon lose messages that are needed.
const FULL_PERCENT: u64 = 80;
/// A stream whose messages span this share of its maximum age, in percent, loses them by age and not by size.
const SPAN_PERCENT: u32 = 90;
/// Settings that make no difference to nodes.
const FREE: [&str; 8] = [
    "name",
    "description",
    "placement",
    "metadata",
    "compression",
    "deny_delete",
    "deny_purge",
    "first_seq",
];
/// Settings in nanoseconds.
const TIMES: [&str; 2] = ["max_age", "duplicate_window"];
/// A server that has no stream of a name says so by this code.
const NO_STREAM: ErrorCode = ErrorCode::STREAM_NOT_FOUND;

/// The settings of the stream that the operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// Servers that store each message.
    pub replicas: usize,
    /// The size that it may have, in bytes.
    pub bytes: u64,
    /// The longest lifetime of peers on any node, in seconds. Messages are kept a little longer.
    pub lifetime_s: u32,
}

/// New values for some of [`StreamSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamChanges {
    /// A new [`StreamSettings::replicas`].
    pub replicas: Option<usize>,
    /// A new [`StreamSettings::bytes`].
    pub bytes: Option<u64>,
    /// A new [`StreamSettings::lifetime_s`].
    pub lifetime_s: Option<u32>,
}

impl StreamSettings {
    /// Returns the settings of a stream that there is. Where it has no limit, which would fill the disks, those in
    /// `fallback` stand.
    fn of(config: &Config, fallback: Self) -> Self {
        let bytes = u64::try_from(config.max_bytes).ok().filter(|bytes| *bytes > 0);
        let age = Some(config.max_age).filter(|age| !age.is_zero());
        let lifetime_s = |age: Duration| u32::try_from(age.saturating_sub(SPARE).as_secs());
        Self {
            replicas: config.num_replicas,
            bytes: bytes.unwrap_or(fallback.bytes),
            lifetime_s: age.map_or(fallback.lifetime_s, |age| lifetime_s(age).unwrap_or(u32::MAX)),
        }
    }

    fn with(self, changes: StreamChanges) -> Self {
        Self {
            replicas: changes.replicas.unwrap_or(self.replicas),
            bytes: changes.bytes.unwrap_or(self.bytes),
            lifetime_s: changes.lifetime_s.unwrap_or(self.lifetime_s),
        }
    }

    /// Returns how the stream should be.
    fn config(self, needs: &Needs) -> Config {
        let max_age = age_for(self.lifetime_s);
        Config {
            max_age,
            // A message that has been stored comes never again, as long as it has an effect.
            duplicate_window: max_age,
            max_bytes: i64::try_from(self.bytes).unwrap_or(i64::MAX),
            num_replicas: self.replicas,
            description: Some("tidegate: changes of peers".into()),
            name: needs.name.clone(),
            subjects: vec![needs.subject.clone()],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::Old,
            ..Config::default()
        }
    }
}

/// Returns for how long the log keeps messages about peers of this lifetime.
fn age_for(lifetime_s: u32) -> Duration {
    Duration::from_secs(lifetime_s.into()) + SPARE
}

/// State of a stream, as a look-up found it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StreamState {
    /// When it was created, unix ns.
    pub(super) created_ns: u64,
    /// The sequence of its first message.
    pub(super) first: u64,
    /// The sequence of its last message; less than `first` if it has none.
    pub(super) last: u64,
    /// When that was stored, unix ms.
    pub(super) last_ms: u64,
    /// The time of the server that answered, unix ms.
    pub(super) server_ms: u64,
    pub(super) info: ClusterStream,
    /// Flaws of the stream, with remedies; it works nevertheless.
    pub(super) doubt: Option<String>,
}

/// Settings of the stream that a node needs.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    pub(super) name: String,
    subject: String,
    /// Of this node's peers.
    lifetime_s: u32,
}

/// Returns what a node with these options needs of the log's stream.
pub(super) fn data_config(link: &Link, options: &NatsOptions) -> Needs {
    Needs {
        name: link.subjects.stream(),
        subject: link.subjects.all("d"),
        lifetime_s: options.peer_lifetime_s,
    }
}

/// A stream, as a server describes it.
pub(super) struct Found {
    pub(super) info: Info,
    /// All its settings, also those that this program does not know.
    settings: Value,
    /// The time of the server, unix ms.
    pub(super) server_ms: u64,
}

/// Looks a stream up. Returns a sentence with a remedy if that fails, or there is none.
pub(super) async fn find(
    jetstream: &Context,
    needs: &Needs,
    patience: Duration,
) -> Result<StreamState, String> {
    let found = look_up(jetstream, &needs.name, patience).await?;
    let found = found.ok_or_else(|| missing(&needs.name))?;
    Ok(found.state(found.doubt(needs)))
}

/// Returns the problem of a stream that does not exist.
pub(super) fn missing(name: &str) -> String {
    format!("the stream {name} does not exist: {REMEDY}")
}

/// Makes a stream with the settings in `recorded`, or makes `changes` to the one that there is. It becomes smaller only
/// if it `may_shrink`.
///
/// # Errors
///
/// If the servers refuse: a sentence with a remedy.
pub(super) async fn make(
    jetstream: &Context,
    needs: &Needs,
    recorded: StreamSettings,
    changes: StreamChanges,
    may_shrink: bool,
) -> Result<Made, String> {
    let name = &needs.name;
    let Some(found) = look_up_at_start(jetstream, name).await? else {
        let settings = recorded.with(changes);
        create(jetstream, &settings.config(needs)).await?;
        return Ok(Made { done: format!("made the stream {name}"), settings });
    };
    let present = &found.info.config;
    let settings = StreamSettings::of(present, recorded).with(changes);
    let wanted = with_free(present, settings.config(needs));
    let parts = differences(&found.settings, &wanted);
    if parts.is_empty() {
        return Ok(Made { done: format!("the stream {name} is as it should be"), settings });
    }
    let doubt = format!("the stream {name} has {}", parts.join(", "));
    if !may_shrink && is_smaller(&wanted, present) {
        return Err(format!(
            "{doubt}: a smaller stream loses messages of all nodes, or copies of them: repeat the command with --shrink"
        ));
    }
    match jetstream.update_stream(&wanted).await {
        Ok(_) => Ok(Made { done: format!("changed: {doubt}"), settings }),
        Err(error) => Err(format!("{doubt}, and cannot be changed: {error}")),
    }
}

/// Returns what there is of a stream, or `None` if there is no such stream. Servers that have just started say for a
/// moment that the account has no JetStream.
async fn look_up_at_start(jetstream: &Context, name: &str) -> Result<Option<Found>, String> {
    let begun = Instant::now();
    loop {
        let found = look_up(jetstream, name, MAKE_PATIENCE).await;
        if found.is_ok() || begun.elapsed() >= START_PATIENCE {
            return found;
        }
        sleep(START_PAUSE).await;
    }
}

/// Returns what there is of a stream, or `None` if there is no such stream. Fails after `patience`.
pub(super) async fn look_up(
    jetstream: &Context,
    name: &str,
    patience: Duration,
) -> Result<Option<Found>, String> {
    let request = jetstream.request::<_, _, Response<Value>>(format!("STREAM.INFO.{name}"), &());
    let failed = |error: &dyn Display| {
        format!(
            "cannot look up the stream {name}: {error}: check that the NATS servers run with the configuration that \
             `tidegate cluster init` made"
        )
    };
    match timeout(patience, request).await {
        Err(_) => Err(format!(
            "cannot look up the stream {name}: no answer within {patience:?}: does it have a leader? Check \
             that JetStream is on and a majority of its servers run"
        )),
        Ok(Err(error)) => Err(failed(&error)),
        Ok(Ok(Response::Err { error })) if error.error_code() == NO_STREAM => Ok(None),
        Ok(Ok(Response::Err { error })) => Err(failed(&error)),
        Ok(Ok(Response::Ok(answer))) => {
            let settings = answer["config"].clone();
            let server_time = answer["ts"].as_str().unwrap_or_default();
            let server_ms = unix_ms(parse_rfc3339(server_time).map_err(|error| failed(&error))?);
            let info = serde_json::from_value(answer).map_err(|error| failed(&error))?;
            Ok(Some(Found { info, settings, server_ms }))
        }
    }
}

async fn create(jetstream: &Context, wanted: &Config) -> Result<(), String> {
    let (name, replicas) = (&wanted.name, wanted.num_replicas);
    let mut created = jetstream.create_stream(wanted).await;
    for _ in 0..CREATE_RETRIES {
        let is_late = |error: &CreateStreamError| error.kind() == CreateStreamErrorKind::TimedOut;
        if !created.as_ref().is_err_and(is_late) {
            break;
        }
        created = jetstream.create_stream(wanted).await;
    }
    let Err(error) = created else { return Ok(()) };
    let remedy = match error.kind() {
        CreateStreamErrorKind::TimedOut => {
            "check that a majority of the NATS servers runs".to_owned()
        }
        _ => format!(
            "check that {replicas} NATS servers run and have {} MiB of room each, or choose less by `tidegate cluster \
             set size` or `replicas`",
            wanted.max_bytes >> 20
        ),
    };
    Err(format!("cannot create the stream {name}: {error}: {remedy}"))
}

/// Returns whether a stream would have fewer messages, or fewer copies of them, than it has. No limit is 0 or less.
fn is_smaller(wanted: &Config, found: &Config) -> bool {
    let bytes = |config: &Config| if config.max_bytes > 0 { config.max_bytes } else { i64::MAX };
    let age =
        |config: &Config| if config.max_age.is_zero() { Duration::MAX } else { config.max_age };
    bytes(wanted) < bytes(found)
        || age(wanted) < age(found)
        || wanted.num_replicas < found.num_replicas
}

/// Returns the wanted settings, with those as they are that make no difference to nodes.
fn with_free(found: &Config, wanted: Config) -> Config {
    Config {
        description: found.description.clone(),
        placement: found.placement.clone(),
        metadata: found.metadata.clone(),
        compression: found.compression.clone(),
        deny_delete: found.deny_delete,
        deny_purge: found.deny_purge,
        first_sequence: found.first_sequence,
        ..wanted
    }
}

impl Found {
    /// Returns what is not as a node needs it, with remedies.
    pub(super) fn doubt(&self, needs: &Needs) -> Option<String> {
        let present = &self.info.config;
        // The operator chooses these, within bounds.
        let fallback = StreamSettings { replicas: 1, bytes: 0, lifetime_s: needs.lifetime_s };
        let wanted = StreamSettings::of(present, fallback).config(needs);
        let parts = differences(&self.settings, &wanted);
        let mut doubts = Vec::new();
        if !parts.is_empty() {
            doubts.push(format!("the stream {} has {}: {REMEDY}", needs.name, parts.join(", ")));
        }
        doubts.extend(too_short(present.max_age, needs));
        doubts.extend(too_full(&self.info));
        (!doubts.is_empty()).then(|| doubts.join("; "))
    }

    fn state(&self, doubt: Option<String>) -> StreamState {
        let Self { info, server_ms, .. } = self;
        let created_ns = info.created.unix_timestamp_nanos();
        StreamState {
            created_ns: u64::try_from(created_ns).unwrap_or(0),
            first: info.state.first_sequence,
            last: info.state.last_sequence,
            last_ms: unix_ms(info.state.last_timestamp),
            server_ms: *server_ms,
            info: stream_info(info),
            doubt,
        }
    }
}

/// Returns what is wrong if a stream forgets messages before the peers in them are gone.
fn too_short(max_age: Duration, needs: &Needs) -> Option<String> {
    let Needs { name, lifetime_s, .. } = needs;
    let needed = age_for(*lifetime_s);
    (!max_age.is_zero() && max_age < needed).then(|| {
        format!(
            "the stream {name} keeps messages for {} s, but peers of this node live for {lifetime_s} s, so {} s are \
             needed: run `tidegate cluster set lifetime {lifetime_s}`, or lower tracker.interval_s, or \
             load.interval_max_s if it is set",
            max_age.as_secs(),
            needed.as_secs()
        )
    })
}

/// Returns what is wrong if a stream has little room left, and its oldest messages are far from their maximum age.
fn too_full(info: &Info) -> Option<String> {
    let bytes_max = u64::try_from(info.config.max_bytes).ok().filter(|bytes| *bytes > 0)?;
    let percent = info.state.bytes.saturating_mul(100) / bytes_max;
    let first = info.state.first_timestamp.unix_timestamp();
    let span_s = info.state.last_timestamp.unix_timestamp().saturating_sub(first);
    let span = Duration::from_secs(u64::try_from(span_s).unwrap_or(0));
    let is_young = span * 100 < info.config.max_age * SPAN_PERCENT;
    (percent > FULL_PERCENT && is_young).then(|| {
        format!(
            "{percent} % of the stream {} are used by the messages of {} s, and it should keep those of {} s: run \
             `tidegate cluster set size` with more than {} MiB",
            info.config.name,
            span.as_secs(),
            info.config.max_age.as_secs(),
            bytes_max >> 20
        )
    })
}

/// Describes what a stream has instead of what it should have. Also what this program does not know, such as settings of
/// later servers: with `republish`, `subject_transform`, `sources` or `max_msgs`, messages are lost or seem to be of
/// another node.
fn differences(found: &Value, wanted: &Config) -> Vec<String> {
    let wanted = serde_json::to_value(wanted).unwrap_or_default();
    let mut keys: BTreeSet<&String> = [found, &wanted]
        .into_iter()
        .flat_map(|settings| settings.as_object().into_iter().flat_map(Map::keys))
        .collect();
    keys.retain(|key| !FREE.contains(&key.as_str()));
    let mut parts = Vec::new();
    for key in keys {
        let (found, wanted) = (&found[key], &wanted[key]);
        if found == wanted || is_neutral(found) && is_neutral(wanted) {
            continue;
        }
        parts.push(match is_neutral(wanted) {
            true => format!("{key} {found}, which must not be set"),
            false => format!("{key} {} instead of {}", plain(key, found), plain(key, wanted)),
        });
    }
    parts
}

/// Returns the value of a setting for messages.
fn plain(key: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(ns) if TIMES.contains(&key) => format!("{} s", ns / 1_000_000_000),
        _ => value.to_string(),
    }
}

/// Returns whether a setting has no effect. Limits of -1 and 0 are none.
fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_on) => !is_on,
        Value::Number(limit) => limit.as_i64().is_some_and(|limit| limit <= 0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_neutral),
    }
}

fn unix_ms(time: DateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// Returns what there is to see of a stream, as it is now.
pub(super) fn stream_info(info: &Info) -> ClusterStream {
    let cluster = info.cluster.as_ref();
    let current = |cluster: &async_nats::jetstream::stream::ClusterInfo| {
        let has_leader = u64::from(cluster.leader.is_some());
        has_leader + cluster.replicas.iter().filter(|peer| peer.current).count() as u64
    };
    ClusterStream {
        name: info.config.name.clone(),
        has_leader: cluster.is_none_or(|cluster| cluster.leader.is_some()),
        replicas: info.config.num_replicas as u64,
        replicas_current: cluster.map_or(1, current),
        messages: info.state.messages,
        bytes: info.state.bytes,
        bytes_max: u64::try_from(info.config.max_bytes).unwrap_or(0),
        age_s: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs { name: "S".into(), subject: "s".into(), lifetime_s: 3600 }
    }

    /// Returns a stream as a server describes it.
    fn described(config: &Config) -> Value {
        serde_json::to_value(config).unwrap()
    }

    #[test]
    fn keeps_what_makes_no_difference_to_nodes() {
        let wanted = StreamSettings { replicas: 3, bytes: 9, lifetime_s: 60 }.config(&needs());
        let found = Config {
            num_replicas: 1,
            description: Some("mine".into()),
            max_messages: 5,
            duplicate_window: Duration::from_secs(120),
            ..wanted.clone()
        };
        let expected = [
            "duplicate_window 120 s instead of 360 s",
            "max_msgs 5, which must not be set",
            "num_replicas 1 instead of 3",
        ];
        assert_eq!(differences(&described(&found), &wanted), expected);
        let changed = with_free(&found, wanted.clone());
        assert_eq!((changed.num_replicas, changed.max_messages), (3, 0));
        assert_eq!(changed.description.as_deref(), Some("mine"));
        assert!(differences(&described(&changed), &wanted).is_empty());
    }

    #[test]
    fn names_settings_that_no_stream_of_a_cluster_has() {
        let wanted = StreamSettings { replicas: 1, bytes: 9, lifetime_s: 60 }.config(&needs());
        let with = |settings: Value| {
            let mut found = described(&wanted);
            found.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
            differences(&found, &wanted)
        };
        let neutral = serde_json::json!({
            "max_msgs": -1, "max_msg_size": 0, "republish": null, "sealed": false, "consumer_limits": {},
            "sources": [], "mirror": {"name": ""}, "metadata": {"a": "b"}, "name": "other",
        });
        assert_eq!(with(neutral), [] as [String; 0]);
        let all = serde_json::json!({
            "max_msgs": 1, "republish": {"src": "a", "dest": "b"}, "allow_rollup_hdrs": true, "later": "x",
        });
        let found = with(all);
        let names: Vec<_> = found.iter().map(|it| it.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["allow_rollup_hdrs", "later", "max_msgs", "republish"]);
    }

    #[test]
    fn a_stream_that_fills_before_its_messages_are_old_is_named() {
        let info = |bytes: u64, span_min: u64| -> Info {
            let wanted = StreamSettings { replicas: 1, bytes: 100 << 20, lifetime_s: 3300 };
            let info = serde_json::json!({
                "config": described(&wanted.config(&needs())),
                "created": "2026-01-01T00:00:00Z",
                "state": {
                    "messages": 9, "bytes": bytes << 20, "first_seq": 1, "last_seq": 9, "consumer_count": 0,
                    "first_ts": "2026-01-01T00:00:00Z", "last_ts": format!("2026-01-01T00:{span_min:02}:00Z"),
                },
            });
            serde_json::from_value(info).unwrap()
        };
        // Of an hour.
        for (bytes, span_min, is_full) in
            [(80, 10, false), (81, 10, true), (99, 53, true), (99, 54, false)]
        {
            assert_eq!(too_full(&info(bytes, span_min)).is_some(), is_full, "{bytes} {span_min}");
        }
        let text = too_full(&info(90, 20)).unwrap();
        assert!(text.contains("messages of 1200 s, and it should keep those of 3600 s"), "{text}");
        assert!(text.ends_with("`tidegate cluster set size` with more than 100 MiB"), "{text}");
    }
}
