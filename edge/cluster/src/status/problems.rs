//! Problems of a cluster, in sentences: what is wrong, what happens meanwhile, and what to do. The dashboard and
//! `tidegate cluster status` show them.

use serde::Serialize;
use utoipa::ToSchema;

use super::{ClusterNode, ClusterQueue, ClusterStatus, ClusterStream, LogState, NodeState};

/// Seconds of lag that are a problem, as in the alerting rules.
const LAG_MAX_S: f64 = 5.0;
/// Seconds by which clocks may differ.
const CLOCK_OFFSET_MAX_S: f64 = 2.0;
const MIB: u64 = 1 << 20;
/// Seconds for which records may differ, as in the alerting rules: nodes repair them within some seconds.
const DIFFERING_MAX_S: f64 = 60.0;

/// State of a node in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterState {
    /// It is connected to no NATS server.
    #[default]
    Disconnected,
    /// Another process has its number: it publishes nothing.
    Mute,
    /// It reads what the other nodes know.
    WarmingUp,
    /// It publishes what the other nodes missed.
    CatchingUp,
    /// The log does not store its blocks; other nodes hear them all the same.
    NotStored,
    /// All is well.
    Linked,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClusterProblem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// The node that it is about; absent: the cluster, or this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u8>,
    /// Description of the problem: what is wrong, what happens meanwhile, and what to do.
    pub text: String,
}

/// Kinds of problems, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    Disconnected,
    Mute,
    Access,
    Ignored,
    Alone,
    NodeSilent,
    QueueFull,
    NotStored,
    Rights,
    Stream,
    RecordsDiffer,
    Lag,
    Clock,
    Policy,
}

impl ClusterStatus {
    /// Derives what this node is doing and what is wrong from the figures, and sorts the nodes.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.nodes.sort_by_key(|it| it.node);
        self.state = self.present_state();
        self.problems = problems(&self);
        self.summary = summary(&self);
        self
    }

    fn present_state(&self) -> ClusterState {
        match self.queue.log {
            _ if self.connection.server.is_none() => ClusterState::Disconnected,
            _ if self.is_mute => ClusterState::Mute,
            _ if !self.connection.warm => ClusterState::WarmingUp,
            LogState::CatchingUp => ClusterState::CatchingUp,
            LogState::Held => ClusterState::NotStored,
            LogState::Flowing => ClusterState::Linked,
        }
    }
}

/// Returns what this node is doing, in a sentence.
fn summary(stats: &ClusterStatus) -> String {
    let ClusterDigest { heard, others: all, .. } = ClusterDigest::new(stats);
    let nodes = match all {
        0 => "No other node has been heard".into(),
        _ => format!("{heard} of {all} other nodes are heard"),
    };
    match stats.state {
        ClusterState::Disconnected => {
            "This node serves its own clients only: it is not connected to NATS.".into()
        }
        ClusterState::Mute => format!("{nodes}, but this node publishes nothing."),
        ClusterState::WarmingUp => {
            let left = stats.queue.log_behind;
            format!("{nodes}. This node reads what they know: {left} messages of the log are left.")
        }
        ClusterState::CatchingUp => format!("{nodes}. This node publishes what they missed."),
        ClusterState::NotStored => {
            format!("{nodes}. The log does not store this node's blocks now.")
        }
        ClusterState::Linked => format!("{nodes}, and the log stores this node's blocks."),
    }
}

/// A cluster at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub struct ClusterDigest {
    /// The number of this node.
    node: u8,
    /// State of this node.
    state: ClusterState,
    /// Other nodes that are heard.
    heard: usize,
    /// Other nodes that should be.
    others: usize,
    /// The largest lag behind another node, seconds.
    lag_s: f64,
    /// Bytes of blocks that the log has not acknowledged.
    unstored_bytes: u64,
    /// Number of problems.
    problems: usize,
}

impl ClusterDigest {
    pub(super) fn new(stats: &ClusterStatus) -> Self {
        let expected = || others(stats).filter(|it| it.state != NodeState::Left);
        let heard = || expected().filter(|it| it.state == NodeState::Alive);
        Self {
            node: stats.node,
            state: stats.state,
            heard: heard().count(),
            others: expected().count(),
            lag_s: heard().map(|it| it.lag_s).fold(0.0, f64::max),
            unstored_bytes: stats.queue.unstored_bytes,
            problems: stats.problems.len(),
        }
    }
}

