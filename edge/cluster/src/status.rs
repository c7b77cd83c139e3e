//! The cluster as one of its nodes sees it: what the API, metrics, the dashboard and `tidegate cluster status` show.

mod metrics;
mod problems;

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, json};
use utoipa::ToSchema;

use crate::nats::Overview;
use crate::seam::DropReason;
use crate::snapshot::Warmth;
use problems::ProblemKind;
pub use problems::{ClusterDigest, ClusterProblem, ClusterState};

/// The cluster as this node sees it. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Cluster)]
pub struct ClusterStatus {
    /// The name of the cluster.
    pub name: String,
    /// The number of this node.
    #[schema(minimum = 1, maximum = 255)]
    pub node: u8,
    /// The number of the secret by which this node issues: 1, and one more with each change.
    pub secret_number: u32,
    /// State of this node.
    pub state: ClusterState,
    /// The same in a sentence.
    pub summary: String,
    /// Problems, the worst first; empty if there are none.
    pub problems: Vec<ClusterProblem>,
    /// The connection to NATS.
    pub connection: ClusterConnection,
    /// This node's blocks on their way to the log, and its progress in reading the log.
    pub queue: ClusterQueue,
    /// Traffic with the other nodes.
    pub traffic: ClusterTraffic,
    /// Durable records.
    pub records: ClusterRecords,
    /// The nodes heard of since the start, this one included, by number.
    pub nodes: Vec<ClusterNode>,
    /// The streams.
    pub streams: Vec<ClusterStream>,
    /// The last events, the latest first.
    pub events: Vec<ClusterEvent>,
    /// True if this node publishes nothing, because an older process has its number.
    #[serde(skip)]
    pub is_mute: bool,
    /// Nodes whose messages are dropped now, because they have listeners of other kinds than this one: private
    /// ones, and this one open ones, or the reverse.
    #[serde(skip)]
    pub refused: Vec<u8>,
    /// Why the streams could not be looked up or made the last time, or what is not as it should be.
    #[serde(skip)]
    pub streams_failure: Option<String>,
    /// Rights that the NATS servers give this node and no node may have: a sentence for each kind, with the remedy.
    #[serde(skip)]
    pub open_doors: Vec<String>,
}

/// The connection to NATS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterConnection {
    /// The server that answers; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Seconds since the connection was made or lost.
    pub age_s: f64,
    /// Connections made again.
    pub reconnects: u64,
    /// True if this node knows the peers that the cluster knew when it started, or has waited long enough.
    pub warm: bool,
    /// Seconds that this took; so far, until it is warm.
    pub warm_s: f64,
}

/// A node's blocks on their way to the log, and its progress in reading the log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterQueue {
    /// State of publishing to the log.
    pub log: LogState,
    /// Blocks that the log has not acknowledged.
    pub unstored_blocks: u64,
    /// The bytes of these blocks.
    pub unstored_bytes: u64,
    /// Seconds since the oldest of them was cut; 0 if there is none.
    pub unstored_s: f64,
    /// The largest size that these blocks may have, bytes.
    pub bytes_max: u64,
    /// Seconds since the oldest change that was dropped from the queue and is not told in another way yet; 0 if there is
    /// none.
    pub dirty_s: f64,
    /// Messages of the log that this node has not applied yet.
    pub log_behind: u64,
    /// Messages that were published again, because the log did not acknowledge them in time.
    pub retries: u64,
    /// Walks that published what dropped blocks reported.
    pub walks: u64,
}

/// Blocks and messages that were sent, received and dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterTraffic {
    /// Blocks by direction and by what was done with them.
    pub blocks: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Bytes of blocks by direction.
    pub bytes: BTreeMap<&'static str, u64>,
    /// WebTorrent offers and answers by direction and by what was done with them.
    pub letters: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Messages that were dropped, by reason; reasons without any are absent.
    #[serde(serialize_with = "without_zeros")]
    pub drops: BTreeMap<&'static str, u64>,
    /// Seconds that applying the received blocks took.
    #[serde(skip)]
    pub apply_s: f64,
}

fn without_zeros<S: Serializer>(counts: &BTreeMap<&str, u64>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(counts.iter().filter(|(_, count)| **count > 0))
}

/// State of publishing to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
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
    /// State of the node, judged by its heartbeats.
    pub state: NodeState,
    /// True if an operator told the cluster to ignore it.
    pub ignored: bool,
    /// Its version.
    pub version: String,
    /// Its zone.
    pub zone: String,
    /// Unix time at which its process started, seconds.
    pub started: u64,
    /// Seconds since its last heartbeat.
    pub heartbeat_age_s: f64,
    /// True if it knows all peers.
    pub warm: bool,
    /// State of its publishing to the log.
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
    /// True if its intervals, access modes and lists in files are the same as this node's, as they should be.
    pub same_policy: bool,
    /// The kinds of its records that differed from this node's at its last heartbeat. Changes on their way differ for
    /// a moment.
    pub differing: Vec<String>,
    /// Seconds since they began to differ; 0 if none do.
    pub differing_s: f64,
}

