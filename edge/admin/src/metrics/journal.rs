//! Metrics of the journal of swarms.

use crate::sources::JournalStats;
use subsystem::Page;

/// Renders nothing if there is no journal.
pub(super) fn render_journal(page: &mut Page, stats: Option<&JournalStats>) {
    let Some(stats) = stats else { return };
    let tables = [
        (
            "tidegate_journal_bytes_total",
            "Bytes written to the journal, by kind.",
            "kind",
            &stats.bytes,
        ),
        (
            "tidegate_journal_blocks_total",
            "Blocks written to the journal, by kind.",
            "kind",
            &stats.blocks,
        ),
        (
            "tidegate_journal_failures_total",
            "Times that the journal stopped, by reason.",
            "reason",
            &stats.failures,
        ),
        (
            "tidegate_journal_skipped_total",
            "What was not restored: old and full are peers, damaged are places in the files.",
            "reason",
            &stats.skipped,
        ),
    ];
    for (name, help, label, counts) in tables {
        page.family(name, "counter", help);
        for (text, count) in counts {
            page.sample(name, (label, text), count);
        }
    }
    let help = "Size of the journal.";
    page.single("tidegate_journal_disk_bytes", "gauge", help, stats.disk_bytes);
    let help = "Files of the journal.";
    page.single("tidegate_journal_segments", "gauge", help, stats.segments);
    let help = "Seconds since the last complete round began, or since the start.";
    page.single("tidegate_journal_round_age_seconds", "gauge", help, stats.round_age_s);
    let help = "Age of the oldest change that is not written, in seconds.";
    page.single("tidegate_journal_lag_seconds", "gauge", help, stats.lag_s);
    let name = "tidegate_journal_sync_seconds";
    page.family(name, "summary", "Seconds that forcing the journal to the disk took.");
    page.plain_sample(&format!("{name}_sum"), stats.sync_s);
    page.plain_sample(&format!("{name}_count"), stats.syncs);
    let help = "Changes that were not written because too many waited.";
    page.single("tidegate_journal_missed_total", "counter", help, stats.missed);
    let help = "Peers restored at the start.";
    page.single("tidegate_journal_restored_peers", "gauge", help, stats.restored_peers);
    let help = "Torrents restored at the start.";
    page.single("tidegate_journal_restored_torrents", "gauge", help, stats.restored_torrents);
    let help = "Seconds that restoring took; 0 until it has ended.";
    page.single("tidegate_journal_restore_seconds", "gauge", help, stats.restore_s);
}
