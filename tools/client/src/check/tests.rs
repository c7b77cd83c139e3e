//! Verdicts on numbers. The binary's tests run whole checks.

use super::*;
use crate::AnnounceResponse;

#[test]
fn judges_intervals() {
    let verdict = |interval_s, min_interval_s| {
        steps::interval(&AnnounceResponse {
            interval_s,
            min_interval_s,
            ..AnnounceResponse::default()
        })
        .verdict
    };
    for (interval, expected) in [
        (None, Verdict::Failed),
        (Some(0), Verdict::Failed),
        (Some(1), Verdict::Warning),
        (Some(59), Verdict::Warning),
        (Some(60), Verdict::Ok),
        (Some(7200), Verdict::Ok),
        (Some(7201), Verdict::Warning),
        (Some(u64::MAX), Verdict::Warning),
    ] {
        assert_eq!(verdict(interval, None), expected, "{interval:?}");
    }
    assert_eq!(verdict(Some(120), Some(120)), Verdict::Ok);
    assert_eq!(verdict(Some(120), Some(121)), Verdict::Warning);
    assert_eq!(verdict(Some(0), Some(1)), Verdict::Failed);
}

#[test]
fn validity_includes_its_first_and_last_second() {
    const DAY: i64 = 24 * 3600;
    let said = |now: i64| certificate::expiry([10 * DAY, 100 * DAY], now, 14);
    for (now, verdict, part) in [
        (10 * DAY - 1, Verdict::Failed, "not valid for another 0 days"),
        (7 * DAY, Verdict::Failed, "not valid for another 3 days"),
        (10 * DAY, Verdict::Ok, "for 90 more days"),
        (86 * DAY, Verdict::Ok, "for 14 more days"),
        (86 * DAY + 1, Verdict::Warning, "for 13 more days"),
        (100 * DAY, Verdict::Warning, "for 0 more days"),
        (100 * DAY + 1, Verdict::Failed, "expired 0 days ago"),
        (103 * DAY, Verdict::Failed, "expired 3 days ago"),
        (i64::MAX, Verdict::Failed, "expired"),
    ] {
        let Finding { verdict: found, text } = said(now);
        assert!(found == verdict && text.contains(part), "{now}: {found}: {text}");
    }
}
