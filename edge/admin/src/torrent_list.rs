//! Every torrent in a few orders, for pages of a list that does not fit one answer.
//!
//! The store keeps no order, so a list of torrents is a snapshot: one walk over the store in short steps,
//! on a thread that nobody waits for, and that leaves its core to whom clients wait for. It is made when
//! somebody asks and the last one is some seconds old; who asks gets the last one, and waits only if there
//! is none. It goes when nobody has asked for a minute.
//!
//! A cursor is the place of the last row that was shown, as its value and its info hash. So it needs no
//! snapshot of its own: the next page goes on behind that place in whichever there is by then, and a
//! torrent whose value stays is shown once.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracker::{TorrentStats, Tracker};
use types::{InfoHash, Tick};

/// A torrent in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TorrentRow {
    /// Which.
    pub info_hash: InfoHash,
    /// Peers that have everything, of all families and WebTorrent.
    pub seeders: u32,
    /// The others.
    pub leechers: u32,
    /// Downloads completed.
    pub downloads: u32,
    /// When it came, less up to 17 minutes.
    pub first_seen: Tick,
}

/// By what a list is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Peers that have everything.
    Seeders,
    /// Peers that have not.
    Leechers,
    /// Downloads completed.
    Downloads,
    /// How long the torrent has been here.
    Age,
    /// Its name: the order in which every torrent is met once, whatever happens meanwhile.
    InfoHash,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The order.
    pub sort: SortKey,
    /// Least first; else most first.
    pub ascending: bool,
    /// Only torrents whose hexadecimal info hash begins so.
    pub prefix: HashPrefix,
    /// Behind this place; from the first on without one.
    pub after: Option<Cursor>,
    /// Rows, at most [`ROWS_PER_PAGE_MAX`].
    pub limit: usize,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// In order.
    pub rows: Vec<TorrentRow>,
    /// Where to go on; nothing at the end.
    pub next: Option<Cursor>,
    /// Torrents in the whole list.
    pub total: usize,
    /// How old the list is.
    pub age: Duration,
    /// Torrents that are in no list because there are too many: those with the fewest peers.
    pub left_out: u64,
}

/// A place in a list: the value by which it is sorted, and the torrent. As text, 48 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    value: u32,
    info_hash: InfoHash,
}

/// The beginning of an info hash, in up to 40 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashPrefix {
    bytes: [u8; 20],
    digits: usize,
}

/// A text that is no cursor or no prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHexError;

/// The list of all torrents, as far as anybody wants it.
pub struct TorrentList {
    tracker: Arc<Tracker>,
    cache: Mutex<Cache>,
    /// Whether a snapshot is being made behind somebody's back.
    refreshing: AtomicBool,
    /// Held by who makes the first.
    first_snapshot: tokio::sync::Mutex<()>,
    rows_max: usize,
}

#[derive(Default)]
struct Cache {
    snapshot: Option<Arc<Snapshot>>,
    /// When somebody asked last.
    last_request: Option<Instant>,
}

/// All torrents at a time.
struct Snapshot {
    /// As they lie in the store. One that was moved meanwhile may be there twice.
    rows: Vec<TorrentRow>,
    /// Numbers of rows in the order of their info hashes, each torrent once.
    by_hash: Vec<u32>,
    /// The same in ascending order of values, for those that were asked for.
    orders: [OnceLock<Vec<u32>>; 4],
    left_out: u64,
    taken_at: Instant,
    /// How long that took.
    duration: Duration,
}

/// Rows in one page.
pub const ROWS_PER_PAGE_MAX: usize = 1000;
/// Torrents in a list: 160 MB, and 16 MB for each order.
const ROWS_MAX: usize = 4_000_000;
/// What a number of a row needs, of 64 bits.
const INDEX_MASK: u64 = (1 << 23) - 1;
const _: () = assert!((ROWS_MAX + ROWS_MAX / 8) as u64 <= INDEX_MASK);
/// A list older than this is made anew when somebody asks.
const REFRESH_AFTER: Duration = Duration::from_secs(5);
/// Nor is it made more often than this allows: one part of so many of a core's time.
const REFRESH_COST_FACTOR: u32 = 20;
/// A list that nobody has asked for so long goes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

