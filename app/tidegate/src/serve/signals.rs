//! Signals to the process.

use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::event::Event;

/// Passes signals to the main thread. A second signal to stop ends the process at once.
pub(super) fn listen_to_signals(mut signals: Signals, events: Sender<Event>) -> Result<()> {
    for signal in [SIGTERM, SIGINT] {
        signals.add_signal(signal).context("cannot listen to signals")?;
    }
    let thread = std::thread::Builder::new().name("signals".into());
    let forward = move || {
        let mut stopping = false;
        for signal in signals.forever() {
            let stops = signal == SIGTERM || signal == SIGINT;
            if stops && std::mem::replace(&mut stopping, true) {
                std::process::exit(1);
            }
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread.spawn(forward).context("cannot start a thread")?;
    Ok(())
}
