//! Obtains certificates from an ACME authority (RFC 8555), saves them, and renews them in time.
//!
//! ```text
//!  cache ─▶ Renewer ─ due? ──▶ order ─▶ ACME server ─▶ connects to acme-tls/1 or to port 80
//!    ▲         │                   │                                  ▲
//!    │         └▶ net::tls::Certificates ◀ challenge ┴▶ pages::Challenges
//!    └──────────── account, certificates, keys ──────────┘
//! ```
//!
//! All of it happens on a separate thread, which no announce waits for. Each host has its own
//! certificate, so that a failure affects only that host. [`schedule`] decides when to renew, [`order`]
//! obtains a certificate, and [`cache`] saves it.

mod cache;
mod client;
mod order;
mod schedule;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use admin::{AcmeAttempts, MetricSources};
use anyhow::Result;
use net::process::lower_priority;
use net::tls::{Certificate, Certificates};
use pages::Challenges;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::access::FileWatcher;
use crate::admin::span;
use crate::permissions::{check_writable, create_directory, future_owner};
use crate::serve::module::{Findings, Loading, Module, Opening, Running};
use crate::serve::workers::follow;
use cache::Cache;
use client::Client;
use config::{AcmeConfig, Config, Transport};
use order::{Authority, Failure};
use schedule::{Backoff, FailureScope, Now, Schedule, validity};

/// The longest sleep. A jump of the clock, or the end of the process that renews, is noticed after it.
const WAKE_PERIOD: Duration = Duration::from_secs(60);
/// The sleep while another process renews: its certificates should be used soon.
const FOLLOWER_PERIOD: Duration = Duration::from_secs(2);
/// Bounds of how often the server is asked when to renew.
const RENEWAL_INFO_PERIOD: [Duration; 2] =
    [Duration::from_secs(3600), Duration::from_secs(24 * 3600)];

/// Begins the messages about the cache, which is in the directory that this key names.
const CACHE_KEY: &str = "state.dir";

#[derive(Default)]
pub(crate) struct AcmeModule {
    configs: watch::Sender<Option<AcmeConfig>>,
}

impl Module for AcmeModule {
    /// Looks at this machine, without contacting the server.
    fn check(&self, config: &Config, _is_running: bool, findings: &mut Findings) {
        let Some(acme) = &config.acme else { return };
        let roots = client::roots(acme.ca.as_deref()).map(drop);
        let results = [roots, check_writable(CACHE_KEY, &acme.cache, future_owner(config))];
        let problems = results.into_iter().filter_map(Result::err);
        findings.problems.extend(problems.map(|error| format!("{error:#}")));
    }

    fn prepare(&self, config: &Config) -> Result<()> {
        let Some(acme) = &config.acme else { return Ok(()) };
        client::roots(acme.ca.as_deref())?;
        create_directory(CACHE_KEY, &acme.cache, future_owner(config))
    }

    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        self.prepare(opening.config)
    }

    /// Loads saved certificates, so that a restart serves them at once. Fails if the cache cannot be used.
    fn load(&mut self, loading: &mut Loading<'_>) -> Result<()> {
        let Some(acme) = &loading.config.acme else { return Ok(()) };
        let cache = Cache::open(acme)?;
        drop(cache.lock()?);
        let saved = acme.domains.iter().filter_map(|domain| cache.certificate(domain).ok()?);
        loading.certificates.replace_obtained(saved.collect());
        Ok(())
    }

    fn serve(&mut self, running: &mut Running<'_>) -> Result<()> {
        // A reload may add certificates, but cannot open a listener for them.
        if !running.config.listens(Transport::Tls) {
            return Ok(());
        }
        self.configure(running.config);
        let certificates = Arc::clone(&running.shared.certificates);
        let challenges = Arc::clone(&running.config.challenges);
        let sources = Arc::clone(running.workers.metric_sources());
        let configs = self.configs.subscribe();
        let stop = running.workers.stopping();
        running.workers.start("acme", lower_priority, move || {
            follow(configs, stop, async |config| {
                run_renewer(config, &certificates, &challenges, &sources).await;
            })
        })
    }

    fn configure(&mut self, config: &Config) {
        self.configs.send_if_modified(|acme| {
            let is_other = *acme != config.acme;
            acme.clone_from(&config.acme);
            is_other
        });
    }
}