/// Returns what is wrong, the worst first; empty if nothing is.
fn problems(stats: &ClusterStatus) -> Vec<ClusterProblem> {
    let mut problems = Vec::new();
    own(stats, &mut problems);
    refused(stats, &mut problems);
    for door in &stats.open_doors {
        let text = format!("A compromised node could harm the others: {door}.");
        add(&mut problems, ProblemKind::Rights, text);
    }
    streams(stats, &mut problems);
    nodes(stats, &mut problems);
    problems.sort_by_key(|problem| problem.kind);
    problems
}

fn add(problems: &mut Vec<ClusterProblem>, kind: ProblemKind, text: String) {
    problems.push(ClusterProblem { kind, node: None, text });
}

/// Adds the problems of this node itself.
fn own(stats: &ClusterStatus, problems: &mut Vec<ClusterProblem>) {
    let node = stats.node;
    if stats.connection.server.is_none() {
        let since = stats.connection.age_s as u64;
        let text = format!(
            "No NATS server has answered for {since} s. This node serves its own clients. It does not hear those \
             of other nodes; what it learns waits in its queue and is published once a server answers. Check the \
             servers in the file of [cluster] join, and the network to them."
        );
        add(problems, ProblemKind::Disconnected, text);
    }
    if stats.is_mute {
        let text = format!(
            "Another process has the number {node}, too, and started earlier. This node serves and hears the \
             others, but publishes nothing, so the other nodes do not know its clients. Give one of the two \
             a join file of its own: `tidegate cluster invite`."
        );
        add(problems, ProblemKind::Mute, text);
    }
    let queue = &stats.queue;
    if queue.dirty_s > 0.0 {
        let (max, since) = (queue.bytes_max / MIB, queue.dirty_s as u64);
        let then = match queue.log {
            LogState::Held => "once the log takes blocks again, this node publishes",
            LogState::Flowing | LogState::CatchingUp => "this node is publishing",
        };
        let text = format!(
            "Changes of the last {since} s were dropped from the queue: they waited for 30 s, or it had {max} MiB. \
             Nothing is lost here: {then} which peers are gone, and all peers that have announced since."
        );
        add(problems, ProblemKind::QueueFull, text);
    }
    let is_published = stats.connection.server.is_some() && !stats.is_mute;
    if queue.log == LogState::Held && queue.unstored_blocks > 0 && is_published {
        problems.push(not_stored(queue));
    }
    if own_row(stats).is_some_and(|own| own.ignored) {
        let text = format!(
            "An operator told the cluster to ignore node {node}, this one: what its clients do does not reach \
             the other nodes. To undo it: tidegate cluster heed {node}."
        );
        add(problems, ProblemKind::Ignored, text);
    }
}

fn not_stored(queue: &ClusterQueue) -> ClusterProblem {
    let (blocks, bytes) = (queue.unstored_blocks, queue.unstored_bytes / MIB);
    let text = format!(
        "{blocks} blocks ({bytes} MiB) of this node wait for the log. Connected nodes hear this node live; nodes that \
         start or reconnect now would miss what waits. Check that most NATS servers run, can reach each other, and \
         have space on their disks."
    );
    ClusterProblem { kind: ProblemKind::NotStored, node: None, text }
}

/// Nodes that have listeners of other kinds.
fn refused(stats: &ClusterStatus, problems: &mut Vec<ClusterProblem>) {
    for other in &stats.refused {
        let text = format!(
            "Of this node and node {other}, one serves private torrents and the other one open ones, so each \
             drops what the other sends: clients of an open listener would get the peers of private torrents. \
             Use one cluster for each kind, with a folder of `tidegate cluster init` for each. If access lists keep the torrents \
             apart, set access.private_and_open = true on all nodes."
        );
        problems.push(ClusterProblem { kind: ProblemKind::Access, node: Some(*other), text });
    }
}