/// State of a node, judged by its heartbeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
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

/// A stream of JetStream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ClusterStream {
    /// Its name.
    pub name: String,
    /// True if it has a leader. Without one it stores nothing.
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
    /// Description of the event.
    pub text: String,
}

/// Properties of a node that stay the same while its process runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The name of the cluster.
    pub cluster: String,
    /// The number of the node.
    pub node: u8,
    /// The start of its process: unix ms × 2⁸ + 8 random bits.
    pub boot: u64,
    /// Its version.
    pub version: &'static str,
    /// Its zone. May be empty.
    pub zone: String,
    /// The time of its start.
    pub started: Instant,
}

impl Subsystem for ClusterStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn digest(&self) -> Value {
        json(&ClusterDigest::new(self))
    }

    fn metrics(&self, page: &mut Page) {
        self.render(page);
    }

    fn problems(&self) -> Vec<HealthItem> {
        self.problems.iter().cloned().map(HealthItem::from).collect()
    }

    fn is_ready(&self) -> bool {
        // A node that has just started lacks what the others know.
        self.connection.warm
    }
}

impl From<ClusterProblem> for HealthItem {
    fn from(problem: ClusterProblem) -> Self {
        let level = match problem.kind {
            ProblemKind::Disconnected | ProblemKind::Mute | ProblemKind::Alone => Level::Error,
            _ => Level::Warning,
        };
        Self::new(level, HealthArea::Cluster, problem.text)
    }
}

impl Identity {
    /// Returns what the cluster's threads know. The application adds the rest: the number of the secret, letters, counts
    /// of records, and in [`ClusterStatus::own`] peers, torrents and whether this node is ignored. Then it calls
    /// [`ClusterStatus::judged`].
    pub fn status(&self, overview: Overview) -> ClusterStatus {
        let is_warm = overview.node.warmth == Warmth::Warm;
        let so_far_s = self.started.elapsed().as_secs_f64();
        let own = self.own_node(&overview);
        let Overview { node, status, applied: (applied_blocks, apply_s), .. } = overview;
        let sent = node.sent;
        let drops = DropReason::ALL.into_iter().map(DropReason::label).zip(node.dropped);
        ClusterStatus {
            name: self.cluster.clone(),
            node: self.node,
            connection: ClusterConnection {
                warm: is_warm,
                warm_s: node.warm_ms.filter(|_| is_warm).map_or(so_far_s, seconds),
                ..status.connection
            },
            queue: node.queue,
            traffic: ClusterTraffic {
                blocks: BTreeMap::from([
                    (
                        "sent",
                        BTreeMap::from([
                            ("cut", sent.cut_blocks),
                            ("stored", sent.stored_blocks),
                            ("live", sent.live_blocks),
                            ("dropped", sent.dropped_blocks),
                        ]),
                    ),
                    ("received", BTreeMap::from([("applied", applied_blocks)])),
                ]),
                bytes: BTreeMap::from([
                    ("sent", sent.logged_bytes),
                    ("received", node.applied_bytes),
                ]),
                letters: BTreeMap::from([
                    ("sent", BTreeMap::from([("unpublished_bodies", overview.unsent_letters)])),
                    ("received", BTreeMap::from([("damaged_bodies", overview.damaged_letters)])),
                ]),
                drops: drops.chain([("slow", overview.slow)]).collect(),
                apply_s,
            },
            nodes: node.nodes.into_iter().chain([own]).collect(),
            events: node.events.into_iter().rev().collect(),
            is_mute: node.is_mute,
            refused: node.refused,
            ..status
        }
    }

    fn own_node(&self, overview: &Overview) -> ClusterNode {
        let node = &overview.node;
        ClusterNode {
            node: self.node,
            version: self.version.into(),
            zone: self.zone.clone(),
            started: started_s(self.boot),
            warm: node.warmth == Warmth::Warm,
            log: node.queue.log,
            their_lag_s: seconds(node.lag_ms),
            behind_blocks: node.queue.log_behind,
            queue_bytes: node.queue.unstored_bytes,
            clock_offset_s: node.clock_ahead_ms as f64 / 1000.0,
            same_policy: true,
            ..ClusterNode::default()
        }
    }
}

impl ClusterStatus {
    /// Returns the row of this node.
    pub fn own(&mut self) -> Option<&mut ClusterNode> {
        self.nodes.iter_mut().find(|it| it.node == self.node)
    }

    /// Adds to WebTorrent letters by direction: `sent` or `received`.
    pub fn add_letters(
        &mut self,
        direction: &'static str,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.traffic.letters.entry(direction).or_default().extend(counts);
    }
}

/// Returns the unix time of a boot, seconds: its number has milliseconds and 8 random bits.
pub(crate) fn started_s(boot: u64) -> u64 {
    (boot >> 8) / 1000
}

pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
