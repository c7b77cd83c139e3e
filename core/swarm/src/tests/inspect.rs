//! Inspection, removal and events, beside the twin.

use types::ConnectionKey;

use super::*;
use crate::{TorrentEvent, TorrentStats};

/// Removes a torrent, and the peers at an address, from both.
pub(super) fn remove_some(store: &Store, twin: &mut Twin, now: Tick, random: &mut Random) {
    let torrents = &mut twin.torrents;
    let Some(torrent) = torrents.keys().nth(random.below(torrents.len() as u32) as usize).copied()
    else {
        return;
    };
    if random.below(4) == 0 {
        torrents.remove(&torrent);
        assert!(store.remove(&torrent));
        assert!(!store.remove(&torrent) && store.inspect(now, &torrent, 1).is_none());
    }
    let number = random.below(12);
    let ip = random_peer(random, number).socket_addr().ip();
    let mut gone = 0;
    for torrent in torrents.values_mut() {
        let before = torrent.peers.len();
        torrent.peers.retain(|key, _| key.socket_addr().ip() != ip);
        gone += before - torrent.peers.len();
    }
    assert_eq!(store.remove_peers_at(ip), gone as u64);
    assert_eq!(store.remove_peers_at(ip), 0);
}

/// Removing a torrent removes all kinds of peers and frees their memory.
#[test]
fn a_removed_torrent_leaves_nothing() {
    let store = store(1);
    store.listen(true);
    let empty = store.totals().memory_used;
    for number in 0..20_000 {
        let role = ROLES[number as usize % 3];
        let peer = if number % 2 == 0 { v4(number) } else { v6(number) };
        let request = StoreAnnounce { want: 0, ..update(1, peer, role) };
        announce(&store, number / 100, &[request]);
    }
    for number in 0..300 {
        let peer = WebPeer { connection: ConnectionKey(number), peer_id: PeerId([3; 20]) };
        let role = [Role::Seeder, Role::PartialSeed][number as usize % 2];
        let action = Action::Update { completed: number == 0 };
        join(&store, 0, &StoreWebAnnounce { action, ..web_update(1, peer, role) });
    }
    announce(&store, 0, &[update(2, v4(1), Role::Leecher)]);
    let inspect = store.inspect(Tick(200), &InfoHash([1; 20]), 100).unwrap();
    let web = inspect.peers.iter().filter(|peer| peer.address.is_none());
    assert_eq!((inspect.peers.len(), web.count() > 0), (100, true));
    assert!(store.remove(&InfoHash([1; 20])));
    let totals = store.totals();
    assert_eq!((totals.torrents, totals.v4.leechers, totals.v4.seeders), (1, 1, 0));
    assert_eq!((totals.v6, totals.web, totals.partial_seeds), Default::default());
    assert!(totals.memory_used < empty + 4096, "{} {empty}", totals.memory_used);
    let mut heard = Vec::new();
    assert_eq!(store.take_events(&mut heard), 0);
    let [one, two] = [1, 2].map(|byte| InfoHash([byte; 20]));
    use TorrentEvent::{Added, Completed, Removed};
    assert_eq!(heard, [Added(one), Completed(one), Added(two), Removed(one)]);
}

#[test]
fn events_are_kept_up_to_a_limit_and_only_while_listened_to() {
    let store = store(1);
    let mut heard = Vec::new();
    let hash = |number: u32| InfoHash(std::array::from_fn(|at| (number >> (8 * (at % 4))) as u8));
    let come = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            let request =
                StoreAnnounce { info_hash: hash(number), ..update(0, v4(1), Role::Seeder) };
            announce(&store, 0, &[request]);
        }
    };
    come(0..10);
    assert_eq!((store.take_events(&mut heard), heard.len()), (0, 0));
    store.listen(true);
    store.listen(true);
    let bound = types::limits::EVENTS_MAX as u32;
    come(10..10 + bound + 7);
    assert_eq!((store.take_events(&mut heard), heard.len()), (7, bound as usize));
    assert_eq!(heard[0], TorrentEvent::Added(hash(10)));
    heard.clear();
    come(100_000..100_003);
    assert_eq!((store.take_events(&mut heard), heard.len()), (0, 3));
    store.listen(false);
    come(200_000..200_003);
    assert_eq!((store.take_events(&mut heard), heard.len()), (0, 3));
}

#[test]
fn reports_age_of_torrents_and_lag_of_the_sweep() {
    let store = store(1);
    announce(&store, 0, &[update(1, v4(1), Role::Seeder)]);
    announce(&store, 5000, &[update(2, v4(1), Role::Seeder)]);
    announce(&store, 90_000_000, &[update(3, v4(1), Role::Seeder)]);
    let mut first_seen = BTreeMap::new();
    store.each_torrent(|TorrentStats { info_hash, first_seen: at, .. }| {
        first_seen.insert(info_hash.0[0], *at);
    });
    assert_eq!(first_seen[&1], Tick(0));
    assert!(first_seen[&2] <= Tick(5000) && first_seen[&2].0 > 5000 - 1024);
    assert!(first_seen[&3].0 > 300 * 86_400 && first_seen[&3].0 < 90_000_000);
    // The first torrent gets WebTorrent peers: that flag shares a word with its age.
    let peer = WebPeer { connection: ConnectionKey(1), peer_id: PeerId([3; 20]) };
    join(&store, 5000, &web_update(2, peer, Role::Seeder));
    let details = store.inspect(Tick(5000), &InfoHash([2; 20]), 0).unwrap();
    assert_eq!(details.stats.first_seen, first_seen[&2]);
    sweep_all(&store, 6000);
    assert_eq!(store.expiry_lag_s(Tick(6000)), 0);
    assert_eq!(store.expiry_lag_s(Tick(6030)), 30);
}
