//! A partition, as a node of a cluster sees it.

use crate::{ClusterEvent, ClusterNode, ClusterRecords, ClusterStats, ClusterStream, NodeState};

/// What node 1 of five sees during a partition: it hears none of the others.
pub(super) fn partition() -> ClusterStats {
    let stream = |name: &str, bytes| ClusterStream {
        name: name.into(),
        found: true,
        replicas: 3,
        replicas_current: 1,
        messages: 99_000,
        bytes,
        bytes_max: 8 << 30,
        age_s: 2.5,
        ..ClusterStream::default()
    };
    let event = |time, text: &str| ClusterEvent { time, text: text.into() };
    ClusterStats {
        name: "example".into(),
        node: 1,
        secret_number: 1,
        server: Some("tls://nats-1.example:4222".into()),
        connection_age_s: 3600.0,
        is_warm: true,
        warm_s: 1.75,
        unstored_blocks: 630,
        unstored_bytes: 5 << 20,
        unstored_s: 31.5,
        queue_bytes_max: 64 << 20,
        retries: 3,
        blocks: vec![
            ("sent", "cut", 72_000),
            ("sent", "stored", 71_370),
            ("sent", "live", 630),
            ("received", "applied", 211_000),
        ],
        bytes: vec![("sent", 90 << 20), ("received", 180 << 20)],
        drops: vec![("foreign", 0), ("secret", 4), ("repeated", 139_500)],
        letters: vec![("sent", "published", 5), ("received", "delivered", 4)],
        applies: 351_000,
        apply_s: 12.5,
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
        ..ClusterStats::default()
    }
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
