//! Metrics of the site whose users announce.

use ::subsystem::Page;

use crate::status::SiteStatus;

impl SiteStatus {
    /// Writes the metrics. `docs/metrics.md` documents them.
    pub(crate) fn render(&self, page: &mut Page) {
        let name = "tidegate_site_up";
        let help = "1 if what users transferred reaches the site, by the site's kind.";
        page.family(name, "gauge", help);
        page.sample(name, ("kind", &self.kind), u8::from(self.error.is_none()));
        let help = "Users of the site.";
        page.single("tidegate_site_users", "gauge", help, self.users);
        let help = "Torrents of the site.";
        page.single("tidegate_site_torrents", "gauge", help, self.torrents);
        let help = "Clients of users in torrents that are remembered.";
        page.single("tidegate_site_sessions", "gauge", help, self.sessions);
        let help = "Announces of users that were counted.";
        page.single("tidegate_site_announces_total", "counter", help, self.announces);
        let help = "Rows written for the site.";
        page.single("tidegate_site_rows_total", "counter", help, self.rows);
        let help = "Age of the oldest batch that the site does not have, in seconds.";
        page.single("tidegate_site_lag_seconds", "gauge", help, self.lag_s);
        let help = "Batches that the site does not have.";
        page.single("tidegate_site_spool_batches", "gauge", help, self.spool_batches);
        let help = "Size of the spool.";
        page.single("tidegate_site_spool_bytes", "gauge", help, self.spool_bytes);
        let help = "Maximum size of the spool.";
        page.single("tidegate_site_spool_max_bytes", "gauge", help, self.spool_bytes_max);
        let help = "Announces that report more bytes than a line can carry.";
        page.single("tidegate_site_implausible_total", "counter", help, self.implausible);
        let help = "Announces that were not counted because there were too many sessions.";
        page.single("tidegate_site_uncounted_total", "counter", help, self.uncounted);
        let help =
            "Rows that the database did not take, because their user or torrent was deleted.";
        page.single("tidegate_site_rows_skipped_total", "counter", help, self.rows_skipped);
        let help = "Lists of peers that users did not get, because they had too many.";
        page.single("tidegate_site_lists_withheld_total", "counter", help, self.lists_withheld);
        if let Some(probes) = &self.probes {
            let help = "Clients that were probed for connections, by result.";
            let results =
                [("open", probes.open), ("closed", probes.closed), ("skipped", probes.skipped)];
            page.by_label("tidegate_site_probes_total", "counter", help, "result", results);
        }
        let help = "Users who cannot announce because of the form of their passkey.";
        page.single("tidegate_site_bad_passkeys", "gauge", help, self.bad_passkeys);
        let help = "Torrents that share their info hash with another one.";
        page.single("tidegate_site_duplicate_hashes", "gauge", help, self.duplicate_hashes);
    }
}
