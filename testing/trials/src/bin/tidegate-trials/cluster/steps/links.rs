//! Links between hosts that fail. Each host has a node and a NATS server.

use std::time::Duration;

use anyhow::Result;
use harness::network::Link;

use super::super::stage::Stage;

/// Each pair of hosts loses its link.
pub(super) fn cut_each_pair(stage: &mut Stage) -> Result<String> {
    for (one, other) in [(1, 2), (1, 3), (2, 3)] {
        stage.cluster.sites.set_link(one, other, Link::CUT);
        stage.hold(30, 8);
        stage.cluster.sites.set_link(one, other, Link::default());
        stage.hold(5, 1);
    }
    Ok("each pair of hosts without a link for a while, the third reaches both".into())
}

/// A host loses its links to both others for longer than peers live: its NATS server has no majority. Peers that announced
/// at its node stop at others, and the other way round: they must not come back.
pub(super) fn cut_off(stage: &mut Stage) -> Result<String> {
    for other in [1, 2] {
        stage.cluster.sites.set_link(3, other, Link::CUT);
    }
    stage.hold_for_lifetimes();
    stage.cluster.sites.set_links(Link::default());
    Ok("host 3 without links to the others; its clients stay".into())
}

/// Links take 150 ms ± 30 ms for a round trip, and lose 1 %.
pub(super) fn slow(stage: &mut Stage) -> Result<String> {
    stage.cluster.sites.set_links(SLOW);
    stage.hold(30, 12);
    stage.cluster.sites.set_links(Link::default());
    Ok("round trips of 150 ms ± 30 ms, 1 % lost".into())
}

/// One direction of such a link.
const SLOW: Link = Link {
    delay: Duration::from_millis(75),
    jitter: Duration::from_millis(15),
    loss_permille: 10,
    is_cut: false,
};
