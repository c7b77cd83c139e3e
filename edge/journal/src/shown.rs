//! The state of a journal, as the API, metrics and the dashboard show it.

use serde::Serialize;
use subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, Value, json};
use utoipa::ToSchema;

use crate::status::{Failure, Figures, KINDS, SKIPPED, State};

/// Age of unwritten changes that is a warning, seconds. The journal is written a few times a second.
const LAG_MAX_S: f64 = 30.0;

/// The journal of swarms, by which peers survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Swarms)]
pub struct JournalStatus {
    /// The present activity.
    #[serde(rename = "journal")]
    pub state: State,
    /// Seconds since the last complete round of the journal began, or since the start; null without a journal.
    pub round_age_s: Option<u64>,
    /// Size of the journal, bytes.
    pub disk_bytes: u64,
    /// Peers restored at the start, each counted once.
    pub restored: u64,
    /// Further figures of the writer and the reader.
    #[serde(skip)]
    pub figures: Figures,
    /// Age of the oldest change that is not written, in seconds.
    #[serde(skip)]
    pub lag_s: f64,
    /// Times that another process had the journal.
    #[serde(skip)]
    pub locked: u64,
    /// The disk of the journal, in words.
    #[serde(skip)]
    pub place: String,
}

impl JournalStatus {
    /// Returns the number of times that writing stopped, by reason.
    fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_disk = Failure::ALL.into_iter().map(Failure::label).zip(self.figures.failures);
        of_disk.chain([("locked", self.locked)])
    }
}

impl Subsystem for JournalStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        let figures = &self.figures;
        let tables: [(_, _, _, Vec<(&str, u64)>); 4] = [
            (
                "tidegate_journal_bytes_total",
                "Bytes written to the journal, by kind.",
                "kind",
                KINDS.into_iter().zip(figures.bytes).collect(),
            ),
            (
                "tidegate_journal_blocks_total",
                "Blocks written to the journal, by kind.",
                "kind",
                KINDS.into_iter().zip(figures.blocks).collect(),
            ),
            (
                "tidegate_journal_failures_total",
                "Times that the journal stopped, by reason.",
                "reason",
                self.failures().collect(),
            ),
            (
                "tidegate_journal_skipped_total",
                "What was not restored: old and full are peers, damaged are places in the files.",
                "reason",
                SKIPPED.into_iter().zip(figures.skipped).collect(),
            ),
        ];
        for (name, help, label, counts) in tables {
            page.by_label(name, "counter", help, label, counts);
        }
        let help = "Size of the journal.";
        page.single("tidegate_journal_disk_bytes", "gauge", help, self.disk_bytes);
        let help = "Files of the journal.";
        page.single("tidegate_journal_segments", "gauge", help, figures.segments);
        let help = "Seconds since the last complete round began, or since the start.";
        let round_age_s = self.round_age_s.unwrap_or_default();
        page.single("tidegate_journal_round_age_seconds", "gauge", help, round_age_s);
        let help = "Age of the oldest change that is not written, in seconds.";
        page.single("tidegate_journal_lag_seconds", "gauge", help, self.lag_s);
        let name = "tidegate_journal_sync_seconds";
        page.family(name, "summary", "Seconds that forcing the journal to the disk took.");
        page.plain_sample(&format!("{name}_sum"), figures.sync_time.as_secs_f64());
        page.plain_sample(&format!("{name}_count"), figures.syncs);
        let help = "Changes that were not written because too many waited.";
        page.single("tidegate_journal_missed_total", "counter", help, figures.missed);
        let help = "Peers restored at the start.";
        page.single("tidegate_journal_restored_peers", "gauge", help, self.restored);
        let help = "Torrents restored at the start.";
        let torrents = figures.restored_torrents;
        page.single("tidegate_journal_restored_torrents", "gauge", help, torrents);
        let help = "Seconds that restoring took; 0 until it has ended.";
        let restore_s = figures.restore_time.as_secs_f64();
        page.single("tidegate_journal_restore_seconds", "gauge", help, restore_s);
    }

    fn problems(&self) -> Vec<HealthItem> {
        let (level, text, remedy) = match self.state {
            State::Stopped => {
                let counted = self.failures().filter(|(_, count)| *count > 0);
                let reasons: Vec<_> = counted.map(|(why, _)| why.replace('_', " ")).collect();
                let reasons = match reasons.join(", ") {
                    none if none.is_empty() => none,
                    reasons => format!(" ({reasons})"),
                };
                let text = format!(
                    "Swarms are not written to the disk{reasons}: after a restart, clients that have not announced \
                     yet would be missing."
                );
                let place = &self.place;
                let remedy =
                    format!("Free space on {place}, and make sure that no other tidegate uses it.");
                (Level::Error, text, Some(remedy))
            }
            State::Restoring => {
                let peers = self.restored;
                (Level::Info, format!("Swarms are being restored: {peers} peers so far."), None)
            }
            State::Writing if self.lag_s > LAG_MAX_S => {
                let text = format!("The journal of swarms is {:.0} s behind.", self.lag_s);
                (Level::Warning, text, Some(format!("Too slow, or overloaded: {}.", self.place)))
            }
            State::Off | State::Writing => return Vec::new(),
        };
        vec![HealthItem { remedy, ..HealthItem::new(level, HealthArea::Journal, text) }]
    }

    fn write_failures(&self) -> u64 {
        self.failures().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_journal_is_an_error() {
        let figures = Figures { failures: [2, 0, 0, 0], ..Figures::default() };
        let problem = |state, lag_s| {
            let place = "the disk of /x".into();
            let status = JournalStatus { state, lag_s, place, figures, ..JournalStatus::default() };
            status.problems().pop()
        };
        let stopped = problem(State::Stopped, 0.0).unwrap();
        assert_eq!((stopped.level, stopped.area), (Level::Error, HealthArea::Journal));
        assert!(stopped.text.contains("(no space)"), "{}", stopped.text);
        assert!(stopped.remedy.unwrap().contains("the disk of /x, "));
        assert_eq!(problem(State::Writing, 31.0).unwrap().level, Level::Warning);
        assert_eq!(problem(State::Restoring, 0.0).unwrap().level, Level::Info);
        assert_eq!(problem(State::Writing, 1.0), None);
    }
}
