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
    outbound.push(now, &header_of(now, Kind::CHANGES), &body, &mut out);
    out
}

fn header_of(now: Time, kind: Kind) -> Header {
    Header { kind, has_ids: false, node: 0, boot: 0, number: 0, cut_ms: now.unix_ms }
}

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
fn blocks_that_wait_follow_as_one_message_of_limited_length() {
    let mut outbound = open(64 << 20);
    let mut out = push(&mut outbound, at(5), &[change(1, seeder())]);
    let Output::PublishLog { ticket: 1, message } = &out[0] else { panic!("{out:?}") };
    let header = headers(message)[0];
    assert_eq!((header.node, header.boot, header.number), (3, 99, 1));
    assert_eq!(header.cut_ms, UNIX_MS + 5);
    for len in [1, block::BODY_MAX / 2, block::BODY_MAX / 3, block::BODY_MAX, 1] {
        outbound.push(at(5), &header_of(at(5), Kind::SESSIONS), &vec![0; len], &mut out);
    }
    for ticket in 1..4 {
        outbound.stored(at(6), ticket, ticket, &mut out);
    }
    // Another acknowledgement of the first one says nothing.
    outbound.stored(at(6), 1, 1, &mut out);
    let expected = [(1, vec![1]), (2, vec![2, 3, 4]), (3, vec![5]), (4, vec![6])];
    assert_eq!(logged(&out), expected);
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
    outbound.push(at(9000), &header_of(at(9000), Kind::WALK), &[], &mut Vec::new());
    assert!(live(&ticks(&mut outbound, 9000..12_000)).is_empty());
    assert_eq!(outbound.counts().live_blocks, 2);
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
    outbound.push(at(1100), &header_of(at(1100), Kind::WALK), &[], &mut Vec::new());
    // It is not stored: no more is asked for, and it is dropped.
    let is_more = |output: &Output| matches!(output, Output::WalkMore { .. });
    assert_eq!(ticks(&mut outbound, 1100..2100).iter().filter(|it| is_more(it)).count(), 10);
    assert!(!ticks(&mut outbound, 2100..31_000).iter().any(is_more));
    assert_eq!(logged(&ticks(&mut outbound, 31_100..32_000)), [(3, vec![3])]);
    stored(&mut outbound, 32_000, 3);
    assert!(outbound.applied(103) && outbound.settled());
    assert_eq!(ticks(&mut outbound, 32_000..32_100), [Output::Walk { since_s: 36 }]);
}
