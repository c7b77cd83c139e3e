//! Private sites: tidegate as the tracker of UNIT3D and Gazelle, and the accounts of any other site.
//!
//! ```text
//!  announce ─▶ answers ─ who may what? ─▶ model ◀─ the site's database at the start, its calls since then
//!                 └─ who moved what? ───▶ ledger ─ each 3 s ─▶ spool ─▶ the site's database, or readers of the feed
//! ```
//!
//! `answers` implements the tracker's trait, and waits for nothing. `ledger` counts, `spool` makes what was counted
//! durable, `database` writes it once; `unit3d` and `gazelle` know tables and calls. It knows no protocol of
//! clients, and no configuration but [`SiteConfig`].
#![forbid(unsafe_code)]

mod answers;
pub mod batch;
mod bytes;
mod changes;
mod config;
pub mod credit;
mod database;
mod gazelle;
mod id_map;
mod keys;
mod ledger;
mod lists;
mod metrics;
mod model;
mod names;
mod probes;
mod rates;
mod server;
mod shared_call;
mod spool;
mod sql;
mod status;
mod subsystem;
mod torrents;
mod unit3d;

pub use self::subsystem::{Feed, SiteSubsystem};
#[doc(hidden)]
pub use batch::reads_batch_as_written;
pub use config::{DatabaseTls, DonorRule, SiteConfig, SiteError, SiteKind};
#[doc(hidden)]
pub use gazelle::calls::read_query;
pub use gazelle::tokens::SiteUrl;
pub use lists::{ListWindow, ListWindows};
pub use probes::{ProbeConfig, ProbeCounts};
#[doc(hidden)]
pub use shared_call::reads_call_as_written;
pub use spool::SpoolError;
#[doc(hidden)]
pub use spool::scan_segment;
pub use status::{SiteProblem, SiteStatus};
#[doc(hidden)]
pub use unit3d::calls::read_body;
