//! A partition, as a node of a cluster sees it.

use ::cluster::{
    ClusterConnection, ClusterEvent, ClusterNode, ClusterQueue, ClusterRecords, ClusterStatus,
    ClusterStream, ClusterTraffic, NodeState,
};

/// Returns the status at node 1 of five during a partition, in which it receives nothing from the others.
pub(crate) fn partition() -> ClusterStatus {
    let stream = |name: &str, bytes| ClusterStream {
        name: name.into(),
        replicas: 3,
        replicas_current: 1,
        messages: 99_000,
        bytes,
        bytes_max: 8 << 30,
        age_s: 2.5,
        ..ClusterStream::default()
    };
    let event = |time, text: &str| ClusterEvent { time, text: text.into() };
    let sent = [("cut", 72_000), ("stored", 71_370), ("live", 630)];
    let status = ClusterStatus {
        name: "example".into(),
        node: 1,
        secret_number: 1,
        connection: ClusterConnection {
            server: Some("tls://nats-1.example:4222".into()),
            age_s: 3600.0,
            warm: true,
            warm_s: 1.75,
            ..ClusterConnection::default()
        },
        queue: ClusterQueue {
            unstored_blocks: 630,
            unstored_bytes: 5 << 20,
            unstored_s: 31.5,
            bytes_max: 64 << 20,
            retries: 3,
            ..ClusterQueue::default()
        },
        traffic: ClusterTraffic {
            blocks: [("sent", sent.into()), ("received", [("applied", 211_000)].into())].into(),
            bytes: [("sent", 90 << 20), ("received", 180 << 20)].into(),
            letters: [("sent", [("published", 5)].into()), ("received", [("delivered", 4)].into())]
                .into(),
            drops: [("foreign", 0), ("secret", 4), ("repeated", 139_500)].into(),
            ..ClusterTraffic::default()
        },
        records: ClusterRecords {
            sent: 17,
            unsent: 2,
            received: 53,
            merged: 1400,
            repairs: 3,
            ..ClusterRecords::default()
        },
        nodes: nodes(),
        streams: vec![stream("TG_example_D", 600 << 20)],
        events: vec![
            event(1_700_003_630, "node 2 has been silent for 10 s and counts as gone"),
            event(1_700_003_623, "node 2 has been silent for 3 s"),
            event(1_700_000_002, "connected to tls://nats-1.example:4222"),
        ],
        ..ClusterStatus::default()
    };
    status.judged()
}

fn nodes() -> Vec<ClusterNode> {
    let node = |node: u8, state, heartbeat_age_s| ClusterNode {
        node,
        state,
        version: "1.2.3".into(),
        zone: if node == 1 { "eu-1" } else { "eu-2" }.into(),
        started: 1_700_000_000 + u64::from(node),
        heartbeat_age_s,
        warm: true,
        peers: 10_000_000 + u64::from(node),
        torrents: 1_200_000,
        announces_s: 5600.5,
        same_policy: true,
        ..ClusterNode::default()
    };
    let mut nodes = vec![
        node(1, NodeState::Alive, 0.25),
        node(2, NodeState::Gone, 31.5),
        node(3, NodeState::Gone, 32.0),
        node(4, NodeState::Left, 1800.0),
        node(5, NodeState::Gone, 90_000.0),
    ];
    nodes[1].lag_s = 31.5;
    nodes[1].clock_offset_s = -0.003;
    nodes[1].behind_blocks = 620;
    nodes[4].ignored = true;
    nodes
}
