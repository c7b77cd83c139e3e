use super::*;

#[test]
fn heartbeats_are_collected_before_the_log_is_read() {
    let mut bed = Bed::new(None);
    bed.input(Input::Connected);
    bed.look_up(9, 1, 2, UNIX_MS);
    assert_eq!(bed.wait(1100), []);
    let out = bed.wait(200);
    assert_eq!(starts(&out), [Start::First]);
    assert!(out.iter().any(|output| matches!(output, Output::PublishHeartbeat { .. })));
    assert!(!bed.node.is_warm());
    bed.logged(1, 2, &changes(2, 5, 1));
    assert!(!bed.node.is_warm());
    bed.logged(2, 2, &changes(2, 5, 2));
    assert!(bed.node.is_warm());
    assert_eq!(bed.node.position(), Position { stream: 9, sequence: 2 });
}

#[test]
fn a_node_is_warm_when_the_last_block_is_applied() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    let (block, mut out) = (changes(2, 5, 1), Vec::new());
    let logged = Input::Logged { sequence: 1, stored_ms: UNIX_MS, from: 2, message: &block };
    bed.node.handle(at(bed.ms), logged, &mut out);
    // A thread applies it.
    assert!(matches!(out[..], [Output::Apply { .. }, Output::Settle]), "{out:?}");
    assert!(!bed.node.is_warm());
    bed.input(Input::Settled);
    assert!(bed.node.is_warm());
}

#[test]
fn a_node_is_warm_in_time_whatever_happens() {
    let mut bed = Bed::new(None);
    bed.wait(29_000);
    assert!(!bed.node.is_warm());
    bed.wait(1200);
    assert!(bed.node.is_warm());
    // An empty log, and one without anything new, need no message.
    for (last, restored_ms) in [(0, None), (50, Some(UNIX_MS))] {
        let mut bed = Bed::new(restored_ms);
        bed.connect(last, UNIX_MS - 600_000);
        assert!(bed.node.is_warm());
    }
}

#[test]
fn reading_continues_where_it_ended() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    bed.logged(1, 2, &changes(2, 5, 1));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(4, UNIX_MS)), [Start::Sequence(1)]);
    // The last one again, which is the same; and perhaps what was under way before.
    assert_eq!(bed.logged(1, 2, &changes(2, 5, 1)), []);
    assert_eq!(bed.logged(1, 2, &changes(2, 5, 1)), []);
    assert_eq!(bed.snapshot().dropped[DropReason::Repeated as usize], 2);
    // A server that was cut off is behind. What it sends then was applied before.
    bed.logged(4, 2, &changes(2, 5, 4));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(3, UNIX_MS - 9)), [Start::Sequence(4)]);
    assert_eq!(bed.logged(2, 2, &changes(2, 5, 2)), []);
    let shorter = Input::Log { stream: 9, first: 1, last: 3, last_ms: UNIX_MS - 9 };
    for _ in 0..5 {
        bed.wait(5000);
        bed.input(shorter);
        assert_eq!(starts(&bed.wait(200)), [Start::Sequence(4)]);
    }
    // So it was.
    bed.logged(5, 2, &changes(2, 5, 5));
    bed.wait(5000);
    bed.input(shorter);
    assert_eq!(starts(&bed.wait(200)), [Start::Sequence(5)]);
    // A log that has lost its end says so for longer, and is read from there on.
    bed.wait(30_000);
    bed.input(shorter);
    assert_eq!(starts(&bed.wait(200)), [Start::Time(UNIX_MS + 1)]);
    assert_eq!(bed.node.position().sequence, 3);
    // Also if so much has followed that its sequence is there again.
    bed.logged(4, 2, &changes(2, 5, 5));
    bed.input(Input::Disconnected);
    assert_eq!(starts(&bed.connect(9, UNIX_MS + 70)), [Start::Sequence(4)]);
    let block = changes(3, 8, 1);
    let other = Input::Logged { sequence: 4, stored_ms: UNIX_MS + 50, from: 3, message: &block };
    assert_eq!(starts(&bed.input(other)), [Start::Time(UNIX_MS + 1)]);
    assert!(is_applied(&bed.input(other)));
}

/// Returns how many seconds a walk goes back, if one begins.
fn walk_since_s(out: &[Output]) -> Option<u32> {
    out.iter().find_map(|output| match output {
        Output::Walk { since_s } => Some(*since_s),
        _ => None,
    })
}

#[test]
fn a_new_log_is_filled_by_the_first_node() {
    let mut bed = Bed::new(None);
    bed.connect(1, UNIX_MS);
    bed.logged(1, 2, &changes(2, 5, 1));
    bed.look_up(10, 1, 0, 0);
    let out = bed.wait_storing(300);
    assert_eq!((starts(&out), walk_since_s(&out)), (vec![Start::First], Some(2701)));
}

#[test]
fn a_restored_node_reads_little_and_tells_what_it_did_last() {
    let mut bed = Bed::new(Some(UNIX_MS - 10_000));
    let out = bed.connect(2, UNIX_MS);
    assert_eq!(starts(&out), [Start::Time(UNIX_MS - 130_000)]);
    // Its own block before, and one of another node.
    bed.logged(1, 1, &block(Kind::CHANGES, 1, 400, 8, UNIX_MS - 20_000));
    bed.logged(2, 2, &changes(2, 5, 1));
    let out = bed.wait_storing(300);
    let since_s = walk_since_s(&out);
    assert!(since_s.is_some_and(|it| (140..145).contains(&it)), "{since_s:?}");
}
