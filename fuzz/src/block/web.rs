//! Blocks of WebTorrent peers.

use std::net::Ipv4Addr;

use primitives::Random;
use replication::MergeTime;
use replication::block::{Block, Header, Kind, WebGroups};
use swarm::{Action, PeerCaps, RelayTargets, Store, StoreWebAnnounce};
use types::{ConnectionKey, PeerId, Role, WebPeer};

use super::{NOW, check_sums, expire, write_and_damage};

/// The node that wrote the block, and the one that reads it.
const WRITER: u8 = 1;
const READER: u8 = 9;
/// Bytes of an info hash and a number of peers, and of a peer.
const GROUP: usize = 22;
const PEER: usize = 46;
/// Where the node of a peer's connection is.
const NODE_AT: usize = 20 + 7;

/// With a flag, connections are of any node; else of the writer's.
pub(super) fn check(store: &Store, cut_ago_s: u16, flags: u8, body: &[u8]) {
    let mut body = body.to_vec();
    let whole = whole_groups(&mut body, (flags & 64 == 0).then_some(WRITER));
    let header = Header {
        kind: Kind::WEB,
        has_ids: false,
        node: WRITER.into(),
        boot: 2,
        number: 3,
        cut_ms: 4,
    };
    let read = |body: &[u8]| Block { header, body }.web_groups().is_ok();
    let are_own = |body: &[u8]| whole_groups(&mut body.to_vec(), None) == body.len();
    assert_eq!(read(&body), whole == body.len() && are_own(&body));
    let body = &body[..whole];
    let Ok(groups) = Block { header, body }.web_groups() else { return };
    assert!(Block { header, body }.groups().is_err(), "another kind");
    write_and_damage(&header, body, cut_ago_s.into(), flags);
    merge(store, cut_ago_s, groups);
}

/// Returns how many bytes the whole groups at the beginning of a body take. Sets the nodes of their
/// connections, or ends before the first one that is not the writer's.
fn whole_groups(body: &mut [u8], node: Option<u8>) -> usize {
    let mut at = 0;
    loop {
        let Some([low, high]) = body[at..].get(20..GROUP) else { return at };
        let end = at + GROUP + usize::from(u16::from_le_bytes([*low, *high])) * PEER;
        let Some(group) = body.get_mut(at..end) else { return at };
        for peer in group[GROUP..].chunks_exact_mut(PEER) {
            match node {
                Some(node) => peer[NODE_AT] = node,
                None if peer[NODE_AT] != WRITER => return at,
                None => {}
            }
        }
        at = end;
    }
}

fn merge(store: &Store, cut_ago_s: u16, groups: WebGroups<'_>) {
    store.set_node(READER);
    store.keep_web_changes(64);
    let mut random = Random::new(1);
    let time = MergeTime { now: NOW, cut_ago_s: cut_ago_s.into(), epoch_min: 29_000_000 };
    let first = store.merge_web(time, groups, 0..2);
    check_sums(store, first.torrents);
    let (mut downloads, mut completed) = (0, 0);
    store.each_torrent(|stats| downloads += stats.counts.downloads as usize);
    groups.for_each(|group| {
        completed += group.peers.filter(|change| change.word.is_completed()).count();
    });
    assert!(downloads <= completed);
    // Once more, an older block, in the other order of shards, and then own peers beside.
    let time = MergeTime { cut_ago_s: time.cut_ago_s / 2, ..time };
    store.merge_web(time, groups, 1..2);
    store.merge_web(time, groups, 0..1);
    for group in groups.take(8) {
        let announce = StoreWebAnnounce {
            info_hash: group.info_hash,
            peer: WebPeer {
                connection: ConnectionKey::new(READER, 1, 1, 1),
                peer_id: PeerId([9; 20]),
            },
            address: Ipv4Addr::new(20, 0, 0, 1).into(),
            role: Role::Leecher,
            action: Action::Update { completed: true },
            min_interval_s: 0,
            caps: PeerCaps { per_address: 8, per_network: 64 },
            want: 20,
            extra_s: 0,
        };
        let mut targets = RelayTargets::new();
        store.announce_web(NOW, &mut random, &announce, &mut targets).expect("no interval");
        assert!(targets.iter().all(|peer| peer.connection.node() == WRITER));
    }
    check_sums(store, store.totals().torrents);
    let mut changes = Vec::new();
    assert_eq!(store.take_web_changes(&mut changes), 0);
    assert!(changes.iter().all(|change| change.peer.connection.node() == READER));
    let web = |store: &Store| store.totals().web.seeders + store.totals().web.leechers;
    let before = web(store);
    let purged = store.purge_web_node(WRITER);
    assert_eq!(web(store), before - purged);
    assert!(web(store) <= 8, "only own peers are left");
    check_sums(store, store.totals().torrents);
    expire(store);
}
