//! Statistics of the last 90 days, in steps that grow with their age, and annotations: what happened when.
//!
//! Everything is in memory: some 400 KiB, and at most 4 MB for the torrents whose counts are in rows of five minutes
//! and longer. Rows of a minute and longer, and annotations, are also written to the records with the next counts, so
//! that they survive a restart.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracker::counters::DropReason;
use types::{InfoHash, Refusal};

use super::sample::{CounterSnapshot, FIELDS, Sample, rounded, sample};
use super::torrents::{self, FollowedTorrents, TORRENT_FIELDS, TorrentSample};
use crate::annotation::{ANNOTATIONS_MAX, Annotation};
use crate::named::named;
use crate::records::tables::history::{PendingHistory, StoredRow};
use crate::sources::MetricSources;
use utoipa::ToSchema;

/// Step in seconds and number of rows, for each [`HistorySpan`]. Some 300 rows fill a chart.
/// Rows of the last tier are made of those of the tier before, which the records have, so that a restart leaves
/// nothing out of them. All others are made of counters.
const TIERS: [(u64, usize); 6] =
    [(2, 300), (10, 360), (60, 360), (300, 288), (1800, 336), (6 * 3600, 360)];
/// Steps of at least this many seconds are written to the records.
const STORED_STEP_S: u64 = 60;
/// Steps of at least this many seconds have the counts of torrents.
const TORRENT_STEP_S: u64 = 300;

named! {
    /// A span of time until now.
    #[derive(Default)]
    pub(crate) enum HistorySpan {
        TenMinutes = "10m", "10 minutes";
        #[default]
        Hour = "1h", "1 hour";
        SixHours = "6h", "6 hours";
        Day = "1d", "24 hours";
        Week = "7d", "7 days";
        NinetyDays = "90d", "90 days";
    }
}

const _: () = assert!(HistorySpan::NinetyDays as usize + 1 == TIERS.len());

impl HistorySpan {
    fn seconds(self) -> u64 {
        let (step_s, rows) = TIERS[self as usize];
        step_s * rows as u64
    }
}

