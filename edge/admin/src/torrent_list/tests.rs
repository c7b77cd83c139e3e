//! Pages compared with a list that is sorted for each.

use tracker::{AnnouncePolicy, AnnounceRequest, ListenerPolicyId, Random, RequestKind};
use types::{Announce, Event, Families, NumWant, PeerId};

use super::*;
use crate::metrics::tests::tracker;

/// Announces a peer.
fn announce(tracker: &Tracker, now: u32, info_hash: InfoHash, host: u8, event: Event) {
    let (view, from, kind) =
        (tracker.view(Tick(now)), [10, 0, 0, host].into(), RequestKind::Announce);
    let grant = view.authorize_unverified(ListenerPolicyId(0), from, kind, None).unwrap();
    let announce = Announce {
        event,
        left: Some(u64::from(host % 2)),
        want: NumWant::Peers(0),
        ..Announce::new(info_hash, PeerId::default(), 6881)
    };
    let policy = AnnouncePolicy { peers_max: 0, families: Families::Own, with_downloads: false };
    let request = AnnounceRequest { grant, via_local_address: true, announce, policy };
    view.announce(&mut Random::new(1), &[request], &mut |_, answer| {
        answer.map(drop).expect("an accepted announce");
    });
}

/// A tracker with that many torrents, whose values repeat often.
fn filled(torrents: u32) -> Tracker {
    let tracker = tracker();
    let mut random = Random::new(7);
    for number in 0..torrents {
        let mut hash = [0; 20];
        hash[..4].copy_from_slice(&(random.next() as u32).to_be_bytes());
        hash[16..].copy_from_slice(&number.to_be_bytes());
        for host in 0..=random.below(5) as u8 {
            let event = if random.below(3) == 0 { Event::Completed } else { Event::None };
            announce(&tracker, random.below(50_000), InfoHash(hash), host, event);
        }
    }
    tracker
}

fn request(sort: SortKey) -> PageRequest {
    let prefix = HashPrefix::default();
    PageRequest { sort, ascending: false, prefix, only: None, after: None, limit: 7 }
}

