//! Refreshes lists at URLs, on a thread of its own with low priority. A list that is good replaces its copy in
//! `state.dir`, and the main thread notices that as it does for other files.

use std::fmt::Display;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use lists::copy::{self, CopyRecord, Incoming};
use lists::{FetchFault, Registry};
use net::process::lower_priority;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};
use tracker::Random;
use types::limits::LIST_BYTES_MAX;
use types::to_hex;

use super::module::{Module, Running};
use super::outbound::{FetchRequest, HttpsFetcher, Validators};
use super::time::unix_ms;
use super::workers::follow;
use crate::access::lists::check;
use config::{Config, FetchConfig, ListKind, ListUrl, list_copies, without_secrets};

/// Seconds until a list is requested again after a failure. They double with each further one, up to the period.
const RETRY_S: u32 = 60;
/// The same while there is no copy.
const RETRY_WITHOUT_S: u32 = 5;

#[derive(Default)]
pub(super) struct ListsModule {
    jobs: watch::Sender<Jobs>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Jobs {
    lists: Vec<(ListKind, ListUrl)>,
    fetch: FetchConfig,
    folder: Option<std::path::PathBuf>,
    /// Counts the requests to refresh all of them now.
    refreshes: u64,
}

impl Module for ListsModule {
    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        self.configure(running.config);
        let registry = Arc::clone(&running.access.lists);
        let shown = Arc::clone(&registry);
        let sources = running.workers.metric_sources();
        sources.subsystems.add("lists", move || shown.status(SystemTime::now()));
        let (jobs, stop) = (self.jobs.subscribe(), running.workers.stopping());
        running.workers.start("lists", lower_priority, move || {
            follow(jobs, stop, async |jobs| refresh_all(jobs, &registry).await)
        })
    }

    fn configure(&mut self, config: &Config) {
        let mut lists: Vec<(ListKind, ListUrl)> = Vec::new();
        for (kind, url) in config.list_urls() {
            if !lists.iter().any(|(_, known)| known.copy == url.copy) {
                lists.push((kind, url.clone()));
            }
        }
        let folder = config.state_dir.as_deref().map(list_copies);
        self.jobs.send_if_modified(|jobs| {
            let new =
                Jobs { lists, fetch: config.fetch.clone(), folder, refreshes: jobs.refreshes };
            let is_other = *jobs != new;
            *jobs = new;
            is_other
        });
    }

    fn refresh(&mut self) {
        self.jobs.send_modify(|jobs| jobs.refreshes += 1);
    }
}

/// Refreshes all lists from time to time, until it is dropped.
async fn refresh_all(jobs: Jobs, registry: &Arc<Registry>) {
    let urls: Vec<&str> = jobs.lists.iter().map(|(_, list)| list.url.as_str()).collect();
    registry.retain(&urls);
    if let Some(folder) = &jobs.folder {
        let copies: Vec<_> = jobs.lists.iter().map(|(_, list)| list.copy.as_path()).collect();
        copy::retain(folder, &copies);
    }
    if jobs.lists.is_empty() {
        return pending().await;
    }
    let fetcher = match HttpsFetcher::new(jobs.fetch.ca()) {
        Ok(fetcher) => Arc::new(fetcher),
        Err(error) => {
            warn!("lists at URLs are not refreshed: access.urls_ca: {error:#}");
            let fault =
                FetchFault { error: format!("access.urls_ca: {error:#}"), is_content: false };
            urls.iter().for_each(|url| registry.note(url, |it| it.fault = Some(fault.clone())));
            return pending().await;
        }
    };
    let mut tasks = JoinSet::new();
    for (kind, list) in jobs.lists {
        let (fetcher, registry) = (Arc::clone(&fetcher), Arc::clone(registry));
        let refresher = Refresher { kind, list, fetch: jobs.fetch.clone(), fetcher, registry };
        tasks.spawn(refresher.run());
    }
    tasks.join_all().await;
}

struct Refresher {
    kind: ListKind,
    list: ListUrl,
    fetch: FetchConfig,
    fetcher: Arc<HttpsFetcher>,
    registry: Arc<Registry>,
}

