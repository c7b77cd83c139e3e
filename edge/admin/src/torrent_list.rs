//! A sorted list of all torrents, read in pages.
//!
//! The store keeps no order, so the list is a snapshot: one walk over the store in short steps, on a blocking
//! thread with lowered priority. A request returns a page of the current snapshot and starts a refresh if
//! that is some seconds old; it waits only if there is no snapshot yet. The snapshot is freed after a minute
//! without requests.
//!
//! A cursor is the position of the last row of a page: its sort value and info hash. It is valid in any
//! snapshot, so none is kept for it: the next page continues behind that position in the current snapshot,
//! and a torrent whose value does not change is returned exactly once.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use tracker::{TorrentStats, Tracker};
use types::{InfoHash, Tick, from_hex};
use utoipa::ToSchema;

/// A torrent in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TorrentRow {
    pub(crate) info_hash: InfoHash,
    /// Seeders of all families and WebTorrent.
    pub(crate) seeders: u32,
    /// Leechers of all families and WebTorrent.
    pub(crate) leechers: u32,
    /// Downloads completed.
    pub(crate) downloads: u32,
    /// When it was first announced, rounded down by up to 17 minutes.
    pub(crate) first_seen: Tick,
}

// Sort key of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SortKey {
    /// Seeders.
    #[default]
    Seeders,
    /// Leechers.
    Leechers,
    /// Downloads completed.
    Downloads,
    /// Time since the first announce.
    Age,
    /// Info hash: the only order in which every torrent is returned exactly once while values change.
    InfoHash,
}

/// Request for a page of the list.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub(crate) sort: SortKey,
    pub(crate) ascending: bool,
    /// Only torrents whose info hash has this prefix.
    pub(crate) prefix: HashPrefix,
    /// Only these torrents, sorted; `None` = all.
    pub(crate) only: Option<Arc<[InfoHash]>>,
    /// The position behind which the page starts; `None` = the first page.
    pub(crate) after: Option<Cursor>,
    /// Rows, at most [`ROWS_PER_PAGE_MAX`].
    pub(crate) limit: usize,
}

impl PageRequest {
    /// Returns whether the page begins with the largest of all torrents.
    pub(crate) fn is_top(&self) -> bool {
        let is_size =
            matches!(self.sort, SortKey::Seeders | SortKey::Leechers | SortKey::Downloads);
        let is_whole = self.after.is_none() && self.only.is_none() && self.prefix.digits == 0;
        is_size && is_whole && !self.ascending
    }
}

/// A page of the list.
#[derive(Clone, Debug)]
pub(crate) struct ListPage {
    pub(crate) rows: Vec<TorrentRow>,
    /// The cursor of the next page; `None` on the last.
    pub(crate) next: Option<Cursor>,
    /// Torrents in the whole list that have the prefix.
    pub(crate) total: usize,
    /// Age of the snapshot.
    pub(crate) age: Duration,
    /// Torrents omitted from the list because there are too many: those with the fewest peers.
    pub(crate) omitted: u64,
}

/// A position in the list: the sort value and the info hash. Its text form has 48 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    value: u32,
    info_hash: InfoHash,
}

/// A prefix of an info hash, of up to 40 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HashPrefix {
    bytes: [u8; 20],
    digits: usize,
}

/// The list of all torrents, made on demand.
pub(crate) struct TorrentList {
    tracker: Arc<Tracker>,
    cache: Mutex<Cache>,
    /// True while a refresh runs in the background.
    refreshing: AtomicBool,
    /// Held while the first snapshot is made, so that concurrent requests make one.
    first_snapshot: tokio::sync::Mutex<()>,
    rows_max: usize,
}

#[derive(Default)]
struct Cache {
    snapshot: Option<Arc<Snapshot>>,
    last_request: Option<Instant>,
}

/// All torrents at one moment.
struct Snapshot {
    /// Sorted by info hash.
    rows: Vec<TorrentRow>,
    /// Row numbers sorted by each key, ascending; each is made at the first request for it.
    orders: [OnceLock<Vec<u32>>; SortKey::ALL.len()],
    omitted: u64,
    taken_at: Instant,
    /// Time that the walk and the sorting took.
    duration: Duration,
}

/// Rows in one page.
pub(crate) const ROWS_PER_PAGE_MAX: usize = 1000;
/// Torrents in the list: 144 MB, and 16 MB for each order.
const ROWS_MAX: usize = 4_000_000;
/// A request refreshes a snapshot older than this.
const REFRESH_AFTER: Duration = Duration::from_secs(5);
/// A refresh that took 1 s is not repeated within 20 s: refreshing takes at most 5 % of a core.
const REFRESH_PAUSE_FACTOR: u32 = 20;
/// A snapshot without requests is freed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

