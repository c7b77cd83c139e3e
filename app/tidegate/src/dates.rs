//! Parses and prints dates. All are UTC.

use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use time::UtcDateTime;
use time::format_description::well_known::Rfc3339;

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns seconds since 1970 as a date in RFC 3339 form, and those after the year 9999 as their number.
pub(crate) fn utc(seconds: u64) -> String {
    let date = i64::try_from(seconds).ok().and_then(|it| UtcDateTime::from_unix_timestamp(it).ok());
    date.and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_else(|| seconds.to_string())
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
    UtcDateTime::parse(&whole, &Rfc3339).ok()?.unix_timestamp().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_dates() {
        for (seconds, date) in
            [(0, "1970-01-01T00:00:00Z"), (1_735_689_599, "2024-12-31T23:59:59Z")]
        {
            assert_eq!(utc(seconds), date);
            assert_eq!(on_date(date), Some(seconds), "{date}");
        }
        assert_eq!(utc(u64::MAX), u64::MAX.to_string());
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
        let bad = "soon -1 d 1y 2023-02-29 2030-13-01 2030-1-1 1969-12-31 2030-01-01T24:00:00Z \
                   2030-01-01T00:00:00 2030-01-01-01 é 99999999999999999999d";
        for bad in bad.split(' ').chain([""]) {
            assert!(bad.parse::<Expiry>().is_err(), "{bad}");
        }
    }
}
