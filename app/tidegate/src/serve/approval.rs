//! What is followed beside the requests: folders of torrents, and keys of tokens from a URL. On a thread of its
//! own, with low priority.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use admin::MetricSources;
use anyhow::Result;
use net::process::lower_priority;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::Tracker;
use types::limits::TOKEN_KEY_SET_MAX;

use super::module::{Module, Notice, Notify, Running};
use super::outbound::KeyFetcher;
use crate::access::TorrentFolders;
use crate::access::token_keys::{self, TokenKeys};
use config::{Config, TokenConfig, without_secrets};

/// How often folders are looked at, unless that takes long.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A look that took 1 s is not repeated within 20 s: looking takes at most 5 % of a core.
const LOOK_PAUSE_FACTOR: u32 = 20;
/// Seconds until keys are requested again after a failure, while there are none.
const RETRY_S: u32 = 5;

/// Starts the thread that follows what the configuration names, and sends it the configuration.
#[derive(Default)]
pub(super) struct ApprovalModule {
    configs: Option<watch::Sender<Arc<Config>>>,
}

impl Module for ApprovalModule {
    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        let configs = watch::Sender::new(Arc::new(running.config.clone()));
        let approval = Approval {
            configs: configs.subscribe(),
            folders: running.access.folders.clone(),
            token_keys: running.access.token_keys.clone(),
            tracker: Arc::clone(&running.shared.tracker),
            sources: Arc::clone(running.workers.metric_sources()),
            notify: Arc::clone(running.notify),
        };
        self.configs = Some(configs);
        let stop = running.workers.stopping();
        running.workers.start("approval", lower_priority, move || approval.run(stop))
    }

    fn configure(&mut self, config: &Config) {
        if let Some(configs) = &self.configs {
            configs.send_replace(Arc::new(config.clone()));
        }
    }
}

/// Follows what the configuration names.
struct Approval {
    configs: watch::Receiver<Arc<Config>>,
    folders: TorrentFolders,
    token_keys: TokenKeys,
    tracker: Arc<Tracker>,
    sources: Arc<MetricSources>,
    notify: Notify,
}

impl Approval {
    /// Works until `stop` becomes true.
    fn run(self, stop: watch::Receiver<bool>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.follow(stop));
        // Does not wait for name lookups in progress.
        runtime.shutdown_background();
        Ok(())
    }

    async fn follow(mut self, mut stop: watch::Receiver<bool>) {
        let mut keys = KeyRequests::default();
        let mut keys_due = Instant::now();
        loop {
            let config = Arc::clone(&self.configs.borrow_and_update());
            let began = Instant::now();
            if config.folders().next().is_some() && self.folders.refresh() {
                (self.notify)(Notice::TorrentsChanged);
            }
            let pause = LOOK_PERIOD.max(began.elapsed() * LOOK_PAUSE_FACTOR);
            if let Some(tokens) = &config.tokens
                && let Some(url) = token_keys::url(tokens)
                && Instant::now() >= keys_due
            {
                let wait_s = self.request_keys(&mut keys, tokens, url).await;
                keys_due = Instant::now() + Duration::from_secs(wait_s.into());
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // Once the sender is gone, the configuration stays as it is.
                Ok(()) = self.configs.changed() => keys_due = Instant::now(),
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
    }

    /// Requests the keys of tokens. Returns the seconds until the next time.
    async fn request_keys(
        &self,
        requests: &mut KeyRequests,
        config: &TokenConfig,
        url: &str,
    ) -> u32 {
        let fetched = match requests.fetcher() {
            Ok(fetcher) => fetcher.get(url, TOKEN_KEY_SET_MAX).await,
            Err(error) => Err(format!("{error:#}")),
        };
        let done = fetched.and_then(|bytes| {
            let replaced = self.token_keys.replace(&self.tracker, config, bytes);
            replaced.map_err(|error| format!("{error:#}"))
        });
        let Err(error) = done else {
            if std::mem::take(&mut requests.has_failed) {
                info!("the keys of tokens can be requested again");
            }
            return config.refresh_s;
        };
        self.sources.status.jwt_key_failures.fetch_add(1, Ordering::Relaxed);
        let are_there = self.token_keys.are_there();
        let url = without_secrets(url);
        if !std::mem::replace(&mut requests.has_failed, true) {
            if are_there {
                warn!("access.jwt_keys: {url}: {error}; the keys in use stay");
            } else {
                error!(
                    "access.jwt_keys: {url}: {error}; announces with tokens are refused until there are keys"
                );
            }
        }
        if are_there { config.refresh_s } else { config.refresh_s.min(RETRY_S) }
    }
}

/// What requests keys, and how the last request went.
#[derive(Default)]
struct KeyRequests {
    fetcher: Option<KeyFetcher>,
    has_failed: bool,
}

impl KeyRequests {
    fn fetcher(&mut self) -> Result<&KeyFetcher> {
        if self.fetcher.is_none() {
            self.fetcher = Some(KeyFetcher::new()?);
        }
        self.fetcher.as_ref().ok_or_else(|| anyhow::anyhow!("no client"))
    }
}
