//! A node that is to stop, and waits until its clients have moved to other nodes.

use std::time::{Duration, Instant};

/// A node without a request for this long has no clients any more.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) requests: u64,
    pub(super) web_sockets: u64,
}

pub(super) struct Draining {
    deadline: Instant,
    /// When the last request was noticed.
    busy_at: Instant,
    requests: u64,
}

impl Draining {
    pub(super) fn begin(longest: Duration, traffic: Traffic) -> Self {
        let now = Instant::now();
        Self { deadline: now + longest, busy_at: now, requests: traffic.requests }
    }

    /// Takes the present traffic, and returns whether the wait is over.
    pub(super) fn is_over(&mut self, traffic: Traffic) -> bool {
        let now = Instant::now();
        if traffic.requests != self.requests || traffic.web_sockets > 0 {
            self.requests = traffic.requests;
            self.busy_at = now;
        }
        now >= self.deadline || now >= self.busy_at + QUIET
    }
}
