//! Lays out a snapshot as lines of styled text for a terminal.
//!
//! The order and the words are those of the dashboard's overview: what is wrong, figures, reasons, torrents, and
//! where the load comes from. What does not fit the terminal is cut.

mod line;

use serde_json::Value;

use super::snapshot::{PROTOCOLS, Snapshot};
use crate::admin::{Sort, bytes, date, span};
use crate::cli::printable;
use crate::dates;
use line::{LABEL, wrap};
pub(super) use line::{Style, StyledLine};

/// The source, the size and the keys of the picture.
pub(super) struct View {
    pub(super) url: String,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) has_keys: bool,
}

const KEYS: &str = "q quit   sort torrents by: s seeders   l leechers   d downloads   a age";

use Style::{Bold, Chart, Dim, Plain, Warning};

const COUNT: usize = 11;
/// Maximum rows of the tables of reasons, clients and networks.
const RANKS: usize = 8;
/// Lines of a table without rows: a gap and its title.
const TITLE: usize = 2;

pub(super) fn lines(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let height = view.height.saturating_sub(usize::from(view.has_keys));
    let mut lines = vec![head(snapshot, view)];
    lines.extend(state(snapshot, view));
    lines.extend(figures(snapshot, view));
    let room = height.saturating_sub(lines.len());
    let rows = (room / 5).clamp(1, RANKS);
    let reasons = [
        ("Refused, by reason", ranking(snapshot, "refusals", rate), Warning),
        ("Dropped, by reason", ranking(snapshot, "drops", rate), Warning),
    ];
    let load = [
        ("Client software", ranking(snapshot, "clients", percent), Plain),
        ("Networks that announce most", ranking(snapshot, "networks", percent), Plain),
    ];
    let reasons = tables(&reasons, view.width, rows);
    let load = tables(&load, view.width, rows);
    let left = room.saturating_sub(reasons.len() + load.len() + TITLE).max(1);
    lines.extend(reasons);
    lines.extend(torrents(snapshot, view, left));
    lines.extend(load);
    lines.truncate(height);
    if view.has_keys && view.height > 0 {
        lines.resize_with(height, StyledLine::default);
        lines.push(StyledLine(vec![(Dim, KEYS.into())]));
    }
    lines.into_iter().map(|line| line.cut(view.width)).collect()
}

fn figures(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let count = |name: &str| si(snapshot.of(name));
    let table = |name: &str| snapshot.details[name].as_f64().unwrap_or_default();
    let mut requests = StyledLine::labelled("Requests").value(Bold, rate(snapshot.requests()));
    for protocol in PROTOCOLS {
        let requests_s = snapshot.of(&format!("{protocol}_s"));
        // The others are rarely served.
        if requests_s > 0.0 || protocol == "udp" || protocol == "http" {
            requests = requests.named(protocol, rate(requests_s));
        }
    }
    let memory = match snapshot.details["memory_budget"].as_f64() {
        Some(budget) => format!("{} of {}", bytes(table("memory_used")), bytes(budget)),
        None => bytes(table("memory_used")),
    };
    let bad = |name: &str| Some(snapshot.of(name)).filter(|value| *value > 0.0).map(rate);
    let mut all = vec![
        requests,
        request_history(snapshot, view),
        StyledLine::labelled("Response time")
            .named("p50", micros(snapshot.of("p50_us")))
            .named("p99", micros(snapshot.of("p99_us")))
            .bad("refused", bad("refusals_s"))
            .bad("dropped", bad("drops_s")),
        StyledLine::labelled("Peers")
            .value(Plain, si(snapshot.of("seeders") + snapshot.of("leechers")))
            .named("seeders", count("seeders"))
            .named("leechers", count("leechers")),
        StyledLine::labelled("Torrents")
            .value(Plain, count("torrents"))
            .named("downloads", si(table("downloads"))),
        StyledLine::labelled("Sent")
            .value(Plain, bits(snapshot.of("bytes_out_s")))
            .named("received", bits(snapshot.of("bytes_in_s")))
            .named("connections", count("connections")),
        StyledLine::labelled("CPU")
            .value(Plain, percent(snapshot.of("cpu")))
            .named("memory", bytes(snapshot.of("memory")))
            .named("for swarms", memory),
        StyledLine::labelled("Access")
            .named("keys", si(table("keys")))
            .named("bans", si(table("bans")))
            .named("allowed", si(table("allowed")))
            .named("denied", si(table("denied"))),
        journal(&snapshot.details["swarms"]),
    ];
    all.extend(cluster(&snapshot.details["cluster"]));
    all
}

