//! Certificates from an ACME authority (RFC 8555): obtained, kept, renewed in time.
//!
//! ```text
//!  cache ─▶ Keeper ─ is one due? ─▶ order ─▶ ACME server ─▶ a look at acme-tls/1 or at port 80
//!    ▲         │                      │                                  ▲
//!    │         └▶ net::tls::Certificates ◀── challenge ──┴▶ front::http::Challenges
//!    └──────────── account, certificates, keys ──────────┘
//! ```
//!
//! All of it happens on a thread of its own, which no announce waits for. Each host has a certificate
//! of its own, so that one that fails takes no other with it. [`schedule`] says when to try, [`order`]
//! how, [`cache`] what is left of it.

pub(crate) mod cache;
mod client;
mod order;
mod schedule;

use std::fs::File;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use admin::{AcmeAttempts, MetricSources};
use anyhow::Result;
use front::http::Challenges;
use net::process::{self, Identity};
use net::tls::{Certificate, Certificates};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, error, warn};

use crate::access::FileWatcher;
use crate::config::{AcmeConfig, Config};
use cache::Cache;
use client::Client;
use order::{Authority, Failure, Obtained};
use schedule::{Backoff, FailureScope, Now, Schedule, validity};

/// The longest sleep: so soon a jump of the clock, or the end of the process that renewed, is noticed.
const WAKE_PERIOD: Duration = Duration::from_secs(60);
/// The same while another process renews, whose certificates are wanted soon.
const FOLLOWER_PERIOD: Duration = Duration::from_secs(2);
/// How often the server is asked when to renew: within these bounds, as it says.
const RENEWAL_INFO_PERIOD: [Duration; 2] =
    [Duration::from_secs(3600), Duration::from_secs(24 * 3600)];

/// How mistakes about the cache are headed.
const CACHE_KEY: &str = "tls.acme.cache";

/// Where certificates are put, and what is counted.
#[derive(Clone)]
pub(crate) struct CertStore {
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) challenges: Arc<Challenges>,
}

/// All that is wrong with what `config` asks for on this machine, without asking the server.
pub(crate) fn check(config: &Config) -> Vec<String> {
    let Some(acme) = &config.acme else { return Vec::new() };
    let roots = client::roots(acme.ca.as_deref()).map(drop);
    let results = [roots, cache::check_writable(CACHE_KEY, &acme.cache, future_owner(config))];
    results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect()
}

/// Does what only root may, and sees that the rest can be done.
pub(crate) fn prepare(config: &Config) -> Result<()> {
    let Some(acme) = &config.acme else { return Ok(()) };
    client::roots(acme.ca.as_deref())?;
    cache::create_directory(CACHE_KEY, &acme.cache, future_owner(config))
}

/// Who will write to the cache, if it is not who starts.
pub(crate) fn future_owner(config: &Config) -> Option<Identity> {
    let becomes_another = process::is_root() && !config.user.is_empty();
    // A user that is not there is found and told of elsewhere.
    becomes_another.then(|| Identity::find(&config.user, &config.group).ok()).flatten()
}

/// Puts the certificates that are kept in force, so that a restart serves them at once. An error means
/// that the cache cannot be used.
pub(crate) fn load(config: &Config, certificates: &Certificates) -> Result<()> {
    let Some(acme) = &config.acme else { return Ok(()) };
    let cache = Cache::open(acme)?;
    // Without that nothing could be kept.
    drop(cache.lock()?);
    let kept = acme.domains.iter().filter_map(|domain| cache.certificate(domain).ok()?);
    certificates.replace_obtained(kept.collect());
    Ok(())
}

/// Keeps certificates as the latest of `configs` asks, on this thread until `stop` becomes true.
pub(crate) fn serve(
    store: &CertStore,
    metric_sources: &MetricSources,
    mut configs: watch::Receiver<Option<AcmeConfig>>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            let config = configs.borrow_and_update().clone();
            tokio::select! {
                () = run_renewer(config, store, metric_sources) => {}
                // A sender that is gone will change nothing any more.
                Ok(()) = configs.changed() => {}
                _ = &mut stopped => break,
            }
        }
    });
    // A look-up of a name may still be waiting for its answer.
    runtime.shutdown_background();
    Ok(())
}

/// Keeps certificates for ever.
async fn run_renewer(
    config: Option<AcmeConfig>,
    store: &CertStore,
    metric_sources: &MetricSources,
) {
    let Some(config) = config else {
        store.certificates.replace_obtained(Vec::new());
        return std::future::pending().await;
    };
    let mut renewer = loop {
        match Renewer::new(config.clone(), store, &metric_sources.acme) {
            Ok(renewer) => break renewer,
            Err(error) => {
                error!("no certificates are renewed: {error:#}");
                tokio::time::sleep(RENEWAL_INFO_PERIOD[0]).await;
            }
        }
    };
    loop {
        let renew_due = renewer.renew_due().await;
        tokio::time::sleep(renew_due).await;
    }
}

/// What is known of all hosts and the server.
struct Renewer<'a> {
    authority: Arc<Authority>,
    attempts: &'a AcmeAttempts,
    hosts: Vec<Host>,
    /// When the server as a whole is to be left alone.
    backoff: Backoff,
    watcher: FileWatcher,
    /// The right to renew, once we have it.
    lock: Option<File>,
}

/// A host and its certificate.
struct Host {
    domain: String,
    certificate: Option<Certificate>,
    schedule: Schedule,
    /// When the server is asked again whether to renew earlier.
    update_renewal_info: Instant,
}

