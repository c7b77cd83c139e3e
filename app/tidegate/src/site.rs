//! The site whose users announce: its part in the process.

mod feed;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ::site::{
    DatabaseTls, DonorRule, ListWindow, ListWindows, ProbeConfig, SiteConfig, SiteKind,
    SiteSubsystem, SiteUrl, credit::Factors,
};
use admin::{FeedBatch, FeedError, SiteSource};
use anyhow::{Context, Result};
use config::{Config, SiteFactors, SiteListWindow};
use replication::{AccountBatch, SharedAccounts};
use tracing::info;

use crate::access::{Hybrid, TorrentFolders};
use crate::serve::module::{Findings, Module, Opening, Running};
use crate::serve::time::unix_offset_s;

const FOLDER: &str = "site";

#[derive(Default)]
pub(crate) struct SiteModule {
    subsystem: Option<Arc<SiteSubsystem>>,
    folders: Option<TorrentFolders>,
    hybrids: Arc<[Hybrid]>,
}

impl Module for SiteModule {
    fn check(&self, config: &Config, _is_running: bool, findings: &mut Findings) {
        let Some(site) = &config.site else { return };
        let checked = options(site, None).and_then(|options| Ok(options.check()?));
        findings.problems.extend(checked.err().map(|error| format!("{error:#}")));
    }

    /// Opens the site, if there is one, and has the tracker ask it. Reads the files with secrets.
    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        let config = &opening.config;
        let (Some(site), Some(dir)) = (&config.site, &config.state_dir) else { return Ok(()) };
        let options = options(site, opening.node)?;
        // An upgrade hands the listener itself over.
        let listener = opening.bound.site.as_ref().map(TcpListener::try_clone).transpose()?;
        let subsystem = SiteSubsystem::with_listener(options, &dir.join(FOLDER), listener)?;
        // The tracker is new: it has no other site.
        opening.tracker.set_site(subsystem.site());
        let subsystem = Arc::new(subsystem);
        opening.accounts = Some(Arc::new(Source { subsystem: Arc::clone(&subsystem) }));
        self.subsystem = Some(subsystem);
        Ok(())
    }

    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        let Some(subsystem) = &self.subsystem else { return Ok(()) };
        self.folders = Some(running.access.folders.clone());
        let epoch_s = u32::try_from(unix_offset_s(running.shared.clock)).unwrap_or(u32::MAX);
        subsystem.start(Arc::clone(&running.shared.tracker), epoch_s)?;
        info!(kind = subsystem.kind().label(), "accounting for a site");
        let sources = running.workers.metric_sources();
        let shown = Arc::clone(subsystem);
        sources.subsystems.add("site", move || shown.status());
        let _ = sources.site.set(Arc::new(Source { subsystem: Arc::clone(subsystem) }));
        // Before clients are served: otherwise the first announces of a v2 hash would be of another torrent.
        self.follow_hybrids();
        Ok(())
    }

    fn tick(&mut self) {
        self.follow_hybrids();
    }

    fn refresh(&mut self) {
        self.subsystem.iter().for_each(|subsystem| subsystem.reload());
    }

    /// Writes everything that was counted, and frees the spool for the next process.
    fn stop(&mut self, _deadline: Instant) {
        self.subsystem.iter().for_each(|subsystem| subsystem.stop());
    }
}

impl SiteModule {
    /// Tells the site which torrents are hybrids, when folders have changed.
    fn follow_hybrids(&mut self) {
        let (Some(subsystem), Some(folders)) = (&self.subsystem, &self.folders) else { return };
        let hybrids = folders.hybrids();
        if Arc::ptr_eq(&hybrids, &self.hybrids) {
            return;
        }
        subsystem.set_hybrids(hybrids.iter().map(|hybrid| (hybrid.v1, hybrid.v2)));
        if subsystem.kind() == SiteKind::Feed && !hybrids.is_empty() {
            info!(torrents = hybrids.len(), "counting both hashes of hybrid torrents as one");
        }
        self.hybrids = hybrids;
    }
}

fn options(site: &config::SiteConfig, node: Option<u8>) -> Result<SiteConfig> {
    use config::SiteKind as Kind;
    let number = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let donor = |factors: SiteFactors| DonorRule {
        upload_factor: factors.upload.map(number),
        download_factor: factors.download.map(number),
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
        is_node: node.is_some(),
        seed_lists: windows(&site.seed_lists),
        leech_lists: windows(&site.leech_lists),
        probes: ProbeConfig {
            from: site.connectable_from.clone(),
            required: site.connectable_required,
            may_probe: admin::is_public_address,
        },
        ..SiteConfig::default()
    };
    match site.kind {
        Kind::Off | Kind::Feed => return Ok(options),
        Kind::Unit3d => {
            options.kind = SiteKind::Unit3d;
            options.tracker_key = Some(secret("tracker_key", &site.tracker_key)?);
        }
        Kind::Gazelle => {
            options.kind = SiteKind::Gazelle;
            options.site_password = Some(secret("site_password", &site.site_password)?);
            options.report_password = Some(secret("report_password", &site.report_password)?);
            options.url = site_url(&site.url)?;
        }
    }
    options.database = Some(site.database.clone());
    options.database_tls = match site.database_ca.as_str() {
        "" => DatabaseTls::Off,
        "public" => DatabaseTls::Public,
        file => DatabaseTls::Authority(file.into()),
    };
    if site.database_password != Path::new("") {
        options.database_password = Some(secret("database_password", &site.database_password)?);
    }
    Ok(options)
}

fn site_url(text: &str) -> Result<Option<SiteUrl>> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = SiteUrl::parse(text).with_context(|| {
        format!("site.url: expected `http://HOST[:PORT][/PATH]`, found `{text}`")
    })?;
    Ok(Some(url))
}

fn windows(windows: &[SiteListWindow]) -> ListWindows {
    let window = |it: &SiteListWindow| ListWindow { seconds: it.seconds, lists: it.lists };
    // The configuration has no more than there is room for.
    windows.iter().take(ListWindows::new().capacity()).map(window).collect()
}

fn secret(key: &str, file: &Path) -> Result<String> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("site.{key}: cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// The accounts as the management and the other nodes of a cluster read them.
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

impl SharedAccounts for Source {
    fn take(&self) -> Option<Vec<u8>> {
        self.subsystem.take_shared()
    }

    fn learn(&self, body: &[u8]) {
        self.subsystem.learn(body);
    }

    fn lost(&self) {
        self.subsystem.reload_everywhere();
    }

    fn next_batch(&self) -> Option<AccountBatch> {
        self.check_feed().ok()?;
        // A batch that cannot be read now is read again soon.
        feed::next_parts(&self.subsystem.feed()).ok().flatten()
    }

    fn confirm(&self, cursor: &str) {
        // If the disk cannot be written, the batch is sent again.
        let _ = feed::confirm(&self.subsystem.feed(), cursor);
    }
}

impl Source {
    fn check_feed(&self) -> Result<(), FeedError> {
        if self.has_feed() { Ok(()) } else { Err(FeedError::NoFeed) }
    }
}
