//! The streams: how they should be, and making them so.

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};

use tokio::time::timeout;

use super::link::Link;
use super::options::NatsOptions;

/// How much longer than a peer's lifetime the log keeps messages: a node that starts reads from before its
/// journal's end.
const SPARE: Duration = Duration::from_secs(300);
/// How long the records log keeps changes, for nodes that are away.
const RECORDS_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The size of the records log.
const RECORDS_BYTES: i64 = 1 << 30;
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
    Config {
        max_age: Duration::from_secs(options.peer_lifetime_s.into()) + SPARE,
        max_bytes: i64::try_from(options.stream_bytes).unwrap_or(i64::MAX),
        description: Some("tidegate: changes of peers".into()),
        ..config(link, options, "d")
    }
}

/// Returns how the records log should be.
pub(super) fn records_config(link: &Link, options: &NatsOptions) -> Config {
    Config {
        max_age: RECORDS_AGE,
        max_bytes: RECORDS_BYTES,
        description: Some("tidegate: changes of durable records".into()),
        ..config(link, options, "r")
    }
}

fn config(link: &Link, options: &NatsOptions, kind: &str) -> Config {
    Config {
        name: link.subjects.stream(kind),
        subjects: vec![link.subjects.all(kind)],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        num_replicas: options.replicas,
        ..Config::default()
    }
}

/// Looks a stream up. If `manages`, makes it if there is none, and changes what is not as it should be.
/// Returns a sentence with a remedy if that fails.
pub(super) async fn prepare(
    jetstream: &Context,
    wanted: Config,
    manages: bool,
    patience: Duration,
) -> Result<StreamState, String> {
    let name = wanted.name.clone();
    let found = match look_up(jetstream, &name, patience).await {
        Err(text) => return Err(text),
        Ok(found) => found,
    };
    let info = match found {
        None if !manages => {
            return Err(format!(
                "the stream {name} does not exist: create it, or set cluster.manage_streams"
            ));
        }
        None => create(jetstream, &wanted).await?,
        Some(info) => info,
    };
    let changed = with_wanted(&info.config, &wanted);
    let difference = difference(&info.config, &changed);
    let (info, doubt) = match difference {
        None => (info, None),
        Some(text) if !manages => (info, Some(format!("the stream {name} has {text}"))),
        Some(text) => match jetstream.update_stream(&changed).await {
            Ok(info) => (info, None),
            Err(error) => {
                let text = format!("the stream {name} has {text}, and cannot be changed: {error}");
                (info, Some(text))
            }
        },
    };
    Ok(state(&info, doubt))
}

/// Returns what there is of a stream, or `None` if there is no such stream. Fails after `patience`.
pub(super) async fn look_up(
    jetstream: &Context,
    name: &str,
    patience: Duration,
) -> Result<Option<Info>, String> {
    match timeout(patience, jetstream.get_stream(name)).await {
        Err(_) => Err(format!(
            "cannot look up the stream {name}: no answer within {patience:?}: does it have a leader? Check \
             that JetStream is on and a majority of its servers run"
        )),
        Ok(Ok(stream)) => Ok(Some(stream.cached_info().clone())),
        Ok(Err(error)) => match error.kind() {
            GetStreamErrorKind::JetStream(inner) if inner.error_code() == NO_STREAM => Ok(None),
            _ => Err(format!(
                "cannot look up the stream {name}: {error}: check that JetStream is on and that this node \
                 has the rights of `tidegate cluster nats-config`"
            )),
        },
    }
}

async fn create(jetstream: &Context, wanted: &Config) -> Result<Info, String> {
    let (name, replicas) = (&wanted.name, wanted.num_replicas);
    match jetstream.create_stream(wanted).await {
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

/// Returns a stream's configuration with what this program decides of it; the rest is the operator's.
fn with_wanted(found: &Config, wanted: &Config) -> Config {
    Config {
        subjects: wanted.subjects.clone(),
        retention: wanted.retention,
        storage: wanted.storage,
        discard: wanted.discard,
        num_replicas: wanted.num_replicas,
        max_age: wanted.max_age,
        max_bytes: wanted.max_bytes,
        ..found.clone()
    }
}

/// Returns what is not as `wanted`, as a sentence without an end.
pub(super) fn doubt(info: &Info, wanted: &Config) -> Option<String> {
    let difference = difference(&info.config, &with_wanted(&info.config, wanted))?;
    Some(format!("the stream {} has {difference}", info.config.name))
}

/// Describes what a stream has instead of what it should have.
fn difference(found: &Config, wanted: &Config) -> Option<String> {
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
    compare("max_bytes", found.max_bytes.to_string(), wanted.max_bytes.to_string());
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn seconds(age: Duration) -> String {
    format!("{} s", age.as_secs())
}

pub(super) fn state(info: &Info, doubt: Option<String>) -> StreamState {
    let created_ns = info.created.unix_timestamp_nanos();
    StreamState {
        created_ns: u64::try_from(created_ns).unwrap_or(0),
        first: info.state.first_sequence,
        last: info.state.last_sequence,
        last_ms: u64::try_from(info.state.last_timestamp.unix_timestamp_nanos() / 1_000_000)
            .unwrap_or(0),
        info: stream_info(info),
        doubt,
    }
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
        let changed = with_wanted(&found, &wanted);
        assert_eq!((changed.num_replicas, changed.max_messages), (3, 5));
        assert_eq!(changed.description.as_deref(), Some("mine"));
        assert_eq!(difference(&found, &changed).unwrap(), "replicas 1 instead of 3");
        assert_eq!(difference(&changed, &changed), None);
    }
}
