//! The site whose users announce: its part in the process.

mod feed;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use ::site::{DonorRule, SiteConfig, SiteKind, SiteSubsystem, credit::Factors};
use admin::{FeedBatch, FeedError, MetricSources, SiteSource};
use anyhow::{Context, Result};
use config::{Config, SiteFactors};
use tracing::info;
use tracker::Tracker;

/// The folder within `state.dir`.
const FOLDER: &str = "site";

/// A site that is configured.
pub(crate) struct OpenSite {
    subsystem: Arc<SiteSubsystem>,
}

impl OpenSite {
    /// Opens the site, if there is one, and has the tracker ask it. Reads the files with secrets, so call it before the
    /// sandbox, and before keys are restored. `listener` is where the site calls, and `node` the number of a node of a
    /// cluster.
    ///
    /// # Errors
    ///
    /// If a secret cannot be read, or a part of the configuration is wrong.
    pub(crate) fn open(
        config: &Config,
        listener: Option<&TcpListener>,
        node: Option<u8>,
        tracker: &Tracker,
    ) -> Result<Option<Self>> {
        let (Some(site), Some(dir)) = (&config.site, &config.state_dir) else { return Ok(None) };
        let options = options(site, node)?;
        // An upgrade hands the listener itself over.
        let listener = listener.map(TcpListener::try_clone).transpose()?;
        let subsystem = SiteSubsystem::with_listener(options, &dir.join(FOLDER), listener)?;
        // The tracker is new: it has no other site.
        tracker.set_site(subsystem.site());
        Ok(Some(Self { subsystem: Arc::new(subsystem) }))
    }

    /// Starts the threads, and shows in `sources` what they do. The tick 0 of `tracker` is at `epoch_s`, Unix time in
    /// seconds.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub(crate) fn start(
        &self,
        tracker: &Arc<Tracker>,
        epoch_s: u64,
        sources: &MetricSources,
    ) -> Result<()> {
        let epoch_s = u32::try_from(epoch_s).unwrap_or(u32::MAX);
        self.subsystem.start(Arc::clone(tracker), epoch_s)?;
        info!(kind = self.subsystem.kind().name(), "accounting for a site");
        let subsystem = Arc::clone(&self.subsystem);
        sources.subsystems.add("site", move || subsystem.status());
        // Set once.
        let _ = sources.site.set(Arc::new(Source { subsystem: Arc::clone(&self.subsystem) }));
        Ok(())
    }

    /// Returns what the cluster exchanges of it.
    pub(crate) fn accounts(&self) -> SharedAccounts {
        SharedAccounts(Arc::clone(&self.subsystem))
    }

    /// Reads the site's tables again.
    pub(crate) fn reload(&self) {
        self.subsystem.reload();
    }

    /// Writes everything that was counted, and frees the spool for the next process. Call after the workers have ended.
    pub(crate) fn stop(&self) {
        self.subsystem.stop();
    }
}

/// Sessions of the site's users, which the nodes of a cluster tell each other.
pub(crate) struct SharedAccounts(Arc<SiteSubsystem>);

impl SharedAccounts {
    /// Returns sessions that changed here since the last call, or `None` if there are no more.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        self.0.take_sessions()
    }

    /// Takes over the sessions of another node. A body that does not add up is of another version.
    pub(crate) fn learn(&self, body: &[u8]) {
        self.0.learn(body);
    }
}

/// Returns what is wrong with the site's part of the configuration, if anything.
pub(crate) fn check(config: &Config) -> Option<String> {
    let site = config.site.as_ref()?;
    let checked = options(site, None).and_then(|options| Ok(options.check()?));
    checked.err().map(|error| format!("{error:#}"))
}

fn options(site: &config::SiteConfig, node: Option<u8>) -> Result<SiteConfig> {
    use config::SiteKind as Kind;
    let number = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let donor = |factors: SiteFactors| DonorRule {
        upload_factor: factors.upload.map(number),
        download_factor: factors.download.map(number),
        immune: None,
    };
    let mut options = SiteConfig {
        flush_s: site.flush_s,
        node: node.map_or_else(|| "tidegate".into(), |node| format!("tidegate-{node}")),
        factors: Factors {
            upload: number(site.factors.upload.unwrap_or(100)),
            download: number(site.factors.download.unwrap_or(100)),
        },
        donor: donor(site.donor_factors),
        lifetime_donor: donor(site.lifetime_donor_factors),
        clients_per_torrent: number(site.clients_per_torrent),
        spool_mib: site.spool_mib.into(),
        shares_sessions: node.is_some(),
        ..SiteConfig::default()
    };
    match &site.kind {
        Kind::Feed => options.kind = SiteKind::Feed,
        Kind::Unit3d { tracker_key, .. } => {
            options.kind = SiteKind::Unit3d;
            options.tracker_key = Some(secret("tracker_key", tracker_key)?);
        }
        Kind::Gazelle { site_password, report_password, .. } => {
            options.kind = SiteKind::Gazelle;
            options.site_password = Some(secret("site_password", site_password)?);
            options.report_password = Some(secret("report_password", report_password)?);
        }
    }
    if let Some(database) = site.database() {
        options.database = Some(database.url.clone());
        options.listen = Some(database.listen);
        let password = database.password.as_deref();
        options.database_password =
            password.map(|file| secret("database_password", file)).transpose()?;
    }
    Ok(options)
}

/// Returns the secret in a file.
fn secret(key: &str, file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("site.{key}: cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// The feed as the management serves it.
struct Source {
    subsystem: Arc<SiteSubsystem>,
}

impl SiteSource for Source {
    fn has_feed(&self) -> bool {
        self.subsystem.kind() == SiteKind::Feed
    }

    fn read_feed(&self, after: Option<&str>, limit: usize) -> Result<Vec<FeedBatch>, FeedError> {
        self.check_feed()?;
        feed::read(&self.subsystem.feed(), after, limit)
    }

    fn next_unconfirmed(&self) -> Result<Option<FeedBatch>, FeedError> {
        self.check_feed()?;
        feed::next_unconfirmed(&self.subsystem.feed())
    }

    fn confirm_feed(&self, cursor: &str) -> Result<(), FeedError> {
        self.check_feed()?;
        feed::confirm(&self.subsystem.feed(), cursor)
    }
}

impl Source {
    fn check_feed(&self) -> Result<(), FeedError> {
        if self.has_feed() { Ok(()) } else { Err(FeedError::NoFeed) }
    }
}
