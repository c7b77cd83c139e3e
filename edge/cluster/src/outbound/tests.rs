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

/// An open way with room for `bytes`.
fn open(bytes: usize) -> Outbound {
    let mut outbound = Outbound::new(3, 99, bytes, 2700);
    outbound.set_open(at(0), true, &mut Vec::new());
    outbound.allow_walks();
    outbound
}

/// Pushes a block of changes, and returns what comes out.
fn push(outbound: &mut Outbound, now: Time, changes: &[Change]) -> Vec<Output> {
    let (mut body, mut out) = (Vec::new(), Vec::new());
    encode_changes(changes, &[], &mut body);
    let block = Block { header: changes_at(now.unix_ms), body: &body };
    outbound.push(now, &block, true, &mut out);
    out
}

/// Returns tickets and numbers of the blocks that go to the log.
fn logged(out: &[Output]) -> Vec<(u64, u64)> {
    let number = |block: &[u8]| Block::read(block).unwrap().0.header.number;
    let logged = out.iter().filter_map(|output| match output {
        Output::PublishLog { ticket, block } => Some((*ticket, number(block))),
        _ => None,
    });
    logged.collect()
}

fn ticks(outbound: &mut Outbound, times: std::ops::Range<u64>) -> Vec<Output> {
    let mut out = Vec::new();
    times.step_by(100).for_each(|ms| outbound.tick(at(ms), &mut out));
    out
}

fn stored(outbound: &mut Outbound, ms: u64, ticket: u64, sequence: u64) -> Vec<Output> {
    let mut out = Vec::new();
    outbound.stored(at(ms), ticket, sequence, &mut out);
    out
}

/// Returns a way whose first block is stored, so that others are in flight together.
fn flowing(bytes: usize) -> Outbound {
    let mut outbound = open(bytes);
    assert_eq!(logged(&push(&mut outbound, at(0), &[change(0, seeder())])), [(1, 1)]);
    stored(&mut outbound, 1, 1, 10);
    assert_eq!(outbound.state(), OutboundState::Flowing);
    outbound
}

fn push_three(outbound: &mut Outbound) {
    for number in 2..5 {
        let out = push(outbound, at(10), &[change(number, seeder())]);
        assert_eq!(logged(&out), [(number.into(), number.into())]);
        assert!(matches!(out[0], Output::PublishLive { .. }));
    }
}

#[test]
fn blocks_have_the_node_and_its_numbers() {
    let mut outbound = open(1 << 20);
    let out = push(&mut outbound, at(5), &[change(1, seeder())]);
    let Output::PublishLive { block } = &out[0] else { panic!("{out:?}") };
    let header = Block::read(block).unwrap().0.header;
    assert_eq!((header.node, header.boot, header.number), (3, 99, 1));
    assert_eq!(header.cut_ms, UNIX_MS + 5);
}

#[test]
fn acknowledgements_may_overtake_each_other() {
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    stored(&mut outbound, 20, 4, 23);
    stored(&mut outbound, 21, 3, 22);
    assert_eq!(outbound.queue().0, 3);
    stored(&mut outbound, 22, 2, 21);
    assert_eq!(outbound.queue(), (0, 0));
    assert_eq!((outbound.counts().go_backs, outbound.stored_sequence()), (0, 23));
}

#[test]
fn a_hole_and_all_that_follows_is_published_again() {
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    stored(&mut outbound, 20, 3, 22);
    stored(&mut outbound, 20, 4, 23);
    // First the oldest one alone.
    assert_eq!(logged(&ticks(&mut outbound, 100..400)), [(5, 2)]);
    assert_eq!(outbound.state(), OutboundState::Held);
    assert_eq!(logged(&stored(&mut outbound, 400, 5, 30)), [(6, 3), (7, 4)]);
    // Late acknowledgements of former copies say nothing.
    stored(&mut outbound, 401, 2, 25);
    stored(&mut outbound, 402, 6, 31);
    stored(&mut outbound, 403, 7, 32);
    assert_eq!((outbound.queue().0, outbound.counts().go_backs), (0, 1));
}

#[test]
fn blocks_stored_in_another_order_are_published_again() {
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    stored(&mut outbound, 20, 2, 24);
    let out = stored(&mut outbound, 20, 3, 23);
    assert_eq!(logged(&out), [(5, 3)]);
    assert_eq!(logged(&stored(&mut outbound, 21, 5, 26)), [(6, 4)]);
}

