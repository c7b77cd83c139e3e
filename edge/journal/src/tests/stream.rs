//! The stream of an upgrade, over a socket pair.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use primitives::Random;
use swarm::{Encoder, Feed, Store};
use types::{Role, Tick};

use super::tracker::{START_MS, TestClock, announce, announce_random, peers_of, store, torrent};
use crate::stream::{Milestone, Receiver, SendOrders, StreamError, send};

/// Sessions as a stream sees them: bodies of any bytes.
const SESSIONS: [&[u8]; 2] = [b"first sessions", b"others"];

/// Sends a store through a pipe, with sessions.
fn send_all(
    mut stream: &UnixStream,
    (feed, store): (&Feed, &Store),
    clock: &TestClock,
    orders: &SendOrders,
) -> std::io::Result<u64> {
    let mut left = SESSIONS.iter();
    let mut sessions = |_, body: &mut Vec<u8>| {
        body.extend(left.next().copied().unwrap_or_default());
        !body.is_empty()
    };
    send(&mut stream, Encoder::new(feed, store, 7), &clock.clocks(), orders, &mut sessions)
}

/// The new process has all that the old one's store had at the end, and both count the same bytes.
#[test]
fn the_receiver_has_what_the_sender_had_at_last() {
    for keep_ids in [false, true] {
        let (old, new, feed) = (store(keep_ids), store(keep_ids), Feed::default());
        let clock = TestClock::at(START_MS, 5000);
        let (orders, is_walked) = (SendOrders::default(), AtomicBool::new(false));
        let mut random = Random::new(3);
        (0..5000).for_each(|_| _ = announce_random(&old, Tick(5000), &mut random));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let taken = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let sender = scope.spawn(|| send_all(&ours, (&feed, &old), &clock, &orders).unwrap());
            let receiver = scope.spawn(|| {
                let mut receiver = Receiver::new(&theirs, 1);
                let mut sessions = |_: u32, body: &[u8]| taken.lock().unwrap().push(body.to_vec());
                let clocks = clock.clocks();
                let mut next = || receiver.receive(&new, &clocks, &mut sessions).unwrap();
                assert_eq!(next(), Milestone::Walked);
                is_walked.store(true, Ordering::Relaxed);
                assert_eq!(next(), Milestone::Complete);
                receiver.bytes()
            });
            // The store changes while it is sent, and for a while after.
            while !is_walked.load(Ordering::Relaxed) {
                announce_random(&old, Tick(5000), &mut random);
            }
            (0..3000).for_each(|_| _ = announce_random(&old, Tick(5000), &mut random));
            orders.finish();
            assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
        });
        let expected = peers_of(&old, Tick(5000));
        assert!(expected.len() > 1000, "{}", expected.len());
        assert_eq!(peers_of(&new, Tick(5000)), expected);
        assert_eq!(taken.into_inner().unwrap(), SESSIONS);
        let downloads = |store: &Store| {
            let mut found = BTreeMap::new();
            store.each_torrent(|it| _ = found.insert(it.info_hash, it.counts.downloads));
            found
        };
        assert_eq!(downloads(&new), downloads(&old));
    }
}

/// A peer that stops at the receiver stays away, whatever the sender still says.
#[test]
fn what_happens_at_the_receiver_is_younger() {
    let (old, new, feed) = (store(false), store(false), Feed::default());
    let clock = TestClock::at(START_MS, 5000);
    for peer in 0..8 {
        announce(&old, Tick(4000), 1, peer, Some(Role::Leecher));
    }
    new.remember_stopped(true);
    announce(&new, Tick(5000), 1, 0, None);
    announce(&new, Tick(5000), 1, 1, Some(Role::Seeder));
    let orders = SendOrders::default();
    orders.finish();
    let (ours, theirs) = UnixStream::pair().unwrap();
    send_all(&ours, (&feed, &old), &clock, &orders).unwrap();
    let mut receiver = Receiver::new(&theirs, 1);
    for expected in [Milestone::Walked, Milestone::Complete] {
        let milestone = receiver.receive(&new, &clock.clocks(), &mut |_, _| {}).unwrap();
        assert_eq!(milestone, expected);
    }
    let found = peers_of(&new, Tick(5000));
    assert_eq!(found.len(), 7);
    assert!(found.keys().all(|(hash, _)| *hash == torrent(1)));
    assert_eq!(found.values().filter(|role| **role == Role::Seeder).count(), 1);
}

