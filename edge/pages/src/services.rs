//! Traffic and uptime of services, for the public page and its JSON.

use std::fmt::Write;

use serde_json::{Value, json};
use tracker::counters::{DayUptime, ServiceSummary, ServicesReport};

/// A report in the forms in which it is served.
#[derive(Debug, Default)]
pub(crate) struct ServiceTexts {
    /// A part of the page; empty if there is nothing to show.
    pub(crate) html: String,
    /// Members of the JSON: `since` and `services`.
    pub(crate) json: Value,
}

/// A day is shown as served from this share on, and as down below the other.
const SERVED_SHARE: f64 = 0.999;
const DOWN_SHARE: f64 = 0.5;

/// The looks of a day, which are classes of the style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Served,
    Partly,
    Down,
    Unknown,
}

impl ServiceTexts {
    pub(crate) fn new(report: &ServicesReport) -> Self {
        Self { html: html(report), json: json(report) }
    }
}

impl Look {
    /// The looks that are drawn, with their classes. Unknown days are the background.
    const DRAWN: [(Self, &str); 3] =
        [(Self::Served, "up"), (Self::Partly, "part"), (Self::Down, "down")];

    fn of(day: DayUptime) -> Self {
        match share([day]) {
            None => Self::Unknown,
            Some(share) if share >= SERVED_SHARE => Self::Served,
            Some(share) if share >= DOWN_SHARE => Self::Partly,
            Some(_) => Self::Down,
        }
    }
}

/// Returns the share of the known time that was served; `None` if none is known.
fn share(days: impl IntoIterator<Item = DayUptime>) -> Option<f64> {
    let (mut served_s, mut known_s) = (0, 0);
    for day in days {
        served_s += day.served_s;
        known_s += day.served_s + day.down_s;
    }
    (known_s > 0).then(|| served_s as f64 / known_s as f64)
}

fn json(report: &ServicesReport) -> Value {
    let service = |summary: &ServiceSummary| {
        let days = summary.days.iter().map(|day| json!([day.served_s, day.down_s]));
        json!({
            "service": summary.service.label(),
            "announces": summary.announces,
            "requests": summary.requests,
            "bytes_out": summary.bytes_out,
            "uptime": share(summary.days.iter().copied()),
            "days": days.collect::<Vec<_>>(),
        })
    };
    let services: Vec<Value> = report.services.iter().map(service).collect();
    json!({ "since": report.since, "services": services })
}

fn html(report: &ServicesReport) -> String {
    if report.services.is_empty() {
        return String::new();
    }
    let (hour, minute) = (report.since / 3600 % 24, report.since / 60 % 60);
    let head = "<h2>Services</h2><table><tr><th>Service<th>Announces<th>Sent<th>Uptime</tr>";
    let mut html = head.to_owned();
    for summary in &report.services {
        let ServiceSummary { announces, days, .. } = summary;
        let uptime = match share(days.iter().copied()) {
            Some(share) => percent(share),
            None => "unknown".into(),
        };
        let (name, sent) =
            (summary.service.meaning().trim_end_matches('.'), bytes(summary.bytes_out));
        // Writing to a `String` cannot fail, here and below.
        let _ = write!(
            html,
            "<tr><td>{name}<td>{announces}<td>{sent}<td>{uptime}</tr><tr><td colspan=\"4\">\
             <svg viewBox=\"0 0 {} 5\" role=\"img\" aria-label=\"Uptime of the last days\">{}</svg></tr>",
            days.len(),
            bars(days)
        );
    }
    let _ = write!(
        html,
        "</table><p>Announces and bytes since {hour:02}:{minute:02} UTC yesterday. A bar has the last {} days: green \
         served, yellow partly, red down, grey unknown.</p>",
        report.services.first().map_or(0, |summary| summary.days.len())
    );
    html
}

/// Returns the days as paths, one for each look.
fn bars(days: &[DayUptime]) -> String {
    let looks: Vec<Look> = days.iter().map(|day| Look::of(*day)).collect();
    let mut paths = String::new();
    for (look, class) in Look::DRAWN {
        let mut path = String::new();
        let mut begin = 0;
        for run in looks.chunk_by(|one, other| one == other) {
            if run.first() == Some(&look) {
                let _ = write!(path, "M{begin} 0h{}v5h-{}z", run.len(), run.len());
            }
            begin += run.len();
        }
        if !path.is_empty() {
            let _ = write!(paths, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    paths
}

/// Returns a share with two decimals, rounded down: what is not always served is never 100 %.
fn percent(share: f64) -> String {
    format!("{:.2} %", (share * 10_000.0).floor() / 100.0)
}

/// Returns bytes in the largest decimal unit.
fn bytes(count: u64) -> String {
    let units = ["kB", "MB", "GB", "TB", "PB"];
    let (mut amount, mut unit) = (count as f64, "B");
    for larger in units {
        if amount < 1000.0 {
            break;
        }
        (amount, unit) = (amount / 1000.0, larger);
    }
    if unit == "B" { format!("{count} B") } else { format!("{amount:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use tracker::Service;

    use super::*;

    const fn day(served_s: u64, down_s: u64) -> DayUptime {
        DayUptime { served_s, down_s }
    }

    #[test]
    fn days_are_drawn_by_their_share_of_known_time() {
        let days = [
            day(0, 0),
            day(10, 0),
            day(86_400, 0),
            day(80_000, 6400),
            day(10, 20),
            day(0, 5),
            day(3, 0),
        ];
        let expected = "<path class=\"up\" d=\"M1 0h2v5h-2zM6 0h1v5h-1z\"/><path class=\"part\" d=\"M3 0h1v5h-1z\"/>\
                        <path class=\"down\" d=\"M4 0h2v5h-2z\"/>";
        assert_eq!(bars(&days), expected);
        assert_eq!((bars(&[]), bars(&[day(0, 0)])), (String::new(), String::new()));
        assert_eq!(share([day(0, 0)]), None);
        assert_eq!(share([day(1, 0), day(0, 1), day(0, 0)]), Some(0.5));
    }

    #[test]
    fn figures_are_rounded_for_people() {
        assert_eq!([0.99999, 1.0, 0.5].map(percent), ["99.99 %", "100.00 %", "50.00 %"]);
        assert_eq!([999, 1000, 4_560_000].map(bytes), ["999 B", "1.0 kB", "4.6 MB"]);
        let report = ServicesReport {
            since: 13 * 3600,
            services: vec![ServiceSummary {
                service: Service::Udp6,
                announces: 7,
                requests: 9,
                bytes_out: 100,
                days: vec![day(5, 0), day(0, 5)],
            }],
        };
        let texts = ServiceTexts::new(&report);
        assert!(
            texts.html.contains("<td>UDP over IPv6<td>7<td>100 B<td>50.00 %"),
            "{}",
            texts.html
        );
        assert!(texts.html.contains("since 13:00 UTC"), "{}", texts.html);
        let expected = json!({
            "since": 46800,
            "services": [{
                "service": "udp6", "announces": 7, "requests": 9, "bytes_out": 100, "uptime": 0.5,
                "days": [[5, 0], [0, 5]],
            }],
        });
        assert_eq!(texts.json, expected);
        assert_eq!(ServiceTexts::new(&ServicesReport::default()).html, "");
    }
}
