//! With keys, quotas, bans, live lists and durable counts, the announce of a known peer allocates nothing, whatever the
//! size of its swarm. Neither does a scrape, or keeping and taking changes and refreshes. (A new peer may: its memory
//! comes in chunks.)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use replication::AGE_UNIT_S;
use tidegate_tracker::access::{AccessLists, Mode};
use tidegate_tracker::{
    Access, AnnouncePolicy, AnnounceRequest, IpPrefix, KeyId, KeyRules, ListenerPolicy,
    ListenerPolicyId, Options, Policy, Random, RequestKind, Secrets, Tracker, UserKey,
};
use types::{Announce, Event, Families, InfoHash, PeerId, SwarmCounts, Tick};

const KEYS: u32 = 50;
const PEERS: u32 = 4000;

fn key(number: u32) -> UserKey {
    UserKey::parse(format!("key-number-{number:08}")).expect("a key")
}

fn tracker(keeps_ids: bool) -> Tracker {
    let mut options = Options::predictable(Policy::default());
    options.store.keep_peer_ids = keeps_ids;
    let tracker = Tracker::new(&options, &Secrets::PUBLIC);
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
    tracker.store().keep_changes(1 << 16);
    tracker.store().keep_refreshes(1);
    tracker
}

/// Returns the announce number `number` of a round: of a peer in a torrent of 1, 3, 60 or 1000 peers.
fn request(tracker: &Tracker, users: &[UserKey], number: u32, round: u32) -> AnnounceRequest {
    let torrent = number % 4;
    let peer = number / 4 % [1, 3, 60, 1000][torrent as usize];
    // Each in a network of its own, so that no cap applies.
    let [.., a, b] = peer.to_be_bytes();
    let from: IpAddr = match peer % 3 {
        0 => Ipv6Addr::new(0x2400, peer as u16, 0, 0, 0, 0, 0, 1).into(),
        _ => Ipv4Addr::new(8, a, b, 1).into(),
    };
    let key = Some(users[(peer % KEYS) as usize].as_bytes());
    let view = tracker.view(Tick(round * AGE_UNIT_S));
    let grant = view.authorize_unverified(ListenerPolicyId(0), from, RequestKind::Announce, key);
    // Peers change their role from one round to the next.
    let is_seeder = (peer + round).is_multiple_of(4);
    let announce = Announce {
        event: if is_seeder { Event::Completed } else { Event::None },
        left: Some(u64::from(!is_seeder)),
        uploaded: u64::from(round) * 1000,
        ..Announce::new(InfoHash([torrent as u8; 20]), PeerId([peer as u8; 20]), 6881)
    };
    let policy = AnnouncePolicy { peers_max: 50, families: Families::Both, with_downloads: true };
    let grant = grant.expect("a grant");
    AnnounceRequest { grant, via_local_address: false, announce, policy }
}

fn check(keeps_ids: bool) {
    let (tracker, mut random) = (tracker(keeps_ids), Random::new(1));
    let (mut totals, mut counted) = (Vec::with_capacity(1000), Vec::with_capacity(1000));
    let (mut changes, mut ids) = (Vec::new(), Vec::new());
    let (mut answers, mut peers) = (0, 0);
    let users: Vec<UserKey> = (0..KEYS).map(key).collect();
    let mut round = |round: u32| {
        let view = tracker.view(Tick(round * AGE_UNIT_S));
        for number in 0..PEERS {
            let request = request(&tracker, &users, number, round);
            view.announce(&mut random, &[request], &mut |_, answer| {
                let answer = answer.expect("an accepted announce").answer;
                answer.each_v4(|run| peers += run.len());
                answer.each_v6(|run| peers += run.len());
                answer.each_with_id(|_, _| peers += 1);
                answers += 1;
            });
        }
        let (from, key) = ([8, 0, 0, 1].into(), Some(users[0].as_bytes()));
        let grant = view.authorize(ListenerPolicyId(0), from, RequestKind::Scrape, key);
        let mut counts = [SwarmCounts::default(); 2];
        let hashes = [InfoHash([2; 20]), InfoHash([3; 20])];
        assert_eq!(view.scrape(grant.expect("a grant"), &hashes, &mut counts), Ok(()));
        assert!(counts.iter().all(|counts| counts.leechers() + counts.seeders() > 0));
        let (mut changed, mut refreshed) = (0, 0);
        for shard in 0..tracker.store().shards() {
            assert_eq!(tracker.store().take_changes(shard, &mut changes, &mut ids), 0);
            changed += changes.len();
            refreshed += changes.iter().filter(|change| change.is_refresh).count();
            changes.clear();
            ids.clear();
        }
        assert!(changed > 500 && (refreshed > 100 || round == 1), "{changed} {refreshed}");
        tracker.passkeys().take_totals(&mut totals);
        tracker.downloads().take_changed(|change| counted.push(change));
        totals.clear();
        counted.clear();
    };
    // A vector of changes for each shard, and the one that goes round.
    (1..9).for_each(&mut round);
    let measured = allocation_counter::measure(|| (9..13).for_each(&mut round));
    assert_eq!(measured.count_total, 0, "{measured:?}");
    assert_eq!(answers, 12 * PEERS);
    assert!(peers > 50 * answers as usize, "{peers}");
}

#[test]
fn announces_of_known_peers_do_not_allocate() {
    let canary = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(canary.count_total, 1, "allocations are not counted");
    check(false);
    check(true);
}
