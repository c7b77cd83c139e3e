//! Parses and prints dates. All are UTC.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the present time in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns seconds since 1970 as a date in RFC 3339 form. Internally, years begin in March, so that the
/// leap day comes last.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// When something expires: seconds since 1970, later than now, or never.
///
/// Written as `never`, as a time from now (`90s`, `45m`, `12h`, `30d`, `2w`), as a date (`2030-12-31`, when
/// that day begins, or `2030-12-31T12:00:00Z`), or as seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry(pub(crate) Option<u64>);

impl FromStr for Expiry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self(None));
        }
        let at = text.parse().ok().or_else(|| from_now(text)).or_else(|| on_date(text));
        let at = at.ok_or(
            "expected a duration (12h, 30d, 2w), a date (2030-12-31, 2030-12-31T12:00:00Z), seconds since \
             1970, or never",
        )?;
        if at <= now() {
            return Err(in_the_past(text, at));
        }
        Ok(Self(Some(at)))
    }
}

/// Returns the message for an expiry that has passed. A bare number was probably meant as days.
fn in_the_past(text: &str, at: u64) -> String {
    let date = utc(at);
    let day = date.split('T').next().unwrap_or(&date);
    match text.parse::<u64>() {
        Ok(_) => format!("{text} is {day}: did you mean {text}d?"),
        Err(_) => format!("expected a time in the future, found {date}"),
    }
}

fn from_now(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let unit_s = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return None,
    };
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    now().checked_add(count.checked_mul(unit_s)?)
}

fn on_date(text: &str) -> Option<u64> {
    let whole = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
    let (date, time) = whole.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The year begins in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    // A date that does not exist, such as February 30, has become another one.
    Some(seconds).filter(|seconds| utc(*seconds) == whole)
}

fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let mut numbers = text.split(between).map(|number| number.parse::<u32>().ok().map(u64::from));
    let all = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATES: [(u64, &str); 7] = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399, "2000-02-28T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_709_164_800, "2024-02-29T00:00:00Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ];

    #[test]
    fn converts_dates() {
        for (seconds, date) in DATES {
            assert_eq!(utc(seconds), date);
            assert_eq!(on_date(date), Some(seconds), "{date}");
        }
        assert_eq!("2100-02-28".parse(), Ok(Expiry(Some(4_107_456_000))));
    }

    #[test]
    fn parses_expiries() {
        assert_eq!("never".parse(), Ok(Expiry(None)));
        assert_eq!("4107542400".parse(), Ok(Expiry(Some(4_107_542_400))));
        for (text, after_s) in [("3m", 180), ("2h", 7200), ("1d", 86_400), ("1w", 604_800)] {
            let before = now();
            let Ok(Expiry(Some(at))) = text.parse() else { panic!("{text}") };
            assert!((before + after_s..=now() + after_s).contains(&at), "{text}: {at}");
        }
        for bad in [
            "",
            "soon",
            "-1",
            "d",
            "1y",
            "2023-02-29",
            "2030-13-01",
            "2030-00-01",
            "2030-1-1",
            "1969-12-31",
            "2030-01-01T24:00:00Z",
            "2030-01-01T00:60:00Z",
            "2030-01-01T00:00:00",
            "2030-01-01-01",
            "é",
            "99999999999999999999d",
        ] {
            assert!(bad.parse::<Expiry>().is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_expiries_in_the_past() {
        let refusal = |text: &str| text.parse::<Expiry>().unwrap_err();
        assert_eq!(refusal("30"), "30 is 1970-01-01: did you mean 30d?");
        let text = "expected a time in the future, found 2024-02-29T00:00:00Z";
        assert_eq!(refusal("2024-02-29"), text);
        assert!(refusal("0s").starts_with("expected a time in the future"));
    }
}
