use replication::AGE_UNIT_S;
use replication::block::{Block, Change, Word, encode_changes};
use types::{InfoHash, PeerKey, Role};

use super::*;

/// 2023-11-14, a multiple of a unit.
const UNIX_MS: u64 = 1_700_000_000_000;

fn at(steady_ms: u64) -> Time {
    Time { steady_ms, unix_ms: UNIX_MS + steady_ms }
}

fn change(peer: u8, word: Word) -> Change {
    let peer = PeerKey::V4([10, 0, 0, peer, 1, 1]);
    Change { info_hash: InfoHash([7; 20]), peer, word, is_refresh: false }
}

fn seeder() -> Word {
    Word::present(0, Role::Seeder, false)
}

/// Returns one that is open and has room for `bytes`.
fn open(bytes: usize) -> Outbound {
    let mut outbound = Outbound::new(3, 99, bytes, 2700);
    outbound.set_open(at(0), true, &mut Vec::new());
    outbound
}

/// Pushes a block of changes, and returns what comes out.
fn push(outbound: &mut Outbound, now: Time, changed: &[Change]) -> Vec<Output> {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    encode_changes(changed, &[], &mut body);
    outbound.push(now, &header(now, Kind::CHANGES), &body, &mut out);
    out
}

fn header(now: Time, kind: Kind) -> Header {
    Header { kind, has_ids: false, node: 0, boot: 0, number: 0, cut_ms: now.unix_ms }
}

/// Returns the headers of a message's blocks.
fn headers(message: &[u8]) -> Vec<Header> {
    let mut rest = message;
    let mut headers = Vec::new();
    while !rest.is_empty() {
        let (block, len) = Block::read(rest).unwrap();
        headers.push(block.header);
        rest = &rest[len..];
    }
    headers
}

/// Returns the messages to the log: the ticket, and the numbers of the blocks.
fn logged(out: &[Output]) -> Vec<(u64, Vec<u64>)> {
    let logged = out.iter().filter_map(|output| match output {
        Output::PublishLog { ticket, message } => {
            Some((*ticket, headers(message).iter().map(|header| header.number).collect()))
        }
        _ => None,
    });
    logged.collect()
}

/// Returns the numbers of the blocks that went out live.
fn live(out: &[Output]) -> Vec<u64> {
    let live = out.iter().filter_map(|output| match output {
        Output::PublishLive { block } => Some(headers(block)[0].number),
        _ => None,
    });
    live.collect()
}

fn ticks(outbound: &mut Outbound, times: std::ops::Range<u64>) -> Vec<Output> {
    let mut out = Vec::new();
    times.step_by(100).for_each(|ms| outbound.tick(at(ms), &mut out));
    out
}

fn stored(outbound: &mut Outbound, ms: u64, ticket: u64) -> Vec<Output> {
    let mut out = Vec::new();
    outbound.stored(at(ms), ticket, 100 + ticket, &mut out);
    out
}

#[test]
fn blocks_that_wait_follow_as_one_message() {
    let mut outbound = open(1 << 20);
    let out = push(&mut outbound, at(5), &[change(1, seeder())]);
    let Output::PublishLog { ticket: 1, message } = &out[0] else { panic!("{out:?}") };
    let header = headers(message)[0];
    assert_eq!((header.node, header.boot, header.number), (3, 99, 1));
    assert_eq!(header.cut_ms, UNIX_MS + 5);
    for peer in 2..5 {
        assert_eq!(push(&mut outbound, at(10), &[change(peer, seeder())]), []);
    }
    assert_eq!(logged(&stored(&mut outbound, 20, 1)), [(2, vec![2, 3, 4])]);
    // Another acknowledgement of the first one says nothing.
    assert_eq!(stored(&mut outbound, 21, 1), []);
    assert_eq!(outbound.queue().0, 3);
    assert_eq!(stored(&mut outbound, 22, 2), []);
    assert_eq!((outbound.queue(), outbound.stored_sequence()), ((0, 0), 102));
    assert_eq!(outbound.state(), LogState::Flowing);
}

#[test]
fn messages_are_no_longer_than_the_longest_block() {
    let mut outbound = open(64 << 20);
    let mut out = Vec::new();
    for len in [1, block::BODY_MAX / 2, block::BODY_MAX / 2, block::BODY_MAX, 1] {
        outbound.push(at(5), &header(at(5), Kind::SESSIONS), &vec![0; len], &mut out);
    }
    for ticket in 1..5 {
        outbound.stored(at(6), ticket, ticket, &mut out);
    }
    assert_eq!(
        logged(&out),
        [(1, vec![1]), (2, vec![2]), (3, vec![3]), (4, vec![4]), (5, vec![5])]
    );
}

