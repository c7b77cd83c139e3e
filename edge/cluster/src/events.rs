//! Recent events, as sentences.

use std::collections::VecDeque;

use crate::seam::{Output, Time};
use crate::status::ClusterEvent;

/// Events that are kept for the dashboard.
const EVENTS_MAX: usize = 20;

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct Events(VecDeque<ClusterEvent>);

impl Events {
    /// Notes that something happened as it should.
    pub(crate) fn info(&mut self, now: Time, text: String, out: &mut Vec<Output>) {
        self.add(now, false, text, out);
    }

    /// Notes something that an operator should know.
    pub(crate) fn warn(&mut self, now: Time, text: String, out: &mut Vec<Output>) {
        self.add(now, true, text, out);
    }

    fn add(&mut self, now: Time, is_warning: bool, text: String, out: &mut Vec<Output>) {
        if self.0.len() == EVENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(ClusterEvent { time: now.unix_ms / 1000, text: text.clone() });
        out.push(Output::Report { is_warning, text });
    }

    /// Returns them, oldest first.
    pub(crate) fn list(&self) -> Vec<ClusterEvent> {
        self.0.iter().cloned().collect()
    }
}
