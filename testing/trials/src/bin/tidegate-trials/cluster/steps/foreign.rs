//! Messages on the subjects that no node has sent, and messages of nodes that come again.

use anyhow::{Context, Result, ensure};
use bench::cluster::NAME;

use super::super::stage::Stage;

/// Messages of each kind.
const COUNT: u32 = 200;
/// Of these, how many may be under way at once, so that none is lost because a node is busy.
const ROUND: u32 = 100;
/// Where messages of nodes go: live blocks, blocks of the log, heartbeats.
const KINDS: [&str; 3] = ["l", "d", "h"];
/// Counts dropped messages by their reasons.
const DROPS: &str = "tidegate_cluster_drops_total";
/// Reasons for which they are dropped.
const REASONS: [&str; 4] = ["foreign", "secret", "origin", "damaged"];

/// A client publishes garbage, and blocks that it has heard: changed, for other nodes, and again.
pub(super) fn garbage(stage: &mut Stage) -> Result<String> {
    let mut client = stage.cluster.nats_client()?;
    client.subscribe(&format!("tg.{NAME}.d.1"))?;
    let block = client.next_message()?;
    let text = String::from_utf8(block.headers.clone())?;
    let lines = text.strip_prefix("NATS/1.0\r\n").and_then(|it| it.strip_suffix("\r\n"));
    let lines = lines.context("a message without headers")?.split_inclusive("\r\n");
    // The log stores each id once.
    let good: String = lines.filter(|line| !line.starts_with("Nats-Msg-Id")).collect();
    let bad = good.replace(|digit: char| digit.is_ascii_digit(), "f");
    let before = dropped(stage)?;
    let half = block.payload.len() / 2;
    let messages = [
        ("1", "", &block.payload[..]),
        ("1", &bad, &block.payload),
        ("2", &good, &block.payload),
        ("x", &good, &block.payload),
        ("1", &good, &block.payload[..half]),
        ("1", &good, &block.payload),
    ];
    for sent in 1..=COUNT {
        for kind in KINDS {
            for (node, headers, payload) in messages {
                client.publish(&format!("tg.{NAME}.{kind}.{node}"), headers, payload)?;
            }
        }
        if sent % ROUND == 0 {
            client.flush()?;
            wait_until_dropped(stage, f64::from(sent) * KINDS.len() as f64)?;
        }
    }
    let after = dropped(stage)?;
    for ((reason, before), after) in REASONS.iter().zip(&before).zip(&after) {
        ensure!(after > before, "no message was dropped as {reason}");
    }
    let counts: Vec<String> = REASONS.iter().zip(before.iter().zip(&after)).map(count).collect();
    let sent = messages.len() * KINDS.len() * COUNT as usize;
    Ok(format!("{sent} messages of a stranger; node 2 dropped {}", counts.join(", ")))
}

/// Waits until each node has dropped at least this many messages without headers.
fn wait_until_dropped(stage: &Stage, messages: f64) -> Result<()> {
    let foreign = (DROPS, &[("reason", "foreign")][..]);
    stage.cluster.wait_for_metric(foreign, |dropped| dropped >= messages)
}

fn count((reason, (before, after)): (&&str, (&f64, &f64))) -> String {
    format!("{} {reason}", after - before)
}

fn dropped(stage: &Stage) -> Result<Vec<f64>> {
    REASONS.iter().map(|reason| stage.cluster.metric(2, DROPS, &[("reason", reason)])).collect()
}