fn streams(stats: &ClusterStatus, problems: &mut Vec<ClusterProblem>) {
    if stats.connection.server.is_none() {
        return;
    }
    if let Some(failure) = &stats.streams_failure {
        let text = format!("This node finds a fault in the streams: {failure}.");
        add(problems, ProblemKind::Stream, text);
    }
    let names = |is_wanted: fn(&ClusterStream) -> bool| {
        let names = stats.streams.iter().filter(|it| is_wanted(it)).map(|it| it.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut add_if_any = |names: String, text: &str| {
        if !names.is_empty() {
            add(problems, ProblemKind::Stream, format!("{text}: {names}."));
        }
    };
    add_if_any(
        names(|it| !it.has_leader),
        "Streams have no leader, so they store nothing. They continue by themselves once most of the NATS servers \
         run and can reach each other",
    );
    add_if_any(
        names(|it| it.has_leader && it.replicas_current < it.replicas),
        "Streams have fewer current copies than they should. They work, but stand fewer failures: check the NATS \
         servers",
    );
}

fn others(stats: &ClusterStatus) -> impl Iterator<Item = &ClusterNode> {
    stats.nodes.iter().filter(|it| it.node != stats.node && !it.ignored)
}

fn own_row(stats: &ClusterStatus) -> Option<&ClusterNode> {
    stats.nodes.iter().find(|it| it.node == stats.node)
}

fn nodes(stats: &ClusterStatus, problems: &mut Vec<ClusterProblem>) {
    let others = || others(stats);
    let is_silent = |it: &&ClusterNode| matches!(it.state, NodeState::Suspect | NodeState::Gone);
    let expected = others().filter(|it| it.state != NodeState::Left).count();
    let silent = others().filter(is_silent).count();
    // Without a connection all are silent, which the first sentence says.
    if stats.connection.server.is_some() && expected > 1 && silent == expected {
        let text = format!(
            "None of the {expected} other nodes is heard, though a NATS server answers: it has probably lost \
             the other servers. This node serves its own clients; when the servers reach each other again, the \
             nodes exchange what they missed."
        );
        add(problems, ProblemKind::Alone, text);
    } else if stats.connection.server.is_some() {
        others().filter(is_silent).for_each(|it| problems.push(silent_node(it)));
    }
    for it in others().filter(|it| it.state == NodeState::Alive) {
        problems.extend(doubts(it));
    }
    let clocks = own_row(stats).into_iter().chain(others());
    problems.extend(clocks.filter(|it| it.state == NodeState::Alive).filter_map(wrong_clock));
}

fn wrong_clock(it: &ClusterNode) -> Option<ClusterProblem> {
    let (node, offset) = (it.node, it.clock_offset_s.abs());
    let side = if it.clock_offset_s > 0.0 { "ahead of" } else { "behind" };
    (offset > CLOCK_OFFSET_MAX_S).then(|| ClusterProblem {
        kind: ProblemKind::Clock,
        node: Some(node),
        text: format!(
            "The clock of node {node} is {offset:.1} s {side} that of the NATS server. Ages of peers are corrected for \
             it, but connection ids of one node may be refused by another: run NTP on both."
        ),
    })
}

fn silent_node(it: &ClusterNode) -> ClusterProblem {
    let (node, age) = (it.node, it.heartbeat_age_s as u64);
    let web = if it.state == NodeState::Gone {
        " Its WebTorrent peers were removed; its other peers stay until they time out or announce to another node."
    } else {
        ""
    };
    let text = format!(
        "Node {node} has been silent for {age} s: it has stopped, or has no connection to NATS.{web} Clients that \
         still reach it are served from its own memory."
    );
    ClusterProblem { kind: ProblemKind::NodeSilent, node: Some(node), text }
}

fn doubts(it: &ClusterNode) -> Vec<ClusterProblem> {
    let node = it.node;
    let mut doubts = Vec::new();
    let mut doubt = |kind, text| doubts.push(ClusterProblem { kind, node: Some(node), text });
    if it.lag_s > LAG_MAX_S {
        let lag = it.lag_s;
        let text = format!(
            "This node is {lag:.0} s behind node {node}: its clients get peers of node {node} late. The network to \
             NATS is slow, or this machine is overloaded."
        );
        doubt(ProblemKind::Lag, text);
    }
    if it.differing_s >= DIFFERING_MAX_S {
        let (kinds, since) = (it.differing.join(", "), it.differing_s as u64);
        let text = format!(
            "Records of node {node} have differed from this node's for {since} s: {kinds}. Nodes fetch what differs \
             from each other, and the logs of both say why that fails. Check that neither ignores the other, that both \
             run the same version, and that their clocks are right."
        );
        doubt(ProblemKind::RecordsDiffer, text);
    }
    if !it.same_policy {
        let text = format!(
            "Node {node} has other intervals, access modes or lists in files than this node: its clients are \
             treated differently. Compare the configurations."
        );
        doubt(ProblemKind::Policy, text);
    }
    doubts
}

#[cfg(test)]
mod tests {
    use super::super::ClusterConnection;
    use super::*;

    fn row(node: u8) -> ClusterNode {
        ClusterNode { node, same_policy: true, ..ClusterNode::default() }
    }

    /// Three nodes, of which this one is node 1, and all is well.
    fn linked() -> ClusterStatus {
        let stream = |name: &str| ClusterStream {
            name: name.into(),
            has_leader: true,
            replicas: 3,
            replicas_current: 3,
            ..ClusterStream::default()
        };
        ClusterStatus {
            name: "c".into(),
            node: 1,
            connection: ClusterConnection {
                server: Some("tls://a:4222".into()),
                warm: true,
                ..ClusterConnection::default()
            },
            queue: ClusterQueue {
                log: LogState::Flowing,
                bytes_max: 64 * MIB,
                ..ClusterQueue::default()
            },
            nodes: vec![row(1), row(2), row(3)],
            streams: vec![stream("TG_C_D")],
            ..ClusterStatus::default()
        }
    }

    /// A change of a cluster that has no problem, the state then, and the kinds of its problems with their nodes.
    type Case = (fn(&mut ClusterStatus), ClusterState, &'static [(ProblemKind, Option<u8>)]);

    fn check(cases: &[Case]) {
        for (change, state, expected) in cases {
            let mut status = linked();
            change(&mut status);
            let judged = status.judged();
            let found: Vec<_> = judged.problems.iter().map(|it| (it.kind, it.node)).collect();
            assert_eq!((judged.state, found.as_slice()), (*state, *expected));
        }
    }

    #[test]
    fn faults_of_this_node_are_problems() {
        use ClusterState::{CatchingUp, Disconnected, Linked, Mute, NotStored};
        check(&[
            (|_| {}, Linked, &[]),
            (
                // All are silent then, which the first sentence says.
                |it| {
                    it.connection.server = None;
                    it.queue.log = LogState::Held;
                    it.nodes[1].state = NodeState::Gone;
                    it.nodes[2].state = NodeState::Gone;
                },
                Disconnected,
                &[(ProblemKind::Disconnected, None)],
            ),
            (
                |it| {
                    it.queue.log = LogState::Held;
                    it.queue.unstored_blocks = 4;
                    it.streams[0].has_leader = false;
                },
                NotStored,
                &[(ProblemKind::NotStored, None), (ProblemKind::Stream, None)],
            ),
            (
                |it| {
                    it.queue.log = LogState::CatchingUp;
                    it.queue.dirty_s = 31.0;
                },
                CatchingUp,
                &[(ProblemKind::QueueFull, None)],
            ),
            (
                |it| {
                    it.is_mute = true;
                    it.nodes[0].ignored = true;
                },
                Mute,
                &[(ProblemKind::Mute, None), (ProblemKind::Ignored, None)],
            ),
            (
                |it| it.open_doors = vec!["this node may change the stream".into()],
                Linked,
                &[(ProblemKind::Rights, None)],
            ),
        ]);
    }

    #[test]
    fn faults_of_other_nodes_are_problems() {
        use ClusterState::Linked;
        check(&[
            (
                |it| it.nodes[2].state = NodeState::Suspect,
                Linked,
                &[(ProblemKind::NodeSilent, Some(3))],
            ),
            (
                |it| {
                    it.nodes[1].state = NodeState::Gone;
                    it.nodes[2].state = NodeState::Suspect;
                },
                Linked,
                &[(ProblemKind::Alone, None)],
            ),
            (
                // Nodes that were stopped, and ignored ones, are not missed.
                |it| {
                    it.nodes[1].state = NodeState::Left;
                    it.nodes[2].state = NodeState::Gone;
                    it.nodes[2].ignored = true;
                },
                Linked,
                &[],
            ),
            (
                |it| {
                    it.nodes[1].lag_s = 5.1;
                    it.nodes[1].clock_offset_s = -2.5;
                    // Changes on their way.
                    it.nodes[1].differing_s = 3.0;
                },
                Linked,
                &[(ProblemKind::Lag, Some(2)), (ProblemKind::Clock, Some(2))],
            ),
            (
                |it| {
                    it.nodes[2].same_policy = false;
                    it.nodes[2].differing_s = 61.0;
                    it.nodes[0].clock_offset_s = 3.0;
                },
                Linked,
                &[
                    (ProblemKind::RecordsDiffer, Some(3)),
                    (ProblemKind::Clock, Some(1)),
                    (ProblemKind::Policy, Some(3)),
                ],
            ),
        ]);
    }
}
