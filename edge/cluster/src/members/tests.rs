use super::*;
use crate::events::Events;

/// Both clocks at this many milliseconds.
fn at(ms: u64) -> Time {
    Time { unix_ms: ms, steady_ms: ms }
}

/// A node that cuts no blocks, and one whose block came before its next heartbeat, are not behind.
#[test]
fn what_was_applied_before_it_was_announced_is_no_lag() {
    let (mut members, mut events, mut out) = (Members::new(1, 1), Events::default(), Vec::new());
    let mut hear = |members: &mut Members, now: u64, number| {
        let heartbeat = Heartbeat { node: 2, boot: 7, at_ms: now, number, ..Heartbeat::default() };
        members
            .heard(
                Came { now: at(now), is_late: false },
                2,
                &heartbeat.write(),
                &mut events,
                &mut out,
            )
            .unwrap();
    };
    let live_lag = |members: &Members, now| {
        members.snapshot(at(now), Position::default(), 0, 0)[0].live_lag_ms
    };
    hear(&mut members, 1000, 4);
    hear(&mut members, 2000, 4);
    members.applied(2, 7, 5);
    for second in 3..9 {
        hear(&mut members, second * 1000, 5);
    }
    assert_eq!(live_lag(&members, 9000), 0);
    // The next one is missing.
    hear(&mut members, 9000, 6);
    hear(&mut members, 12_000, 6);
    assert_eq!(live_lag(&members, 12_000), 3000);
    members.applied(2, 7, 6);
    assert_eq!(live_lag(&members, 12_000), 0);
}