#[test]
fn a_refusal_or_silence_goes_back() {
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    let mut out = Vec::new();
    outbound.not_stored(at(20), 4, &mut out);
    outbound.not_stored(at(20), 3, &mut out);
    assert_eq!(logged(&out), [(5, 2)]);
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    assert_eq!(logged(&ticks(&mut outbound, 100..2000)), []);
    // The probe is repeated, each time later, up to once a second.
    let probes = logged(&ticks(&mut outbound, 2000..5500));
    assert_eq!(probes, [(5, 2), (6, 2), (7, 2), (8, 2), (9, 2)]);
    // All its copies come before what follows.
    assert_eq!(logged(&stored(&mut outbound, 6000, 7, 40)), []);
    assert_eq!(logged(&stored(&mut outbound, 6001, 9, 42)), [(10, 3), (11, 4)]);
    // The last copy may be lost.
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    ticks(&mut outbound, 100..4000);
    stored(&mut outbound, 4000, 5, 40);
    assert_eq!(logged(&ticks(&mut outbound, 4000..7000)), [(9, 3), (10, 4)]);
}

#[test]
fn nothing_is_published_while_it_is_closed() {
    let mut outbound = flowing(1 << 20);
    push_three(&mut outbound);
    outbound.set_open(at(20), false, &mut Vec::new());
    assert_eq!(push(&mut outbound, at(30), &[change(9, seeder())]), []);
    assert_eq!(ticks(&mut outbound, 100..9000), []);
    assert_eq!(outbound.state(), OutboundState::Held);
    let mut out = Vec::new();
    outbound.set_open(at(9000), true, &mut out);
    assert_eq!(logged(&out), [(5, 2)]);
    assert_eq!(logged(&stored(&mut outbound, 9001, 5, 50)), [(6, 3), (7, 4), (8, 5)]);
}

#[test]
fn little_is_in_flight() {
    let mut outbound = flowing(64 << 20);
    for nth in 0..1000 {
        push(&mut outbound, at(10), &[change((nth % 200) as u8, seeder())]);
    }
    assert_eq!((outbound.in_flight, outbound.queue().0), (IN_FLIGHT_BLOCKS, 1000));
    assert_eq!(logged(&stored(&mut outbound, 11, 2, 11)).len(), 1);
}

/// Drives a way that has spilled until it flows again. Returns what is applied in order: changes, and
/// bytes of walks.
fn catch_up(outbound: &mut Outbound, from_ms: u64) -> (Vec<Change>, u32) {
    let (mut changes, mut since_s, mut sequence) = (Vec::new(), 0, 1000);
    for ms in (from_ms..from_ms + 20_000).step_by(100) {
        let mut out = Vec::new();
        outbound.applied(at(ms), sequence);
        outbound.tick(at(ms), &mut out);
        let mut next = 0;
        while let Some(output) = out.get(next).cloned() {
            next += 1;
            match output {
                Output::PublishLog { ticket, block } => {
                    sequence += 1;
                    kept::each_change(&block, |_, change| changes.push(change));
                    outbound.stored(at(ms), ticket, sequence, &mut out);
                }
                Output::Walk { since_s: seconds } => since_s = seconds,
                Output::WalkMore { bytes } if bytes > 0 => outbound.walk_ended(),
                _ => {}
            }
        }
    }
    assert_eq!((outbound.state(), outbound.queue().0), (OutboundState::Flowing, 0));
    assert_eq!(outbound.ages_ms(at(from_ms + 20_000)), [0, 0]);
    (changes, since_s)
}

