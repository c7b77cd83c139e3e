//! A measurement: the bytes that a change of a peer takes from a node to NATS and from there to all nodes.
//! `cargo test --release -p tidegate-cluster --test driver -- --ignored --nocapture fan_out`

use std::thread::sleep;
use std::time::{Duration, Instant};

use harness::nats::Nats;

use crate::node::{Says, TestNode, options};
use crate::servers;

/// New peers per second in all.
const RATE: u32 = 2000;
const SECONDS: u32 = 20;
/// Pause between two announces of some.
const STEP: Duration = Duration::from_millis(10);

/// The bytes that a NATS server has received from nodes and sent to them so far.
#[derive(Clone, Copy)]
struct Traffic {
    received: f64,
    sent: f64,
}

fn traffic(nats: &Nats) -> Traffic {
    let varz = nats.monitor(0, "/varz").unwrap();
    let bytes = |name: &str| varz[name].as_f64().unwrap();
    Traffic { received: bytes("in_bytes"), sent: bytes("out_bytes") }
}

#[test]
#[ignore = "a measurement, which takes two minutes"]
fn fan_out_of_changes() {
    for count in [3, 10, 30] {
        let Some(nats) = servers(1) else { return };
        let start = |node| {
            let flush = Duration::from_millis(50);
            TestNode::start_with(tidegate_cluster::nats::NatsOptions {
                flush,
                ..options(node, nats.urls("nats"))
            })
        };
        let nodes: Vec<_> = (1..=count).map(start).map(TestNode::wait_until_warm).collect();
        // Heartbeats, and look-ups of the stream.
        let idle = traffic(&nats);
        sleep(Duration::from_secs(10));
        let base = traffic(&nats);
        let (began, mut peer) = (Instant::now(), 0);
        while peer < RATE * SECONDS {
            let due = began.elapsed().as_millis() as u32 * RATE / 1000;
            for peer in peer..due {
                let node = &nodes[peer as usize % nodes.len()];
                node.announce((peer % 250) as u8, peer, Says::Leecher);
            }
            peer = peer.max(due);
            sleep(STEP);
        }
        for node in &nodes {
            node.wait("all peers", |node| node.peers() == u64::from(peer));
        }
        let end = traffic(&nats);
        let seconds = began.elapsed().as_secs_f64();
        let changes = f64::from(peer);
        let idle_share = seconds / 10.0;
        let received = end.received - base.received - (base.received - idle.received) * idle_share;
        let sent = end.sent - base.sent - (base.sent - idle.sent) * idle_share;
        println!(
            "{count} nodes, {changes:.0} changes in {seconds:.1} s: {:.1} B to NATS and {:.1} B into each node a \
             change; idle {:.0} B/s into each node",
            received / changes,
            sent / changes / f64::from(count),
            (base.sent - idle.sent) / 10.0 / f64::from(count),
        );
    }
}
