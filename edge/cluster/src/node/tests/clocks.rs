use super::*;

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
