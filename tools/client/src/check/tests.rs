//! Verdicts on figures. What comes of whole visits is tested by the binary.

use super::*;
use crate::Announced;

#[test]
fn intervals_are_sane_or_not() {
    let verdict = |interval_s, min_interval_s| {
        steps::interval(&Announced { interval_s, min_interval_s, ..Announced::default() }).0
    };
    for (interval, verdict_due) in [
        (None, Verdict::Failed),
        (Some(0), Verdict::Failed),
        (Some(1), Verdict::Warning),
        (Some(59), Verdict::Warning),
        (Some(60), Verdict::Ok),
        (Some(7200), Verdict::Ok),
        (Some(7201), Verdict::Warning),
        (Some(u64::MAX), Verdict::Warning),
    ] {
        assert_eq!(verdict(interval, None), verdict_due, "{interval:?}");
    }
    assert_eq!(verdict(Some(120), Some(120)), Verdict::Ok);
    assert_eq!(verdict(Some(120), Some(121)), Verdict::Warning);
    assert_eq!(verdict(Some(0), Some(1)), Verdict::Failed);
}

#[test]
fn certificates_are_good_from_their_first_second_to_their_last() {
    const DAY: i64 = 24 * 3600;
    let said = |now: i64| certificate::expiry([10 * DAY, 100 * DAY], now, 14);
    for (now, verdict, part) in [
        (10 * DAY - 1, Verdict::Failed, "not good before 0 days from now"),
        (7 * DAY, Verdict::Failed, "not good before 3 days from now"),
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
fn the_worst_verdict_counts() {
    let report = |verdicts: &[Verdict]| {
        let item = |verdict: &Verdict| Item {
            name: "x",
            address: None,
            verdict: *verdict,
            text: String::new(),
        };
        let items = verdicts.iter().map(item).collect();
        Report { url: String::new(), items, took: Duration::ZERO }.verdict()
    };
    use Verdict::{Failed, NotApplicable, Ok, Warning};
    assert_eq!(report(&[]), NotApplicable);
    assert_eq!(report(&[NotApplicable, Ok]), Ok);
    assert_eq!(report(&[Ok, Warning, NotApplicable]), Warning);
    assert_eq!(report(&[Failed, Warning, Ok]), Failed);
}