impl TorrentList {
    /// Creates the list of `tracker`'s torrents. The first request makes the snapshot.
    pub(crate) fn new(tracker: Arc<Tracker>) -> Self {
        Self {
            tracker,
            cache: Mutex::default(),
            refreshing: AtomicBool::new(false),
            first_snapshot: tokio::sync::Mutex::new(()),
            rows_max: ROWS_MAX,
        }
    }

    /// Returns a page. Waits for a snapshot only if there is none yet. Call in a tokio runtime.
    pub(crate) async fn page(self: &Arc<Self>, request: &PageRequest) -> ListPage {
        let snapshot = self.snapshot().await;
        if snapshot.is_sorted(request.sort) {
            return snapshot.page(request);
        }
        let request = request.clone();
        let sorted = Arc::clone(&snapshot);
        blocking(move || sorted.page(&request)).await
    }

    /// Frees the snapshot if it has been idle. Call regularly.
    pub(crate) fn free_if_idle(&self) {
        let mut cache = self.cache.lock();
        if cache.last_request.is_some_and(|last_request| last_request.elapsed() >= IDLE_TIMEOUT) {
            *cache = Cache::default();
        }
    }

    async fn snapshot(self: &Arc<Self>) -> Arc<Snapshot> {
        if let Some(snapshot) = self.current() {
            return snapshot;
        }
        let _guard = self.first_snapshot.lock().await;
        if let Some(snapshot) = self.current() {
            return snapshot;
        }
        let own = Arc::clone(self);
        blocking(move || own.refresh(None)).await
    }

    /// Returns the current snapshot, and starts a refresh in the background if it is old.
    fn current(self: &Arc<Self>) -> Option<Arc<Snapshot>> {
        let mut cache = self.cache.lock();
        cache.last_request = Some(Instant::now());
        let snapshot = cache.snapshot.clone()?;
        drop(cache);
        let is_old = snapshot.taken_at.elapsed()
            >= REFRESH_AFTER.max(snapshot.duration * REFRESH_PAUSE_FACTOR);
        if is_old && !self.refreshing.swap(true, Ordering::AcqRel) {
            let (own, old) = (Arc::clone(self), Arc::clone(&snapshot));
            // The task is detached.
            drop(tokio::task::spawn_blocking(move || {
                own.refresh(Some(old));
                own.refreshing.store(false, Ordering::Release);
            }));
        }
        Some(snapshot)
    }

    /// Makes a new snapshot, with the orders that were used of the old one.
    fn refresh(&self, old: Option<Arc<Snapshot>>) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::take(&self.tracker, self.rows_max);
        for sort in SortKey::ALL {
            if old.as_ref().is_some_and(|old| old.is_sorted(sort)) {
                snapshot.order(sort);
            }
        }
        drop(old);
        snapshot.duration = snapshot.taken_at.elapsed();
        let snapshot = Arc::new(snapshot);
        self.cache.lock().snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It is never cancelled, so it has panicked.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Snapshot {
    fn take(tracker: &Tracker, rows_max: usize) -> Self {
        let taken_at = Instant::now();
        let torrents = tracker.totals().torrents as usize;
        // Room for torrents added during the walk, and for an eighth of excess rows before a selection.
        let room = rows_max + rows_max / 8;
        let mut rows = Vec::with_capacity((torrents + torrents / 64).min(room));
        let mut omitted = 0;
        tracker.overview(|stats| {
            if rows.len() >= room {
                omitted += drop_smallest(&mut rows, rows_max);
            }
            rows.push(TorrentRow::from(stats));
        });
        omitted += drop_smallest(&mut rows, rows_max);
        rows.sort_unstable_by_key(|row| row.info_hash);
        // A torrent that moved during the walk may be there twice.
        rows.dedup_by_key(|row| row.info_hash);
        Self { rows, orders: Default::default(), omitted, taken_at, duration: Duration::ZERO }
    }

    fn is_sorted(&self, sort: SortKey) -> bool {
        self.orders[sort as usize].get().is_some()
    }

    /// Returns the numbers of all rows, sorted by `sort`.
    fn order(&self, sort: SortKey) -> &[u32] {
        self.orders[sort as usize].get_or_init(|| self.sorted(0..self.rows.len(), sort))
    }

    /// Returns row numbers sorted by `sort`, ascending. Equal values stay sorted by info hash.
    fn sorted(&self, numbers: impl Iterator<Item = usize>, sort: SortKey) -> Vec<u32> {
        let mut numbers: Vec<u32> = numbers.map(|number| number as u32).collect();
        numbers.sort_by_cached_key(|number| sort.value(self.row(*number)));
        numbers
    }

    fn row(&self, number: u32) -> &TorrentRow {
        &self.rows[number as usize]
    }

    fn page(&self, request: &PageRequest) -> ListPage {
        let range = request.prefix.range(&self.rows);
        let numbers: Cow<'_, [u32]> = match &request.only {
            None if range.len() == self.rows.len() => self.order(request.sort).into(),
            None => self.sorted(range, request.sort).into(),
            Some(only) => {
                let rows = &self.rows[range.clone()];
                let find =
                    |wanted: &InfoHash| rows.binary_search_by_key(wanted, |row| row.info_hash);
                let found = only.iter().filter_map(|wanted| find(wanted).ok());
                self.sorted(found.map(|at| range.start + at), request.sort).into()
            }
        };
        let limit = request.limit.clamp(1, ROWS_PER_PAGE_MAX);
        // One row more than the page, to see whether there is a next page.
        let mut rows = self.behind(request, &numbers, limit + 1);
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| Cursor::at(request.sort, row));
        let age = self.taken_at.elapsed();
        ListPage { rows, next, total: numbers.len(), age, omitted: self.omitted }
    }

    /// Returns up to `count` rows behind the cursor of a request, of which `numbers` has the ascending order.
    fn behind(&self, request: &PageRequest, numbers: &[u32], count: usize) -> Vec<TorrentRow> {
        let at = |number: &u32| Cursor::at(request.sort, self.row(*number));
        let row = |number: &u32| *self.row(*number);
        if request.ascending {
            let start = request.after.map_or(0, |it| numbers.partition_point(|one| at(one) <= it));
            numbers[start..].iter().take(count).map(row).collect()
        } else {
            let end = request.after.map_or(numbers.len(), |cursor| {
                numbers.partition_point(|number| at(number) < cursor)
            });
            numbers[..end].iter().rev().take(count).map(row).collect()
        }
    }
}

