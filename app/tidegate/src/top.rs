//! `tidegate top`: live statistics of a running tracker in a terminal.
//!
//! ```text
//!         /stats/stream, /names ─ fetch ─┐
//!                                        ├─ updates ─▶ snapshot ─ frame ─▶ lines ─▶ screen, or once to
//!  /torrents, /status each 3 s ─ fetch ─┘                                           standard output
//! ```

mod fetch;
mod frame;
mod screen;
mod snapshot;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin::{self, ApiArgs, ApiError, Endpoint, Sort};
use crate::cli;
use frame::View;
use screen::{Action, Screen};
use snapshot::{Snapshot, Update};

/// Show live statistics of a running tidegate in a terminal.
///
/// They include what is wrong, requests, latency, swarms, refusals, the largest torrents, client software and networks. Keys: q or Ctrl-C quits; s, l, d and a sort torrents by seeders, leechers, downloads and age. Needs a token
/// with the permission stats:read, and torrents:read for the torrents.
#[derive(Args)]
pub(crate) struct Top {
    #[command(flatten)]
    api_args: ApiArgs,
    /// Print the statistics once, as plain text.
    #[arg(long)]
    once: bool,
    /// Sort torrents by this column.
    #[arg(long, value_enum, default_value_t = Sort::Seeders)]
    sort: Sort,
}

/// The size of the output of --once.
const WIDTH: usize = 100;
const HEIGHT: usize = 40;
/// Longest wait for a key before updates are applied.
const KEY_TIME: Duration = Duration::from_millis(100);
/// The time between frames without updates.
const FRAME_TIME: Duration = Duration::from_secs(1);

/// Shows statistics until the user quits. The configuration in `config` tells where the API is, unless the
/// command does.
pub(crate) fn run(top: &Top, config: Option<&Path>) -> ExitCode {
    admin::exit(top.run(config))
}

impl Top {
    fn run(&self, config: Option<&Path>) -> Result<(), ApiError> {
        let endpoint = self.api_args.endpoint(config, true)?;
        if self.once {
            return self.print(endpoint);
        }
        if !io::stdout().is_terminal() {
            let text = "standard output is not a terminal: use --once to print the statistics once";
            return Err(ApiError::Usage(text.into()));
        }
        self.show(endpoint)
    }

    fn print(&self, endpoint: Endpoint) -> Result<(), ApiError> {
        let view = View {
            url: endpoint.url.clone(),
            width: WIDTH,
            height: HEIGHT,
            sort: self.sort,
            has_keys: false,
        };
        let lines = frame::lines(&fetch::once(endpoint, self.sort)?, &view);
        let text: String = lines.iter().map(|line| format!("{}\n", line.text())).collect();
        cli::print(&text)?;
        Ok(())
    }

    fn show(&self, endpoint: Endpoint) -> Result<(), ApiError> {
        let ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&ended))
                .map_err(|error| ApiError::Failed(format!("cannot listen for signals: {error}")))?;
        }
        let url = endpoint.url.clone();
        let (updates, inbox) = mpsc::channel();
        let sorts = fetch::start(endpoint, self.sort, updates)?;
        let mut snapshot = Snapshot::default();
        // Errors before the first sample are printed to the terminal, where they stay.
        while !snapshot.has_sample() {
            match inbox.recv_timeout(KEY_TIME) {
                Ok(Update::Disconnected(why)) => return Err(ApiError::Failed(why)),
                Ok(updates) => snapshot.apply(updates),
                Err(_) if ended.load(Ordering::Relaxed) => return Ok(()),
                Err(_) => {}
            }
        }
        let mut view = View { url, width: 0, height: 0, sort: self.sort, has_keys: true };
        let mut screen = Screen::enter()?;
        let mut last = None;
        while !ended.load(Ordering::Relaxed) {
            let mut is_due = last.is_none_or(|last: Instant| last.elapsed() >= FRAME_TIME);
            while let Ok(updates) = inbox.try_recv() {
                snapshot.apply(updates);
                is_due = true;
            }
            if is_due {
                (view.width, view.height) = screen.size();
                screen.draw(&frame::lines(&snapshot, &view))?;
                last = Some(Instant::now());
            }
            match screen.next_action(KEY_TIME)? {
                Action::None => {}
                Action::Redraw => last = None,
                Action::Quit => break,
                Action::Sort(sort) => {
                    view.sort = sort;
                    // Fails only if the thread has ended, which it has reported.
                    let _ = sorts.send(sort);
                    last = None;
                }
            }
        }
        Ok(())
    }
}
