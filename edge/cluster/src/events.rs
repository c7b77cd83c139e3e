//! Recent events, as sentences.

use std::collections::VecDeque;

use crate::seam::{Output, Time};
use crate::status::ClusterEvent;

/// Events that are kept for the dashboard.
const EVENTS_MAX: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<ClusterEvent>);

impl Events {
    /// Keeps the reports among `outputs`.
    pub(crate) fn keep(&mut self, now: Time, outputs: &[Output]) {
        for output in outputs {
            let Output::Report { text, .. } = output else { continue };
            if self.0.len() == EVENTS_MAX {
                self.0.pop_front();
            }
            self.0.push_back(ClusterEvent { time: now.unix_ms / 1000, text: text.clone() });
        }
    }

    /// Returns them, oldest first.
    pub(crate) fn list(&self) -> Vec<ClusterEvent> {
        self.0.iter().cloned().collect()
    }
}

impl Output {
    /// Returns the report of something that happened as it should.
    pub(crate) fn info(text: impl Into<String>) -> Self {
        Self::Report { is_warning: false, text: text.into() }
    }

    /// Returns the report of something that an operator should know.
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self::Report { is_warning: true, text: text.into() }
    }
}
