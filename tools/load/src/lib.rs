//! Load testers: they play many clients of a tracker and count what it says to them.
//!
//! They see a tracker only over the wire, so that every tracker can be put under the same load. Of a
//! tracker on the same machine, [`Usage`] tells what the load costs it: messages per second of its
//! own CPU time say more than messages per second.
#![forbid(unsafe_code)]

mod checks;
mod conduct;
mod evenness;
mod found;
pub mod http;
mod latencies;
mod mix;
mod pace;
mod pests;
mod population;
mod random;
mod report;
mod spread;
mod started;
mod stream;
pub mod udp;
mod url;
mod usage;
mod waiter;
pub mod ws;

pub use checks::Checks;
pub use conduct::{Plan, Progress};
pub use found::{Found, Kind, Web};
pub use latencies::Latencies;
pub use mix::Mix;
pub use pace::Pace;
pub use pests::Pest;
pub use population::Habits;
pub use report::{
    CheckReport, Generator, Hostile, Quantiles, Report, Responses, Sample, Tracker, WebReport,
};
pub use spread::Spread;
pub use started::Started;
pub use url::Url;
pub use usage::Usage;
