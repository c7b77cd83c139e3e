//! `tidegate version`: which program this is, and how it was built.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{self, UsageError};

/// Print the version, the commit and how the program was built.
#[derive(Args)]
pub(crate) struct Version {
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit's id and date. Empty if the build did not know them.
const COMMIT: &str = env!("TIDEGATE_BUILD_COMMIT");
const COMMIT_DATE: &str = env!("TIDEGATE_BUILD_COMMIT_DATE");
const TARGET: &str = env!("TIDEGATE_BUILD_TARGET");
const PROFILE: &str = env!("TIDEGATE_BUILD_PROFILE");
const RUSTC: &str = env!("TIDEGATE_BUILD_RUSTC");

/// The values of `udp.engine` that this build has, besides auto.
const ENGINES: &[&str] = match (cfg!(target_os = "linux"), cfg!(feature = "xdp")) {
    (true, true) => &["mmsg", "portable", "shield", "xdp"],
    (true, false) => &["mmsg", "portable"],
    (false, _) => &["portable"],
};

impl Version {
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        cli::print(&if self.json { format!("{}\n", object()) } else { text() })
    }
}

fn object() -> Value {
    let known = |text: &'static str| Some(text).filter(|text| !text.is_empty());
    json!({
        "version": VERSION,
        "commit": known(COMMIT),
        "commit_date": known(COMMIT_DATE),
        "target": TARGET,
        "profile": PROFILE,
        "rustc": RUSTC,
        "allocator": crate::ALLOCATOR,
        "udp_engines": ENGINES,
    })
}

fn text() -> String {
    let commit = match COMMIT {
        "" => "unknown".to_owned(),
        commit => format!("{commit} ({COMMIT_DATE})"),
    };
    let engines = ENGINES.join(", ");
    let allocator = crate::ALLOCATOR;
    format!(
        "tidegate {VERSION}\ncommit: {commit}\ntarget: {TARGET}, profile {PROFILE}\n\
         compiler: {RUSTC}\nallocator: {allocator}\nUDP engines: {engines}\n"
    )
}