async fn run_renewer(
    config: Option<AcmeConfig>,
    certificates: &Arc<Certificates>,
    challenges: &Arc<Challenges>,
    metric_sources: &MetricSources,
) {
    let Some(config) = config else {
        certificates.replace_obtained(Vec::new());
        return std::future::pending().await;
    };
    let mut renewer = loop {
        match Renewer::new(config.clone(), certificates, challenges, &metric_sources.acme) {
            Ok(renewer) => break renewer,
            Err(error) => {
                error!("certificates cannot be renewed: {error:#}");
                tokio::time::sleep(RENEWAL_INFO_PERIOD[0]).await;
            }
        }
    };
    loop {
        let renew_due = renewer.renew_due().await;
        tokio::time::sleep(renew_due).await;
    }
}

struct Renewer<'a> {
    authority: Arc<Authority>,
    attempts: &'a AcmeAttempts,
    hosts: Vec<Host>,
    /// The pause after failures of the server, for all hosts.
    backoff: Backoff,
    watcher: FileWatcher,
    lock: Option<File>,
}

struct Host {
    domain: String,
    certificate: Option<Certificate>,
    schedule: Schedule,
    /// When to ask the server again whether to renew earlier.
    renewal_info_at: Instant,
}

impl<'a> Renewer<'a> {
    fn new(
        config: AcmeConfig,
        certificates: &Arc<Certificates>,
        challenges: &Arc<Challenges>,
        attempts: &'a AcmeAttempts,
    ) -> Result<Self> {
        let host = |domain: &String| Host {
            domain: domain.clone(),
            certificate: None,
            schedule: Schedule::default(),
            renewal_info_at: Instant::now(),
        };
        let hosts = config.domains.iter().map(host).collect();
        let authority = Authority {
            cache: Cache::open(&config)?,
            client: Client::new(config.ca.as_deref())?,
            certificates: Arc::clone(certificates),
            challenges: Arc::clone(challenges),
            config,
        };
        let mut renewer = Self {
            authority: Arc::new(authority),
            attempts,
            hosts,
            backoff: Backoff::default(),
            watcher: FileWatcher::default(),
            lock: None,
        };
        renewer.read();
        Ok(renewer)
    }

    /// Renews the certificates whose time has come. Returns how long to sleep afterwards.
    async fn renew_due(&mut self) -> Duration {
        if self.lock.is_none() {
            self.lock = match self.authority.cache.lock() {
                Ok(lock) => lock,
                Err(error) => {
                    error!("certificates cannot be renewed: {error:#}");
                    return RENEWAL_INFO_PERIOD[0];
                }
            };
            // Follow the process that renews, including its last change.
            if self.watcher.has_changed() {
                self.read();
            }
            if self.lock.is_none() {
                return FOLLOWER_PERIOD;
            }
        }
        for at in 0..self.hosts.len() {
            if !self.backoff.left(Instant::now()).is_zero() {
                break;
            }
            self.update_renewal_info(at).await;
            let is_due =
                self.hosts.get(at).is_some_and(|host| host.schedule.wait(Now::read()).is_zero());
            if is_due {
                self.renew(at).await;
            }
        }
        let now = Now::read();
        let wait = self.hosts.iter().map(|host| host.schedule.wait(now)).min();
        // At least a second, so that clocks that differ slightly cause no busy loop.
        let wait = wait.unwrap_or(WAKE_PERIOD).max(self.backoff.left(now.monotonic));
        wait.clamp(Duration::from_secs(1), WAKE_PERIOD)
    }

