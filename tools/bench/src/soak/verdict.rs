//! What a soak must show.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::actors::{Actor, Kind};
use super::operator::Operator;
use super::watch::{Sample, Watch};

/// Limits of a soak that depend on its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The age at which a process has all its peers.
    pub(super) settle: Duration,
}

/// Memory of any settled process, relative to the first settled sample.
const GROWTH_MAX: f64 = 1.1;
/// Warnings and failures that are shown.
const SHOWN_MAX: usize = 10;

/// The result of a soak.
pub(super) struct Verdict {
    /// Each condition with what was found, and whether that is good.
    conditions: Vec<(bool, String)>,
    details: Vec<String>,
}

impl Verdict {
    /// Judges a run. `unquiet` says why descriptors or threads were left over at the end, if any were.
    pub(super) fn of(
        actors: &[Actor<'_>],
        operator: &Operator,
        watch: &Watch,
        unquiet: Option<anyhow::Error>,
        limits: Limits,
    ) -> Self {
        let mut verdict = Self { conditions: Vec::new(), details: Vec::new() };
        verdict.judge_memory(watch.samples(), limits);
        verdict.add(
            unquiet.is_none(),
            match unquiet {
                None => format!("after the load {} as before it", watch.quiet),
                Some(error) => format!("after the load: {error:#}"),
            },
        );
        let errors = watch.log_errors.len();
        verdict.add(errors == 0, format!("errors in the log: {errors}"));
        let upgrades = operator.upgrades.load(Ordering::Relaxed) as usize;
        actors.iter().for_each(|actor| verdict.judge_actor(actor, upgrades));
        verdict.details.push(operator.summary());
        verdict.details.extend(watch.log_errors.iter().take(SHOWN_MAX).cloned());
        let warnings = watch.log_warnings.iter().take(SHOWN_MAX);
        let warning = |(text, times): (&String, &u64)| format!("{times} × warning: {text}");
        verdict.details.extend(warnings.map(warning));
        verdict
    }

    fn add(&mut self, is_good: bool, text: String) {
        self.conditions.push((is_good, text));
    }

    fn judge_memory<'a>(&mut self, samples: impl Iterator<Item = &'a Sample>, limits: Limits) {
        let settled: Vec<f64> = samples
            .filter(|sample| sample.age >= limits.settle)
            .map(|sample| sample.resident_bytes as f64)
            .collect();
        let Some((first, _)) = settled.split_first() else {
            return self.add(false, "the run is too short: no process has settled".into());
        };
        let most = settled.iter().copied().fold(*first, f64::max) / first;
        let text = format!("settled memory at most {most:.3} of its first value (≤ {GROWTH_MAX})");
        self.add(most <= GROWTH_MAX, text);
    }

    fn judge_actor(&mut self, actor: &Actor<'_>, upgrades: usize) {
        let ((lost, errors), tally) = (actor.broken(), actor.tally().clone());
        let (name, counters) = (actor.name, &tally.counters);
        let checks = counters.checks;
        let wrong =
            checks.own_address + checks.duplicates + checks.unknown_peers + checks.bad_counts;
        let sent = counters.sent;
        match actor.kind {
            Kind::Honest { unanswered_max } => {
                let is_good = sent > 0 && lost as f64 <= unanswered_max * sent as f64;
                let text = format!("{name}: {lost} of {sent} unanswered (≤ {unanswered_max})");
                self.add(is_good, text);
                self.add(errors == 0, format!("{name}: {errors} errors"));
                let checked = checks.checked;
                self.add(wrong == 0, format!("{name}: {wrong} wrong of {checked} checked"));
            }
            Kind::Connected => {
                let text = format!("{name}: {sent} sent, {} lost", counters.lost);
                self.add(sent > 0, text);
            }
            Kind::Hostile => self.details.push(format!(
                "{name}: {} hostile requests or connections, {} answered",
                counters.hostile_sent, counters.hostile_answered
            )),
            Kind::Operator => {}
        }
        let failures = tally.failures.len();
        // An upgrade ends all connections, and with them the load.
        let failures_max = if actor.kind == Kind::Connected { upgrades } else { 0 };
        if failures > failures_max || matches!(actor.kind, Kind::Operator | Kind::Connected) {
            let text = format!("{name}: {failures} failures (≤ {failures_max})");
            self.add(failures <= failures_max, text);
        }
        let texts = tally.failures.iter().take(SHOWN_MAX);
        self.details.extend(texts.map(|text| format!("{name}: {text}")));
        if actor.kind != Kind::Hostile {
            let errors = counters.errors.iter().take(SHOWN_MAX);
            self.details.extend(errors.map(|(text, times)| format!("{name}: {times} × {text}")));
        }
    }

    /// Whether all conditions are met.
    pub(super) fn is_good(&self) -> bool {
        self.conditions.iter().all(|(is_good, _)| *is_good)
    }

    /// Returns the verdict as a list in Markdown.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (is_good, condition) in &self.conditions {
            text += &format!("- {}: {condition}\n", if *is_good { "ok" } else { "**FAILED**" });
        }
        text.push('\n');
        self.details.iter().for_each(|detail| text += &format!("- {detail}\n"));
        text
    }
}