/// Figures of one step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HistoryRow {
    step_s: u64,
    /// Their time is the end of the step.
    values: Sample,
    refusals: Vec<(&'static str, u64)>,
    drops: Vec<(&'static str, u64)>,
    torrents: Vec<TorrentSample>,
}

/// The counts of a torrent over a span of time.
#[derive(Serialize, ToSchema)]
pub(crate) struct TorrentHistory {
    span: HistorySpan,
    /// Unix time of the beginning of the span, seconds.
    from: u64,
    /// Unix time of its end, seconds.
    to: u64,
    /// The names of the values in a row. `time` is the end of a step of 5 minutes, 30 minutes or 6 hours, when
    /// the torrent had the counts; `downloads` are all so far.
    fields: [&'static str; TORRENT_FIELDS.len()],
    /// The oldest first. A row with nothing but a time stands for a time without figures.
    rows: Vec<Vec<u64>>,
}

/// Statistics of a span of time.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatsHistory {
    span: HistorySpan,
    /// Seconds between rows. Rows may be closer at the end, and farther apart at the beginning.
    step_s: u64,
    /// Unix time of the beginning of the span, seconds.
    from: u64,
    /// Unix time of its end, seconds.
    to: u64,
    /// The names of the values in a row. Names that end with `_s` are rates per second: means over the step.
    /// `p50_us` and `p99_us` are the response times of the step, `time` is its end.
    fields: [&'static str; FIELDS.len()],
    /// The oldest first. A row with nothing but a time stands for a time without figures.
    #[schema(value_type = Vec<Vec<f64>>)]
    rows: Vec<Value>,
    /// Refused requests within the span by reason; reasons without any are absent.
    refusals: BTreeMap<&'static str, u64>,
    /// Drops within the span by reason; reasons without any are absent.
    drops: BTreeMap<&'static str, u64>,
    /// Annotations of events within the span, the oldest first.
    annotations: Vec<Annotation>,
}

/// Rows with the same step.
struct Tier {
    step_s: u64,
    rows_max: usize,
    rows: VecDeque<HistoryRow>,
    /// The counters when the present step began.
    begun: Option<CounterSnapshot>,
}

pub(super) struct History {
    tiers: [Tier; TIERS.len()],
    annotations: VecDeque<Annotation>,
    unwritten: PendingHistory,
    pub(super) followed: FollowedTorrents,
}

impl Default for History {
    fn default() -> Self {
        let tier =
            |(step_s, rows_max)| Tier { step_s, rows_max, rows: VecDeque::new(), begun: None };
        let (annotations, unwritten, followed) = Default::default();
        Self { tiers: TIERS.map(tier), annotations, unwritten, followed }
    }
}

impl History {
    /// Completes the steps that end with this snapshot.
    pub(super) fn add(&mut self, sources: &MetricSources, snapshot: &CounterSnapshot) {
        let [made_of_counters @ .., _] = &mut self.tiers;
        for tier in made_of_counters {
            let step_s = tier.step_s;
            let Some(begun) = &tier.begun else {
                tier.begun = Some(snapshot.clone());
                continue;
            };
            if begun.time / step_s == snapshot.time / step_s {
                continue;
            }
            let mut values = sample(sources, begun, snapshot);
            values[0] = (snapshot.time / step_s * step_s) as f64;
            let [refusals, drops] = snapshot.reasons_since(begun);
            let torrents = if step_s >= TORRENT_STEP_S {
                self.followed.sample(&sources.tracker, (sources.clock)())
            } else {
                Vec::new()
            };
            let row = HistoryRow { step_s, values, refusals, drops, torrents };
            if step_s >= STORED_STEP_S {
                self.unwritten.rows.push(row.to_stored());
            }
            tier.push(row);
            tier.begun = Some(snapshot.clone());
        }
        self.join();
    }

    /// Adds a row to the last tier for each step that has passed, made of the rows of the tier before.
    fn join(&mut self) {
        let [.., fine, coarse] = &mut self.tiers;
        let step_s = coarse.step_s;
        let step_of = |row: &HistoryRow| row.time().div_ceil(step_s);
        let joined = coarse.rows.back().map_or(0, step_of);
        let passed = fine.rows.back().map_or(0, HistoryRow::time) / step_s;
        let is_left = |row: &&HistoryRow| step_of(row) > joined && step_of(row) <= passed;
        let left: Vec<&HistoryRow> = fine.rows.iter().filter(is_left).collect();
        for parts in left.chunk_by(|one, other| step_of(one) == step_of(other)) {
            let row = HistoryRow::joined(step_s, parts);
            self.unwritten.rows.push(row.to_stored());
            coarse.push(row);
        }
    }

    pub(super) fn annotate(&mut self, annotation: Annotation) {
        self.unwritten.annotations.push(annotation.clone());
        self.keep(annotation);
    }

    fn keep(&mut self, annotation: Annotation) {
        if self.annotations.len() == ANNOTATIONS_MAX {
            self.annotations.pop_front();
        }
        self.annotations.push_back(annotation);
    }

    /// Moves what is not written yet to `pending`.
    pub(super) fn collect(&mut self, pending: &mut PendingHistory) {
        pending.append(&mut self.unwritten);
    }

    /// Returns the rows with steps that are not written to the records.
    pub(super) fn brief_rows(&self) -> Vec<StoredRow> {
        let brief = self.tiers.iter().filter(|tier| tier.step_s < STORED_STEP_S);
        brief.flat_map(|tier| tier.rows.iter().map(HistoryRow::to_stored)).collect()
    }

    /// Adds what the records or an earlier process have. Call before the first sample.
    pub(super) fn restore(&mut self, stored: PendingHistory) {
        for row in stored.rows.iter().filter_map(HistoryRow::from_stored) {
            if let Some(tier) = self.tiers.iter_mut().find(|tier| tier.step_s == row.step_s) {
                tier.push(row);
            }
        }
        let last = self.tiers.iter().find(|tier| tier.step_s == TORRENT_STEP_S);
        let last = last.and_then(|tier| tier.rows.back()).into_iter().flat_map(|row| &row.torrents);
        last.for_each(|sample| self.followed.add(sample.info_hash));
        stored.annotations.into_iter().for_each(|annotation| self.keep(annotation));
    }

    pub(super) fn span(&self, span: HistorySpan, now: u64) -> StatsHistory {
        let from = now.saturating_sub(span.seconds());
        let rows = self.rows(span, from);
        let mut values = Vec::with_capacity(rows.len());
        let mut end = None;
        for row in &rows {
            // Steps that follow one another touch, give or take a second.
            let begin = row.time().saturating_sub(row.step_s);
            if let Some(end) = end.filter(|end| begin > end + 1) {
                values.push(json!([end + 1]));
            }
            end = Some(row.time());
            values.push(rounded(&row.values));
        }
        let annotations = self.annotations.iter().filter(|one| one.time >= from);
        StatsHistory {
            span,
            step_s: TIERS[span as usize].0,
            from,
            to: now,
            fields: FIELDS,
            rows: values,
            refusals: sums(rows.iter().flat_map(|row| &row.refusals)),
            drops: sums(rows.iter().flat_map(|row| &row.drops)),
            annotations: annotations.cloned().collect(),
        }
    }

    /// Returns what is known of a torrent within a span that ends `now`. Steps shorter than five minutes have nothing.
    pub(super) fn torrent(
        &self,
        info_hash: &InfoHash,
        span: HistorySpan,
        now: u64,
    ) -> TorrentHistory {
        let from = now.saturating_sub(span.seconds());
        let longer = match span {
            HistorySpan::Week | HistorySpan::NinetyDays => span,
            _ => HistorySpan::Day,
        };
        let mut rows: Vec<Vec<u64>> = Vec::new();
        let mut end = None;
        for row in self.rows(longer, from).into_iter().filter(|row| row.step_s >= TORRENT_STEP_S) {
            let Some(sample) = row.torrents.iter().find(|it| it.info_hash == *info_hash) else {
                continue;
            };
            let begin = row.time().saturating_sub(row.step_s);
            if let Some(end) = end.filter(|end| begin > end + 1) {
                rows.push(vec![end + 1]);
            }
            end = Some(row.time());
            let counts = [sample.seeders, sample.leechers, sample.downloads].map(u64::from);
            rows.push([&[row.time()][..], &counts].concat());
        }
        TorrentHistory { span, from, to: now, fields: TORRENT_FIELDS, rows }
    }

    /// Returns the rows of the span's own step, those with longer steps from before the first, and those with
    /// shorter steps from after the last.
    fn rows(&self, span: HistorySpan, from: u64) -> Vec<&HistoryRow> {
        let (finer, others) = self.tiers.split_at(span as usize);
        let mut rows: Vec<&HistoryRow> = Vec::new();
        for tier in others {
            let first = rows.first().map_or(u64::MAX, |row| row.time());
            let before = tier.rows.iter().filter(|row| row.time() > from && row.time() < first);
            rows.splice(0..0, before);
        }
        for tier in finer.iter().rev() {
            let last = rows.last().map_or(from, |row| row.time());
            rows.extend(tier.rows.iter().filter(|row| row.time() > last));
        }
        rows
    }
}

impl Tier {
    fn push(&mut self, row: HistoryRow) {
        // If the clock was set back, newer rows would be in the future.
        while self.rows.back().is_some_and(|last| last.time() >= row.time()) {
            self.rows.pop_back();
        }
        if self.rows.len() == self.rows_max {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }
}

impl HistoryRow {
    fn time(&self) -> u64 {
        self.values[0] as u64
    }

    /// Returns a longer row of shorter ones within its step, in order: means, those of response times weighted by
    /// requests, sums of counts, and the torrents of the last one that has any. Times without a row count for nothing.
    fn joined(step_s: u64, parts: &[&Self]) -> Self {
        let time = parts.last().map_or(0, |last| last.time().div_ceil(step_s) * step_s);
        let mean = |index: usize| {
            let is_response_time = FIELDS[index].ends_with("_us");
            let weight = |row: &Self| if is_response_time { requests_s(&row.values) } else { 1.0 };
            let weights: f64 = parts.iter().map(|row| weight(row)).sum();
            let sum: f64 = parts.iter().map(|row| weight(row) * row.values[index]).sum();
            // Without requests there are no response times.
            if weights > 0.0 { sum / weights } else { 0.0 }
        };
        let mut values: Sample = std::array::from_fn(mean);
        values[0] = time as f64;
        let torrents = parts.iter().rev().find(|row| !row.torrents.is_empty());
        Self {
            step_s,
            values,
            refusals: sums(parts.iter().flat_map(|row| &row.refusals)).into_iter().collect(),
            drops: sums(parts.iter().flat_map(|row| &row.drops)).into_iter().collect(),
            torrents: torrents.map(|row| row.torrents.clone()).unwrap_or_default(),
        }
    }

    /// Returns the form in the records: names and values, so that other versions can read it.
    fn to_stored(&self) -> StoredRow {
        let values = rounded(&self.values);
        let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
        let named = FIELDS.into_iter().map(String::from).zip(values.iter().cloned());
        let counts = |counts: &[_]| json!(sums(counts.iter()));
        let mut data: Map<String, Value> =
            named.skip(1).filter(|(_, value)| *value != json!(0)).collect();
        data.insert("refusals".into(), counts(&self.refusals));
        data.insert("drops".into(), counts(&self.drops));
        if !self.torrents.is_empty() {
            data.insert("torrents".into(), torrents::to_stored(&self.torrents));
        }
        StoredRow { step_s: self.step_s, time: self.time(), data: Value::Object(data).to_string() }
    }

    /// Reads what [`Self::to_stored`] of this or another version wrote; unknown names are ignored. Returns
    /// `None` if it is something else.
    fn from_stored(stored: &StoredRow) -> Option<Self> {
        let data: Map<String, Value> = serde_json::from_str(&stored.data).ok()?;
        let values = FIELDS.map(|name| data.get(name).and_then(Value::as_f64).unwrap_or(0.0));
        let counts = |name: &str, labels: &[&'static str]| -> Vec<(&'static str, u64)> {
            let counts = data.get(name).and_then(Value::as_object).into_iter().flatten();
            let read = |(label, count): (&String, &Value)| {
                let reason = labels.iter().find(|known| *known == label)?;
                Some((*reason, count.as_u64()?))
            };
            counts.filter_map(read).collect()
        };
        let mut row = Self {
            step_s: stored.step_s,
            values,
            refusals: counts("refusals", &Refusal::ALL.map(Refusal::label)),
            drops: counts("drops", &DropReason::ALL.map(DropReason::label)),
            torrents: torrents::from_stored(data.get("torrents")),
        };
        row.values[0] = stored.time as f64;
        Some(row)
    }
}

fn requests_s(values: &Sample) -> f64 {
    let is_protocol = |name: &str| ["udp_s", "http_s", "https_s", "ws_s", "wss_s"].contains(&name);
    FIELDS.iter().zip(values).filter(|(name, _)| is_protocol(name)).map(|(_, value)| value).sum()
}

/// Adds up the counts of each reason.
fn sums<'a>(counts: impl Iterator<Item = &'a (&'static str, u64)>) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for (reason, count) in counts {
        *sums.entry(*reason).or_default() += count;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::AnnotationKind;

    fn row(step_s: u64, time: u64) -> HistoryRow {
        let mut values = [0.0; FIELDS.len()];
        (values[0], values[1]) = (time as f64, 0.5);
        let (refusals, drops) = (vec![("denied", 2)], vec![("too_short", 1)]);
        HistoryRow { step_s, values, refusals, drops, torrents: Vec::new() }
    }

    /// Returns a row with the counts of a torrent.
    fn torrent_row(step_s: u64, time: u64, byte: u8, seeders: u32) -> HistoryRow {
        let info_hash = InfoHash([byte; 20]);
        let torrents = vec![TorrentSample { info_hash, seeders, leechers: 1, downloads: 7 }];
        HistoryRow { torrents, ..row(step_s, time) }
    }

    #[test]
    fn a_torrent_has_a_history_that_survives_in_the_records() {
        let mut history = History::default();
        let rows = [
            torrent_row(1800, 5400, 1, 4),
            torrent_row(300, 5700, 1, 5),
            torrent_row(300, 6000, 1, 6),
            torrent_row(300, 6300, 2, 9),
            torrent_row(300, 6600, 1, 8),
        ];
        let rows: Vec<StoredRow> = rows.iter().map(HistoryRow::to_stored).collect();
        history.restore(PendingHistory { rows, annotations: Vec::new() });
        let of = |byte, span| history.torrent(&InfoHash([byte; 20]), span, 6900).rows;
        let expected: [&[u64]; 5] =
            [&[5400, 4, 1, 7], &[5700, 5, 1, 7], &[6000, 6, 1, 7], &[6001], &[6600, 8, 1, 7]];
        assert_eq!(of(1, HistorySpan::Week), expected);
        assert_eq!(of(2, HistorySpan::Day), [[6300, 9, 1, 7]]);
        assert_eq!(of(1, HistorySpan::TenMinutes), [[6600, 8, 1, 7]]);
        assert!(of(3, HistorySpan::Week).is_empty());
        // The torrents of the last row are followed again.
        assert!(!history.followed.is_empty());
    }

    fn times(history: &StatsHistory) -> Vec<u64> {
        history.rows.iter().map(|row| row[0].as_u64().unwrap()).collect()
    }

    #[test]
    fn rows_are_limited_and_in_order() {
        let mut history = History::default();
        for time in 0..1000 {
            history.tiers[0].push(row(2, 2 * time));
        }
        assert_eq!(history.tiers[0].rows.len(), 300);
        history.tiers[0].push(row(2, 1990));
        let last: Vec<u64> =
            history.tiers[0].rows.iter().rev().map(HistoryRow::time).take(2).collect();
        assert_eq!(last, [1990, 1988], "rows of a future that did not come are removed");
    }

    #[test]
    fn a_span_has_coarser_rows_before_and_finer_ones_after_its_own() {
        let mut history = History::default();
        let rows =
            [(2, 660), (2, 720), (2, 780), (1, 790), (1, 800), (0, 1798), (0, 1804), (0, 1806)];
        for (tier, time) in rows {
            history.tiers[tier].push(row(TIERS[tier].0, time));
        }
        let span = history.span(HistorySpan::Hour, 1810);
        // 801 and 1797: nothing is known from there to the next row.
        assert_eq!(times(&span), [660, 720, 780, 790, 800, 801, 1798, 1799, 1804, 1806]);
        assert_eq!((span.refusals["denied"], span.drops["too_short"]), (16, 8));
        assert_eq!(span.rows[5], json!([801]), "a gap");
        assert_eq!(times(&history.span(HistorySpan::TenMinutes, 1810)), [1798, 1799, 1804, 1806]);
    }

    /// Twenty half hours with a pause, over three steps of six hours, the last of which is not over.
    #[test]
    fn six_hours_are_joined_from_half_hours_across_a_restart() {
        const STEP_S: u64 = 6 * 3600;
        let half_hours: Vec<u64> = (1..=14).chain(22..=27).collect();
        let mut history = History::default();
        let rows = half_hours.iter().map(|number| {
            let mut row = torrent_row(1800, number * 1800, 1, *number as u32);
            // p50_us, and memory.
            (row.values[1], row.values[6], row.values[17]) = (*number as f64, 10.0, 4.0);
            row.values[6] *= if *number == 12 { 10.0 } else { 1.0 };
            row.to_stored()
        });
        history.restore(PendingHistory { rows: rows.collect(), annotations: Vec::new() });
        history.join();
        history.join();
        let joined: Vec<&HistoryRow> = history.tiers[5].rows.iter().collect();
        let times: Vec<u64> = joined.iter().map(|row| row.time()).collect();
        assert_eq!(times, [STEP_S, 2 * STEP_S]);
        // 1 to 12, and 13, 14, 22, 23, 24.
        assert_eq!((joined[0].values[1], joined[1].values[1]), (6.5, 19.2));
        assert_eq!((joined[0].refusals[0].1, joined[1].refusals[0].1), (24, 10));
        assert_eq!((joined[0].torrents[0].seeders, joined[1].torrents[0].seeders), (12, 24));
        // 66 requests at 10 µs and 12 at 100 µs.
        let p50 = joined[0].values[6];
        assert!((p50 - 1860.0 / 78.0).abs() < 1e-9, "{p50}");
        assert_eq!(joined[0].values[17], 4.0);
        let mut pending = PendingHistory::default();
        history.collect(&mut pending);
        assert_eq!(pending.rows.iter().filter(|row| row.step_s == STEP_S).count(), 2);
        let mut next = History::default();
        next.restore(pending);
        let of = next.torrent(&InfoHash([1; 20]), HistorySpan::NinetyDays, 50_000).rows;
        assert_eq!(of, [[STEP_S, 12, 1, 7], [2 * STEP_S, 24, 1, 7]]);
        let span = next.span(HistorySpan::NinetyDays, 90 * 86_400);
        assert_eq!((span.from, span.step_s, span.refusals["denied"]), (0, STEP_S, 34));
    }

    #[test]
    fn an_upgrade_hands_over_what_the_records_do_not_have() {
        let mut old = History::default();
        for (tier, time) in [(0, 1798), (0, 1800), (1, 1790), (1, 1800), (2, 1800), (3, 1800)] {
            old.tiers[tier].push(row(TIERS[tier].0, time));
        }
        let rows = old.brief_rows();
        assert_eq!(rows.iter().map(|row| row.step_s).collect::<Vec<_>>(), [2, 2, 10, 10]);
        let mut new = History::default();
        new.restore(PendingHistory { rows, annotations: Vec::new() });
        // 1791: nothing is known from there to the next row.
        assert_eq!(times(&new.span(HistorySpan::TenMinutes, 1810)), [1790, 1791, 1798, 1800]);
    }

    #[test]
    fn rows_and_annotations_survive_in_the_records() {
        let stored = row(60, 1200).to_stored();
        assert_eq!(HistoryRow::from_stored(&stored), Some(row(60, 1200)));
        let data =
            r#"{"udp_s":0.5,"unknown":1,"refusals":{"denied":2,"new":1},"drops":{"too_short":1}}"#;
        let later = StoredRow { data: data.into(), ..stored };
        assert_eq!(HistoryRow::from_stored(&later), Some(row(60, 1200)));
        assert_eq!(
            HistoryRow::from_stored(&StoredRow { data: "[]".into(), ..later.clone() }),
            None
        );
        let mut history = History::default();
        let annotation =
            Annotation { time: 1190, kind: AnnotationKind::Start, text: "started".into() };
        history
            .restore(PendingHistory { rows: vec![later], annotations: vec![annotation.clone()] });
        let span = history.span(HistorySpan::TenMinutes, 1210);
        assert_eq!((times(&span), span.annotations), (vec![1200], vec![annotation]));
        let mut pending = PendingHistory::default();
        history.collect(&mut pending);
        assert!(pending.is_empty(), "what the records have is not written again");
    }
}
