//! Metrics of a cluster.

use subsystem::{Page, escape};

use super::problems::ProblemKind;
use super::{ClusterNode, ClusterStatus, NodeState};

impl ClusterStatus {
    /// Writes the metrics. `docs/metrics.md` documents them.
    pub(super) fn render(&self, page: &mut Page) {
        render_self(page, self);
        render_nodes(page, self);
        render_log(page, self);
        render_traffic(page, self);
        render_records(page, self);
        render_streams(page, self);
    }
}

fn render_self(page: &mut Page, stats: &ClusterStatus) {
    let help = "1 if this node is connected to a NATS server, 0 if not.";
    let connection = &stats.connection;
    let is_connected = u8::from(connection.server.is_some());
    page.single("tidegate_cluster_connected", "gauge", help, is_connected);
    let help = "Connections to NATS made again.";
    page.single("tidegate_cluster_reconnects_total", "counter", help, connection.reconnects);
    let help =
        "1 if this node knows the peers of the cluster, or has waited long enough, 0 if not.";
    page.single("tidegate_cluster_warm", "gauge", help, u8::from(connection.warm));
    let help = "Seconds from the start until this node was warm; so far, until it is.";
    page.single("tidegate_cluster_warm_seconds", "gauge", help, connection.warm_s);
    let help =
        "1 if this node publishes nothing because an older process has its number, 0 if not.";
    page.single("tidegate_cluster_mute", "gauge", help, u8::from(stats.is_mute));
}

fn render_nodes(page: &mut Page, stats: &ClusterStatus) {
    let help = "Nodes, this one included, by state.";
    let states = [
        ("alive", NodeState::Alive),
        ("suspect", NodeState::Suspect),
        ("gone", NodeState::Gone),
        ("left", NodeState::Left),
    ];
    let count = |state| stats.nodes.iter().filter(|it| it.state == state).count();
    let nodes = states.map(|(label, state)| (label, count(state)));
    page.by_label("tidegate_cluster_nodes", "gauge", help, "state", nodes);
    // The lag behind a node that is gone has no meaning.
    let is_there = |it: &&ClusterNode| matches!(it.state, NodeState::Alive | NodeState::Suspect);
    let others = stats.nodes.iter().filter(|it| it.node != stats.node).filter(is_there);
    let others: Vec<_> = others.map(|it| (it.node.to_string(), it)).collect();
    type Value = fn(&ClusterNode) -> f64;
    let tables: [(_, _, Value); 3] = [
        (
            "tidegate_cluster_lag_seconds",
            "Seconds by which what this node knows of a node may be late.",
            |it| it.lag_s,
        ),
        (
            "tidegate_cluster_behind_blocks",
            "Messages of the log that a node has not applied, as far as this node knows.",
            |it| it.behind_blocks as f64,
        ),
        (
            "tidegate_cluster_records_differ_seconds",
            "Seconds since records of a node began to differ from this node's; 0 if they do not.",
            |it| it.differing_s,
        ),
    ];
    for (name, help, value) in tables {
        let values = others.iter().map(|(node, it)| (node, value(it)));
        page.by_label(name, "gauge", help, "node", values);
    }
    let name = "tidegate_cluster_clock_offset_seconds";
    let help = "The clock of a node, this one included, minus that of the NATS server, in seconds.";
    let there = stats.nodes.iter().filter(is_there);
    let offsets = there.map(|it| (it.node.to_string(), it.clock_offset_s));
    page.by_label(name, "gauge", help, "node", offsets);
}

fn render_log(page: &mut Page, stats: &ClusterStatus) {
    let queue = &stats.queue;
    let help = "Blocks of this node that the log has not acknowledged.";
    page.single("tidegate_cluster_unstored_blocks", "gauge", help, queue.unstored_blocks);
    let help = "Bytes of these blocks.";
    page.single("tidegate_cluster_unstored_bytes", "gauge", help, queue.unstored_bytes);
    let help = "Seconds since the oldest of these blocks was cut.";
    page.single("tidegate_cluster_unstored_seconds", "gauge", help, queue.unstored_s);
    let help =
        "Seconds since the oldest change that was dropped from the queue and is not told yet.";
    page.single("tidegate_cluster_dirty_seconds", "gauge", help, queue.dirty_s);
    let help = "Messages of the log that this node has not applied.";
    page.single("tidegate_cluster_log_behind", "gauge", help, queue.log_behind);
    let help = "Messages that were published again, because the log did not acknowledge them.";
    page.single("tidegate_cluster_retries_total", "counter", help, queue.retries);
    let help = "Walks that published what dropped blocks reported.";
    page.single("tidegate_cluster_walks_total", "counter", help, queue.walks);
}

