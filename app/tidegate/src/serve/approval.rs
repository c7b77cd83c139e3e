//! Follows folders of torrents, on a thread of its own with low priority.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use net::process::lower_priority;
use tokio::sync::watch;

use super::module::{Module, Notice, Notify, Running};
use crate::access::TorrentFolders;
use config::Config;

const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A look that took 1 s is not repeated within 20 s: looking takes at most 5 % of a core.
const LOOK_PAUSE_FACTOR: u32 = 20;

#[derive(Default)]
pub(super) struct ApprovalModule {
    has_folders: watch::Sender<bool>,
}

impl Module for ApprovalModule {
    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        self.configure(running.config);
        let has_folders = self.has_folders.subscribe();
        let folders = running.access.folders.clone();
        let notify = Arc::clone(running.notify);
        let stop = running.workers.stopping();
        running.workers.start("approval", lower_priority, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            runtime.block_on(follow(&folders, &has_folders, &notify, stop));
            Ok(())
        })
    }

    fn configure(&mut self, config: &Config) {
        self.has_folders.send_replace(config.folders().next().is_some());
    }
}

/// Reports changes of folders until `stop` becomes true.
async fn follow(
    folders: &TorrentFolders,
    has_folders: &watch::Receiver<bool>,
    notify: &Notify,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let began = Instant::now();
        if *has_folders.borrow() && folders.refresh() {
            notify(Notice::TorrentsChanged);
        }
        let pause = LOOK_PERIOD.max(began.elapsed() * LOOK_PAUSE_FACTOR);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}
