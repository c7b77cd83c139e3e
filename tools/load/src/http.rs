//! Load for HTTP trackers: many peers share connections that are persistent or, like most clients',
//! used for a single request; over TLS the latter is a load of handshakes.
//!
//! Each connection has one outstanding request at a time. In a closed loop the next one follows its
//! response; in an open loop it waits for its scheduled time, and scheduled requests wait for a
//! free connection.

mod response;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use crate::runner::{self, Load, Progress, RunPlan, Tester};
use crate::{LoopMode, Report, TrackerUrl, Workload};

/// Parameters of an HTTP load.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The announce URL.
    pub url: TrackerUrl,
    /// Torrents and peers.
    pub workload: Workload,
    /// Concurrent connections, all workers together.
    pub connections: u32,
    /// Requests per second of an open loop; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Durations of the run.
    pub plan: RunPlan,
    /// Threads.
    pub workers: u32,
    /// Close each connection after its response and open another one.
    pub close: bool,
    /// Time until a request counts as lost.
    pub timeout: Duration,
    /// Validate one in this many announce responses.
    pub check_every: u32,
}

impl HttpOptions {
    /// Returns the defaults: 64 persistent connections, one worker.
    pub fn of(url: TrackerUrl) -> Self {
        Self {
            url,
            workload: Workload::default(),
            connections: 64,
            rate: None,
            plan: RunPlan::default(),
            workers: 1,
            close: false,
            timeout: Duration::from_secs(5),
            check_every: 16,
        }
    }

    fn loop_mode(&self) -> LoopMode {
        match self.rate {
            Some(rate) => LoopMode::Open { rate },
            None => LoopMode::Closed { outstanding: self.connections },
        }
    }
}

impl Tester for HttpOptions {
    fn workload(&self) -> &Workload {
        &self.workload
    }

    fn run(&self, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Report> {
        let make = |number| worker::Http::new(self, number);
        let load = Load {
            protocol: "http",
            url: &self.url,
            seed: self.workload.seed,
            loop_mode: self.loop_mode(),
            plan: &self.plan,
            workers: self.workers.clamp(1, self.connections.max(1)),
        };
        runner::run(&load, make, interrupted, progress)
    }
}