/// Returns whether all is well, and else what is wrong and what to do; none if the tracker does not say.
fn state(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let Some(level) = snapshot.status["level"].as_str() else { return Vec::new() };
    let (headline, style) = match level {
        "ok" | "info" => ("All is well", Bold),
        "warning" => ("Needs attention", Warning),
        _ => ("Something is wrong", Warning),
    };
    let mut line = StyledLine::default().value(style, headline);
    if snapshot.status["upgrade_pending"] == true {
        line = line.and(Dim, "an upgrade is pending");
    }
    let mut lines = vec![line];
    for problem in snapshot.status["health"].as_array().into_iter().flatten() {
        let text = |name: &str| printable(problem[name].as_str().unwrap_or_default());
        let style = if problem["level"] == "info" { Plain } else { Warning };
        for line in wrap(&text("text"), view.width.saturating_sub(2)) {
            lines.push(StyledLine::default().and(style, format!("  {line}")));
        }
        for line in wrap(&text("remedy"), view.width.saturating_sub(4)) {
            lines.push(StyledLine::default().and(Dim, format!("    {line}")));
        }
    }
    // The worst come first; the figures need room, too.
    lines.truncate((view.height / 4).max(1));
    let addresses = snapshot.status["listeners"].as_array().into_iter().flatten();
    lines.push(addresses.fold(StyledLine::labelled("Listeners"), |line, listener| {
        let text = |name: &str| printable(listener[name].as_str().unwrap_or_default());
        line.named(&text("protocol"), text("address"))
    }));
    lines
}

fn journal(swarms: &Value) -> StyledLine {
    let line = StyledLine::labelled("Journal");
    let count = |name: &str| swarms[name].as_f64().unwrap_or_default();
    let (state, style) = match swarms["journal"].as_str() {
        None | Some("off") => return line.value(Plain, "off"),
        Some("writing") => ("writing", Plain),
        Some(state) => (state, Warning),
    };
    line.value(style, printable(state))
        .named("round", span(count("round_age_s") as u64))
        .named("disk", bytes(count("disk_bytes")))
        .named("restored", si(count("restored")))
}

fn cluster(cluster: &Value) -> Option<StyledLine> {
    let state = printable(cluster["state"].as_str()?).replace('_', " ");
    let of = |name: &str| cluster[name].as_f64().unwrap_or_default();
    let problems = of("problems");
    let style = if problems > 0.0 { Warning } else { Plain };
    let line = StyledLine::labelled("Cluster")
        .value(style, state)
        .named("node", si(of("node")))
        .named("others heard", format!("{} of {}", of("heard"), of("others")))
        .named("lag", micros(of("lag_s") * 1e6))
        .named("waiting", bytes(of("unstored_bytes")));
    Some(line.bad("problems", Some(problems).filter(|it| *it > 0.0).map(si)))
}

fn head(snapshot: &Snapshot, view: &View) -> StyledLine {
    let version = format!("tidegate {}", printable(&snapshot.version));
    let line = StyledLine::default().value(Bold, version);
    if let Some(why) = &snapshot.stream_error {
        return line.and(Warning, format!("no data: {}", printable(why)));
    }
    let up = span(snapshot.details["uptime_s"].as_f64().unwrap_or_default() as u64);
    let now = date(dates::now());
    line.and(Dim, format!("{}   up {up}   {now} UTC", view.url))
}