impl<'a> Renewer<'a> {
    fn new(config: AcmeConfig, store: &CertStore, attempts: &'a AcmeAttempts) -> Result<Self> {
        let host = |domain: &String| Host {
            domain: domain.clone(),
            certificate: None,
            schedule: Schedule::default(),
            update_renewal_info: Instant::now(),
        };
        let hosts = config.domains.iter().map(host).collect();
        let authority = Authority {
            cache: Cache::open(&config)?,
            client: Client::new(config.ca.as_deref())?,
            certificates: Arc::clone(&store.certificates),
            challenges: Arc::clone(&store.challenges),
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

    /// Does what is due, and gives how long to sleep then.
    async fn renew_due(&mut self) -> Duration {
        if self.lock.is_none() {
            self.lock = match self.authority.cache.lock() {
                Ok(lock) => lock,
                Err(error) => {
                    error!("no certificates are renewed: {error:#}");
                    return RENEWAL_INFO_PERIOD[0];
                }
            };
            // What the other process has done, up to the last.
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
        // A second, lest two clocks that disagree by a hair keep us awake.
        let wait = wait.unwrap_or(WAKE_PERIOD).max(self.backoff.left(now.steady));
        wait.clamp(Duration::from_secs(1), WAKE_PERIOD)
    }

    /// Reads all certificates that are kept, and puts them in force.
    fn read(&mut self) {
        let cache = &self.authority.cache;
        let paths: Vec<_> = self.hosts.iter().map(|host| cache.path(&host.domain)).collect();
        self.watcher = FileWatcher::of(paths.iter().map(PathBuf::as_path));
        for host in &mut self.hosts {
            let kept = cache.certificate(&host.domain).unwrap_or_else(|error| {
                warn!("obtaining another certificate, since {error:#}");
                None
            });
            if let Some(kept) = kept {
                host.schedule.set_validity(validity(&kept), random_fraction());
                host.certificate = Some(kept);
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let certificates = self.hosts.iter().filter_map(|host| host.certificate.clone());
        self.authority.certificates.replace_obtained(certificates.collect());
    }

    /// Asks the server now and then whether a certificate should be renewed early: it calls back
    /// whole generations that way.
    async fn update_renewal_info(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at) else { return };
        let Some(certificate) = host.certificate.clone() else { return };
        if host.update_renewal_info > Instant::now() {
            return;
        }
        let authority = Arc::clone(&self.authority);
        let asked = async move { authority.suggestion(&certificate, random_fraction()).await };
        let again = match catch_panic(asked).await {
            Ok((suggested, again)) => {
                host.schedule.suggest(suggested);
                again.clamp(RENEWAL_INFO_PERIOD[0], RENEWAL_INFO_PERIOD[1])
            }
            // Nothing is lost: it will be renewed in time all the same.
            Err(Failure { text, .. }) => {
                debug!("{}: when to renew is not known: {text}", host.domain);
                RENEWAL_INFO_PERIOD[0]
            }
        };
        host.update_renewal_info = Instant::now() + again;
    }

    async fn renew(&mut self, at: usize) {
        let Some(host) = self.hosts.get_mut(at) else { return };
        let (authority, domain) = (Arc::clone(&self.authority), host.domain.clone());
        let old = host.certificate.clone();
        let obtained =
            catch_panic(async move { authority.obtain(&domain, old.as_ref()).await }).await;
        let now = Instant::now();
        match obtained {
            Ok(Obtained { certificate, save_error }) => {
                self.attempts.obtained.fetch_add(1, Ordering::Relaxed);
                if let Some(error) = save_error {
                    error!("{}: a restart will need another certificate: {error}", host.domain);
                }
                host.schedule.obtained(now, validity(&certificate), random_fraction());
                host.certificate = Some(certificate);
                host.update_renewal_info = now + RENEWAL_INFO_PERIOD[0];
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
                let left = host.left();
                let text = failure.text;
                warn!("{}: {left}: {text}; trying again in {}", host.domain, approximate(pause));
            }
        }
    }
}

impl Host {
    /// What is left to its clients, in words.
    fn left(&self) -> String {
        let Some(certificate) = &self.certificate else { return "no certificate yet".into() };
        match certificate.expires().duration_since(SystemTime::now()) {
            Ok(left) => {
                format!("not renewed, and its certificate expires in {}", approximate(left))
            }
            Err(_) => "not renewed, and its certificate has EXPIRED".into(),
        }
    }
}

/// Does `work` in a task, so that even a panic is only a failure.
async fn catch_panic<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    // Ends its task when this future is dropped.
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    let ended = tasks.join_next().await.transpose().ok().flatten();
    ended.unwrap_or_else(|| {
        let text = "it panicked; the message stands above".into();
        Err(Failure { scope: FailureScope::Server, text, retry_after: None })
    })
}

/// A number from 0 to 1 by chance. Without entropy nothing is spread, and all goes on.
fn random_fraction() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

/// A time in words, about.
fn approximate(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_words() {
        let told = [0, 119, 120, 7199, 7200, 172_799, 172_800]
            .map(|s| approximate(Duration::from_secs(s)));
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }

    #[test]
    fn a_panic_is_a_failure() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(catch_panic::<()>(async { panic!("a test's own") }));
        assert_eq!(failed.unwrap_err().scope, FailureScope::Server);
        assert_eq!(runtime.block_on(catch_panic(async { Ok(7) })).unwrap(), 7);
    }
}
