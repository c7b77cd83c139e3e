//! What the management API shows of the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use admin::records::{KINDS, ReplicationState};
use admin::{ClusterEvent, ClusterNode, ClusterStats, ClusterStream, LogState, NodeState};
use cluster::nats::{LetterFigures, Overview, StreamInfo};
use cluster::{DropReason, MemberState, NodeSnapshot, OutboundState, Snapshot, Warmth};
use front::webtorrent::LetterCounts;
use tracker::Tracker;

use super::LiveSecrets;

/// What stays the same.
pub(super) struct Own {
    pub(super) name: String,
    pub(super) node: u8,
    pub(super) boot: u64,
    pub(super) zone: String,
    pub(super) started: Instant,
    pub(super) is_ignored: Arc<AtomicBool>,
    pub(super) secrets: Arc<LiveSecrets>,
}

/// Adds what the records know of themselves.
pub(super) fn with_records(mut stats: ClusterStats, records: &ReplicationState) -> ClusterStats {
    let into = &mut stats.records;
    into.left_out = records.unsent.load(Ordering::Relaxed);
    into.merged = records.merged.load(Ordering::Relaxed);
    into.stale = records.stale.load(Ordering::Relaxed);
    into.rejected = records.rejected.load(Ordering::Relaxed);
    into.unknown = records.unknown.load(Ordering::Relaxed);
    into.tombstones = records.tombstones.load(Ordering::Relaxed);
    stats
}

/// Returns what there is to see. Of the records, it has only what the thread of the cluster knows.
pub(super) fn stats(
    own: &Own,
    overview: Overview,
    tracker: &Tracker,
    letters: LetterCounts,
) -> ClusterStats {
    let Overview { node, applied: (applies, apply_s), letters: bodies, rows, .. } = overview;
    let is_warm = node.warmth == Warmth::Warm;
    let warm_ms = node.warm_ms.filter(|_| is_warm);
    let age_s = overview.streams_age_s;
    let streams = overview.streams.into_iter().map(|it| stream(it, age_s)).collect();
    let drops = DropReason::ALL.into_iter().map(DropReason::name).zip(node.dropped);
    let drops = drops.chain([("slow", overview.slow)]).collect();
    let traffic = node.traffic;
    ClusterStats {
        name: own.name.clone(),
        node: own.node,
        secret_number: own.secrets.number(),
        server: overview.server,
        connection_age_s: overview.connection_age_s,
        is_warm,
        warm_s: warm_ms.map_or_else(|| own.started.elapsed().as_secs_f64(), seconds),
        is_mute: node.is_mute,
        log: log_state(node.outbound),
        unstored_blocks: node.unstored_blocks,
        unstored_bytes: node.queue_bytes,
        unstored_s: node.unstored_s as f64,
        queue_bytes_max: node.queue_bytes_max,
        dirty_s: node.dirty_s as f64,
        log_behind: node.log_last.saturating_sub(node.position.sequence),
        retries: node.retries,
        walks: node.walks,
        reconnects: overview.reconnects,
        blocks: vec![
            ("sent", "cut", traffic.cut_blocks),
            ("sent", "stored", traffic.stored_blocks),
            ("sent", "live", traffic.live_blocks),
            ("sent", "dropped", node.dropped_blocks),
            ("received", "applied", applies),
        ],
        bytes: vec![
            ("sent", traffic.logged_bytes),
            ("received", traffic.applied_log_bytes + traffic.applied_live_bytes),
        ],
        drops,
        letters: letter_counts(&letters, &bodies),
        applies,
        apply_s,
        records: admin::ClusterRecords {
            sent: rows.sent,
            unsent: rows.unsent,
            received: rows.received,
            repairs: rows.repairs,
            failed_repairs: rows.failed_repairs,
            ..admin::ClusterRecords::default()
        },
        nodes: node.nodes.iter().map(other).chain([own_row(own, &node, tracker)]).collect(),
        refused: node.refused,
        streams,
        streams_failure: overview.failure,
        open_doors: overview.open_doors,
        events: node.events.iter().rev().map(event).collect(),
    }
}