fn render_traffic(page: &mut Page, stats: &ClusterStatus) {
    let traffic = &stats.traffic;
    let tables = [
        (
            "tidegate_cluster_blocks_total",
            "Blocks, by direction and by what was done with them.",
            &traffic.blocks,
        ),
        (
            "tidegate_cluster_letters_total",
            "WebTorrent offers and answers to and from other nodes, by what was done with them.",
            &traffic.letters,
        ),
    ];
    for (name, help, counts) in tables {
        page.family(name, "counter", help);
        for (direction, results) in counts {
            for (result, count) in results {
                page.labelled_sample(name, &[("direction", direction), ("result", result)], count);
            }
        }
    }
    let help = "Bytes of blocks, by direction.";
    page.by_label("tidegate_cluster_bytes_total", "counter", help, "direction", &traffic.bytes);
    let help = "Messages dropped, by reason.";
    page.by_label("tidegate_cluster_drops_total", "counter", help, "reason", &traffic.drops);
    let name = "tidegate_cluster_apply_seconds";
    page.family(name, "summary", "Seconds that applying blocks took.");
    page.plain_sample(&format!("{name}_sum"), traffic.apply_s);
    let applied = traffic.blocks.get("received").and_then(|blocks| blocks.get("applied"));
    page.plain_sample(&format!("{name}_count"), applied.copied().unwrap_or_default());
}

fn render_records(page: &mut Page, stats: &ClusterStatus) {
    let records = &stats.records;
    let tables = [
        (
            "tidegate_cluster_records_messages_total",
            "Messages with changes of records, by what was done with them.",
            vec![
                ("sent", records.sent),
                ("unsent", records.unsent),
                ("received", records.received),
            ],
        ),
        (
            "tidegate_cluster_records_rows_total",
            "Rows and counters of other nodes, by what was done with them.",
            vec![
                ("merged", records.merged),
                ("stale", records.stale),
                ("rejected", records.rejected),
                ("unknown", records.unknown),
            ],
        ),
        (
            "tidegate_cluster_records_repairs_total",
            "Times that rows were fetched because they differed from another node's.",
            vec![("done", records.repairs), ("failed", records.failed_repairs)],
        ),
    ];
    for (name, help, counts) in tables {
        page.by_label(name, "counter", help, "result", counts);
    }
    let help = "Changes of records that were not sent, because too many waited.";
    page.single("tidegate_cluster_records_left_out_total", "counter", help, records.left_out);
    let help = "Removed records that are remembered.";
    page.single("tidegate_cluster_records_tombstones", "gauge", help, records.tombstones);
}

fn render_streams(page: &mut Page, stats: &ClusterStatus) {
    let streams: Vec<_> = stats.streams.iter().map(|it| (escape(&it.name), it)).collect();
    let bytes = streams.iter().map(|(stream, it)| (stream, it.bytes));
    let help = "Size of the streams.";
    page.by_label("tidegate_cluster_stream_bytes", "gauge", help, "stream", bytes);
    let problems = stats.problems.iter().filter(|it| it.kind == ProblemKind::Stream);
    let help = "Faults that this node finds with the stream.";
    page.single("tidegate_cluster_stream_problems", "gauge", help, problems.count() as u64);
    let help = "1 if a stream has a leader, 0 if not: it stores nothing.";
    let leaders = streams.iter().map(|(stream, it)| (stream, u8::from(it.has_leader)));
    page.by_label("tidegate_cluster_stream_has_leader", "gauge", help, "stream", leaders);
}