#[test]
fn what_there_is_no_room_for_is_told_by_a_walk() {
    let mut outbound = flowing(4096);
    outbound.set_open(at(100), false, &mut Vec::new());
    push(&mut outbound, at(1000), &[change(1, Word::completed(Role::Seeder))]);
    push(&mut outbound, at(2000), &[change(1, Word::gone()), change(2, Word::gone())]);
    push(&mut outbound, at(3000), &[change(3, Word::gone())]);
    for nth in 0..100 {
        push(&mut outbound, at(4000 + nth), &[change(100, seeder())]);
        assert!(outbound.queue().1 <= 4096);
    }
    assert_eq!((outbound.state(), outbound.counts().spills), (OutboundState::Spilled, 1));
    // One of those that went is there again.
    push(&mut outbound, at(40_000), &[change(3, seeder())]);
    outbound.set_open(at(50_000), true, &mut Vec::new());
    let (changes, since_s) = catch_up(&mut outbound, 50_000);
    // The walk visits all since the oldest block that was dropped.
    assert!((49..=60).contains(&since_s), "{since_s}");
    let words: Vec<_> = changes.iter().map(|it| (it.peer, it.word)).collect();
    let gone = |age| Word(Word::gone().0 | age);
    let age = (50_000 / 1000 / AGE_UNIT_S) as u16;
    let peer = |peer| change(peer, seeder()).peer;
    let expected =
        [(peer(1), Word::completed(Role::Seeder)), (peer(1), gone(age)), (peer(2), gone(age))];
    assert_eq!(words, expected);
}

#[test]
fn what_comes_late_to_the_log_is_told_again_once_the_log_is_applied() {
    let mut outbound = flowing(1 << 20);
    outbound.set_open(at(100), false, &mut Vec::new());
    push(&mut outbound, at(1000), &[change(1, seeder())]);
    push(&mut outbound, at(60_000), &[change(2, seeder())]);
    let mut out = Vec::new();
    outbound.set_open(at(80_000), true, &mut out);
    let [(first, 2)] = logged(&out)[..] else { panic!("expected the oldest block, found {out:?}") };
    let [(second, 3)] = logged(&stored(&mut outbound, 80_100, first, 20))[..] else { panic!() };
    stored(&mut outbound, 80_200, second, 21);
    // Another node may have told meanwhile that a peer has gone, which is earlier in the log.
    outbound.applied(at(80_300), 19);
    assert_eq!(ticks(&mut outbound, 80_300..90_000), []);
    assert_eq!(outbound.state(), OutboundState::CatchingUp);
    outbound.applied(at(90_000), 20);
    let out = ticks(&mut outbound, 90_000..91_100);
    assert_eq!(out, [Output::Walk { since_s: 91 }]);
}

#[test]
fn changes_that_a_store_lost_are_told_by_a_walk() {
    let mut outbound = flowing(1 << 20);
    outbound.missed(-3000);
    assert_eq!(outbound.state(), OutboundState::CatchingUp);
    let (changes, since_s) = catch_up(&mut outbound, 1000);
    assert_eq!((changes.len(), since_s), (0, 5));
    // A loss during the walk begins another one.
    outbound.missed(30_000);
    let out = ticks(&mut outbound, 31_000..31_200);
    assert!(matches!(out[..], [Output::Walk { .. }, Output::WalkMore { .. }]), "{out:?}");
    outbound.missed(31_000);
    outbound.walk_ended();
    assert_eq!(outbound.state(), OutboundState::CatchingUp);
    let (_, since_s) = catch_up(&mut outbound, 32_000);
    assert_eq!((since_s, outbound.counts().walks), (2, 3));
}

#[test]
fn what_the_log_does_not_store_goes_out_live_twice_more() {
    let lives = |out: &[Output]| {
        out.iter().filter(|output| matches!(output, Output::PublishLive { .. })).count()
    };
    let mut outbound = open(1 << 20);
    assert_eq!(lives(&push(&mut outbound, at(0), &[change(1, seeder())])), 1);
    assert_eq!(lives(&push(&mut outbound, at(1000), &[change(2, seeder())])), 1);
    assert_eq!(lives(&ticks(&mut outbound, 1000..2999)), 0);
    assert_eq!(lives(&ticks(&mut outbound, 3000..3900)), 1);
    // Not while there is no connection.
    outbound.set_open(at(3900), false, &mut Vec::new());
    assert_eq!(lives(&ticks(&mut outbound, 4000..9000)), 0);
    outbound.set_open(at(9000), true, &mut Vec::new());
    assert_eq!(lives(&ticks(&mut outbound, 9000..60_000)), 2);
    assert_eq!(lives(&push(&mut outbound, at(60_000), &[change(3, seeder())])), 1);
    assert_eq!(lives(&ticks(&mut outbound, 60_000..65_900)), 1);
    assert_eq!(lives(&ticks(&mut outbound, 66_000..90_000)), 1);
}
