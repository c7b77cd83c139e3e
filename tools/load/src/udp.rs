//! Load for UDP trackers (BEP 15): many peers share a few sockets, in several threads.
//!
//! Each worker has sockets connected to the tracker, each with a source address, a connection id
//! and a share of the peers. Requests of equal length are sent as one batch; responses are received
//! in batches.
//! `lanes` has sockets and outstanding requests (`pending`), `datagram_io` moves datagrams, `worker` draws requests.
//! `roster` is another load on the same lanes, which knows each of its peers.

mod datagram_io;
mod lanes;
mod pending;
mod roster;
mod sightings;
#[cfg(test)]
mod tests;
mod worker;

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use crate::runner::{self, Load, Progress, RunPlan, Tester};
use crate::{LoopMode, Mix, Report, TrackerUrl, Workload};

pub use roster::{
    Download, KnownPeer, PeerState, Roster, RosterOptions, RosterRun, RosterTask, Routes,
};
pub use sightings::Sightings;

/// Parameters of a UDP load.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// The tracker's URL.
    pub url: TrackerUrl,
    /// Torrents and peers.
    pub workload: Workload,
    /// When requests are sent.
    pub loop_mode: LoopMode,
    /// Durations of the run.
    pub plan: RunPlan,
    /// Ratio of request kinds.
    pub mix: Mix,
    /// Threads.
    pub workers: u32,
    /// Sockets per thread.
    pub sockets: u32,
    /// Source addresses to bind to in turn; empty leaves the choice to the system.
    pub sources: Vec<IpAddr>,
    /// Time until a request counts as lost.
    pub timeout: Duration,
    /// Validate one in this many announce responses.
    pub check_every: u32,
    /// Use UDP segmentation offload. The tracker then sees bursts.
    pub offload: bool,
}

impl UdpOptions {
    /// Returns the defaults: one worker, 16 sockets, 512 outstanding requests.
    pub fn of(url: TrackerUrl) -> Self {
        Self {
            url,
            workload: Workload::default(),
            loop_mode: LoopMode::Closed { outstanding: 512 },
            plan: RunPlan::default(),
            mix: Mix { connect: 1, announce: 100, scrape: 1 },
            workers: 1,
            sockets: 16,
            sources: Vec::new(),
            timeout: Duration::from_secs(1),
            check_every: 16,
            offload: true,
        }
    }
}

impl Tester for UdpOptions {
    fn workload(&self) -> &Workload {
        &self.workload
    }

    fn run(&self, interrupted: &AtomicBool, progress: &mut dyn FnMut(&Progress)) -> Result<Report> {
        let make = |number| worker::Udp::new(self, number);
        let load = Load {
            protocol: "udp",
            url: &self.url,
            seed: self.workload.seed,
            loop_mode: self.loop_mode,
            plan: &self.plan,
            workers: self.workers.max(1),
        };
        runner::run(&load, make, interrupted, progress)
    }
}