impl Refresher {
    async fn run(self) {
        let ListUrl { url, copy, sha256, .. } = &self.list;
        let known = copy::record(copy, url, sha256.as_ref());
        self.registry.note(url, |fetch| {
            fetch.checked = fetch.checked.max(known.map(|record| record.checked));
        });
        let mut random = Random::new(unix_ms() ^ u64::from(self.list.port));
        let mut failures = 0;
        loop {
            let wait_s = match self.refresh().await {
                Ok(()) => {
                    failures = 0;
                    self.fetch.refresh_s
                }
                Err(fault) => {
                    failures += 1;
                    self.note_failure(fault, failures)
                }
            };
            // Up to a tenth more or less, so that many trackers do not ask at the same time.
            let percent = 90 + random.below(21);
            let wait_ms = u64::from(wait_s) * 10 * u64::from(percent);
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }

    /// Notes a failure, the `failures`th in a row, and returns the seconds until the next request.
    fn note_failure(&self, fault: FetchFault, failures: u32) -> u32 {
        let shown = without_secrets(&self.list.url);
        let mut has_copy = false;
        self.registry.note(&self.list.url, |fetch| {
            has_copy = fetch.checked.is_some();
            if fetch.fault.as_ref() != Some(&fault) {
                let rest = if has_copy { "the list in use stays" } else { "there is no list yet" };
                warn!("cannot refresh {shown}: {}; {rest}", fault.error);
            }
            fetch.failures += 1;
            fetch.fault = Some(fault);
        });
        let first_s = if has_copy { RETRY_S } else { RETRY_WITHOUT_S };
        first_s.saturating_mul(1 << (failures - 1).min(20)).min(self.fetch.refresh_s)
    }

    /// Requests the list once, and keeps it if it is another one and good.
    async fn refresh(&self) -> Result<(), FetchFault> {
        let ListUrl { url, copy, sha256, .. } = &self.list;
        let known = copy::record(copy, url, sha256.as_ref()).unwrap_or_default();
        let CopyRecord { etag, last_modified, .. } = known.clone();
        let request = FetchRequest {
            url,
            accept: "text/plain, */*",
            known: &Validators { etag, last_modified },
            bytes_max: LIST_BYTES_MAX,
            timeout: Duration::from_secs(self.fetch.timeout_s.into()),
            follows_redirects: true,
        };
        let mut incoming = Incoming::new(copy, LIST_BYTES_MAX).map_err(disk)?;
        let fetched = self.fetcher.get(&request, |part| incoming.write(part)).await;
        let checked = unix_ms() / 1000;
        match fetched.map_err(transport)? {
            None => copy::write_record(copy, &CopyRecord { checked, ..known }).map_err(disk)?,
            Some(Validators { etag, last_modified }) => {
                let sha256 = incoming.sha256();
                // After a crash, the record may be that of a list which is not there yet.
                let is_other = sha256 != known.sha256 || known.checked == 0;
                let record = CopyRecord { url: url.clone(), etag, last_modified, sha256, checked };
                if is_other {
                    let entries = self.check(&incoming)?;
                    info!(entries, "fetched {}", without_secrets(url));
                    incoming.keep(copy, &record).map_err(disk)?;
                } else {
                    copy::write_record(copy, &record).map_err(disk)?;
                }
            }
        }
        self.registry.note(url, |fetch| {
            (fetch.checked, fetch.is_confirmed, fetch.fault) = (Some(checked), true, None);
        });
        Ok(())
    }

    fn check(&self, incoming: &Incoming) -> Result<usize, FetchFault> {
        let pinned = self.list.sha256.map(|digest| to_hex(&digest));
        let found = incoming.sha256();
        if let Some(expected) = pinned.filter(|expected| *expected != found) {
            return Err(content(format_args!("expected SHA-256 {expected}, found {found}")));
        }
        if let Some(found) = incoming.mistake() {
            return Err(content(format_args!("expected a list of {}, found {found}", self.kind)));
        }
        check(self.kind, incoming.open().map_err(disk)?).map_err(content)
    }
}

fn content(error: impl Display) -> FetchFault {
    FetchFault { error: error.to_string(), is_content: true }
}

fn transport(error: String) -> FetchFault {
    FetchFault { error, is_content: false }
}

fn disk(error: std::io::Error) -> FetchFault {
    FetchFault {
        error: format!("cannot write or read the copy in state.dir: {error}"),
        is_content: false,
    }
}