#[test]
fn a_message_is_published_until_it_is_stored() {
    let mut outbound = open(1 << 20);
    push(&mut outbound, at(0), &[change(1, seeder())]);
    push(&mut outbound, at(100), &[change(2, seeder())]);
    assert_eq!(logged(&ticks(&mut outbound, 100..1000)), []);
    let again = (1, vec![1]);
    assert_eq!(logged(&ticks(&mut outbound, 1000..3000)), [again.clone(), again.clone()]);
    assert_eq!((outbound.state(), outbound.counts().retries), (LogState::Held, 2));
    // Not while there is no connection, and at once when it is back.
    outbound.set_open(at(3000), false, &mut Vec::new());
    assert_eq!(ticks(&mut outbound, 3000..9000), []);
    let mut out = Vec::new();
    outbound.set_open(at(9000), true, &mut out);
    assert_eq!(logged(&out), [again]);
    assert_eq!(logged(&stored(&mut outbound, 9001, 1)), [(2, vec![2])]);
    assert_eq!(outbound.state(), LogState::Flowing);
}

#[test]
fn a_block_that_is_not_stored_in_time_goes_out_live_once() {
    let mut outbound = open(1 << 20);
    let out = push(&mut outbound, at(0), &[change(1, seeder())]);
    assert!(live(&out).is_empty());
    push(&mut outbound, at(400), &[change(2, seeder())]);
    assert!(live(&ticks(&mut outbound, 100..500)).is_empty());
    assert_eq!(live(&ticks(&mut outbound, 500..600)), [1]);
    assert_eq!(live(&ticks(&mut outbound, 600..9000)), [2]);
    // Walks can wait.
    outbound.push(at(9000), &header(at(9000), Kind::WALK), &[], &mut Vec::new());
    assert!(live(&ticks(&mut outbound, 9000..12_000)).is_empty());
    assert_eq!(outbound.counts().live_blocks, 2);
}

/// The words of peers, as the log has them in the end, and how far back a walk went.
#[derive(Default)]
struct CaughtUp {
    words: Vec<(PeerKey, Word)>,
    since_s: u32,
}

/// Stores and applies all that is published until nothing is left to be told.
fn catch_up(outbound: &mut Outbound, from_ms: u64) -> CaughtUp {
    let mut caught_up = CaughtUp::default();
    for ms in (from_ms..from_ms + 20_000).step_by(100) {
        let mut out = Vec::new();
        if outbound.applied(outbound.stored_sequence()) {
            assert!(outbound.settled());
        }
        outbound.tick(at(ms), &mut out);
        let mut next = 0;
        while let Some(output) = out.get(next).cloned() {
            next += 1;
            match output {
                Output::PublishLog { ticket, message } => {
                    let groups = Block::read(&message).unwrap().0.groups().unwrap();
                    for group in groups {
                        let mut add = |key, word| caught_up.words.push((PeerKey::V4(key), word));
                        group.v4.for_each(|peer| add(peer.key, peer.word));
                    }
                    outbound.stored(at(ms), ticket, 100 + ticket, &mut out);
                    if outbound.applied(100 + ticket) {
                        assert!(outbound.settled());
                    }
                }
                Output::Walk { since_s } => caught_up.since_s = since_s,
                Output::WalkMore { bytes } if bytes > 0 => outbound.walk_ended(),
                _ => {}
            }
        }
    }
    assert_eq!((outbound.state(), outbound.queue().0), (LogState::Flowing, 0));
    assert_eq!(outbound.ages_ms(at(from_ms + 20_000)), [0, 0]);
    caught_up
}

/// Returns the word of a peer that went at the beginning, in a block cut at that time.
fn gone(now_ms: u64) -> Word {
    Word(Word::gone().0 | (now_ms / 1000 / u64::from(AGE_UNIT_S)) as u16)
}

#[test]
fn blocks_that_waited_for_too_long_are_told_in_another_way() {
    let mut outbound = open(1 << 20);
    outbound.set_open(at(100), false, &mut Vec::new());
    push(&mut outbound, at(1000), &[change(1, seeder()), change(2, Word::gone())]);
    push(&mut outbound, at(2000), &[change(1, Word::gone()), change(3, Word::gone())]);
    assert_eq!(ticks(&mut outbound, 2000..50_000), []);
    assert_eq!((outbound.queue(), outbound.counts().dropped_blocks), ((0, 0), 2));
    // One of those that went is there again.
    push(&mut outbound, at(50_000), &[change(3, seeder())]);
    let mut out = Vec::new();
    outbound.set_open(at(60_000), true, &mut out);
    assert_eq!(logged(&out), [(1, vec![3])]);
    stored(&mut outbound, 60_001, 1);
    assert_eq!(outbound.state(), LogState::CatchingUp);
    let caught_up = catch_up(&mut outbound, 60_100);
    let peer = |peer| change(peer, seeder()).peer;
    assert_eq!(caught_up.words, [(peer(1), gone(60_000)), (peer(2), gone(60_000))]);
    // The walk visits all since the oldest block that was dropped.
    assert!((59..=62).contains(&caught_up.since_s), "{}", caught_up.since_s);
}