/// A peer that only announces again while it is sent does not seem to be silent since the announce before; one
/// that takes another role at the receiver at the same time keeps that role.
#[test]
fn announces_after_the_walk_count() {
    let (old, new, feed) = (store(false), store(false), Feed::default());
    let clock = TestClock::at(START_MS, 5000);
    (0..8).for_each(|peer| announce(&old, Tick(4000), 1, peer, Some(Role::Leecher)));
    let orders = SendOrders::default();
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_all(&ours, (&feed, &old), &clock, &orders).unwrap());
        let (mut receiver, clocks) = (Receiver::new(&theirs, 1), clock.clocks());
        let mut next = || receiver.receive(&new, &clocks, &mut |_, _| {}).unwrap();
        assert_eq!(next(), Milestone::Walked);
        (0..8).for_each(|peer| announce(&old, Tick(5000), 1, peer, Some(Role::Leecher)));
        announce(&new, Tick(5000), 1, 0, Some(Role::Seeder));
        orders.finish();
        assert_eq!(next(), Milestone::Complete);
        sender.join().unwrap();
    });
    let peers = new.inspect(Tick(5000), &torrent(1), 10).unwrap().peers;
    assert_eq!(peers.len(), 8);
    assert!(peers.iter().all(|peer| peer.age_s <= 16), "{peers:?}");
    assert_eq!(peers.iter().filter(|peer| peer.role == Role::Seeder).count(), 1);
}

#[test]
fn a_cancelled_sender_returns() {
    let (old, feed) = (store(false), Feed::default());
    let clock = TestClock::at(START_MS, 5000);
    // While it waits for changes, and while the receiver does not read.
    for peers in [1, 40_000] {
        (0..peers).for_each(|peer| announce(&old, Tick(5000), peer, peer, Some(Role::Seeder)));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let orders = SendOrders::default();
        thread::scope(|scope| {
            let sender = scope.spawn(|| send_all(&ours, (&feed, &old), &clock, &orders));
            let mut first = [0; 4];
            std::io::Read::read_exact(&mut &theirs, &mut first).unwrap();
            assert_eq!(&first, b"TGB1");
            orders.cancel();
            ours.shutdown(Shutdown::Both).unwrap();
            assert!(sender.join().unwrap().is_err());
        });
        // Its changes are not kept any more.
        announce(&old, Tick(5000), 1, 77, Some(Role::Leecher));
        let mut changes = Vec::new();
        for shard in 0..old.shards() {
            old.take_changes(shard, &mut changes, &mut Vec::new());
        }
        assert_eq!(changes, []);
    }
}

/// Returns what a receiver makes of these bytes, and how many torrents it then has.
fn receive(bytes: &[u8]) -> (Result<Milestone, StreamError>, u64) {
    let (clock, new) = (TestClock::at(START_MS, 5000), store(false));
    let mut receiver = Receiver::new(bytes, 1);
    let clocks = clock.clocks();
    let mut result = receiver.receive(&new, &clocks, &mut |_, _| {});
    while let Ok(Milestone::Walked) = result {
        result = receiver.receive(&new, &clocks, &mut |_, _| {});
    }
    (result, new.totals().torrents)
}

#[test]
fn streams_that_end_early_or_are_damaged_fail() {
    let (old, feed) = (store(false), Feed::default());
    let clock = TestClock::at(START_MS, 5000);
    for number in 0..300 {
        announce(&old, Tick(4990), number % 40, number, Some(Role::Leecher));
    }
    let orders = SendOrders::default();
    orders.finish();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    send_all(&ours, (&feed, &old), &clock, &orders).unwrap();
    drop(ours);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut theirs, &mut bytes).unwrap();
    let (result, torrents) = receive(&bytes);
    assert_eq!((result.unwrap(), torrents), (Milestone::Complete, 40));
    // A block of an unknown kind is skipped.
    let mut more = Vec::new();
    let header = replication::block::Header {
        kind: replication::block::Kind(77),
        has_ids: false,
        node: 0,
        boot: 0,
        number: 0,
        cut_ms: u64::MAX,
    };
    replication::block::write(&header, b"from a later version", &mut more);
    more.extend(&bytes);
    assert!(receive(&more).0.is_ok());
    for len in 0..bytes.len() {
        let (result, torrents) = receive(&bytes[..len]);
        assert!(matches!(result, Err(StreamError::Ended(_))), "{len}");
        assert!(torrents <= 40);
    }
    let mut random = Random::new(8);
    for _ in 0..3000 {
        let mut bytes = bytes.clone();
        let at = random.below(bytes.len() as u32) as usize;
        bytes[at] ^= 1 << random.below(8);
        assert!(receive(&bytes).0.is_err(), "{at}");
    }
    // Any bytes at all, as long as they begin like a block.
    for _ in 0..3000 {
        let mut bytes: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        bytes.splice(..0, *b"TGB1");
        assert!(receive(&bytes).0.is_err());
    }
    let mut huge = b"TGB1".to_vec();
    huge.extend([0xff; 1000]);
    assert!(matches!(receive(&huge).0, Err(StreamError::Damaged(_))));
}
