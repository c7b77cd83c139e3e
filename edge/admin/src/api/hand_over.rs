//! State that the dashboard needs after an upgrade and that no record has: open sessions, and figures in steps of
//! seconds. The old process writes it as JSON, and the new one reads it.

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::session_store::OpenSession;
use super::state::Api;
use crate::records::tables::history::StoredRow;

/// Written by this or another version: what is missing is empty, and unknown members are ignored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct HandOver {
    sessions: Vec<OpenSession>,
    rows: Vec<StoredRow>,
}

impl Api {
    /// Returns what the process that replaces this one needs, as a line of JSON. It contains the tokens of open sessions.
    pub fn hand_over(&self) -> String {
        let hand_over =
            HandOver { sessions: self.sessions.to_hand_over(), rows: self.recorder.brief_rows() };
        crate::json::json_text(&hand_over)
    }

    /// Takes what [`Self::hand_over`] of the old process returned. Call before the first sample.
    pub fn take_over(&self, text: &str) {
        match serde_json::from_str(text) {
            Ok(HandOver { sessions, rows }) => {
                self.sessions.take_over(sessions);
                self.recorder.restore_rows(rows);
            }
            // Not the text, which has tokens.
            Err(error) => warn!(
                line = error.line(),
                column = error.column(),
                "the old process's sessions of the dashboard cannot be read: users sign in again"
            ),
        }
    }
}
