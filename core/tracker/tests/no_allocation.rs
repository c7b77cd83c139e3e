//! With keys, quotas, bans, live lists and durable counts, the announce of a known peer allocates nothing,
//! and neither does a scrape.

#[path = "../benches/build/tracker.rs"]
mod build;

use std::net::IpAddr;

use tidegate_tracker::access::{AccessLists, Mode};
use tidegate_tracker::{
    Access, AnnouncePolicy, AnnounceRequest, IpPrefix, KeyId, KeyRules, ListenerPolicy,
    ListenerPolicyId, Random, RequestKind, Tracker, UserKey,
};
use types::{Announce, Event, Families, InfoHash, NumWant, PeerId, SwarmCounts, Tick};

const KEYS: u32 = 50;
const PEERS: u32 = 2000;

fn key(number: u32) -> UserKey {
    UserKey::parse(format!("key-number-{number:08}")).expect("a key")
}

fn tracker() -> Tracker {
    let tracker = build::tracker(4, None);
    let lists = AccessLists { mode: Mode::Deny, ..AccessLists::default() };
    tracker.replace_listeners(&[ListenerPolicy {
        lists,
        access: Access::Private,
        ..ListenerPolicy::default()
    }]);
    let rules = KeyRules {
        peers_per_torrent: 1000,
        torrents: 1000,
        addresses: 1000,
        announces_per_minute: u16::MAX,
        ..KeyRules::default()
    };
    (0..KEYS).for_each(|number| _ = tracker.passkeys().put(KeyId(number), key(number), rules));
    let bans =
        (0..1000_u32).map(|number| (IpPrefix::from(IpAddr::from(number.to_be_bytes())), None));
    tracker.bans().put(&bans.collect::<Vec<_>>());
    let denied: Vec<_> = (0..10_000_u32).map(|number| InfoHash([number as u8 | 128; 20])).collect();
    tracker.denied().insert(&denied);
    tracker.downloads().enable();
    tracker
}

/// Returns the announce of a peer in a round.
fn request(tracker: &Tracker, user: &UserKey, number: u32, now: u32) -> AnnounceRequest {
    let from = IpAddr::from((0x0800_0000 + number).to_be_bytes());
    let (view, key) = (tracker.view(Tick(now)), Some(user.as_bytes()));
    let grant = view.authorize_unverified(ListenerPolicyId(0), from, RequestKind::Announce, key);
    let mut peer_id = [0; 20];
    peer_id[..4].copy_from_slice(&number.to_be_bytes());
    let announce = Announce {
        info_hash: InfoHash([number as u8 & 127; 20]),
        peer_id: PeerId(peer_id),
        port: 6881,
        event: if now.is_multiple_of(2) { Event::Completed } else { Event::None },
        left: Some(u64::from(now % 2)),
        uploaded: u64::from(now) * 1000,
        downloaded: 0,
        want: NumWant::Default,
    };
    let policy = AnnouncePolicy { peers_max: 50, families: Families::Both, with_downloads: true };
    AnnounceRequest { grant: grant.expect("a grant"), via_local_address: false, announce, policy }
}

#[test]
fn announces_of_known_peers_with_keys_do_not_allocate() {
    let (tracker, mut random, mut count) = (tracker(), Random::new(1), 0);
    let (mut totals, mut changed) = (Vec::with_capacity(1000), Vec::with_capacity(1000));
    let users: Vec<UserKey> = (0..KEYS).map(key).collect();
    let mut round = |now: u32| {
        for number in 0..PEERS {
            let request = request(&tracker, &users[(number % KEYS) as usize], number, now);
            tracker.view(Tick(now)).announce(&mut random, &[request], &mut |_, answer| {
                answer.expect("an accepted announce").answer.each_v4(|_| {});
                count += 1;
            });
        }
        let user = users[0];
        let view = tracker.view(Tick(now));
        let grant = view.authorize(
            ListenerPolicyId(0),
            [8, 0, 0, 1].into(),
            RequestKind::Scrape,
            Some(user.as_bytes()),
        );
        let mut counts = [SwarmCounts::default(); 2];
        let hashes = [InfoHash([1; 20]), InfoHash([2; 20])];
        assert_eq!(view.scrape(grant.expect("a grant"), &hashes, &mut counts), Ok(()));
        tracker.passkeys().take_totals(&mut totals);
        tracker.downloads().take_changed(|change| changed.push(change));
        totals.clear();
        changed.clear();
    };
    (1..4).for_each(&mut round);
    let counted = allocation_counter::measure(|| (4..8).for_each(&mut round));
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(count, 7 * PEERS);
}
