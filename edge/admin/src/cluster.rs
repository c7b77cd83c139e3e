//! What a node of a cluster knows of itself and of the others, as the application reports it, and the
//! sentences that say what is wrong.

mod problems;

use serde::Serialize;

use utoipa::ToSchema;

pub(crate) use problems::{
    ClusterDigest, ClusterProblem, ClusterState, ProblemKind, problems, state, summary,
};

/// A cluster, as one of its nodes sees it. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterStats {
    /// The name of the cluster.
    pub name: String,
    /// The number of this node.
    pub node: u8,
    /// The number of the secret by which this node issues.
    pub secret_number: u32,
    /// The NATS server that this node is connected to; `None` if it is connected to none.
    pub server: Option<String>,
    /// Seconds since the connection was made or lost.
    pub connection_age_s: f64,
    /// Whether this node knows the peers that the cluster knew when it started, or has waited long enough.
    pub is_warm: bool,
    /// Seconds that this took; so far, until it is warm.
    pub warm_s: f64,
    /// Whether this node publishes nothing, because an older process has its number.
    pub is_mute: bool,
    /// How publishing to the log goes.
    pub log: LogState,
    /// Blocks that the log has not acknowledged.
    pub unstored_blocks: u64,
    /// The bytes of these blocks.
    pub unstored_bytes: u64,
    /// Seconds since the oldest of them was cut; 0 if there is none.
    pub unstored_s: f64,
    /// How many bytes they may have.
    pub queue_bytes_max: u64,
    /// Seconds since the oldest change that was dropped from the queue and is not told in another way yet; 0 if there is
    /// none.
    pub dirty_s: f64,
    /// Messages of the log that this node has not applied yet.
    pub log_behind: u64,
    /// Messages that were published again, because the log did not acknowledge them in time.
    pub retries: u64,
    /// Walks that published what dropped blocks reported.
    pub walks: u64,
    /// Connections made again.
    pub reconnects: u64,
    /// Blocks, by direction (sent, received) and what was done with them.
    pub blocks: Vec<(&'static str, &'static str, u64)>,
    /// Bytes of blocks, by direction.
    pub bytes: Vec<(&'static str, u64)>,
    /// Messages that were dropped, by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Letters of WebTorrent (offers and answers), by direction and what was done with them.
    pub letters: Vec<(&'static str, &'static str, u64)>,
    /// Blocks that were applied to the store.
    pub applies: u64,
    /// Seconds that this took.
    pub apply_s: f64,
    /// Durable records.
    pub records: ClusterRecords,
    /// The nodes heard of since the start, this one included.
    pub nodes: Vec<ClusterNode>,
    /// Nodes whose messages are dropped now, because they have listeners of other kinds than this one: private
    /// ones, and this one open ones, or the reverse.
    pub refused: Vec<u8>,
    /// The streams.
    pub streams: Vec<ClusterStream>,
    /// Why the streams could not be looked up or made the last time, or what is not as it should be.
    pub streams_failure: Option<String>,
    /// Rights that the NATS servers give this node and no node may have: a sentence for each kind, with the remedy.
    pub open_doors: Vec<String>,
    /// The last events, the latest first.
    pub events: Vec<ClusterEvent>,
}

/// How publishing to the log goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogState {
    /// The log acknowledges blocks as they are cut.
    Flowing,
    /// Blocks wait in the queue until the log acknowledges the oldest of them. After 30 s they are dropped, and a walk
    /// will make up for them.
    #[default]
    Held,
    /// A walk publishes all peers that announced since the first block was dropped.
    CatchingUp,
}

/// Durable records in a cluster. Nodes fetch from each other what differs, so nothing that was not sent is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterRecords {
    /// Messages with changes of this node that were published.
    pub sent: u64,
    /// Messages that were not, because no NATS server answered or this node was mute.
    pub unsent: u64,
    /// Changes that are in no message, because too many waited.
    pub left_out: u64,
    /// Messages of other nodes that were merged.
    pub received: u64,
    /// Rows and counters of other nodes that were newer than those here.
    pub merged: u64,
    /// Rows and counters of other nodes that were not.
    pub stale: u64,
    /// Malformed messages, and changes whose time is more than an hour ahead of this node's clock.
    pub rejected: u64,
    /// Changes that this version does not understand.
    pub unknown: u64,
    /// Removed rows that are remembered.
    pub tombstones: u64,
    /// Times that rows were fetched because they differed from another node's.
    pub repairs: u64,
    /// Times that this failed.
    pub failed_repairs: u64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterNode {
    /// Its number.
    #[schema(minimum = 1, maximum = 255)]
    pub node: u8,
    /// Whether it is heard.
    pub state: NodeState,
    /// Whether an operator told the cluster to ignore it.
    pub ignored: bool,
    /// Its version.
    pub version: String,
    /// Its zone.
    pub zone: String,
    /// Unix time at which its process started, seconds.
    pub started: u64,
    /// Seconds since its last heartbeat.
    pub heartbeat_age_s: f64,
    /// Whether it knows all peers.
    pub warm: bool,
    /// How publishing to the log goes there.
    pub log: LogState,
    /// Peers that it knows.
    pub peers: u64,
    /// Torrents that it knows.
    pub torrents: u64,
    /// Announces per second.
    pub announces_s: f64,
    /// Seconds by which what this node knows of it may be late.
    pub lag_s: f64,
    /// The largest lag that it sees itself, seconds.
    pub their_lag_s: f64,
    /// Messages of the log that it has not applied, as far as this node knows.
    pub behind_blocks: u64,
    /// Its clock minus that of the NATS server, seconds.
    pub clock_offset_s: f64,
    /// Bytes in its queue.
    pub queue_bytes: u64,
    /// Whether it has the intervals, access modes and lists in files of this node, as it should.
    pub same_policy: bool,
    /// The kinds of its records that differed from this node's at its last heartbeat. Changes on their way differ for
    /// a moment.
    pub differing: Vec<String>,
    /// Seconds since they began to differ; 0 if none do.
    pub differing_s: f64,
}

/// Whether a node is heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its heartbeats come.
    #[default]
    Alive,
    /// Silent for 3 seconds.
    Suspect,
    /// Silent for 10 seconds: its WebTorrent peers were removed.
    Gone,
    /// It has said that it stops.
    Left,
}

impl NodeState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Suspect, Self::Gone, Self::Left];

    /// Returns its name in the API and in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Suspect => "suspect",
            Self::Gone => "gone",
            Self::Left => "left",
        }
    }
}

/// A stream of JetStream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterStream {
    /// Its name.
    pub name: String,
    /// Whether it exists, as far as this node knows.
    pub found: bool,
    /// Whether it has a leader. Without one it stores nothing.
    pub has_leader: bool,
    /// The servers that should have it.
    pub replicas: u64,
    /// Those of them that are current.
    pub replicas_current: u64,
    /// Messages in it.
    pub messages: u64,
    /// Their size, bytes.
    pub bytes: u64,
    /// The size that it may have, bytes; 0: unlimited.
    pub bytes_max: u64,
    /// Seconds since this was asked.
    pub age_s: f64,
}

/// Something that happened to the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClusterEvent {
    /// Unix time, seconds.
    pub time: u64,
    /// What happened.
    pub text: String,
}
