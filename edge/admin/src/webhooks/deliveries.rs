//! The latest attempts to deliver events, for the operator who asks why a receiver gets none.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

/// Attempts kept of each webhook.
const DELIVERIES_MAX: usize = 50;

/// An attempt to post an event to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Delivery {
    /// Unix time at its start, seconds.
    pub(crate) time: i64,
    /// The id of the event; 0 of a test.
    pub(crate) event_id: u64,
    /// The kind of the event; `test` of a test.
    pub(crate) kind: &'static str,
    /// From 1: which attempt to post this event it was.
    pub(crate) attempt: u32,
    pub(crate) outcome: DeliveryOutcome,
    /// The status of the response; absent: there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Duration of the attempt, milliseconds.
    pub(crate) duration_ms: u64,
}

impl Delivery {
    /// Returns why the receiver did not accept the event.
    pub(super) fn failure(&self) -> String {
        let status = || format!("the response has status {}", self.status.unwrap_or(0));
        self.error.clone().unwrap_or_else(status)
    }
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryOutcome {
    /// The receiver accepted the event.
    Delivered,
    /// It did not. The event is posted again, unless it was a test.
    Failed,
    /// It did not, and the event is not posted again.
    Dropped,
}

/// The latest attempts of all webhooks.
#[derive(Debug, Default)]
pub(crate) struct DeliveryLog(Mutex<HashMap<i64, VecDeque<Delivery>>>);

impl DeliveryLog {
    /// Adds an attempt for the webhook `id`. The oldest is dropped when there are too many.
    pub(super) fn add(&self, id: i64, delivery: Delivery) {
        let mut all = self.0.lock();
        let deliveries = all.entry(id).or_default();
        deliveries.truncate(DELIVERIES_MAX - 1);
        deliveries.push_front(delivery);
    }

    /// Forgets the attempts for a webhook.
    pub(super) fn remove(&self, id: i64) {
        self.0.lock().remove(&id);
    }

    /// Returns the attempts for a webhook, newest first.
    pub(crate) fn of(&self, id: i64) -> Vec<Delivery> {
        self.0.lock().get(&id).into_iter().flatten().cloned().collect()
    }

    pub(crate) fn last(&self, id: i64) -> Option<Delivery> {
        self.0.lock().get(&id)?.front().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_attempts_of_each_webhook() {
        let log = DeliveryLog::default();
        let delivery = |event_id| Delivery {
            time: 5,
            event_id,
            kind: "ban",
            attempt: 1,
            outcome: DeliveryOutcome::Delivered,
            status: Some(204),
            error: None,
            duration_ms: 1,
        };
        (1..=60).for_each(|event| log.add(1, delivery(event)));
        log.add(2, delivery(99));
        let kept: Vec<_> = log.of(1).iter().map(|delivery| delivery.event_id).collect();
        assert_eq!(kept, (11..=60).rev().collect::<Vec<_>>());
        log.remove(1);
        assert_eq!((log.of(1), log.last(2)), (vec![], Some(delivery(99))));
    }
}
