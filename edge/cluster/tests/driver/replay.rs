//! A measurement: how long a node takes to read a log of ten million peers.
//! `cargo test --release -p tidegate-cluster --test driver -- --ignored --nocapture replay`

use std::time::Instant;

use replication::block::{self, Change, Header, Kind, Word};
use tidegate_cluster::nats::StreamChanges;
use types::{InfoHash, PeerKey, Role};

use crate::node::{NAME, TestNode, change_stream, options, unix_ms};
use crate::servers;

const PEERS: u32 = 10_000_000;
/// Peers of a torrent.
const OF_TORRENT: u32 = 10;
/// Changes of a block, as the encoder cuts them.
const OF_BLOCK: u32 = 1000;

#[test]
#[ignore = "a measurement, which takes a minute and 500 MB of disk"]
fn replay_of_ten_million_peers() {
    let Some(nats) = servers(1) else { return };
    let room = StreamChanges { bytes: Some(4 << 30), ..StreamChanges::default() };
    change_stream(&nats, room, false).unwrap();
    TestNode::start(1, &nats).wait_until_warm().end();
    let mut client = nats.client(0).unwrap();
    let (mut bytes, mut block) = (0, Vec::new());
    for number in 0..PEERS / OF_BLOCK {
        let change = |peer: u32| {
            // Each from another torrent, as they come.
            let torrent = peer.wrapping_mul(2_654_435_761) % (PEERS / OF_TORRENT);
            let mut hash = [0; 20];
            hash[..4].copy_from_slice(&torrent.wrapping_mul(0x9e37_79b1).to_be_bytes());
            hash[4..8].copy_from_slice(&torrent.to_be_bytes());
            let peer = PeerKey::new((0x0100_0000 + peer).to_be_bytes().into(), 6881);
            let word = Word::present(0, Role::Leecher, false);
            Change { info_hash: InfoHash(hash), peer, word, is_refresh: false }
        };
        let changes: Vec<_> = (number * OF_BLOCK..(number + 1) * OF_BLOCK).map(change).collect();
        let mut body = Vec::new();
        block::encode_changes(&changes, &[], &mut body);
        let header = Header {
            kind: Kind::CHANGES,
            has_ids: false,
            node: 9,
            boot: unix_ms() << 8,
            number: u64::from(number) + 1,
            cut_ms: unix_ms(),
        };
        block.clear();
        block::write(&header, &body, &mut block);
        bytes += block.len();
        client.publish(&format!("tg.{NAME}.d.9"), "Tidegate: a1b2c3d4\r\n", &block).unwrap();
        if number % 50 == 49 {
            client.flush().unwrap();
        }
    }
    let started = Instant::now();
    let mut options = options(2, nats.urls("nats"));
    options.flush = std::time::Duration::from_millis(50);
    let node = TestNode::start_with(options);
    node.wait("all peers", |node| node.peers() == u64::from(PEERS));
    let seconds = started.elapsed().as_secs_f64();
    let overview = node.overview();
    println!(
        "{PEERS} peers, {} MB: {seconds:.1} s, of which {:.1} s merging; warm: {}",
        bytes / 1_000_000,
        overview.applied.1,
        node.status.is_warm()
    );
}
