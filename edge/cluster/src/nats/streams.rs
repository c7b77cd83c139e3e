//! The stream of the log: how it should be. Nodes check it, and only the operator makes it so.

use std::fmt::Display;
use std::time::Duration;

use async_nats::datetime::{DateTime, parse_rfc3339};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};
use serde_json::Value;
use tokio::time::timeout;

use super::link::Link;
use super::options::NatsOptions;

/// How much longer than a peer's lifetime the log keeps messages: a node that starts reads from before its
/// journal's end.
const SPARE: Duration = Duration::from_secs(300);
/// Repetitions of a request that was not answered: servers that have just started may lose one. Making a
/// stream twice changes nothing.
const CREATE_RETRIES: u32 = 2;
/// The time limit of the look-up before a stream is made.
const MAKE_PATIENCE: Duration = Duration::from_secs(5);
/// Nodes have no right to change streams.
const REMEDY: &str = "run `tidegate cluster streams`";
/// Settings that [`differences`] compares.
const COMPARED: [&str; 8] = [
    "subjects",
    "retention",
    "storage",
    "discard",
    "num_replicas",
    "max_age",
    "duplicate_window",
    "max_bytes",
];
/// Settings that the operator chooses.
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
/// A server that has no stream of a name says so by this code.
const NO_STREAM: ErrorCode = ErrorCode::STREAM_NOT_FOUND;

/// What a stream is and has.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub(super) info: StreamInfo,
    /// What is not as it should be, as a sentence; it works nevertheless.
    pub(super) doubt: Option<String>,
}

/// What there is to see of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Whether it has a leader.
    pub has_leader: bool,
    /// Servers that should have it.
    pub replicas: u64,
    /// Those of them that are current.
    pub replicas_current: u64,
    /// Messages in it.
    pub messages: u64,
    /// Their size, in bytes.
    pub bytes: u64,
    /// The size that it may have, in bytes; 0 = unlimited.
    pub bytes_max: u64,
}

/// Returns how the log should be.
pub(super) fn data_config(link: &Link, options: &NatsOptions) -> Config {
    let max_age = Duration::from_secs(options.peer_lifetime_s.into()) + SPARE;
    Config {
        max_age,
        // A message that has been stored comes never again, as long as it has an effect.
        duplicate_window: max_age,
        max_bytes: i64::try_from(options.stream_bytes).unwrap_or(i64::MAX),
        description: Some("tidegate: changes of peers".into()),
        name: link.subjects.stream(),
        subjects: vec![link.subjects.all("d")],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        num_replicas: options.replicas,
        ..Config::default()
    }
}

/// A stream, as a server describes it.
pub(super) struct Found {
    pub(super) info: Info,
    /// All its settings, also those that this program does not know.
    settings: Value,
    /// The time of the server, unix ms.
    server_ms: u64,
}

/// Looks a stream up. Returns a sentence with a remedy if that fails, or there is none.
pub(super) async fn find(
    jetstream: &Context,
    wanted: &Config,
    patience: Duration,
) -> Result<StreamState, String> {
    let found = look_up(jetstream, &wanted.name, patience).await?;
    let found = found.ok_or_else(|| missing(&wanted.name))?;
    let doubt = found.doubt(wanted).map(|text| format!("{text}: {REMEDY}"));
    Ok(found.state(doubt))
}

/// Returns the problem of a stream that does not exist.
pub(super) fn missing(name: &str) -> String {
    format!("the stream {name} does not exist: {REMEDY}")
}