/// Returns a bar chart of the requests of the last seconds, the latest on the right.
fn request_history(snapshot: &Snapshot, view: &View) -> StyledLine {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = view.width.saturating_sub(LABEL).min(snapshot.request_history.len());
    let seconds = snapshot.request_history.range(snapshot.request_history.len() - width..);
    let most = seconds.clone().copied().fold(1.0, f64::max);
    let bar = |second: &f64| {
        let level = (second / most * BARS.len() as f64).ceil() as usize;
        level.checked_sub(1).and_then(|level| BARS.get(level)).copied().unwrap_or(' ')
    };
    StyledLine::labelled("").and(Chart, seconds.map(bar).collect::<String>())
}

/// The title of a table, its rows, and the style of their values.
type Table = (&'static str, Vec<(String, String)>, Style);

fn ranking(snapshot: &Snapshot, table: &str, write: fn(f64) -> String) -> Vec<(String, String)> {
    let ranks = snapshot.ranking(table).into_iter().take(RANKS);
    ranks.map(|(name, value)| (printable(&snapshot.title(table, name)), write(value))).collect()
}

/// Returns two tables side by side, of at most `rows_max` rows.
fn tables(both: &[Table; 2], width: usize, rows_max: usize) -> Vec<StyledLine> {
    let most = both.iter().map(|(_, rows, _)| rows.len()).max().unwrap_or_default();
    let column = (width / 2).saturating_sub(1);
    let mut lines = vec![StyledLine::default(), StyledLine::default()];
    for (title, _, _) in both {
        lines[1].0.push((Bold, format!("{title:<column$.column$}  ")));
    }
    for at in 0..most.clamp(1, rows_max) {
        let mut line = StyledLine::default();
        for (_, rows, style) in both {
            let (name, value) = match rows.get(at) {
                Some((name, value)) => (name.as_str(), value.as_str()),
                None if at == 0 => ("none", ""),
                None => ("", ""),
            };
            let room = column.saturating_sub(value.chars().count() + 1);
            line = line.and(Plain, format!("{name:<room$.room$} "));
            line = line.and(*style, value).and(Plain, "  ");
        }
        lines.push(line);
    }
    lines
}

fn torrents(snapshot: &Snapshot, view: &View, rows: usize) -> Vec<StyledLine> {
    let by = match snapshot.sort {
        Sort::Hash => "info hash",
        sort => sort.name(),
    };
    let width = view.width.saturating_sub(4 * COUNT).clamp(LABEL, 40);
    let title = format!("{:<width$.width$}", format!("Torrents by {by}"));
    let heads = ["seeders", "leechers", "downloads", "age"];
    let heads = heads.map(|head| format!("{head:>COUNT$}")).concat();
    let mut lines = vec![StyledLine::default(), StyledLine(vec![(Bold, title), (Dim, heads)])];
    if let Some(why) = &snapshot.torrents_error {
        lines.push(StyledLine(vec![(Warning, printable(why))]));
        return lines;
    }
    if snapshot.torrents.is_empty() {
        lines.push(StyledLine(vec![(Dim, "none".into())]));
    }
    for torrent in snapshot.torrents.iter().take(rows) {
        let counts = [torrent.seeders, torrent.leechers, torrent.downloads];
        let counts = counts.map(|count| format!("{:>COUNT$}", si(count as f64))).concat();
        let name = torrent.name.as_deref().filter(|name| !name.is_empty());
        let name = printable(name.unwrap_or(&torrent.info_hash));
        let age = span(torrent.age_s);
        let row = format!("{name:<width$.width$}{counts}{age:>COUNT$}");
        lines.push(StyledLine(vec![(Plain, row)]));
    }
    lines
}

fn bits(bytes_s: f64) -> String {
    format!("{}bit/s", si(8.0 * bytes_s))
}

/// Returns a number with an SI prefix, and a decimal if it is small or has one.
fn si(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) => format!("{:.1}{name}", value / unit),
        None if value < 10.0 && value.fract() > 0.0 => format!("{value:.1}"),
        None => format!("{value:.0}"),
    }
}

fn rate(value: f64) -> String {
    format!("{}/s", si(value))
}

fn percent(value: f64) -> String {
    format!("{:.1} %", 100.0 * value)
}

