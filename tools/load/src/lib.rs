//! Load testers: each simulates many clients of one tracker and measures its responses.
//!
//! They talk to trackers only over the wire, so that every tracker can be put under the same load. For a tracker on the
//! same machine, [`Usage`] measures what the load costs it: responses per second of the tracker's own CPU time say more
//! than responses per second. They stand on Linux: epoll, batches of datagrams, /proc.
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("tidegate-load and tidegate-bench need Linux");

mod checks;
mod counters;
pub mod http;
mod latencies;
mod mix;
mod poller;
mod population;
mod random;
mod report;
mod runner;
mod schedule;
mod spread;
mod stream;
pub mod udp;
mod url;
mod usage;
pub mod ws;

pub use checks::Checks;
pub use counters::{Counters, Responses, WebTorrentCounters};
pub use latencies::Latencies;
pub use mix::Mix;
pub use population::Workload;
pub use report::{GeneratorUsage, Quantiles, Report, TrackerUsage, WebTorrentReport};
pub use runner::{Progress, RunPlan, Tester};
pub use schedule::LoopMode;
pub use spread::Spread;
pub use url::TrackerUrl;
pub use usage::Usage;
