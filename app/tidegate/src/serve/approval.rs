//! Follows folders of torrents, on a thread of its own with low priority.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use net::process::lower_priority;
use tokio::sync::watch;

use super::module::{Module, Notice, Notify, Running};
use super::workers::follow;
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
        let folders = running.access.folders.clone();
        let notify = Arc::clone(running.notify);
        let (has_folders, stop) = (self.has_folders.subscribe(), running.workers.stopping());
        running.workers.start("approval", lower_priority, move || {
            follow(has_folders, stop, async |has_folders| {
                if has_folders {
                    look(&folders, &notify).await;
                }
                pending().await
            })
        })
    }

    fn configure(&mut self, config: &Config) {
        self.has_folders.send_replace(config.folders().next().is_some());
    }
}

async fn look(folders: &TorrentFolders, notify: &Notify) {
    loop {
        let began = Instant::now();
        if folders.refresh() {
            notify(Notice::TorrentsChanged);
        }
        let pause = LOOK_PERIOD.max(began.elapsed() * LOOK_PAUSE_FACTOR);
        tokio::time::sleep(pause).await;
    }
}
