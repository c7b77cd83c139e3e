use super::*;

#[test]
fn messages_that_are_stored_late_are_dropped() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    for (late_ms, is_dropped) in [(44_900, false), (45_000, true)] {
        let message = block(Kind::CHANGES, 2, 5, 1, UNIX_MS - late_ms);
        assert_eq!(is_applied(&bed.logged(late_ms, 2, &message)), !is_dropped);
        let live = Input::Live {
            from: 2,
            message: &block(Kind::CHANGES, 2, 6, 1, UNIX_MS + bed.ms - late_ms),
        };
        assert_eq!(is_applied(&bed.input(live)), !is_dropped);
    }
    assert_eq!(bed.snapshot().dropped[DropReason::Old as usize], 2);
}

/// Returns the time of the cut of the first block that is published to the log.
fn published_cut_ms(out: &[Output]) -> Option<u64> {
    out.iter().find_map(|output| match output {
        Output::PublishLog { message, .. } => Some(Block::read(message).unwrap().0.header.cut_ms),
        _ => None,
    })
}

#[test]
fn blocks_are_by_the_streams_clock_and_applied_by_the_nodes_own() {
    for (ahead_ms, correction_ms) in [(0, 0), (1500, 0), (3_600_000, 3_600_000), (-40_000, -32_000)]
    {
        let mut bed = Bed::new(None);
        bed.ahead_ms = ahead_ms;
        bed.connect(0, 0);
        assert_eq!(bed.snapshot().clock_ahead_ms, ahead_ms);
        let own = block(Kind::CHANGES, 0, 0, 0, bed.now().unix_ms);
        let cut_ms = published_cut_ms(&bed.input(Input::Block(&own))).unwrap();
        assert_eq!(cut_ms, bed.now().unix_ms.saturating_add_signed(-correction_ms));
        let out = bed.logged(1, 2, &changes(2, 5, 1));
        let [Output::Apply { shift_ms, .. }] = out[..] else { panic!("{out:?}") };
        assert_eq!(shift_ms, correction_ms);
    }
}

#[test]
fn a_wrong_clock_is_an_event_until_it_is_right() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let warnings = |out: &[Output]| {
        let is = |output: &&Output| matches!(output, Output::Report { is_warning: true, .. });
        out.iter().filter(is).count()
    };
    assert_eq!(warnings(&bed.compare_clocks()), 0);
    bed.ahead_ms = 2500;
    assert_eq!((warnings(&bed.compare_clocks()), warnings(&bed.compare_clocks())), (1, 0));
    bed.ahead_ms = 0;
    let out = bed.compare_clocks();
    assert!(matches!(out[..], [Output::Report { is_warning: false, .. }]), "{out:?}");
}

#[test]
fn a_machine_that_stood_still_contradicts_nothing_until_it_has_read_the_log() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    bed.input(Input::Block(&changes(0, 0, 0)));
    // Its steady clock stood, too.
    let server_ms = UNIX_MS + bed.ms + 90_000;
    let out = bed.input(Input::Clock { asked_ms: bed.ms, server_ms });
    assert!(out.contains(&Output::Behind(true)), "{out:?}");
    assert_eq!(bed.snapshot().dropped_blocks, 1);
    bed.input(Input::Disconnected);
    bed.input(Input::Connected);
    bed.input(Input::Log { stream: 9, first: 1, last: 1, last_ms: server_ms });
    assert!(!bed.wait(2000).iter().any(|it| matches!(it, Output::Walk { .. })));
    let out = bed.logged(1, 2, &changes(2, 5, 1));
    assert!(!out.contains(&Output::Behind(false)), "{out:?}");
    // Nor until it has read a message of its own, before which all is that others have told.
    let out = bed.wait_storing(1500);
    assert!(out.contains(&Output::Behind(false)), "{out:?}");
    let is_walk = |it: &Output| matches!(it, Output::Walk { since_s: 92..96 });
    assert!(out.iter().any(is_walk), "{out:?}");
}

#[test]
fn lag_is_the_age_of_what_is_missing() {
    let mut bed = Bed::new(None);
    bed.connect(0, 0);
    let stored = |sequence| Position { stream: 9, sequence };
    let lag_ms = |bed: &Bed| bed.snapshot().nodes[0].lag_ms;
    bed.hear(2, &Heartbeat { boot: 5, stored: stored(0), ..Heartbeat::default() });
    for second in 0..5 {
        bed.wait(1000);
        bed.hear(2, &Heartbeat { boot: 5, stored: stored(1 + second), ..Heartbeat::default() });
    }
    bed.wait(100);
    assert_eq!(lag_ms(&bed), 5100 - 1000);
    bed.logged(5, 2, &changes(2, 5, 5));
    bed.wait(100);
    assert_eq!(lag_ms(&bed), 0);
    // Blocks that the other node could not store are missing, too.
    bed.hear(
        2,
        &Heartbeat { boot: 5, stored: stored(5), unstored_ms: 8000, ..Heartbeat::default() },
    );
    bed.wait(9000);
    assert!(lag_ms(&bed) >= 8000);
}

#[test]
fn a_node_with_a_wrong_clock_reads_all_of_the_log() {
    // It was ahead when it wrote its journal.
    let mut bed = Bed::new(Some(UNIX_MS + 3_600_000));
    assert_eq!(starts(&bed.connect(50, UNIX_MS)), [Start::First]);
    // It is ahead now.
    for (ahead_ms, expected) in [(1000, Start::Time(UNIX_MS - 120_000)), (10_000, Start::First)] {
        let mut bed = Bed::new(Some(UNIX_MS));
        bed.ahead_ms = ahead_ms;
        assert_eq!(starts(&bed.connect(50, UNIX_MS)), [expected]);
        let message = changes(2, 5, 1);
        bed.input(Input::Logged { sequence: 50, stored_ms: UNIX_MS, from: 2, message: &message });
        let is_walk = |output: &Output| matches!(output, Output::Walk { .. });
        assert_eq!(bed.wait_storing(300).iter().any(is_walk), expected != Start::First);
    }
}
