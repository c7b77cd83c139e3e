//! A cluster of three nodes and three NATS servers, whose parts fail one after the other.

use crate::command::{command, run as run_command};
use crate::workspace::{binary, target};
use anyhow::Result;

/// Steps that run with all other tests: nodes that are killed, and messages of strangers. The others take
/// minutes, because servers and streams need seconds to elect leaders.
const SHORT: [&str; 3] = ["steady", "nodes killed", "foreign messages"];

/// Plays a few steps. Does nothing without the rights to set up a network.
///
/// # Errors
///
/// Returns an error if the steps cannot be played.
pub fn run_short() -> Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(obstacle) = harness::network::Network::obstacle() {
        println!("skipped {obstacle}: clusters");
        return Ok(());
    }
    // Another run, in which nothing else runs, measures when a peer is seen elsewhere.
    run(&[&SHORT[..], &["--unseen-after", "60"]].concat())
}

/// Plays the steps that are named, or all.
///
/// # Errors
///
/// Returns an error if the steps cannot be played.
pub fn run(words: &[&str]) -> Result<()> {
    let program = target().join("debug/tidegate-trials").display().to_string();
    let tracker = binary().display().to_string();
    let check = [&*program, "cluster", "--program", &tracker];
    run_command(command(&[&check[..], words].concat()))
}
