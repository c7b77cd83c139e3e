//! Metrics of the site whose users announce.

use super::page::Page;
use crate::site::SiteStats;

/// Renders nothing if there is no site.
pub(super) fn render_site(page: &mut Page, stats: Option<&SiteStats>) {
    let Some(stats) = stats else { return };
    let name = "tidegate_site_up";
    page.family(name, "gauge", "1 if what users transferred reaches the site, by the site's kind.");
    page.sample(name, ("kind", &stats.kind), u8::from(stats.error.is_none()));
    let help = "Users of the site.";
    page.single("tidegate_site_users", "gauge", help, stats.users);
    let help = "Torrents of the site.";
    page.single("tidegate_site_torrents", "gauge", help, stats.torrents);
    let help = "Clients of users in torrents that are remembered.";
    page.single("tidegate_site_sessions", "gauge", help, stats.sessions);
    let help = "Announces of users that were counted.";
    page.single("tidegate_site_announces_total", "counter", help, stats.announces);
    let help = "Rows written for the site.";
    page.single("tidegate_site_rows_total", "counter", help, stats.rows);
    let help = "Age of the oldest batch that the site does not have, in seconds.";
    page.single("tidegate_site_lag_seconds", "gauge", help, stats.lag_s);
    let help = "Batches that the site does not have.";
    page.single("tidegate_site_spool_batches", "gauge", help, stats.spool_batches);
    let help = "Size of the spool.";
    page.single("tidegate_site_spool_bytes", "gauge", help, stats.spool_bytes);
    let help = "Maximum size of the spool.";
    page.single("tidegate_site_spool_max_bytes", "gauge", help, stats.spool_bytes_max);
    let help = "Announces that report more bytes than a line can carry.";
    page.single("tidegate_site_implausible_total", "counter", help, stats.implausible);
    let help = "Announces that were not counted because there were too many sessions.";
    page.single("tidegate_site_uncounted_total", "counter", help, stats.uncounted);
    let help = "Rows that the database did not take, because their user or torrent was deleted.";
    page.single("tidegate_site_rows_skipped_total", "counter", help, stats.rows_skipped);
    let help = "Users who cannot announce because of the form of their passkey.";
    page.single("tidegate_site_bad_passkeys", "gauge", help, stats.bad_passkeys);
    let help = "Torrents that share their info hash with another one.";
    page.single("tidegate_site_duplicate_hashes", "gauge", help, stats.duplicate_hashes);
}
