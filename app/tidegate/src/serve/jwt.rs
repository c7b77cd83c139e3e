//! Follows the keys of tokens that a URL has, on a thread of its own with low priority.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::MetricSources;
use anyhow::Result;
use net::process::lower_priority;
use tokio::sync::watch;
use tracing::{error, info, warn};
use tracker::Tracker;
use types::limits::TOKEN_KEY_SET_MAX;

use super::module::{Module, Running};
use super::outbound::{FetchRequest, HttpsFetcher, RESPONSE_TIMEOUT, Validators};
use super::workers::follow;
use crate::access::token_keys::TokenKeys;
use config::{Config, KeySource, TokenConfig, without_secrets};

/// Seconds until keys are requested again after a failure, while there are none.
const RETRY_S: u32 = 5;

#[derive(Default)]
pub(super) struct JwtModule {
    configs: watch::Sender<Option<TokenConfig>>,
}

impl Module for JwtModule {
    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        self.configure(running.config);
        let mut follower = KeyFollower {
            keys: running.access.token_keys.clone(),
            tracker: Arc::clone(&running.shared.tracker),
            sources: Arc::clone(running.workers.metric_sources()),
            fetcher: None,
            has_failed: false,
        };
        let configs = self.configs.subscribe();
        let stop = running.workers.stopping();
        running.workers.start("jwt", lower_priority, move || {
            follow(configs, stop, async |config| follower.follow(config).await)
        })
    }

    fn configure(&mut self, config: &Config) {
        self.configs.send_replace(config.tokens.clone());
    }
}

/// Requests the keys from time to time, and when the configuration has been reloaded.
struct KeyFollower {
    keys: TokenKeys,
    tracker: Arc<Tracker>,
    sources: Arc<MetricSources>,
    fetcher: Option<HttpsFetcher>,
    has_failed: bool,
}

impl KeyFollower {
    async fn follow(&mut self, config: Option<TokenConfig>) {
        // Its authorities may be others.
        self.fetcher = None;
        let Some(config) = &config else { return pending().await };
        let KeySource::Url(url) = &config.keys else { return pending().await };
        loop {
            let wait_s = self.request(config, url).await;
            tokio::time::sleep(Duration::from_secs(wait_s.into())).await;
        }
    }

    async fn request(&mut self, config: &TokenConfig, url: &str) -> u32 {
        let Err(error) = self.fetch(config, url).await else {
            if std::mem::take(&mut self.has_failed) {
                info!("the keys of tokens can be requested again");
            }
            return config.refresh_s;
        };
        self.sources.status.jwt_key_failures.fetch_add(1, Ordering::Relaxed);
        let are_there = self.keys.are_there();
        let url = without_secrets(url);
        if !std::mem::replace(&mut self.has_failed, true) {
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

    async fn fetch(&mut self, config: &TokenConfig, url: &str) -> Result<(), String> {
        let mut bytes = Vec::new();
        let request = FetchRequest {
            url,
            accept: "application/json",
            known: &Validators::default(),
            bytes_max: TOKEN_KEY_SET_MAX as u64,
            timeout: RESPONSE_TIMEOUT,
            follows_redirects: false,
        };
        let take = |part: &[u8]| {
            bytes.extend_from_slice(part);
            let is_too_long = bytes.len() > TOKEN_KEY_SET_MAX;
            if is_too_long { Err(format!("more than {TOKEN_KEY_SET_MAX} bytes")) } else { Ok(()) }
        };
        let fetcher = match self.fetcher.take() {
            Some(fetcher) => fetcher,
            None => {
                HttpsFetcher::new(config.ca.as_deref()).map_err(|error| format!("{error:#}"))?
            }
        };
        self.fetcher.insert(fetcher).get(&request, take).await?;
        let replaced = self.keys.replace(&self.tracker, config, bytes);
        replaced.map_err(|error| format!("{error:#}"))
    }
}
