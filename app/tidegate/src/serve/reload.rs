//! Putting a changed configuration in force, all of it or nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admin::Figures;
use net::tls::Certificates;
use tokio::sync::watch;
use tracing::{Level, error, info, warn};
use tracker::Tracker;

use crate::access;
use crate::acme;
use crate::certificates;
use crate::config::{self, AcmeConfig, Config, Settings};

/// Sets the level of the log.
pub(super) type LogLevel = Box<dyn Fn(Level)>;

/// What is in force, and how to replace it.
pub(super) struct Reloader {
    pub(super) file: Option<PathBuf>,
    pub(super) settings: Settings,
    pub(super) config: Config,
    pub(super) tracker: Arc<Tracker>,
    pub(super) watch: access::Watch,
    pub(super) certificates: Arc<Certificates>,
    pub(super) certificate_watch: access::Watch,
    /// Tells the thread that obtains certificates what to obtain.
    pub(super) acme: watch::Sender<Option<AcmeConfig>>,
    pub(super) log: LogLevel,
}

impl Reloader {
    /// Reads configuration and lists again. Any mistake leaves everything as it is.
    pub(super) fn reload(&mut self, figures: &Figures) {
        let failed = |problem: &str| {
            error!("not reloaded: {problem}");
            figures.status.reload_failures.fetch_add(1, Ordering::Relaxed);
        };
        let (settings, config) = match crate::load(self.file.as_deref()) {
            Ok(loaded) => loaded,
            Err(problems) => return problems.iter().for_each(|problem| failed(problem)),
        };
        let watch = access::Watch::new(&config);
        let lists = match access::read(&config) {
            Ok(lists) => lists,
            Err(error) => return failed(&format!("{error:#}")),
        };
        let certificate_watch = certificates::watch(&config);
        let certificates = match certificates::read(&config) {
            Ok(certificates) => certificates,
            Err(error) => return failed(&format!("{error:#}")),
        };
        if let Err(error) = acme::prepare(&config) {
            return failed(&format!("{error:#}"));
        }
        certificates::doubts(&config, &certificates).iter().for_each(|doubt| warn!("{doubt}"));
        let (live, fixed) = config::changes(&self.settings, &settings);
        let (allow, deny) = (lists.allow.len(), lists.deny.len());
        self.tracker.reconfigure(&config.policy);
        self.tracker.limiter().replace(config.limits.clone());
        self.tracker.access().replace(lists);
        self.certificates.replace(certificates);
        self.acme.send_if_modified(|acme| {
            let is_other = *acme != config.acme;
            acme.clone_from(&config.acme);
            is_other
        });
        (self.log)(config.log_level);
        let list =
            |names: &[&str]| if names.is_empty() { "nothing".into() } else { names.join(", ") };
        info!("reloaded; changed: {}; lists: {allow} allowed, {deny} denied", list(&live));
        if !fixed.is_empty() {
            warn!("changed, but only a restart puts it in force: {}", list(&fixed));
        }
        // What needs a restart is compared with what is really in force next time, too.
        self.settings.take_live(&settings);
        self.config = config;
        self.watch = watch;
        self.certificate_watch = certificate_watch;
        figures.status.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the access lists again, or the certificates, if a file has changed.
    pub(super) fn follow_files(&mut self, figures: &Figures) {
        if self.certificate_watch.has_changed() {
            match certificates::read(&self.config) {
                Ok(certificates) => {
                    info!("certificates changed: {} in force", certificates.len());
                    let doubts = certificates::doubts(&self.config, &certificates);
                    doubts.iter().for_each(|doubt| warn!("{doubt}"));
                    self.certificates.replace(certificates);
                    figures.status.reloads.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    error!("the certificates in force stay: {error:#}");
                    figures.status.reload_failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        if !self.watch.has_changed() {
            return;
        }
        match access::read(&self.config) {
            Ok(lists) => {
                let (allow, deny) = (lists.allow.len(), lists.deny.len());
                info!("access lists changed: {allow} allowed, {deny} denied");
                self.tracker.access().replace(lists);
                figures.status.reloads.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                error!("the access lists in force stay: {error:#}");
                figures.status.reload_failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
