//! Permits, and pages against a sorted list.

use super::*;
use crate::access::{AccessLists, HashList, Mode};
use crate::tests::{announce_by, leecher, request, set_policy, tracker};
use crate::{Access, AnnounceRequest, ListenerPolicy, Random};

const LISTENER: ListenerPolicyId = ListenerPolicyId(0);

fn announce(tracker: &Tracker, info_hash: InfoHash) {
    let request = AnnounceRequest { announce: leecher(info_hash, 1), ..request(1, 1) };
    let seen = announce_by(&tracker.view(Tick(0)), &mut Random::new(1), &[request]);
    assert_eq!(seen.refusals(), [None]);
}

/// All torrents of a list whose pages have `page_max` torrents.
fn listed(tracker: &Tracker, page_max: usize) -> Vec<InfoHash> {
    let mut pages = TorrentPages::new(page_max);
    let mut all = Vec::new();
    while let Some(page) = pages.next_page(tracker, LISTENER) {
        assert!(page.len() <= page_max && page.iter().all(|row| row.counts.leechers() == 1));
        all.extend(page.iter().map(|row| row.info_hash));
    }
    assert_eq!(pages.next_page(tracker, LISTENER), None);
    all
}

#[test]
fn pages_list_every_torrent_once_in_order() {
    let mut random = Random::new(3);
    // Hashes are spread evenly, or differ at the end only, as clients may invent them.
    for alike in [0, 17] {
        let tracker = tracker(Policy::default());
        assert_eq!(listed(&tracker, 10), []);
        let mut hashes = Vec::new();
        for _ in 0..3000 {
            let mut hash = [7; 20];
            let tail = random.next().to_be_bytes();
            hash[alike..].iter_mut().zip(tail).for_each(|(byte, random)| *byte = random);
            hashes.push(InfoHash(hash));
            announce(&tracker, InfoHash(hash));
        }
        hashes.sort_unstable();
        hashes.dedup();
        let mut pages = TorrentPages::new(1);
        assert_eq!(pages.next_page(&tracker, LISTENER).unwrap()[0].info_hash, hashes[0]);
        for page_max in [7, 1000, 2999, 3000, 3001, 10_000] {
            assert_eq!(listed(&tracker, page_max), hashes, "{page_max}");
        }
    }
}

#[test]
fn pages_have_what_the_listener_serves() {
    let tracker = tracker(Policy::default());
    let hashes: Vec<InfoHash> = (0..100).map(|byte| InfoHash([byte; 20])).collect();
    hashes.iter().for_each(|hash| announce(&tracker, *hash));
    let allow: HashList = hashes.iter().copied().filter(|hash| hash.0[0] % 3 == 0).collect();
    let lists = AccessLists { mode: Mode::Allow, allow: Arc::new(allow), ..AccessLists::default() };
    set_policy(&tracker, ListenerPolicy { lists, ..ListenerPolicy::default() });
    let expected: Vec<InfoHash> = hashes.into_iter().filter(|hash| hash.0[0] % 3 == 0).collect();
    for page_max in [2, 30, 1000] {
        assert_eq!(listed(&tracker, page_max), expected);
    }
}

/// A tracker whose only listener has full scrapes, and no exempt networks.
fn with_full_scrape(policy: Policy) -> Tracker {
    let tracker = tracker(policy);
    let listener = ListenerPolicy { full_scrape: true, ..ListenerPolicy::default() };
    set_policy(&tracker, listener);
    tracker
}

fn ask(tracker: &Tracker, at_s: u32, host: u8) -> Result<FullScrapePermit, Refusal> {
    tracker.view(Tick(at_s)).authorize_full_scrape(LISTENER, [192, 0, 2, host].into(), None)
}

#[test]
fn full_scrapes_are_off_by_default_and_at_private_listeners() {
    let tracker = tracker(Policy::default());
    assert_eq!(ask(&tracker, 0, 1).unwrap_err(), Refusal::FullScrape);
    let private =
        ListenerPolicy { full_scrape: true, access: Access::Private, ..ListenerPolicy::default() };
    set_policy(&tracker, private);
    assert_eq!(ask(&tracker, 0, 1).unwrap_err(), Refusal::KeyMissing);
}

#[test]
fn a_client_waits_for_the_interval() {
    let tracker = with_full_scrape(Policy::default());
    drop(ask(&tracker, 10, 1).unwrap());
    let too_soon = |wait_min| Refusal::FullScrapeTooSoon { wait_min };
    assert_eq!(ask(&tracker, 10, 1).unwrap_err(), too_soon(5));
    assert_eq!(ask(&tracker, 300, 1).unwrap_err(), too_soon(1));
    drop(ask(&tracker, 300, 2).unwrap());
    drop(ask(&tracker, 310, 1).unwrap());
    assert_eq!(ask(&tracker, 320, 1).unwrap_err(), too_soon(5));
}

#[test]
fn all_clients_together_wait_for_the_hour() {
    let policy = Policy { full_scrapes_per_hour: 3, ..Policy::default() };
    let tracker = with_full_scrape(policy);
    for host in 1..=3 {
        drop(ask(&tracker, 100 * u32::from(host), host).unwrap());
    }
    let busy = |wait_min| Refusal::FullScrapesBusy { wait_min };
    assert_eq!(ask(&tracker, 400, 4).unwrap_err(), busy(55));
    assert_eq!(ask(&tracker, 3699, 4).unwrap_err(), busy(1));
    drop(ask(&tracker, 3700, 4).unwrap());
    assert_eq!(ask(&tracker, 3700, 5).unwrap_err(), busy(2));
    tracker.reconfigure(&Policy { full_scrapes_per_hour: 0, ..policy });
    drop(ask(&tracker, 3700, 5).unwrap());
}

#[test]
fn what_is_remembered_is_bounded() {
    let policy = Policy { full_scrapes_per_hour: 0, ..Policy::default() };
    let tracker = with_full_scrape(policy);
    for number in 0..limits::FULL_SCRAPES_REMEMBERED as u32 + 10 {
        let from = IpAddr::from((0x0b00_0000 + number).to_be_bytes());
        drop(tracker.view(Tick(0)).authorize_full_scrape(LISTENER, from, None).unwrap());
    }
    let recent = tracker.full_scrapes.recent.lock();
    assert_eq!(recent.len(), limits::FULL_SCRAPES_REMEMBERED);
}