fn with_overview<T>(
    tracker: Tracker,
    rows_max: usize,
    test: impl AsyncFnOnce(Arc<TorrentList>) -> T,
) -> T {
    let overview = TorrentList { rows_max, ..TorrentList::new(Arc::new(tracker)) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(test(Arc::new(overview)))
}

async fn all_pages(overview: &Arc<TorrentList>, mut request: PageRequest) -> Vec<TorrentRow> {
    let mut rows = Vec::new();
    loop {
        let page = overview.page(&request).await;
        assert!(page.rows.len() <= request.limit);
        rows.extend(page.rows);
        let Some(next) = page.next else {
            assert_eq!(rows.len(), page.total);
            return rows;
        };
        request.after = Cursor::parse(&next.to_string());
        assert_eq!(request.after, Some(next));
    }
}

#[test]
fn pages_add_up_to_the_sorted_list() {
    with_overview(filled(300), ROWS_MAX, async |overview| {
        let mut naive = Vec::new();
        overview.tracker.overview(|stats| naive.push(TorrentRow::from(stats)));
        assert_eq!(naive.len(), 300);
        for sort in SortKey::ALL {
            for prefix in ["", "a", "A", "3f", "0123456789abcdef"] {
                for ascending in [true, false] {
                    let parsed = HashPrefix::parse(prefix).unwrap();
                    let request = PageRequest { ascending, prefix: parsed, ..request(sort) };
                    let begins = |row: &&TorrentRow| {
                        row.info_hash.to_string().starts_with(&prefix.to_lowercase())
                    };
                    let mut expected: Vec<TorrentRow> =
                        naive.iter().filter(begins).copied().collect();
                    expected.sort_by_key(|row| (sort.value(row), row.info_hash));
                    if !ascending {
                        expected.reverse();
                    }
                    assert_eq!(all_pages(&overview, request).await, expected, "{sort:?} {prefix}");
                }
            }
        }
        // A choice of torrents, of which one is not there.
        let mut only: Vec<InfoHash> = naive.iter().step_by(3).map(|row| row.info_hash).collect();
        only.push(InfoHash([9; 20]));
        only.sort_unstable();
        for sort in SortKey::ALL {
            let request = PageRequest { only: Some(only.clone().into()), ..request(sort) };
            let mut expected: Vec<TorrentRow> =
                naive.iter().filter(|row| only.contains(&row.info_hash)).copied().collect();
            expected.sort_by_key(|row| (sort.value(row), row.info_hash));
            expected.reverse();
            assert_eq!(all_pages(&overview, request).await, expected, "{sort:?}");
        }
        let oldest = overview.page(&request(SortKey::Age)).await.rows[0];
        assert_eq!(Some(oldest.first_seen), naive.iter().map(|row| row.first_seen).min());
    });
}

#[test]
fn a_cursor_continues_in_another_snapshot() {
    with_overview(filled(50), ROWS_MAX, async |overview| {
        let first = overview.page(&request(SortKey::InfoHash)).await;
        let seen: Vec<InfoHash> = first.rows.iter().map(|row| row.info_hash).collect();
        // The last row returned is removed, and others are added on both sides.
        assert!(overview.tracker.store().remove(&seen[6]));
        announce(&overview.tracker, 1, InfoHash([0xff; 20]), 1, Event::None);
        announce(&overview.tracker, 1, InfoHash([0; 20]), 1, Event::None);
        overview.refresh(None);
        let behind = PageRequest { after: first.next, limit: 1000, ..request(SortKey::InfoHash) };
        let rest = overview.page(&behind).await;
        assert_eq!((rest.next, rest.rows.len()), (None, 50 - 7 + 1));
        assert!(rest.rows.iter().all(|row| !seen.contains(&row.info_hash)));
    });
}

#[test]
fn omits_the_smallest_torrents_above_the_limit() {
    with_overview(filled(300), 40, async |overview| {
        let page = overview.page(&PageRequest { limit: 1000, ..request(SortKey::Seeders) }).await;
        assert_eq!((page.rows.len(), page.omitted), (40, 260));
        let peers = |row: &TorrentRow| row.seeders + row.leechers;
        assert!(page.rows.iter().all(|row| peers(row) == 5), "only the largest are listed");
    });
}

#[test]
fn makes_a_snapshot_on_demand_and_frees_it_when_idle() {
    with_overview(filled(3), ROWS_MAX, async |overview| {
        overview.free_if_idle();
        let total = async || overview.page(&request(SortKey::Seeders)).await.total;
        assert_eq!(total().await, 3);
        announce(&overview.tracker, 1, InfoHash([0xff; 20]), 1, Event::None);
        assert_eq!(total().await, 3, "the snapshot is some milliseconds old");
        let old = Instant::now().checked_sub(IDLE_TIMEOUT).unwrap();
        let mut snapshot = Snapshot::take(&tracker(), 9);
        snapshot.taken_at = old;
        overview.cache.lock().snapshot = Some(Arc::new(snapshot));
        assert_eq!(total().await, 0, "the old snapshot is served during a refresh");
        while overview.refreshing.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(total().await, 4);
        overview.free_if_idle();
        assert!(overview.cache.lock().snapshot.is_some());
        overview.cache.lock().last_request = Some(old);
        overview.free_if_idle();
        assert!(overview.cache.lock().snapshot.is_none());
        assert_eq!(total().await, 4);
    });
}

#[test]
fn rejects_malformed_cursors_and_prefixes() {
    for text in ["", "0", "x", &"0".repeat(47), &"0".repeat(49), &format!("+{}", "0".repeat(47))] {
        assert_eq!(Cursor::parse(text), None, "{text}");
    }
    for text in ["g", "+1", "é", &"0".repeat(41)] {
        assert_eq!(HashPrefix::parse(text), None, "{text}");
    }
    assert!(HashPrefix::parse("").is_some() && HashPrefix::parse(&"f".repeat(40)).is_some());
}
