//! Shared by tests of the binary and tasks of `xtask`: a launcher of trackers, a small HTTP client, a
//! reader of metrics, temporary directories, NATS servers, and networks in namespaces.
//!
//! Trackers listen on port 0, and [`Tracker`] learns the ports from what they print: no port is chosen
//! beforehand, so that none can be taken in between. Where a test must know an address before anything
//! listens there, [`unused_address`] provides one.
//!
//! Nothing here depends on a crate of tidegate: requests are written and responses read byte by byte, so
//! that tidegate's own codec does not check itself.
#![forbid(unsafe_code)]

mod address;
pub mod certificates;
mod directory;
pub mod http;
pub mod mariadb;
pub mod metrics;
pub mod nats;
#[cfg(target_os = "linux")]
pub mod network;
pub mod pebble;
mod process;
mod tracker;
mod wait;

pub use address::{is_listening, unused_address};
pub use directory::Directory;
pub use process::{Process, is_alive, output, show, signal};
pub use tracker::{Listener, Tracker, set_test_variables};
pub use wait::{wait_for, wait_until};

pub use nix::sys::signal::Signal;

use std::time::Duration;

/// Time that a test waits for anything before it fails. Generous, because machines that run tests are
/// busy; nothing waits this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(60);
