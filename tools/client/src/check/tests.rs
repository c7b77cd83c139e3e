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
        .0
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
        let (found, text) = said(now);
        assert!(found == verdict && text.contains(part), "{now}: {found}: {text}");
    }
}

#[test]
fn report_has_its_worst_verdict() {
    let report = |verdicts: &[Verdict]| {
        let item = |verdict: &Verdict| CheckItem {
            name: "x",
            address: None,
            verdict: *verdict,
            text: String::new(),
        };
        let items = verdicts.iter().map(item).collect();
        CheckReport { url: String::new(), items, took: Duration::ZERO }.verdict()
    };
    use Verdict::{Failed, NotApplicable, Ok, Warning};
    assert_eq!(report(&[]), NotApplicable);
    assert_eq!(report(&[NotApplicable, Ok]), Ok);
    assert_eq!(report(&[Ok, Warning, NotApplicable]), Warning);
    assert_eq!(report(&[Failed, Warning, Ok]), Failed);
}
