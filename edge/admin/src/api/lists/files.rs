//! Entries of list files, for pages and exports. They are in no order, so that each page is a pass over all of them.

use std::collections::BinaryHeap;
use std::sync::Arc;

use tracker::Tracker;
use tracker::access::HashList;
use types::InfoHash;

use crate::api::state::Shared;
use crate::records::tables::lists::{HashRange, List};

/// Entries that only list files have.
pub(super) struct FilePage {
    /// The first ones, sorted, each with its list.
    pub(super) rows: Vec<(InfoHash, Arc<HashList>)>,
    /// The number of all within the range.
    pub(super) total: u64,
}

impl FilePage {
    /// Returns up to `limit` entries of `range` after `after`. Slow with millions of entries.
    pub(super) fn find(
        tracker: &Tracker,
        list: List,
        range: HashRange,
        after: Option<InfoHash>,
        limit: usize,
    ) -> Self {
        let files = list.files(tracker);
        let mut total = 0;
        // The smallest ones; the largest of these is on top. Each has the place of its file.
        let mut smallest: BinaryHeap<(InfoHash, usize)> = BinaryHeap::new();
        for (place, _) in files.iter().enumerate() {
            for part in 0..HashList::PARTS {
                for hash in only_in(tracker, list, &files, place, part) {
                    if hash < range.0 || hash > range.1 {
                        continue;
                    }
                    total += 1;
                    if after.is_none_or(|after| hash > after) {
                        smallest.push((hash, place));
                        if smallest.len() > limit {
                            smallest.pop();
                        }
                    }
                }
            }
        }
        let rows = smallest.into_sorted_vec().into_iter();
        let rows = rows.map(|(hash, place)| (hash, Arc::clone(&files[place])));
        Self { rows: rows.collect(), total }
    }
}

/// Returns the entries of a part of a file that neither the API's list nor an earlier file has.
fn only_in(
    tracker: &Tracker,
    list: List,
    files: &[Arc<HashList>],
    place: usize,
    part: usize,
) -> Vec<InfoHash> {
    let (earlier, live) = (&files[..place], list.live_list(tracker));
    let mut hashes = files[place].part(part);
    hashes.retain(|hash| {
        let is_live = live.is_some_and(|live| live.contains(hash));
        !is_live && !earlier.iter().any(|file| file.contains(hash))
    });
    hashes
}

/// The entries of all files as text, one part after the other.
pub(super) struct Parts {
    api: Shared,
    list: List,
    range: HashRange,
    after: Option<InfoHash>,
    files: Vec<Arc<HashList>>,
    next: usize,
}

impl Parts {
    pub(super) fn new(api: Shared, list: List, range: HashRange, after: Option<InfoHash>) -> Self {
        let files = list.files(api.tracker());
        Self { api, list, range, after, files, next: 0 }
    }
}

impl Iterator for Parts {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let Self { api, list, range, after, files, next } = self;
        let place = *next / HashList::PARTS;
        let source = files.get(place)?.source();
        let mut hashes = only_in(api.tracker(), *list, files, place, *next % HashList::PARTS);
        *next += 1;
        hashes.retain(|hash| {
            (range.0..=range.1).contains(hash) && after.is_none_or(|after| *hash > after)
        });
        Some(hashes.iter().map(|hash| format!("{hash} # {source}\n")).collect())
    }
}
