//! Counts of what an import has taken and skipped.

use std::collections::BTreeMap;

use crate::error::Place;

/// Places named for each reason.
const EXAMPLES_MAX: usize = 3;
/// Different reasons; the texts of some contain numbers of the input.
const REASONS_MAX: usize = 100;

/// Counts of what an import has taken and skipped.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Counts by kind, such as "keys".
    pub taken: BTreeMap<&'static str, u64>,
    /// Skipped rows, by the reason.
    pub skipped: BTreeMap<String, Skipped>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Rows or lines that were skipped for one reason.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// The number of them.
    pub count: u64,
    /// The first of them.
    pub places: Vec<Place>,
}

impl Report {
    /// Counts something that was taken.
    pub(crate) fn take(&mut self, what: &'static str) {
        *self.taken.entry(what).or_default() += 1;
    }

    /// Counts something that was skipped.
    pub(crate) fn skip(&mut self, place: &Place, reason: impl Into<String>) {
        let mut reason = reason.into();
        if self.skipped.len() >= REASONS_MAX && !self.skipped.contains_key(&reason) {
            reason = "other reasons".into();
        }
        let skipped = self.skipped.entry(reason).or_default();
        skipped.count += 1;
        if skipped.places.len() < EXAMPLES_MAX {
            skipped.places.push(place.clone());
        }
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}