impl TorrentList {
    /// Of `tracker`'s torrents. Nothing is made until somebody asks.
    pub fn new(tracker: Arc<Tracker>) -> Self {
        Self {
            tracker,
            cache: Mutex::default(),
            refreshing: AtomicBool::new(false),
            first_snapshot: tokio::sync::Mutex::new(()),
            rows_max: ROWS_MAX,
        }
    }

    /// A page. Waits for a list to be made only if there is none. Inside a tokio runtime.
    pub async fn page(self: &Arc<Self>, request: &PageRequest) -> ListPage {
        let snapshot = self.snapshot().await;
        if snapshot.is_sorted(request.sort) {
            return snapshot.page(request);
        }
        let request = request.clone();
        let sorted = Arc::clone(&snapshot);
        blocking(move || sorted.page(&request)).await
    }

    /// Frees the list if nobody has asked for it lately. To be called now and then.
    pub fn forget_if_idle(&self) {
        let mut cache = self.cache();
        if cache.last_request.is_some_and(|last_request| last_request.elapsed() >= IDLE_TIMEOUT) {
            *cache = Cache::default();
        }
    }

    async fn snapshot(self: &Arc<Self>) -> Arc<Snapshot> {
        if let Some(snapshot) = self.request() {
            return snapshot;
        }
        let _turn = self.first_snapshot.lock().await;
        if let Some(snapshot) = self.request() {
            return snapshot;
        }
        let own = Arc::clone(self);
        blocking(move || own.refresh(None)).await
    }

    /// The list that there is. One that is too old is made anew meanwhile.
    fn request(self: &Arc<Self>) -> Option<Arc<Snapshot>> {
        let mut cache = self.cache();
        cache.last_request = Some(Instant::now());
        let snapshot = cache.snapshot.clone()?;
        drop(cache);
        let is_old = snapshot.taken_at.elapsed()
            >= REFRESH_AFTER.max(snapshot.duration * REFRESH_COST_FACTOR);
        if is_old && !self.refreshing.swap(true, atomic::Ordering::AcqRel) {
            let (own, old) = (Arc::clone(self), Arc::clone(&snapshot));
            // Nobody waits for it.
            drop(tokio::task::spawn_blocking(move || {
                own.refresh(Some(old));
                own.refreshing.store(false, atomic::Ordering::Release);
            }));
        }
        Some(snapshot)
    }

    /// Makes the list anew, in the orders that were asked for of the old one.
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

/// Where no other task waits for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // It is never cancelled, so that it has panicked.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Snapshot {
    fn take(tracker: &Tracker, rows_max: usize) -> Self {
        let taken_at = Instant::now();
        let torrents = tracker.totals().torrents as usize;
        // Room for those that come meanwhile, and to look for the least less often than at each row.
        let room = rows_max + rows_max / 8;
        let mut rows = Vec::with_capacity((torrents + torrents / 64).min(room));
        let mut left_out = 0;
        tracker.overview(|figures| {
            if rows.len() >= room {
                left_out += drop_smallest(&mut rows, rows_max);
            }
            rows.push(TorrentRow::from(figures));
        });
        left_out += drop_smallest(&mut rows, rows_max);
        let by_hash = by_hash(&rows);
        Self {
            rows,
            by_hash,
            orders: Default::default(),
            left_out,
            taken_at,
            duration: Duration::ZERO,
        }
    }

    fn is_sorted(&self, sort: SortKey) -> bool {
        sort.order().is_none_or(|at| self.orders[at].get().is_some())
    }

