//! `tidegate top`: live statistics of a running tracker in a terminal.
//!
//! ```text
//!  /stats/stream; /torrents and /status each 3 s ─ fetch ─▶ snapshot ─ frame ─▶ lines ─▶ screen, or once to
//!                                                                                        standard output
//! ```

mod fetch;
mod frame;
mod screen;
mod snapshot;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin::{self, Api, ApiArgs, ApiError, Sort};
use crate::cli;
use frame::View;
use screen::{Action, Screen};
use snapshot::{Snapshot, locked};

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

const WIDTH: usize = 100;
const HEIGHT: usize = 40;
const KEY_TIME: Duration = Duration::from_millis(100);
const FRAME_TIME: Duration = Duration::from_millis(500);

pub(crate) fn run(top: &Top, config: Option<&Path>) -> ExitCode {
    admin::exit(top.run(config))
}

impl Top {
    fn run(&self, config: Option<&Path>) -> Result<(), ApiError> {
        let api = Api::new(self.api_args.endpoint(config, true)?)?;
        let snapshot = Mutex::new(Snapshot::sorted_by(self.sort));
        if self.once {
            fetch::follow(&api, &snapshot, true)?;
            return print(&locked(&snapshot), api.url());
        }
        if !io::stdout().is_terminal() {
            let text = "standard output is not a terminal: use --once to print the statistics once";
            return Err(ApiError::Usage(text.into()));
        }
        show(api, Arc::new(snapshot))
    }
}

fn print(snapshot: &Snapshot, url: &str) -> Result<(), ApiError> {
    let view = View { url: url.to_owned(), width: WIDTH, height: HEIGHT, has_keys: false };
    let lines = frame::lines(snapshot, &view);
    let text: String = lines.iter().map(|line| format!("{}\n", line.text())).collect();
    cli::print(&text)?;
    Ok(())
}

fn show(api: Api, snapshot: Arc<Mutex<Snapshot>>) -> Result<(), ApiError> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))
            .map_err(|error| ApiError::Failed(format!("cannot listen for signals: {error}")))?;
    }
    let url = api.url().to_owned();
    fetch::start(api, Arc::clone(&snapshot))?;
    // Errors before the first sample are printed to the terminal, where they stay.
    while !locked(&snapshot).has_sample() {
        if let Some(why) = locked(&snapshot).stream_error.take() {
            return Err(ApiError::Failed(why));
        }
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(KEY_TIME);
    }
    let mut screen = Screen::enter()?;
    let mut view = View { url, width: 0, height: 0, has_keys: true };
    let mut drawn_at: Option<Instant> = None;
    while !ended.load(Ordering::Relaxed) {
        if drawn_at.is_none_or(|at| at.elapsed() >= FRAME_TIME) {
            (view.width, view.height) = screen.size();
            screen.draw(&frame::lines(&locked(&snapshot), &view))?;
            drawn_at = Some(Instant::now());
        }
        match screen.next_action(KEY_TIME)? {
            Action::None => {}
            Action::Redraw => drawn_at = None,
            Action::Quit => break,
            Action::Sort(sort) => {
                locked(&snapshot).sort = sort;
                drawn_at = None;
            }
        }
    }
    Ok(())
}
