//! The state of all lists, as the API, metrics and the dashboard show it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use subsystem::{HealthArea, HealthItem, Level, Page, Subsystem, Value, escape, json};
use utoipa::ToSchema;

/// Age of a list at a URL from which it is a problem that it cannot be refreshed, seconds.
const AGE_MAX_S: u64 = 24 * 3600;

/// A list as it was read, whether it is in force or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadList {
    /// The key that names it.
    pub key: &'static str,
    /// Its path, or its URL without secrets.
    pub source: String,
    /// The number of its entries: torrents, or ranges of addresses.
    pub entries: u64,
    /// False if it decides nothing, because `access.mode` does not use it.
    pub is_used: bool,
    /// Its place.
    pub place: Place,
}

/// The kind of a list's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file.
    File(FileList),
    /// A URL: the whole of it.
    Url(String),
}

/// A list in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileList {
    /// When the file was modified, unix seconds.
    pub modified: Option<u64>,
    /// Files of a folder that are left out, because there are too many.
    pub omitted: u64,
}

/// The requests for a list at a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetch {
    /// When the server last sent or confirmed the list, unix seconds; also by an earlier process.
    pub checked: Option<u64>,
    /// True once the server has done so since the start.
    pub is_confirmed: bool,
    /// The fault of the last request, if it failed.
    pub fault: Option<FetchFault>,
    /// Requests that failed since the start.
    pub failures: u64,
}

/// Why a list could not be refreshed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchFault {
    /// The error: expected and found.
    pub error: String,
    /// True if the server sent something that is not the list: that does not pass by itself.
    pub is_content: bool,
}

/// The lists of the configuration, and the requests for those at URLs.
#[derive(Default)]
pub struct Registry(Mutex<Known>);

#[derive(Default)]
struct Known {
    lists: Vec<ReadList>,
    /// By URL.
    fetches: BTreeMap<String, Fetch>,
}

/// A list of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ListStatus {
    /// The key of the configuration that names it.
    pub key: &'static str,
    /// Its path, or its URL without secrets.
    pub source: String,
    /// Entries in force: torrents, or ranges of addresses.
    pub entries: u64,
    /// False if it decides nothing, because `access.mode` does not use it.
    pub is_used: bool,
    /// Seconds since the file was modified, or since the server of a URL last sent or confirmed the list; null if
    /// there is none.
    pub age_s: Option<u64>,
    /// True if a copy from before the start is in force, which the server has not confirmed since.
    pub copy_in_use: bool,
    /// Why the list could not be refreshed the last time; absent if it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The remedy of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
    /// Requests for a URL that failed since the start.
    pub failures: u64,
    /// Files of a folder that are left out, because there are too many.
    pub omitted: u64,
    #[serde(skip)]
    is_url: bool,
    #[serde(skip)]
    is_content: bool,
}

/// The lists of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Lists)]
pub struct ListsStatus {
    /// All of them, in the order of their keys.
    pub lists: Vec<ListStatus>,
}

impl Registry {
    /// Replaces the lists that are in force.
    pub fn set_lists(&self, lists: Vec<ReadList>) {
        self.lock().lists = lists;
    }

    /// Notes that a folder of torrents has changed: the number of its torrents, and of files that are left out.
    pub fn set_folder(&self, path: &Path, entries: usize, omitted: usize) {
        let source = path.display().to_string();
        for list in self.lock().lists.iter_mut().filter(|list| list.source == source) {
            if let Place::File(folder) = &mut list.place {
                (list.entries, folder.omitted) = (entries as u64, omitted as u64);
            }
        }
    }

    /// Changes what is known of the requests for a URL.
    pub fn note(&self, url: &str, change: impl FnOnce(&mut Fetch)) {
        change(self.lock().fetches.entry(url.to_owned()).or_default());
    }

    /// Forgets the requests for all URLs but these.
    pub fn retain(&self, urls: &[&str]) {
        self.lock().fetches.retain(|url, _| urls.contains(&url.as_str()));
    }

    /// Returns the state of all lists at `now`.
    pub fn status(&self, now: SystemTime) -> ListsStatus {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let known = self.lock();
        let lists = known.lists.iter().map(|list| match &list.place {
            Place::File(file) => ListStatus {
                age_s: file.modified.map(|modified| now.saturating_sub(modified)),
                omitted: file.omitted,
                ..ListStatus::of(list)
            },
            Place::Url(url) => {
                let fetch = known.fetches.get(url).cloned().unwrap_or_default();
                let fault = fetch.fault.as_ref();
                ListStatus {
                    age_s: fetch.checked.map(|checked| now.saturating_sub(checked)),
                    copy_in_use: fetch.checked.is_some() && !fetch.is_confirmed,
                    error: fault.map(|fault| fault.error.clone()),
                    remedy: fault.map(FetchFault::remedy),
                    failures: fetch.failures,
                    is_url: true,
                    is_content: fault.is_some_and(|fault| fault.is_content),
                    ..ListStatus::of(list)
                }
            }
        });
        ListsStatus { lists: lists.collect() }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Each change is whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FetchFault {
    fn remedy(&self) -> &'static str {
        if self.is_content {
            "Open the URL: it must send the list itself, as text or gzip. Correct the list or the URL, then reload."
        } else {
            "See that the server is up and that this machine reaches it. Requests are repeated by themselves."
        }
    }
}

impl ListStatus {
    fn of(list: &ReadList) -> Self {
        Self {
            key: list.key,
            source: list.source.clone(),
            entries: list.entries,
            is_used: list.is_used,
            ..Self::default()
        }
    }