/// Makes a stream as it should be, but not smaller unless it `may_shrink`. Returns what was done.
///
/// # Errors
///
/// If the servers refuse: a sentence with a remedy.
pub(super) async fn make(
    jetstream: &Context,
    wanted: Config,
    may_shrink: bool,
) -> Result<String, String> {
    let name = wanted.name.clone();
    let Some(found) = look_up(jetstream, &name, MAKE_PATIENCE).await? else {
        create(jetstream, &wanted).await?;
        return Ok(format!("made the stream {name}"));
    };
    let Some(doubt) = found.doubt(&wanted) else {
        return Ok(format!("the stream {name} is as it should be"));
    };
    if !may_shrink && is_smaller(&wanted, &found.info.config) {
        return Err(format!(
            "{doubt}: a smaller stream loses messages of all nodes: name the configuration that they have, or \
             repeat the command with --shrink"
        ));
    }
    let changed = with_free(&found.info.config, wanted);
    match jetstream.update_stream(&changed).await {
        Ok(_) => Ok(format!("changed: {doubt}")),
        Err(error) => Err(format!("{doubt}, and cannot be changed: {error}")),
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
            "cannot look up the stream {name}: {error}: check that JetStream is on and that this user \
             has the rights of `tidegate cluster nats-config`"
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

async fn create(jetstream: &Context, wanted: &Config) -> Result<Info, String> {
    let (name, replicas) = (&wanted.name, wanted.num_replicas);
    let mut created = jetstream.create_stream(wanted).await;
    for _ in 0..CREATE_RETRIES {
        let is_late = |error: &CreateStreamError| error.kind() == CreateStreamErrorKind::TimedOut;
        if !created.as_ref().is_err_and(is_late) {
            break;
        }
        created = jetstream.create_stream(wanted).await;
    }
    match created {
        Ok(stream) => Ok(stream.cached_info().clone()),
        Err(error) => {
            let remedy = match error.kind() {
                CreateStreamErrorKind::TimedOut => {
                    "check that a majority of the NATS servers runs".to_owned()
                }
                _ if replicas > 1 => format!(
                    "check that {replicas} servers with JetStream form a NATS cluster, or lower \
                     cluster.replicas, and that they have room for cluster.stream_mib"
                ),
                _ => {
                    "check that the server has JetStream and room for cluster.stream_mib".to_owned()
                }
            };
            Err(format!("cannot create the stream {name}: {error}: {remedy}"))
        }
    }
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

/// Returns the wanted settings, with those of [`FREE`] as they are.
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
    /// Returns what is not as `wanted`, as a sentence without an end.
    pub(super) fn doubt(&self, wanted: &Config) -> Option<String> {
        let mut parts = differences(&self.info.config, wanted);
        parts.extend(unexpected(&self.settings));
        let name = &self.info.config.name;
        (!parts.is_empty()).then(|| format!("the stream {name} has {}", parts.join(", ")))
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

/// Returns the settings that no stream of a cluster has, such as `republish`, `subject_transform`, `sources` and
/// `max_msgs`: with these, messages are lost or seem to be of another node. Those of later servers, too.
fn unexpected(settings: &Value) -> Vec<String> {
    let settings = settings.as_object().into_iter().flatten();
    let known = |key: &str| FREE.contains(&key) || COMPARED.contains(&key);
    let unexpected = settings.filter(|(key, value)| !known(key) && !is_neutral(value));
    unexpected.map(|(key, value)| format!("{key} {value}, which must not be set")).collect()
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

/// Describes what a stream has instead of what it should have.
fn differences(found: &Config, wanted: &Config) -> Vec<String> {
    let mut parts = Vec::new();
    let mut compare = |what: &str, found: String, wanted: String| {
        if found != wanted {
            parts.push(format!("{what} {found} instead of {wanted}"));
        }
    };
    compare("subjects", found.subjects.join(" "), wanted.subjects.join(" "));
    compare("retention", format!("{:?}", found.retention), format!("{:?}", wanted.retention));
    compare("storage", format!("{:?}", found.storage), format!("{:?}", wanted.storage));
    compare("discard policy", format!("{:?}", found.discard), format!("{:?}", wanted.discard));
    compare("replicas", found.num_replicas.to_string(), wanted.num_replicas.to_string());
    compare("max_age", seconds(found.max_age), seconds(wanted.max_age));
    compare("duplicate_window", seconds(found.duplicate_window), seconds(wanted.duplicate_window));
    compare("max_bytes", found.max_bytes.to_string(), wanted.max_bytes.to_string());
    parts
}

fn seconds(age: Duration) -> String {
    format!("{} s", age.as_secs())
}

fn unix_ms(time: DateTime) -> u64 {
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

/// Returns what there is to see of a stream.
pub(super) fn stream_info(info: &Info) -> StreamInfo {
    let cluster = info.cluster.as_ref();
    let current = |cluster: &async_nats::jetstream::stream::ClusterInfo| {
        let has_leader = u64::from(cluster.leader.is_some());
        has_leader + cluster.replicas.iter().filter(|peer| peer.current).count() as u64
    };
    StreamInfo {
        name: info.config.name.clone(),
        has_leader: cluster.is_none_or(|cluster| cluster.leader.is_some()),
        replicas: info.config.num_replicas as u64,
        replicas_current: cluster.map_or(1, current),
        messages: info.state.messages,
        bytes: info.state.bytes,
        bytes_max: u64::try_from(info.config.max_bytes).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_the_operators() {
        let wanted = Config { num_replicas: 3, max_bytes: 9, ..Config::default() };
        let found = Config {
            num_replicas: 1,
            max_bytes: 9,
            description: Some("mine".into()),
            max_messages: 5,
            ..Config::default()
        };
        assert_eq!(differences(&found, &wanted), ["replicas 1 instead of 3"]);
        let changed = with_free(&found, wanted.clone());
        assert_eq!((changed.num_replicas, changed.max_messages), (3, 0));
        assert_eq!(changed.description.as_deref(), Some("mine"));
        assert!(differences(&changed, &wanted).is_empty());
    }

    #[test]
    fn tells_which_streams_are_smaller() {
        let found = Config {
            max_bytes: 512,
            max_age: Duration::from_secs(60),
            num_replicas: 3,
            ..Config::default()
        };
        assert!(!is_smaller(&found, &found));
        assert!(is_smaller(&Config { max_bytes: 511, ..found.clone() }, &found));
        assert!(is_smaller(&Config { max_age: Duration::from_secs(59), ..found.clone() }, &found));
        assert!(is_smaller(&Config { num_replicas: 1, ..found.clone() }, &found));
        for max_bytes in [-1, 0, 513] {
            let larger = Config { max_bytes, max_age: Duration::ZERO, ..found.clone() };
            assert!(!is_smaller(&larger, &found) && is_smaller(&found, &larger));
        }
    }

    #[test]
    fn names_settings_that_no_stream_of_a_cluster_has() {
        let neutral = serde_json::json!({
            "name": "S", "max_age": 5, "max_msgs": -1, "max_msg_size": 0, "republish": null, "sealed": false,
            "consumer_limits": {}, "sources": [], "mirror": {"name": ""}, "metadata": {"a": "b"},
        });
        assert_eq!(unexpected(&neutral), [] as [String; 0]);
        let all = serde_json::json!({
            "max_msgs": 1, "republish": {"src": "a", "dest": "b"}, "allow_rollup_hdrs": true, "later": "x",
        });
        let names: Vec<_> =
            unexpected(&all).iter().map(|it| it.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(names, ["allow_rollup_hdrs", "later", "max_msgs", "republish"]);
        assert_eq!(unexpected(&Value::Null), [] as [String; 0]);
    }
}
