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

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracker::{TorrentStats, Tracker};
use types::{InfoHash, Tick};

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

/// Sort key of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// Seeders.
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
    /// The sort key.
    pub(crate) sort: SortKey,
    /// Ascending or descending.
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
    /// Rows in the requested order.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The error for a malformed cursor or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParseHexError;

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
    /// When a page was last requested.
    last_request: Option<Instant>,
}

/// All torrents at one moment.
struct Snapshot {
    /// In the order of the store. A torrent that moved during the walk may be there twice.
    rows: Vec<TorrentRow>,
    /// Row numbers sorted by info hash, each torrent once.
    by_hash: Vec<u32>,
    /// Row numbers sorted by other keys, ascending; each is made at the first request for it.
    orders: [OnceLock<Vec<u32>>; 4],
    omitted: u64,
    taken_at: Instant,
    /// Time that the walk and the sorting took.
    duration: Duration,
}

/// Rows in one page.
pub(crate) const ROWS_PER_PAGE_MAX: usize = 1000;
/// Torrents in the list: 160 MB, and 16 MB for each order.
const ROWS_MAX: usize = 4_000_000;
/// Low bits of a 64-bit word that hold a row number.
const INDEX_MASK: u64 = (1 << 23) - 1;
const _: () = assert!((ROWS_MAX + ROWS_MAX / 8) as u64 <= INDEX_MASK);
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
        let mut cache = self.cache();
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
        let mut cache = self.cache();
        cache.last_request = Some(Instant::now());
        let snapshot = cache.snapshot.clone()?;
        drop(cache);
        let is_old = snapshot.taken_at.elapsed()
            >= REFRESH_AFTER.max(snapshot.duration * REFRESH_PAUSE_FACTOR);
        if is_old && !self.refreshing.swap(true, atomic::Ordering::AcqRel) {
            let (own, old) = (Arc::clone(self), Arc::clone(&snapshot));
            // The task is detached.
            drop(tokio::task::spawn_blocking(move || {
                own.refresh(Some(old));
                own.refreshing.store(false, atomic::Ordering::Release);
            }));
        }
        Some(snapshot)
    }

    /// Makes a new snapshot, with the orders that were used of the old one.
    fn refresh(&self, old: Option<Arc<Snapshot>>) -> Arc<Snapshot> {
        let mut snapshot = Snapshot::take(&self.tracker, self.rows_max);
        for sort in SortKey::WITH_ORDER {
            if old.as_ref().is_some_and(|old| old.is_sorted(sort)) {
                snapshot.order(sort);
            }
        }
        drop(old);
        snapshot.duration = snapshot.taken_at.elapsed();
        let snapshot = Arc::new(snapshot);
        self.cache().snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` on a blocking thread.
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
        let by_hash = by_hash(&rows);
        Self {
            rows,
            by_hash,
            orders: Default::default(),
            omitted,
            taken_at,
            duration: Duration::ZERO,
        }
    }

    fn is_sorted(&self, sort: SortKey) -> bool {
        sort.order().is_none_or(|at| self.orders[at].get().is_some())
    }

    /// Returns row numbers sorted by `sort`, ascending; equal values are sorted by info hash. `None` for the order
    /// by info hash, which is `by_hash`.
    fn order(&self, sort: SortKey) -> Option<&[u32]> {
        let order = self.orders[sort.order()?].get_or_init(|| {
            // Values beside the numbers: comparisons touch no rows.
            let pair = |number: &u32| (sort.value(&self.rows[*number as usize]), *number);
            let mut pairs: Vec<(u32, u32)> = self.by_hash.iter().map(pair).collect();
            // Stable; fast for few distinct values, as torrents have.
            pairs.sort_by_key(|(value, _)| *value);
            pairs.into_iter().map(|(_, number)| number).collect()
        });
        Some(order)
    }

    fn page(&self, request: &PageRequest) -> ListPage {
        let range = request.prefix.range(&self.rows, &self.by_hash);
        let only = request.only.as_ref().map(|only| self.chosen(range.clone(), only, request.sort));
        let total = only.as_ref().map_or_else(|| range.len(), Vec::len);
        let limit = request.limit.clamp(1, ROWS_PER_PAGE_MAX);
        let numbers = match self.order(request.sort) {
            _ if only.is_some() => {
                let only = only.unwrap_or_default();
                self.after(0..total, request, limit + 1, |at| only[at])
            }
            // One row more than the page, to see whether there is a next page.
            None => self.after(range, request, limit + 1, |at| self.by_hash[at]),
            Some(order) if total == order.len() => {
                self.after(0..total, request, limit + 1, |at| order[at])
            }
            Some(_) => {
                let mut numbers = self.by_hash[range].to_vec();
                numbers.sort_by_key(|number| request.sort.value(&self.rows[*number as usize]));
                self.after(0..total, request, limit + 1, |at| numbers[at])
            }
        };
        let mut rows: Vec<TorrentRow> =
            numbers.iter().map(|number| self.rows[*number as usize]).collect();
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(|row| Cursor::at(request.sort, row));
        ListPage { rows, next, total, age: self.taken_at.elapsed(), omitted: self.omitted }
    }

    /// Returns the row numbers of those torrents of `only` that are among the positions `range` of the order by
    /// info hash, sorted by `sort`, ascending.
    fn chosen(&self, range: Range<usize>, only: &[InfoHash], sort: SortKey) -> Vec<u32> {
        let hash = |number: &u32| self.rows[*number as usize].info_hash;
        let by_hash = &self.by_hash[range];
        let find = |wanted: &InfoHash| by_hash.binary_search_by_key(wanted, hash).ok();
        let mut numbers: Vec<u32> = only.iter().filter_map(find).map(|at| by_hash[at]).collect();
        // Stable: equal values stay sorted by info hash.
        numbers.sort_by_key(|number| sort.value(&self.rows[*number as usize]));
        numbers
    }

    /// Returns `count` row numbers behind the cursor, among the positions `range` of an ascending order.
    /// `number` returns the row number at a position.
    fn after(
        &self,
        range: Range<usize>,
        request: &PageRequest,
        count: usize,
        number: impl Fn(usize) -> u32,
    ) -> Vec<u32> {
        // Binary search: the first position of `range` whose row `is_past` holds for.
        let first_snapshot = |is_past: &dyn Fn(Ordering) -> bool, cursor: Cursor| {
            let (mut low, mut high) = (range.start, range.end);
            while low < high {
                let middle = usize::midpoint(low, high);
                let row = &self.rows[number(middle) as usize];
                let position = Cursor::at(request.sort, row);
                if is_past(position.key().cmp(&cursor.key())) {
                    high = middle
                } else {
                    low = middle + 1
                }
            }
            low
        };
        if request.ascending {
            let start = request
                .after
                .map_or(range.start, |cursor| first_snapshot(&Ordering::is_gt, cursor));
            (start..range.end).take(count).map(number).collect()
        } else {
            let end =
                request.after.map_or(range.end, |cursor| first_snapshot(&Ordering::is_ge, cursor));
            (range.start..end).rev().take(count).map(number).collect()
        }
    }
}

/// Returns row numbers sorted by info hash, each torrent once. Sorts words that hold the first bits of a hash
/// and the row number: that costs a fraction of comparing and moving rows, and the first bits nearly always
/// differ. Words with equal first bits are sorted by the whole hash then.
fn by_hash(rows: &[TorrentRow]) -> Vec<u32> {
    let hash = |word: u64| rows[(word & INDEX_MASK) as usize].info_hash;
    let is_same = |a: u64, b: u64| (a ^ b) <= INDEX_MASK;
    let word = |(number, row): (u64, &TorrentRow)| {
        let [a, b, c, d, e, f, g, h, ..] = row.info_hash.0;
        (u64::from_be_bytes([a, b, c, d, e, f, g, h]) & !INDEX_MASK) | number
    };
    let mut words: Vec<u64> = (0..).zip(rows).map(word).collect();
    words.sort_unstable();
    for alike in words.chunk_by_mut(|a, b| is_same(*a, *b)).filter(|alike| alike.len() > 1) {
        alike.sort_unstable_by_key(|word| hash(*word));
    }
    words.dedup_by(|a, b| is_same(*a, *b) && hash(*a) == hash(*b));
    words.into_iter().map(|word| (word & INDEX_MASK) as u32).collect()
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
    const WITH_ORDER: [Self; 4] = [Self::Seeders, Self::Leechers, Self::Downloads, Self::Age];

    /// Returns the index among a snapshot's orders; `None` for the info hash, whose order always exists.
    fn order(self) -> Option<usize> {
        Self::WITH_ORDER.iter().position(|sort| *sort == self)
    }

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

    fn key(&self) -> (u32, InfoHash) {
        (self.value, self.info_hash)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}{}", self.value, self.info_hash)
    }
}

impl FromStr for Cursor {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, ParseHexError> {
        let (value, hash) =
            text.split_at_checked(8).filter(|_| text.len() == 48).ok_or(ParseHexError)?;
        let info_hash = hash.parse().map_err(|_| ParseHexError)?;
        // `from_str_radix` alone accepts a sign.
        let value = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value =
            value.and_then(|value| u32::from_str_radix(value, 16).ok()).ok_or(ParseHexError)?;
        Ok(Self { value, info_hash })
    }
}

impl HashPrefix {
    /// Returns the first and the last info hash with this prefix.
    pub(crate) fn bounds(&self) -> (InfoHash, InfoHash) {
        let mut last = self.bytes;
        let whole = self.digits / 2;
        for (at, byte) in last.iter_mut().enumerate().skip(whole) {
            *byte |= if at == whole && self.digits % 2 == 1 { 0x0f } else { 0xff };
        }
        (InfoHash(self.bytes), InfoHash(last))
    }

    /// Returns the range of the positions in `by_hash` whose rows have this prefix.
    fn range(&self, rows: &[TorrentRow], by_hash: &[u32]) -> Range<usize> {
        let compare = |number: &u32| {
            let whole = self.digits / 2;
            let (row, own) = (rows[*number as usize].info_hash.0, self.bytes);
            let order = row[..whole].cmp(&own[..whole]);
            match row.get(whole).zip(own.get(whole)) {
                Some((row, own)) if self.digits % 2 == 1 => order.then((row >> 4).cmp(&(own >> 4))),
                _ => order,
            }
        };
        let start = by_hash.partition_point(|number| compare(number).is_lt());
        let end = by_hash.partition_point(|number| compare(number).is_le());
        start..end
    }
}

impl FromStr for HashPrefix {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, ParseHexError> {
        let digits = text.len();
        if digits > 40 {
            return Err(ParseHexError);
        }
        let InfoHash(bytes) = format!("{text:0<40}").parse().map_err(|_| ParseHexError)?;
        Ok(Self { bytes, digits })
    }
}

impl fmt::Display for ParseHexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected hex digits")
    }
}

impl std::error::Error for ParseHexError {}

#[cfg(test)]
mod tests;