/// Keeps the `kept` rows with the most peers and returns how many it dropped.
fn drop_smallest(rows: &mut Vec<TorrentRow>, kept: usize) -> u64 {
    if rows.len() <= kept {
        return 0;
    }
    let peers =
        |row: &TorrentRow| std::cmp::Reverse(u64::from(row.seeders) + u64::from(row.leechers));
    rows.select_nth_unstable_by_key(kept, peers);
    let dropped = rows.len() - kept;
    rows.truncate(kept);
    dropped as u64
}

impl SortKey {
    const ALL: [Self; 5] =
        [Self::Seeders, Self::Leechers, Self::Downloads, Self::Age, Self::InfoHash];

    fn value(self, row: &TorrentRow) -> u32 {
        match self {
            Self::Seeders => row.seeders,
            Self::Leechers => row.leechers,
            Self::Downloads => row.downloads,
            // An earlier first announce is a greater age.
            Self::Age => u32::MAX - row.first_seen.0,
            Self::InfoHash => 0,
        }
    }
}

impl From<&TorrentStats> for TorrentRow {
    fn from(stats: &TorrentStats) -> Self {
        let TorrentStats { info_hash, counts, first_seen } = *stats;
        let (seeders, leechers) = (counts.seeders(), counts.leechers());
        Self { info_hash, seeders, leechers, downloads: counts.downloads, first_seen }
    }
}

impl Cursor {
    fn at(sort: SortKey, row: &TorrentRow) -> Self {
        Self { value: sort.value(row), info_hash: row.info_hash }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (value, hash) = text.split_at_checked(8)?;
        // A hash of version 2 has 64 digits.
        let info_hash = hash.parse().ok().filter(|_| text.len() == 48)?;
        Some(Self { value: from_hex(value).map(u32::from_be_bytes)?, info_hash })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{}", self.value, self.info_hash)
    }
}

impl HashPrefix {
    /// Parses up to 40 hex digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.len();
        let padded = (digits <= 40).then(|| format!("{text:0<40}"))?;
        let InfoHash(bytes) = padded.parse().ok()?;
        Some(Self { bytes, digits })
    }

    /// Returns the first and the last info hash with this prefix.
    pub(crate) fn bounds(&self) -> (InfoHash, InfoHash) {
        let mut last = self.bytes;
        let whole = self.digits / 2;
        for (at, byte) in last.iter_mut().enumerate().skip(whole) {
            *byte |= if at == whole && self.digits % 2 == 1 { 0x0f } else { 0xff };
        }
        (InfoHash(self.bytes), InfoHash(last))
    }

    /// Returns the range of the rows with this prefix. They are sorted by info hash.
    fn range(&self, rows: &[TorrentRow]) -> Range<usize> {
        let (first, last) = self.bounds();
        let start = rows.partition_point(|row| row.info_hash < first);
        let end = rows.partition_point(|row| row.info_hash <= last);
        start..end
    }
}

#[cfg(test)]
mod tests;
