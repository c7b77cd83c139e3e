//! Waiting for what other threads and processes do.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::PATIENCE;

/// Pause between two checks of a condition.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// Waits until `is_so`.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        sleep(POLL_PERIOD);
    }
}

/// Repeats `is_done` until it returns true. Errors are ignored until `patience` has passed.
///
/// # Errors
///
/// If `patience` has passed; the last error of `is_done`, if there was one.
pub fn wait_for(
    patience: Duration,
    what: &str,
    mut is_done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + patience;
    loop {
        let done = is_done();
        if matches!(done, Ok(true)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            done.with_context(|| format!("waiting for {what}"))?;
            bail!("waited {patience:?} for {what}");
        }
        // Conditions that are looked at by requests and processes cost more than those of tests.
        sleep(10 * POLL_PERIOD);
    }
}
