//! Bounds on the peers of a host, and the networks that are exempt from them.

use super::*;

/// Merges a block of 20 peers of a host, and returns how many of them the tracker has.
fn merge_host(tracker: &Tracker, network: u8) -> usize {
    use replication::block;
    let info_hash = InfoHash([1; 20]);
    let peers = (0..20).map(|port| block::Change {
        info_hash,
        peer: PeerKey::V4([20, 0, network, 1, 1, port]),
        word: block::Word::present(0, types::Role::Leecher, false),
        is_refresh: false,
    });
    let (mut body, mut bytes) = (Vec::new(), Vec::new());
    block::encode_changes(&peers.collect::<Vec<_>>(), &[], &mut body);
    let kind = block::Kind::CHANGES;
    let header = block::Header { kind, has_ids: false, node: 2, boot: 1, number: 1, cut_ms: 1 };
    block::write(&header, &body, &mut bytes);
    let (block, _) = block::Block::read(&bytes).unwrap();
    let time = replication::MergeTime { now: Tick(0), cut_ago_s: 0, epoch_min: 0 };
    let (groups, store) = (block.groups().unwrap(), tracker.store());
    store.merge(time, &mut Random::new(1), groups, 0..store.shards());
    store.peers_at(Tick(0), [20, 0, network, 1].into(), 100).len()
}

#[test]
fn peers_of_other_nodes_and_of_the_journal_keep_to_the_caps() {
    let tracker = tracker(Policy::default());
    assert_eq!(merge_host(&tracker, 1), limits::PEERS_PER_ADDRESS.into());
    let peer_caps = PeerCaps { per_address: 11, per_network: 64 };
    tracker.reconfigure(&Policy { peer_caps, ..Policy::default() });
    assert_eq!(merge_host(&tracker, 2), 11);
    let exempt = Networks::parse(["20.0.3.0/24"]).unwrap();
    tracker.limiter().replace(Limits { exempt, ..Limits::default() });
    assert_eq!(merge_host(&tracker, 3), 20);
    assert_eq!(merge_host(&tracker, 4), 11);
}
