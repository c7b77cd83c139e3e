//! Messages on the subjects that no node has sent, and messages of nodes that come again.

use anyhow::{Context, Result, ensure};

use super::super::arrangement::NAME;
use super::super::stage::Stage;

/// Messages of each kind.
const COUNT: u32 = 2000;
/// Reasons for which they are dropped.
const REASONS: [&str; 4] = ["foreign", "secret", "origin", "damaged"];

/// A client publishes garbage, and blocks that it has heard: changed, for other nodes, and again.
pub(super) fn garbage(stage: &mut Stage) -> Result<String> {
    let mut client = stage.cluster.nats_client()?;
    client.subscribe(&format!("tg.{NAME}.l.1"))?;
    let block = client.next_message()?;
    let text = String::from_utf8(block.headers.clone())?;
    let good = text.strip_prefix("NATS/1.0\r\n").and_then(|it| it.strip_suffix("\r\n"));
    let good = good.context("a message without headers")?.to_owned();
    let bad = good.replace(|digit: char| digit.is_ascii_digit(), "f");
    let before = dropped(stage)?;
    let half = block.payload.len() / 2;
    for _ in 0..COUNT {
        for kind in ["l", "d", "h"] {
            for (node, headers, payload) in [
                ("1", "", &block.payload[..]),
                ("1", &bad, &block.payload),
                ("2", &good, &block.payload),
                ("x", &good, &block.payload),
                ("1", &good, &block.payload[..half]),
                ("1", &good, &block.payload),
            ] {
                client.publish(&format!("tg.{NAME}.{kind}.{node}"), headers, payload)?;
            }
        }
        client.flush()?;
    }
    stage.hold(5, 2);
    let after = dropped(stage)?;
    for ((reason, before), after) in REASONS.iter().zip(&before).zip(&after) {
        ensure!(after > before, "no message was dropped as {reason}");
    }
    let counts: Vec<String> = REASONS.iter().zip(before.iter().zip(&after)).map(count).collect();
    Ok(format!("{} messages of a stranger; node 2 dropped {}", 18 * COUNT, counts.join(", ")))
}

fn count((reason, (before, after)): (&&str, (&f64, &f64))) -> String {
    format!("{} {reason}", after - before)
}

fn dropped(stage: &Stage) -> Result<Vec<f64>> {
    let name = "tidegate_cluster_drops_total";
    REASONS.iter().map(|reason| stage.cluster.metric(2, name, &[("reason", reason)])).collect()
}