    fn problem(&self) -> Option<HealthItem> {
        let Self { key, source, .. } = self;
        let item = |level, text: String| HealthItem::new(level, HealthArea::Lists, text);
        if !self.is_used {
            let text = format!("{key} names {source}, but decides nothing in this access.mode.");
            let remedy = "Set access.mode to allow, so that only these torrents are served, or remove the key.";
            return Some(item(Level::Warning, text).with_remedy(remedy));
        }
        if let (Some(error), Some(remedy)) = (&self.error, self.remedy) {
            let (level, text) = match self.age_s {
                None => {
                    let text = format!(
                        "{key}: {source} could not be fetched yet: it has no entries ({error})."
                    );
                    (Level::Error, text)
                }
                Some(age_s) if age_s >= AGE_MAX_S || self.is_content => {
                    let hours = age_s / 3600;
                    let text = format!(
                        "{key}: {source} could not be refreshed: the list of {hours} hours ago stays in force ({error})."
                    );
                    (Level::Warning, text)
                }
                Some(_) => return None,
            };
            return Some(item(level, text).with_remedy(remedy));
        }
        if self.entries == 0 && (self.age_s.is_some() || !self.is_url) {
            let end = if key.ends_with("deny") { ": it decides nothing" } else { "" };
            let text = format!("{key}: {source} is empty{end}.");
            let remedy = "Add entries to it, or remove the key.";
            return Some(item(Level::Warning, text).with_remedy(remedy));
        }
        if self.omitted > 0 {
            let text = format!(
                "{key}: {source} has {} torrent files too many: these are not on the allow list.",
                self.omitted
            );
            let remedy = "Remove files, or add their torrents through the API.";
            return Some(item(Level::Warning, text).with_remedy(remedy));
        }
        None
    }
}

impl Subsystem for ListsStatus {
    fn to_json(&self) -> Value {
        json(self)
    }

    fn metrics(&self, page: &mut Page) {
        type Figure = fn(&ListStatus) -> Option<u64>;
        let figures: [(&str, &str, &str, Figure); 4] = [
            (
                "tidegate_list_entries",
                "gauge",
                "Entries of each list of the configuration: torrents, or ranges of addresses.",
                |list| Some(list.entries),
            ),
            (
                "tidegate_list_age_seconds",
                "gauge",
                "Seconds since the file of a list was modified, or since its server last sent or confirmed it.",
                |list| list.age_s,
            ),
            (
                "tidegate_list_stale",
                "gauge",
                "1 if a list at a URL could not be refreshed the last time.",
                |list| list.is_url.then(|| list.error.is_some().into()),
            ),
            (
                "tidegate_list_failures_total",
                "counter",
                "Requests for a list at a URL that failed.",
                |list| list.is_url.then_some(list.failures),
            ),
        ];
        for (name, kind, help, figure) in figures {
            page.family(name, kind, help);
            for list in &self.lists {
                let source = escape(&list.source);
                let labels = [("key", list.key), ("source", source.as_str())];
                if let Some(value) = figure(list) {
                    page.labelled_sample(name, &labels, value);
                }
            }
        }
    }

    fn problems(&self) -> Vec<HealthItem> {
        self.lists.iter().filter_map(ListStatus::problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn list(key: &'static str, place: Place) -> ReadList {
        ReadList { key, source: "LIST".into(), entries: 3, is_used: true, place }
    }

    fn at_url() -> Place {
        Place::Url("https://a/".into())
    }

    fn problems(list: ReadList, fetch: Fetch) -> Vec<(Level, String)> {
        let registry = Registry::default();
        registry.set_lists(vec![list]);
        registry.note("https://a/", |known| *known = fetch);
        let status = registry.status(UNIX_EPOCH + Duration::from_secs(NOW));
        status.problems().into_iter().map(|item| (item.level, item.text)).collect()
    }

    fn failed(age_s: Option<u64>, is_content: bool) -> Fetch {
        let fault = FetchFault { error: "no response".into(), is_content };
        Fetch { checked: age_s.map(|age_s| NOW - age_s), fault: Some(fault), ..Fetch::default() }
    }

    #[test]
    fn a_list_that_is_not_refreshed_for_a_day_is_a_problem() {
        let of = |fetch| problems(list("access.deny", at_url()), fetch);
        assert_eq!(of(Fetch { checked: Some(NOW - AGE_MAX_S), ..Fetch::default() }), []);
        assert_eq!(of(failed(Some(AGE_MAX_S - 1), false)), []);
        let old = of(failed(Some(AGE_MAX_S), false));
        assert_eq!(old[0].0, Level::Warning);
        assert!(
            old[0].1.contains("the list of 24 hours ago stays in force (no response)"),
            "{old:?}"
        );
        assert_eq!(of(failed(Some(5), true))[0].0, Level::Warning, "at once if the content is bad");
        assert_eq!(of(failed(None, false))[0].0, Level::Error);
        assert_eq!(of(Fetch::default()), [], "the first request has not ended");
    }

    #[test]
    fn a_list_without_effect_is_a_problem() {
        let of = |list| problems(list, Fetch::default());
        let file = || Place::File(FileList { modified: Some(NOW - 9), omitted: 0 });
        assert_eq!(of(list("access.allow", file())), []);
        let unused = of(ReadList { is_used: false, ..list("access.allow", file()) });
        assert!(unused[0].1.contains("decides nothing in this access.mode"), "{unused:?}");
        let empty = of(ReadList { entries: 0, ..list("access.deny", file()) });
        assert_eq!(empty[0].1, "access.deny: LIST is empty: it decides nothing.");
        let full = Place::File(FileList { modified: None, omitted: 7 });
        let full = of(list("access.allow_torrents", full));
        assert!(full[0].1.contains("has 7 torrent files too many"), "{full:?}");
    }
}
