//! Figures and reports of the trials that kill and restart a tracker with peers: `tidegate-trials crash` and `restart`.

use crate::figures::{count, mib};
use crate::report::{CASE, Column, Content, Runs, SUBJECT, table};
use crate::table::Cell;

/// The peers that were kept, in percent.
pub const KEPT: &str = "kept_percent";
/// The number of peers that were lost.
pub const LOST: &str = "lost_peers";
/// The number of peers that had stopped, and are present.
pub const GHOSTS: &str = "ghosts";
/// Seconds before the end at which the oldest change was acknowledged that is lost.
pub const OLDEST_S: &str = "oldest_lost_s";
/// The most seconds by which a peer's age is too high.
pub const OLDER_S: &str = "older_s";
/// Seconds from the start of a process until it serves.
pub const READY_S: &str = "ready_s";
/// Seconds that a process takes to end.
pub const ENDED_S: &str = "ended_s";
/// Bytes of the journal on the disk, by peers.
pub const BYTES_PER_PEER: &str = "bytes_per_peer";
/// The resident memory.
pub const RESIDENT_BYTES: &str = "resident_bytes";

/// Reports kills.
pub(crate) fn report_crashes(runs: &Runs<'_>) -> Content {
    let text = "A tracker is killed while peers come, go, complete and announce again as fast as it \
                answers. Compared is what it knows after the next start with what it had acknowledged. A \
                peer is too old if its age is more than a round of the journal too high.";
    report("Swarms after kill -9", text, runs)
}

pub(crate) fn report_restarts(runs: &Runs<'_>) -> Content {
    let text = "A tracker is filled with peers, and ended and started again. It serves when it has read \
                its journal.";
    report("Restarts with the peers of before", text, runs)
}

fn report(title: &str, text: &str, runs: &Runs<'_>) -> Content {
    const COLUMNS: &[Column] = &[
        CASE,
        SUBJECT,
        ("kept at least, %", |row| {
            Cell::number(row.runs.figure(KEPT).map(|kept| format!("{:.4}", kept.low)))
        }),
        ("lost at most", |row| row.most(LOST, count)),
        ("oldest lost, s", |row| row.most(OLDEST_S, seconds)),
        ("stopped and present", |row| row.most(GHOSTS, count)),
        ("too old by, s", |row| row.most(OLDER_S, count)),
        ("new one serves after, s", |row| row.cell(READY_S, seconds)),
        ("at most", |row| row.most(READY_S, seconds)),
        ("old one ends after, s", |row| row.cell(ENDED_S, seconds)),
        ("bytes a peer on the disk", |row| row.cell(BYTES_PER_PEER, |bytes| format!("{bytes:.1}"))),
        ("memory", |row| row.cell(RESIDENT_BYTES, mib)),
    ];
    (title.to_owned(), text.to_owned(), vec![table(&runs.rows(), COLUMNS)])
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2}")
}
