//! The time to list all torrents in order, and of one pass over the store.
//!
//! `cargo bench -p tidegate-tracker --bench full_scrape -- 1000000`. One thread; pin it with
//! `taskset -c 0`. The argument is the number of torrents, 64 bytes of memory each.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::time::Instant;

use primitives::Random;
use tidegate_tracker::{
    AnnouncePolicy, AnnounceRequest, ListenerPolicyId, Options, Policy, RequestKind, Secrets,
    StoreOptions, TorrentPages, Tracker,
};
use types::{Announce, Event, Families, InfoHash, NumWant, PeerId, Tick, limits};

const LISTENER: ListenerPolicyId = ListenerPolicyId(0);

fn main() {
    let count = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let count: u32 = count.map_or(100_000, |word| word.parse().expect("expected a number"));
    let tracker = tracker();
    add(&tracker, count);
    let mut pages = TorrentPages::new(limits::FULL_SCRAPE_PAGE);
    let (began, mut passes, mut listed) = (Instant::now(), 0, 0);
    while let Some(page) = pages.next_page(&tracker, LISTENER) {
        passes += 1;
        listed += page.len();
    }
    let all = began.elapsed();
    println!(
        "{listed} torrents in {passes} passes: {:.2} s, {:.1} ms a pass, {:.1} ns a torrent and pass",
        all.as_secs_f64(),
        all.as_secs_f64() * 1e3 / f64::from(passes),
        all.as_secs_f64() * 1e9 / f64::from(passes) / listed.max(1) as f64,
    );
}

fn add(tracker: &Tracker, count: u32) {
    let view = tracker.view(Tick(0));
    let (ip, mut random) = ([192, 0, 2, 1].into(), Random::new(1));
    for _ in 0..count {
        let grant = view.authorize_unverified(LISTENER, ip, RequestKind::Announce, None);
        let mut hash = [0; 20];
        hash.chunks_mut(8).for_each(|part| {
            part.copy_from_slice(random.next().to_be_bytes().split_at(part.len()).0);
        });
        let announce = Announce {
            info_hash: InfoHash(hash),
            peer_id: PeerId([1; 20]),
            port: 6881,
            event: Event::Started,
            left: Some(0),
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Peers(0),
        };
        let families = Families::Own;
        let policy = AnnouncePolicy { peers_max: 0, families, with_downloads: false };
        let grant = grant.expect("an open listener");
        let request = AnnounceRequest { grant, via_local_address: true, announce, policy };
        view.announce(&mut random, &[request], &mut |_, _| {});
    }
}

fn tracker() -> Tracker {
    let policy = Policy::default();
    let store = StoreOptions {
        shards: 64,
        hash_key: [3; 16],
        peer_lifetime_s: policy.peer_lifetime_s,
        web_lifetime_s: policy.web_lifetime_s(),
        keep_peer_ids: false,
        memory_budget: None,
    };
    let secrets = Secrets {
        connection_ids: [5; 16],
        offers: [6; 16],
        limits: [7; 16],
        sessions: [8; 16],
        previous: None,
    };
    Tracker::new(&Options { policy, store }, &secrets)
}