    /// Numbers of rows in ascending order; rows with the same value in the order of their hashes.
    fn order(&self, sort: SortKey) -> Option<&[u32]> {
        let order = self.orders[sort.order()?].get_or_init(|| {
            // Side by side, so that comparing them reaches for no row.
            let pair = |number: &u32| (sort.value(&self.rows[*number as usize]), *number);
            let mut pairs: Vec<(u32, u32)> = self.by_hash.iter().map(pair).collect();
            // Stable, and quick where values are few, as they are among torrents.
            pairs.sort_by_key(|(value, _)| *value);
            pairs.into_iter().map(|(_, number)| number).collect()
        });
        Some(order)
    }

    fn page(&self, request: &PageRequest) -> ListPage {
        let range = request.prefix.range(&self.rows, &self.by_hash);
        let total = range.len();
        let limit = request.limit.clamp(1, ROWS_PER_PAGE_MAX);
        let numbers = match self.order(request.sort) {
            // One more than shown, which says whether there are more.
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
        ListPage { rows, next, total, age: self.taken_at.elapsed(), left_out: self.left_out }
    }

    /// `count` numbers of rows behind the cursor, of the rows at the places `range` of an ascending order.
    fn after(
        &self,
        range: std::ops::Range<usize>,
        request: &PageRequest,
        count: usize,
        number: impl Fn(usize) -> u32,
    ) -> Vec<u32> {
        // The first place of `range` for whose row `is_past` is true, as it is for all behind it.
        let first_snapshot = |is_past: &dyn Fn(Ordering) -> bool, cursor: Cursor| {
            let (mut low, mut high) = (range.start, range.end);
            while low < high {
                let middle = usize::midpoint(low, high);
                let row = &self.rows[number(middle) as usize];
                let place = Cursor::at(request.sort, row);
                if is_past(place.key().cmp(&cursor.key())) {
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

/// Numbers of rows in the order of their info hashes, each torrent once. What is sorted are the first
/// bits of the hashes, which nearly always tell them apart, with the numbers in one word: a fraction of
/// what it costs to compare rows, and move them.
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

/// Keeps the `kept` rows with the most peers; says how many went.
fn drop_smallest(rows: &mut Vec<TorrentRow>, kept: usize) -> u64 {
    if rows.len() <= kept {
        return 0;
    }
    let peers =
        |row: &TorrentRow| std::cmp::Reverse(u64::from(row.seeders) + u64::from(row.leechers));
    rows.select_nth_unstable_by_key(kept, peers);
    let gone = rows.len() - kept;
    rows.truncate(kept);
    gone as u64
}

impl SortKey {
    const WITH_ORDER: [Self; 4] = [Self::Seeders, Self::Leechers, Self::Downloads, Self::Age];

    /// The place among a snapshot's orders; its rows are in the order of their hashes anyway.
    fn order(self) -> Option<usize> {
        Self::WITH_ORDER.iter().position(|sort| *sort == self)
    }

    fn value(self, row: &TorrentRow) -> u32 {
        match self {
            Self::Seeders => row.seeders,
            Self::Leechers => row.leechers,
            Self::Downloads => row.downloads,
            // The sooner it came, the older.
            Self::Age => u32::MAX - row.first_seen.0,
            Self::InfoHash => 0,
        }
    }
}

impl From<&TorrentStats> for TorrentRow {
    fn from(figures: &TorrentStats) -> Self {
        let TorrentStats { info_hash, counts, first_seen } = *figures;
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
        // A sign would be taken, too.
        let value = Some(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value =
            value.and_then(|value| u32::from_str_radix(value, 16).ok()).ok_or(ParseHexError)?;
        Ok(Self { value, info_hash })
    }
}

impl HashPrefix {
    /// The places of the rows that begin so, among numbers of rows in the order of their hashes.
    fn range(&self, rows: &[TorrentRow], by_hash: &[u32]) -> std::ops::Range<usize> {
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
        f.write_str("hex digits are due here")
    }
}

impl std::error::Error for ParseHexError {}

#[cfg(test)]
mod tests;
