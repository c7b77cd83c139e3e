//! Many nodes, one tracker: every node holds every peer, and answers from its own memory.
//!
//! ```text
//!  store ─ changes ─▶ blocks ─▶ Node ─ log, in order, again until stored ─▶ stream ─▶ every node, in one order
//!                                   └─ live, if that takes long ─────────▶ every node
//! ```
//!
//! [`Node`] decides, without I/O and without a clock of its own: what is published when, what is applied,
//! who is there. The simulator and [`nats`] drive it. The order of the stream is the truth: what it says later
//! holds, on all nodes alike. What comes live is a hint while the stream does not store.
#![forbid(unsafe_code)]

mod clock;
mod differences;
mod events;
mod heartbeat;
pub mod host;
mod inbound;
mod lacks;
mod members;
pub mod nats;
mod node;
mod outbound;
mod seam;
mod snapshot;
mod status;

pub use host::{BoxFuture, Host, Letters, PeerTimes, Position, Rows, RowsError, RowsPart, Store};
pub use node::{DropReason, Figures, Input, Node, Options, Output, Start, Time};
pub use snapshot::{Heartbeat, SentCounts, Snapshot, Warmth};
pub use status::{
    ClusterConnection, ClusterDigest, ClusterEvent, ClusterNode, ClusterProblem, ClusterQueue,
    ClusterRecords, ClusterState, ClusterStatus, ClusterStream, ClusterTraffic, Identity, LogState,
    NodeState,
};