#[test]
fn what_there_is_no_room_for_is_told_in_another_way() {
    let mut outbound = open(4096);
    outbound.set_open(at(100), false, &mut Vec::new());
    push(&mut outbound, at(1000), &[change(1, Word::gone())]);
    for nth in 0..100 {
        push(&mut outbound, at(4000 + nth), &[change(100, seeder())]);
        assert!(outbound.queue().1 <= 4096);
    }
    outbound.set_open(at(5000), true, &mut Vec::new());
    let caught_up = catch_up(&mut outbound, 6000);
    assert!(caught_up.words.contains(&(change(1, seeder()).peer, gone(6000))));
    assert!(caught_up.since_s >= 5);
}

#[test]
fn removals_that_the_log_lost_are_told_again() {
    let mut outbound = open(1 << 20);
    push(&mut outbound, at(1000), &[change(1, Word::gone()), change(2, Word::gone())]);
    stored(&mut outbound, 1010, 1);
    // One of them is there again; another one goes later.
    push(&mut outbound, at(50_000), &[change(2, seeder()), change(3, Word::gone())]);
    stored(&mut outbound, 50_010, 2);
    outbound.lost_removals(at(100_000));
    let peer = |peer| change(peer, seeder()).peer;
    let words = catch_up(&mut outbound, 100_000).words;
    assert_eq!(words.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [peer(1), peer(3)]);
    assert!(words.iter().all(|(_, word)| word.is_gone()));
    assert_eq!(words[1].1.age(), 3);
    // They are forgotten after a lifetime.
    ticks(&mut outbound, 2_720_000..2_720_100);
    outbound.lost_removals(at(2_730_000));
    let words = catch_up(&mut outbound, 2_730_000).words;
    assert_eq!(words.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [peer(3)]);
}

#[test]
fn a_node_tells_nothing_until_it_has_read_up_to_a_mark() {
    let mut outbound = open(1 << 20);
    outbound.missed(-3000);
    assert_eq!(outbound.state(), LogState::CatchingUp);
    // An empty block, if nothing else is to be published.
    assert_eq!(logged(&ticks(&mut outbound, 1000..1100)), [(1, vec![1])]);
    assert!(!outbound.applied(500));
    stored(&mut outbound, 1100, 1);
    assert_eq!(ticks(&mut outbound, 1200..9000), []);
    assert!(!outbound.applied(100) && !outbound.settled());
    assert!(outbound.applied(101) && !outbound.applied(102));
    // Threads are applying it.
    assert_eq!(ticks(&mut outbound, 9000..10_000), []);
    assert!(outbound.settled());
    assert_eq!(ticks(&mut outbound, 10_000..10_100), [Output::Walk { since_s: 14 }]);
}

#[test]
fn a_stream_that_counts_anew_is_marked_anew() {
    let mut outbound = open(1 << 20);
    outbound.missed(0);
    ticks(&mut outbound, 1000..1100);
    stored(&mut outbound, 1100, 1);
    outbound.begin_stream();
    assert!(!outbound.applied(500));
    assert_eq!(logged(&ticks(&mut outbound, 1200..1300)), [(2, vec![2])]);
}

#[test]
fn a_walk_that_lost_blocks_begins_again() {
    let mut outbound = open(1 << 20);
    outbound.missed(-3000);
    ticks(&mut outbound, 900..1000);
    stored(&mut outbound, 900, 1);
    assert!(outbound.applied(101) && outbound.settled());
    assert_eq!(ticks(&mut outbound, 1000..1100), [Output::Walk { since_s: 5 }]);
    outbound.push(at(1100), &header(at(1100), Kind::WALK), &[], &mut Vec::new());
    // It is not stored: no more is asked for, and it is dropped.
    let is_more = |output: &Output| matches!(output, Output::WalkMore { .. });
    assert_eq!(ticks(&mut outbound, 1100..2100).iter().filter(|it| is_more(it)).count(), 10);
    assert!(!ticks(&mut outbound, 2100..31_000).iter().any(is_more));
    assert_eq!(logged(&ticks(&mut outbound, 31_100..32_000)), [(3, vec![3])]);
    assert_eq!(catch_up(&mut outbound, 32_000).since_s, 36);
}

#[test]
fn changes_that_a_store_lost_are_told_by_a_walk() {
    let mut outbound = open(1 << 20);
    outbound.missed(-3000);
    let caught_up = catch_up(&mut outbound, 1000);
    assert_eq!((caught_up.words.len(), caught_up.since_s), (0, 5));
    // A loss during the walk begins another one.
    outbound.missed(30_000);
    let [(ticket, _)] = logged(&ticks(&mut outbound, 31_000..31_100))[..] else { panic!() };
    stored(&mut outbound, 31_100, ticket);
    assert!(outbound.applied(100 + ticket) && outbound.settled());
    assert!(ticks(&mut outbound, 31_100..31_200).contains(&Output::Walk { since_s: 2 }));
    outbound.missed(31_000);
    outbound.walk_ended();
    assert_eq!(outbound.state(), LogState::CatchingUp);
    assert_eq!((catch_up(&mut outbound, 32_000).since_s, outbound.counts().walks), (2, 3));
}
