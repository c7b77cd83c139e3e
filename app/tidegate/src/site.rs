//! The site whose users announce: its part in the process.

mod feed;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ::site::{DonorRule, SiteConfig, SiteKind, SiteStatus, SiteSubsystem, credit::Factors};
use admin::{FeedBatch, FeedError, SiteSource, SiteStats};
use anyhow::{Context, Result};
use config::{Config, SiteFactors};
use tracing::info;

use crate::serve::module::{Findings, Module, Opening, Running};
use crate::serve::time::unix_offset_s;

/// The folder within `state.dir`.
const FOLDER: &str = "site";

/// The site's part in the process.
#[derive(Default)]
pub(crate) struct SiteModule(Option<OpenSite>);

/// A site that is configured.
struct OpenSite {
    subsystem: Arc<SiteSubsystem>,
    /// The most bytes of the spool.
    spool_bytes: u64,
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
        let spool_bytes = u64::from(site.spool_mib) << 20;
        self.0 = Some(OpenSite { subsystem: Arc::new(subsystem), spool_bytes });
        Ok(())
    }

    fn start(&mut self, running: &mut Running<'_>) -> Result<()> {
        let Some(OpenSite { subsystem, spool_bytes }) = &self.0 else { return Ok(()) };
        let epoch_s = u32::try_from(unix_offset_s(running.shared.clock)).unwrap_or(u32::MAX);
        subsystem.start(Arc::clone(&running.shared.tracker), epoch_s)?;
        info!(kind = subsystem.status().kind, "accounting for a site");
        let source = Source { subsystem: Arc::clone(subsystem), spool_bytes: *spool_bytes };
        // Set once.
        let _ = running.workers.metric_sources().site.set(Arc::new(source));
        Ok(())
    }

    /// Reads the site's tables again.
    fn refresh(&mut self) {
        self.0.iter().for_each(|site| site.subsystem.reload());
    }

    /// Writes everything that was counted, and frees the spool for the next process.
    fn stop(&mut self, _deadline: Instant) {
        self.0.iter().for_each(|site| site.subsystem.stop());
    }
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

/// The site as the management shows it.
struct Source {
    subsystem: Arc<SiteSubsystem>,
    spool_bytes: u64,
}

impl SiteSource for Source {
    fn stats(&self) -> SiteStats {
        stats(self.subsystem.status(), self.spool_bytes)
    }

    fn read_feed(&self, after: Option<&str>, limit: usize) -> Result<Vec<FeedBatch>, FeedError> {
        self.check_feed()?;
        feed::read(&self.subsystem.feed(), after, limit)
    }

    fn confirm_feed(&self, cursor: &str) -> Result<(), FeedError> {
        self.check_feed()?;
        feed::confirm(&self.subsystem.feed(), cursor)
    }
}

impl Source {
    fn check_feed(&self) -> Result<(), FeedError> {
        if self.subsystem.status().kind == "feed" { Ok(()) } else { Err(FeedError::NoFeed) }
    }
}

/// Returns a status as the management shows it. `spool_bytes` is the most that the spool may have.
fn stats(status: SiteStatus, spool_bytes: u64) -> SiteStats {
    let problems: Vec<_> =
        [status.database, status.clock, status.spool].into_iter().flatten().collect();
    let sentences: Vec<_> =
        problems.iter().map(|it| format!("{}: {}", it.error, it.remedy)).collect();
    let since = problems.iter().map(|it| i64::try_from(it.since).unwrap_or(i64::MAX)).min();
    SiteStats {
        kind: status.kind,
        users: status.users,
        torrents: status.torrents,
        sessions: status.sessions,
        announces: status.announces,
        rows_per_s: status.rows_per_s,
        rows: status.rows,
        lag_s: status.lag_s as f64,
        spool_batches: status.spool_batches,
        spool_bytes: status.spool_bytes,
        spool_bytes_max: spool_bytes,
        implausible: status.implausible,
        uncounted: status.uncounted,
        rows_skipped: status.rows_skipped,
        bad_passkeys: status.bad_passkeys,
        duplicate_hashes: status.duplicate_hashes,
        error_since: since,
        error: (!sentences.is_empty()).then(|| sentences.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use ::site::SiteProblem;

    use super::*;

    #[test]
    fn each_problem_of_a_site_is_shown() {
        let well = stats(SiteStatus::default(), 1);
        assert_eq!((well.error, well.error_since), (None, None));
        let problem = |error: &str, since| {
            Some(SiteProblem { error: error.into(), remedy: "mend it".into(), since })
        };
        let status =
            SiteStatus { clock: problem("the clock is wrong", 9), ..SiteStatus::default() };
        assert_eq!(stats(status.clone(), 1).error.unwrap(), "the clock is wrong: mend it");
        let both = stats(SiteStatus { spool: problem("the disk is full", 7), ..status }, 1);
        assert_eq!(both.error_since, Some(7));
        let text = both.error.unwrap();
        assert!(text.contains("clock") && text.contains("disk"), "{text}");
    }
}