fn micros(value: f64) -> String {
    match value {
        0.0 => "-".into(),
        0.0..1e3 => format!("{value:.0} µs"),
        1e3..1e6 => format!("{:.1} ms", value / 1e3),
        _ => format!("{:.1} s", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::SseMessage;
    use serde_json::json;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::sorted_by(Sort::Seeders);
        let mut apply = |name: &str, data: Value| {
            snapshot.apply(&SseMessage { name: name.into(), data: data.to_string() });
        };
        let fields = ["udp_s", "http_s", "p50_us", "refusals_s", "torrents", "seeders", "leechers"];
        let seconds = [json!([0, 0, 0, 0, 0, 0, 0]), json!([1200, 34, 12.4, 3, 7, 8, 9])];
        apply("history", json!({ "fields": fields, "seconds": seconds }));
        let details = json!({
            "refusals": { "not_listed": 3.0 }, "drops": {},
            "clients": { "qBittorrent": 0.75, "other": 0.25 }, "networks": { "192.0.2.0/24": 0.31 },
            "cluster": {
                "state": "not_stored", "node": 2, "heard": 1, "others": 4, "lag_s": 0.0415,
                "unstored_bytes": 5 << 20, "problems": 2
            },
            "swarms": {
                "journal": "writing", "round_age_s": 130, "disk_bytes": 3 << 20, "restored": 4500
            },
        });
        apply("details", details);
        snapshot.names =
            json!({ "refusals": [{ "name": "not_listed", "title": "Not on the list" }] });
        snapshot.status = json!({ "level": "error", "upgrade_pending": true, "health": [
            { "level": "error", "text": "The disk is full.", "remedy": "Free some space." },
        ], "listeners": [{ "protocol": "udp", "address": "0.0.0.0:6969" }] });
        let rows = json!([
            { "info_hash": "ab".repeat(20), "name": "Debian\n13", "seeders": 5, "age_s": 7300 },
            { "info_hash": "cd".repeat(20), "seeders": 4 },
        ]);
        snapshot.set_torrents(Ok(json!({ "torrents": rows })));
        snapshot
    }

    fn text(snapshot: &Snapshot, width: usize, height: usize) -> Vec<String> {
        let view = View { url: "http://x".into(), width, height, has_keys: true };
        lines(snapshot, &view).iter().map(StyledLine::text).collect()
    }

    #[test]
    fn shows_all_values() {
        let all = text(&snapshot(), 100, 40).join("\n");
        let mut at = 0;
        for expected in [
            "Something is wrong   an upgrade is pending\n  The disk is full.\n    Free some space.\n",
            "Listeners      udp 0.0.0.0:6969\n",
            "Requests       1.2k/s   udp 1.2k/s   http 34/s\n                █\n",
            "Response time  p50 12 µs   p99 -   refused 3/s\n",
            "Peers          17   seeders 8   leechers 9\n",
            "Journal        writing   round 2 min   disk 3.0 MiB   restored 4.5k\n",
            "Cluster        not stored   node 2   others heard 1 of 4   lag 41.5 ms   waiting 5.0 MiB",
            "Not on the list",
            "Torrents by seeders",
            "\nDebian\\n13",
            &format!("\n{} ", "cd".repeat(20)),
            "\nqBittorrent",
            "75.0 %  192.0.2.0/24",
        ] {
            let place = all[at..].find(expected);
            at += place.unwrap_or_else(|| panic!("{expected}\n{all}"));
        }
        assert!(all.ends_with("d downloads   a age"), "{all}");
    }

    #[test]
    fn frame_fits_its_view() {
        let mut snapshot = snapshot();
        snapshot.stream_error = Some("gone".into());
        snapshot.set_torrents(Err(crate::admin::ApiError::Failed("This is not allowed".into())));
        for width in [0, 1, 20, 60, 300] {
            for height in [0, 1, 9, 24, 60] {
                let text = text(&snapshot, width, height);
                assert!(text.len() <= height, "{width}×{height}");
                assert!(text.iter().all(|line| line.chars().count() <= width), "{width}×{height}");
            }
        }
        let all = text(&snapshot, 80, 40).join("\n");
        assert!(all.contains("no data: gone") && all.contains("This is not allowed"), "{all}");
    }
}