fn stream(stream: StreamInfo, age_s: f64) -> ClusterStream {
    ClusterStream {
        name: stream.name,
        found: true,
        has_leader: stream.has_leader,
        replicas: stream.replicas,
        replicas_current: stream.replicas_current,
        messages: stream.messages,
        bytes: stream.bytes,
        bytes_max: stream.bytes_max,
        age_s,
    }
}

/// Returns what became of WebTorrent letters, and of bodies with many of them.
fn letter_counts(
    letters: &LetterCounts,
    bodies: &LetterFigures,
) -> Vec<(&'static str, &'static str, u64)> {
    vec![
        ("sent", "published", letters.sent),
        ("sent", "dropped", letters.unsent),
        ("sent", "unpublished_bodies", bodies.unsent),
        ("received", "delivered", letters.delivered),
        ("received", "gone", letters.gone),
        ("received", "mailbox_full", letters.mailbox_full),
        ("received", "misaddressed", letters.misaddressed),
        ("received", "damaged_bodies", bodies.damaged),
    ]
}

/// Returns the row of this node.
fn own_row(own: &Own, node: &Snapshot, tracker: &Tracker) -> ClusterNode {
    let totals = tracker.totals();
    let peers = [totals.v4, totals.v6, totals.web].map(|it| it.seeders + it.leechers);
    ClusterNode {
        node: own.node,
        state: NodeState::Alive,
        ignored: own.is_ignored.load(Ordering::Relaxed),
        version: env!("CARGO_PKG_VERSION").into(),
        zone: own.zone.clone(),
        started: started_s(own.boot),
        warm: node.warmth == Warmth::Warm,
        log: log_state(node.outbound),
        peers: peers.iter().sum(),
        torrents: totals.torrents,
        their_lag_s: seconds(node.lag_ms),
        behind_blocks: node.log_last.saturating_sub(node.position.sequence),
        queue_bytes: node.queue_bytes,
        clock_offset_s: node.clock_ahead_ms as f64 / 1000.0,
        same_policy: true,
        ..ClusterNode::default()
    }
}

fn other(node: &NodeSnapshot) -> ClusterNode {
    let says = &node.says;
    ClusterNode {
        node: says.node,
        state: match node.state {
            MemberState::Alive => NodeState::Alive,
            MemberState::Suspect => NodeState::Suspect,
            MemberState::Gone => NodeState::Gone,
            MemberState::Left => NodeState::Left,
        },
        ignored: node.is_ignored,
        version: says.version.clone(),
        zone: says.zone.clone(),
        started: started_s(says.boot),
        heartbeat_age_s: seconds(node.silent_ms),
        warm: says.warmth == Warmth::Warm,
        log: log_state(says.outbound),
        peers: says.peers.iter().sum(),
        torrents: says.torrents,
        announces_s: says.announces_per_s as f64,
        lag_s: seconds(node.lag_ms),
        their_lag_s: seconds(says.lag_ms),
        behind_blocks: node.behind,
        clock_offset_s: says.clock_ahead_ms as f64 / 1000.0,
        queue_bytes: says.queue_bytes,
        same_policy: node.has_same_policy,
        differing: node.differs.iter().map(|kind| kind_name(*kind)).collect(),
        differing_s: seconds(node.differs_ms),
    }
}

fn kind_name(kind: u8) -> String {
    KINDS.get(usize::from(kind)).map_or_else(|| format!("kind {kind}"), |name| String::from(*name))
}

fn log_state(state: OutboundState) -> LogState {
    match state {
        OutboundState::Flowing => LogState::Flowing,
        OutboundState::Held => LogState::Held,
        OutboundState::CatchingUp => LogState::CatchingUp,
    }
}

fn event(event: &cluster::ClusterEvent) -> ClusterEvent {
    ClusterEvent { time: event.at_ms / 1000, text: event.text.clone() }
}

/// Returns the unix time of a boot, seconds: its number has milliseconds and 8 random bits.
fn started_s(boot: u64) -> u64 {
    (boot >> 8) / 1000
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
