//! The state of a site, as the API, metrics and the dashboard show it.

use ::subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, json};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::probes::ProbeCounts;

/// Seconds for which what users transferred may wait until it is a warning. It is written every few seconds.
const LAG_MAX_S: f64 = 60.0;

/// An error, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteProblem {
    /// The error: expected and found.
    pub error: String,
    /// The remedy.
    pub remedy: String,
    /// Since when, unix seconds.
    pub since: u64,
}

/// The part of the tracker for a site whose users announce. Counters count from the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct SiteStatus {
    /// feed, unit3d or gazelle.
    pub kind: String,
    /// The site's users; 0 of the kind feed, which does not know them.
    pub users: u64,
    /// The site's torrents, or those that users announced.
    pub torrents: u64,
    /// Clients of users in torrents that are remembered.
    pub sessions: u64,
    /// Announces of users that were counted.
    pub announces: u64,
    /// Rows written per second, over the last minute.
    pub rows_per_s: f64,
    /// Rows written.
    pub rows: u64,
    /// Age of the oldest batch that the site does not have, seconds.
    pub lag_s: f64,
    /// Batches on the disk that the site does not have.
    pub spool_batches: u64,
    /// Size of the spool, which has sessions, too.
    pub spool_bytes: u64,
    /// Maximum size of the spool.
    pub spool_bytes_max: u64,
    /// Announces that report more bytes than a line can carry, which were not counted.
    pub implausible: u64,
    /// Announces that were not counted because there were too many sessions.
    pub uncounted: u64,
    /// Rows that the database did not take, because their user or torrent was deleted.
    pub rows_skipped: u64,
    /// Users who cannot announce, because their passkey has another form than one can have.
    pub bad_passkeys: u64,
    /// Torrents that share their info hash with another one, which is served instead.
    pub duplicate_hashes: u64,
    /// Lists of peers that users did not get, because they had too many. Kind `unit3d`.
    pub lists_withheld: u64,
    /// Clients that were probed for connections that they accept; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbeCounts>,
    /// The errors that keep accounts from the site, each with its remedy; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Since when, Unix time in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_since: Option<u64>,
    /// True if users and torrents are known: from the database, or from the last run.
    #[serde(skip)]
    pub ready: bool,
    /// True if sessions are restored, so that announces are counted at once.
    #[serde(skip)]
    pub counting: bool,
    /// Records that no batch has yet.
    #[serde(skip)]
    pub pending: u64,
    /// An error of the database, if there is one.
    #[serde(skip)]
    pub database: Option<SiteProblem>,
    /// An error of the clock, if there is one.
    #[serde(skip)]
    pub clock: Option<SiteProblem>,
    /// An error of the spool, if there is one.
    #[serde(skip)]
    pub spool: Option<SiteProblem>,
}

impl SiteStatus {
    /// Derives the text and the beginning of the errors.
    #[must_use]
    pub(crate) fn judged(mut self) -> Self {
        let problems = [&self.database, &self.clock, &self.spool].into_iter().flatten();
        let sentence = |it: &SiteProblem| format!("{}: {}", it.error, it.remedy);
        let sentences: Vec<_> = problems.clone().map(sentence).collect();
        self.error_since = problems.map(|it| it.since).min();
        self.error = (!sentences.is_empty()).then(|| sentences.join(" "));
        self
    }
}

impl Subsystem for SiteStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        self.render(page);
    }

    fn problems(&self) -> Vec<HealthItem> {
        if let Some(error) = &self.error {
            // The text has the remedy.
            return vec![HealthItem::new(Level::Error, HealthArea::Site, error)];
        }
        // The reader of a feed may come once a day.
        if self.kind == "feed" || self.lag_s <= LAG_MAX_S {
            return Vec::new();
        }
        let text = format!("What users transferred reaches the site {:.0} s late.", self.lag_s);
        let late = HealthItem::new(Level::Warning, HealthArea::Site, text);
        vec![late.with_remedy("The site's database is too slow, or overloaded.")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_a_site_is_shown() {
        let well = SiteStatus::default().judged();
        assert_eq!((&well.error, well.error_since), (&None, None));
        let problem = |error: &str, since| {
            Some(SiteProblem { error: error.into(), remedy: "mend it".into(), since })
        };
        let status = SiteStatus { clock: problem("the clock is wrong", 9), ..well };
        assert_eq!(status.clone().judged().error.unwrap(), "the clock is wrong: mend it");
        let both = SiteStatus { spool: problem("the disk is full", 7), ..status }.judged();
        assert_eq!(both.error_since, Some(7));
        let text = both.error.unwrap();
        assert!(text.contains("clock") && text.contains("disk"), "{text}");
    }

    #[test]
    fn a_site_that_gets_nothing_is_an_error() {
        let well = SiteStatus { kind: "unit3d".into(), lag_s: 3.0, ..SiteStatus::default() };
        assert_eq!(well.problems(), []);
        let late = SiteStatus { lag_s: 61.0, ..well.clone() }.problems();
        assert_eq!((late[0].level, late[0].area), (Level::Warning, HealthArea::Site));
        let text = "access denied: correct site.database_password";
        let away = SiteStatus { error: Some(text.into()), ..well.clone() }.problems();
        assert_eq!((away[0].level, &*away[0].text), (Level::Error, text));
        assert_eq!(SiteStatus { kind: "feed".into(), lag_s: 9e4, ..well }.problems(), []);
    }
}