    fn read(&mut self) {
        let cache = &self.authority.cache;
        let paths: Vec<_> = self.hosts.iter().map(|host| cache.path(&host.domain)).collect();
        self.watcher = FileWatcher::of(paths.iter().map(PathBuf::as_path));
        for host in &mut self.hosts {
            let saved = cache.certificate(&host.domain).unwrap_or_else(|error| {
                warn!("cannot read a saved certificate, so another is obtained: {error:#}");
                None
            });
            if let Some(saved) = saved {
                host.schedule.set_validity(validity(&saved), random_fraction());
                host.certificate = Some(saved);
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let certificates = self.hosts.iter().filter_map(|host| host.certificate.clone());
        self.authority.certificates.replace_obtained(certificates.collect());
    }

    /// Asks the server whether to renew a certificate early, which is how it announces mass revocations.
    async fn update_renewal_info(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at) else { return };
        let Some(certificate) = host.certificate.clone() else { return };
        if host.renewal_info_at > Instant::now() {
            return;
        }
        let authority = Arc::clone(&self.authority);
        let query = async move { authority.suggestion(&certificate, random_fraction()).await };
        let again = match catch_panic(query).await {
            Ok((suggested, again)) => {
                host.schedule.suggest(suggested);
                again.clamp(RENEWAL_INFO_PERIOD[0], RENEWAL_INFO_PERIOD[1])
            }
            Err(Failure { text, .. }) => {
                debug!(domain = host.domain, reason = text, "cannot get the server's renewal time");
                RENEWAL_INFO_PERIOD[0]
            }
        };
        host.renewal_info_at = Instant::now() + again;
    }

    async fn renew(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at) else { return };
        let (authority, domain) = (Arc::clone(&self.authority), host.domain.clone());
        let old = host.certificate.clone();
        let obtained =
            catch_panic(async move { authority.obtain(&domain, old.as_ref()).await }).await;
        let now = Instant::now();
        match obtained {
            Ok(certificate) => {
                self.attempts.obtained.fetch_add(1, Ordering::Relaxed);
                host.schedule.obtained(now, validity(&certificate), random_fraction());
                host.certificate = Some(certificate);
                host.renewal_info_at = now + RENEWAL_INFO_PERIOD[0];
                self.backoff.reset();
                self.publish();
            }
            Err(failure) => {
                let (counter, backoff) = match failure.scope {
                    FailureScope::Server => (&self.attempts.unreachable, &mut self.backoff),
                    FailureScope::Host => (&self.attempts.refused, &mut host.schedule.backoff),
                };
                counter.fetch_add(1, Ordering::Relaxed);
                let pause =
                    backoff.fail(now, failure.scope, failure.retry_after, random_fraction());
                let (domain, status) = (&host.domain, host.status());
                let (reason, retry_in) = (failure.text, span(pause.as_secs()));
                warn!(domain, status, reason, retry_in, "cannot obtain a certificate");
            }
        }
    }
}

impl Host {
    fn status(&self) -> String {
        let Some(certificate) = &self.certificate else {
            return "there is no certificate yet".into();
        };
        match certificate.expires().duration_since(SystemTime::now()) {
            Ok(left) => {
                format!("the current certificate expires in {}", span(left.as_secs()))
            }
            Err(_) => "the current certificate has EXPIRED".into(),
        }
    }
}

async fn catch_panic<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    let ended = tasks.join_next().await.transpose().ok().flatten();
    ended.unwrap_or_else(|| {
        let text = "panicked (see the message above)".into();
        Err(Failure { scope: FailureScope::Server, text, retry_after: None })
    })
}

/// Returns a random number from 0 to 1, or 0.5 if the system has no entropy.
fn random_fraction() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_failure() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(catch_panic::<()>(async { panic!("of the test") }));
        assert_eq!(failed.unwrap_err().scope, FailureScope::Server);
        assert_eq!(runtime.block_on(catch_panic(async { Ok(7) })).unwrap(), 7);
    }
}
