//! Lays out a snapshot as lines of styled text for a terminal.
//!
//! The order and the words are those of the dashboard's overview: what is wrong, figures, reasons, torrents, and
//! where the load comes from. Everything fits 60 columns.

mod line;

use serde_json::Value;

use super::snapshot::{PROTOCOLS, Snapshot};
use crate::admin::{Sort, bytes, date, span};
use crate::cli::printable;
use crate::dates;
use line::{Figures, LABEL, wrap};
pub(super) use line::{Style, StyledLine};

/// View that the user sees: its source, size, order and keys.
pub(super) struct View {
    /// The URL of the API.
    pub(super) url: String,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) sort: Sort,
    /// True if there are keys to press.
    pub(super) has_keys: bool,
}

/// The keys, for the last line.
const KEYS: &str = "q quit   sort torrents by: s seeders   l leechers   d downloads   a age";
/// Lines from which on there is room for them.
const KEYS_HEIGHT: usize = 16;

use Style::{Bold, Chart, Dim, Plain, Warning};

/// Width of a count, and where there are few columns.
const COUNT: usize = 11;
const COUNT_NARROW: usize = 9;
/// Columns from which on counts are wide.
const WIDE: usize = 84;
/// Maximum rows of the tables of reasons, clients and networks.
const RANKS: usize = 8;
/// Lines from which on there is room for everything.
const TALL: usize = 30;
/// Lines of a table without rows: a gap and its title.
const TITLE: usize = 2;
/// The age of a torrent is known to 1024 s: its first announce was up to that much later than stated.
const AGE_STEP_S: u64 = 1024;

/// Returns the lines of a frame, at most as many as the view has.
pub(super) fn lines(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let mut lines = above(snapshot, view);
    let has_keys = view.has_keys && view.height >= KEYS_HEIGHT;
    let height = view.height - usize::from(has_keys);
    let room = height.saturating_sub(lines.len());
    let reasons = [
        ("Refused, by reason", ranking(snapshot, "refusals", rate), Warning),
        ("Dropped, by reason", ranking(snapshot, "drops", rate), Warning),
    ];
    let load = [
        ("Client software", ranking(snapshot, "clients", percent), Plain),
        ("Networks that announce most", ranking(snapshot, "networks", percent), Plain),
    ];
    // Torrents get what the tables leave. Where there is little room, the tables go first.
    let rows = (room / 5).min(RANKS);
    let reasons = tables(&reasons, view.width, if room >= 7 { rows } else { 0 });
    let load = tables(&load, view.width, if room >= 10 { rows } else { 0 });
    let left = room.saturating_sub(reasons.len() + load.len() + TITLE);
    lines.extend(reasons);
    lines.extend(torrents(snapshot, view, left));
    lines.extend(load);
    lines.truncate(height);
    if has_keys {
        lines.resize_with(height, StyledLine::default);
        lines.push(StyledLine(vec![(Dim, KEYS.into())]));
    }
    lines.into_iter().map(|line| line.cut(view.width)).collect()
}

/// Returns what is above the tables: the state of the tracker, and its figures.
fn above(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let mut lines = vec![head(snapshot, view)];
    lines.extend(state(snapshot, view));
    for figures in figures(snapshot) {
        let is_first = lines.last().is_some_and(|line| line.text().starts_with("Requests"));
        if is_first {
            lines.push(request_history(snapshot, view));
        }
        let mut of_figures = figures.lines(view.width);
        if view.height < TALL {
            of_figures.truncate(1);
        }
        lines.extend(of_figures);
    }
    lines
}

fn figures(snapshot: &Snapshot) -> Vec<Figures> {
    let count = |name: &str| si(snapshot.of(name));
    let table = |name: &str| snapshot.details[name].as_f64().unwrap_or_default();
    let mut requests = Figures::of("Requests").value(Bold, rate(snapshot.requests()));
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
        Figures::of("Response time")
            .named("p50", micros(snapshot.of("p50_us")))
            .named("p99", micros(snapshot.of("p99_us")))
            .bad("refused", bad("refusals_s"))
            .bad("dropped", bad("drops_s")),
        Figures::of("Peers")
            .value(Plain, si(snapshot.of("seeders") + snapshot.of("leechers")))
            .named("seeders", count("seeders"))
            .named("leechers", count("leechers")),
        Figures::of("Torrents")
            .value(Plain, count("torrents"))
            .named("downloads", si(table("downloads"))),
        Figures::of("Sent")
            .value(Plain, bits(snapshot.of("bytes_out_s")))
            .named("received", bits(snapshot.of("bytes_in_s")))
            .named("connections", count("connections")),
        Figures::of("CPU")
            .value(Plain, percent(snapshot.of("cpu")))
            .named("memory", bytes(snapshot.of("memory")))
            .named("for swarms", memory),
        Figures::of("Access")
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
    // The words of the dashboard's overview.
    let (headline, style) = match level {
        "ok" | "info" => ("All is well", Bold),
        "warning" => ("Needs attention", Warning),
        _ => ("Something is wrong", Warning),
    };
    let mut line = StyledLine::default().and(style, headline);
    if snapshot.status["upgrade_pending"] == true {
        line = line.and(Plain, "   ").and(Dim, "an upgrade is pending");
    }
    let mut lines = vec![line];
    for problem in snapshot.status["health"].as_array().into_iter().flatten() {
        let text = |name: &str| printable(problem[name].as_str().unwrap_or_default());
        let style = if problem["level"] == "info" { Plain } else { Warning };
        let of_text = wrap(&text("text"), view.width.saturating_sub(2));
        let of_remedy = wrap(&text("remedy"), view.width.saturating_sub(4));
        lines.extend(
            of_text.into_iter().map(|it| StyledLine::default().and(style, format!("  {it}"))),
        );
        let of_remedy = of_remedy.into_iter().filter(|it| !it.is_empty());
        lines.extend(of_remedy.map(|it| StyledLine::default().and(Dim, format!("    {it}"))));
    }
    // The worst come first; the figures need room, too.
    lines.truncate((view.height / 4).max(1));
    let addresses = snapshot.status["listeners"].as_array().into_iter().flatten();
    let listeners = addresses.fold(Figures::of("Listeners"), |figures, listener| {
        let text = |name: &str| printable(listener[name].as_str().unwrap_or_default());
        figures.named(&text("protocol"), text("address"))
    });
    if view.height >= TALL {
        lines.extend(listeners.lines(view.width));
    }
    lines
}

fn journal(swarms: &Value) -> Figures {
    let figures = Figures::of("Journal");
    let count = |name: &str| swarms[name].as_f64().unwrap_or_default();
    let (state, style) = match swarms["journal"].as_str() {
        // An older tracker does not send it.
        None | Some("off") => return figures.value(Plain, "off"),
        Some("writing") => ("writing", Plain),
        Some(state) => (state, Warning),
    };
    figures
        .value(style, printable(state))
        .named("round", span(count("round_age_s") as u64))
        .named("disk", bytes(count("disk_bytes")))
        .named("restored", si(count("restored")))
}

/// Returns what the cluster is doing, if the tracker is in one.
fn cluster(cluster: &Value) -> Option<Figures> {
    let state = printable(cluster["state"].as_str()?).replace('_', " ");
    let of = |name: &str| cluster[name].as_f64().unwrap_or_default();
    let problems = of("problems");
    let style = if problems > 0.0 { Warning } else { Plain };
    let figures = Figures::of("Cluster")
        .value(style, state)
        .named("node", si(of("node")))
        .named("others heard", format!("{} of {}", of("heard"), of("others")))
        .named("lag", micros(of("lag_s") * 1e6))
        .named("waiting", bytes(of("unstored_bytes")));
    Some(figures.bad("problems", Some(problems).filter(|it| *it > 0.0).map(si)))
}

fn head(snapshot: &Snapshot, view: &View) -> StyledLine {
    let left = format!("tidegate {}", printable(&snapshot.version));
    let line = StyledLine(vec![(Bold, left)]);
    if let Some(why) = &snapshot.stream_error {
        return line.and(Warning, format!("  no data: {}", printable(why)));
    }
    let up = span(snapshot.details["uptime_s"].as_f64().unwrap_or_default() as u64);
    let parts = [format!("up {up}"), format!("{} UTC", date(dates::now())), view.url.clone()];
    // As much as there is room for: the URL first, then the time.
    for shown in [[2, 0, 1].as_slice(), &[0, 1], &[0]] {
        let right = shown.iter().map(|at| parts[*at].as_str()).collect::<Vec<_>>().join("  ");
        if line.len() + 2 + right.chars().count() <= view.width {
            let left = view.width - right.chars().count();
            return line.padded(left).and(Dim, right);
        }
    }
    line
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
    if rows_max == 0 {
        return Vec::new();
    }
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

/// Returns the table of torrents with at most `rows` rows.
fn torrents(snapshot: &Snapshot, view: &View, rows: usize) -> Vec<StyledLine> {
    let by = match view.sort {
        Sort::Hash => "info hash",
        sort => sort.name(),
    };
    let count_width = if view.width < WIDE { COUNT_NARROW } else { COUNT };
    let width = view.width.saturating_sub(4 * count_width).clamp(LABEL, 40);
    let title = format!("{:<width$.width$}", format!("Torrents by {by}"));
    let heads = ["seeders", "leechers", "downloads", "age"];
    let heads = heads.map(|head| format!(" {head:>0$.0$}", count_width - 1)).concat();
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
        let counts = counts.map(|count| format!("{:>count_width$}", si(count as f64))).concat();
        let name = torrent.name.as_deref().filter(|name| !name.is_empty());
        let name = printable(name.unwrap_or(&torrent.info_hash));
        let row =
            format!("{name:<width$.width$}{counts}{age:>count_width$}", age = age(torrent.age_s));
        lines.push(StyledLine(vec![(Plain, row)]));
    }
    lines
}

/// Returns the age of a torrent as far as it is known.
fn age(seconds: u64) -> String {
    match seconds {
        0..=AGE_STEP_S => "< 17 min".into(),
        _ => span(seconds),
    }
}

fn bits(bytes_s: f64) -> String {
    let text = si(8.0 * bytes_s);
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = text.get(digits.len()..).unwrap_or_default();
    format!("{digits} {unit}bit/s")
}

/// Returns a number with at most three digits, and an SI prefix.
fn si(value: f64) -> String {
    // A value that rounds to a thousand gets the next prefix.
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| value >= unit * 0.9995) else {
        return if value > 0.0 && value < 9.95 { trimmed(value, 1) } else { format!("{value:.0}") };
    };
    let value = value / unit;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    trimmed(value, decimals) + name
}

/// Removes trailing zeros.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

fn rate(value: f64) -> String {
    format!("{}/s", si(value))
}

fn percent(value: f64) -> String {
    let percent = 100.0 * value;
    if percent > 0.0 && percent < 9.95 {
        format!("{percent:.1} %")
    } else {
        format!("{percent:.0} %")
    }
}

fn micros(value: f64) -> String {
    match value {
        0.0 => "-".into(),
        0.0..1e3 => format!("{} µs", si(value)),
        1e3..1e6 => format!("{} ms", si(value / 1e3)),
        _ => format!("{} s", si(value / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::Update;
    use crate::top::snapshot::tests::update;
    use serde_json::json;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        let fields = [
            "udp_s",
            "http_s",
            "p50_us",
            "p99_us",
            "refusals_s",
            "torrents",
            "seeders",
            "leechers",
            "memory",
        ];
        let seconds = [
            json!([0, 0, 0, 0, 0, 0, 0, 0, 0]),
            json!([1200, 34, 12.4, 1500, 3, 7, 8, 9, 1 << 30]),
        ];
        snapshot.apply(update("history", &json!({ "fields": fields, "seconds": seconds })));
        let tables = json!({
            "refusals": { "not_listed": 3.0 }, "drops": {}, "clients": { "qBittorrent": 0.75, "other": 0.25 },
            "networks": { "192.0.2.0/24": 0.31 },
            "uptime_s": 3700.5, "memory_used": 1024, "memory_budget": 2048,
            "cluster": {
                "state": "not_stored", "node": 2, "heard": 1, "others": 4, "lag_s": 0.0415,
                "unstored_bytes": 5 << 20, "problems": 2
            },
            "swarms": {
                "journal": "writing", "round_age_s": 130, "disk_bytes": 3 << 20, "restored": 4500
            },
        });
        let names = json!({ "refusals": [{ "name": "not_listed", "title": "Not on the list" }] });
        snapshot.apply(Update::Names(names));
        snapshot.apply(Update::Status(json!({ "level": "ok", "health": [], "listeners": [
            { "protocol": "udp", "address": "0.0.0.0:6969" }, { "protocol": "http", "address": "[::]:6969" }
        ] })));
        snapshot.apply(update("details", &tables));
        let torrents: Vec<_> =
            (0..50).map(|at| json!({ "info_hash": format!("{at:040x}"), "seeders": at })).collect();
        snapshot.apply(Update::Torrents(Ok(json!({ "torrents": torrents }))));
        snapshot
    }

    fn view(width: usize, height: usize) -> View {
        View { url: "http://x".into(), width, height, sort: Sort::Seeders, has_keys: false }
    }

    fn text(snapshot: &Snapshot, width: usize, height: usize) -> Vec<String> {
        lines(snapshot, &view(width, height)).iter().map(StyledLine::text).collect()
    }

    #[test]
    fn shows_all_values() {
        let text = text(&snapshot(), 100, 40);
        let all = text.join("\n");
        for expected in [
            "All is well",
            "Listeners      udp 0.0.0.0:6969   http [::]:6969",
            "Requests       1.23k/s   udp 1.2k/s   http 34/s\n                █\n",
            "Response time  p50 12 µs   p99 1.5 ms   refused 3/s\n",
            "Peers          17   seeders 8   leechers 9",
            "Torrents       7",
            "memory 1.0 GiB   for swarms 1.0 KiB of 2.0 KiB",
            "Journal        writing   round 2 min   disk 3.0 MiB   restored 4.5k",
            "Cluster        not stored   node 2   others heard 1 of 4   lag 42 ms   waiting 5.0 MiB",
            "problems 2",
            "up 1 h  ",
        ] {
            assert!(all.contains(expected), "{expected}\n{all}");
        }
        let row = |start: &str| {
            let line = text.iter().position(|line| line.starts_with(start)).unwrap();
            text[line + 1].split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("Refused, by reason"), "Not on the list 3/s none");
        assert_eq!(row("Client software"), "qBittorrent 75 % 192.0.2.0/24 31 %");
        assert!(row("Torrents by seeders").starts_with(&"0".repeat(40)));
    }

    /// The order of the dashboard's overview.
    #[test]
    fn order_is_the_same_at_every_size() {
        for (width, height) in [(60, 24), (80, 24), (100, 40), (60, 60)] {
            let all = text(&snapshot(), width, height).join("\n");
            let parts = ["tidegate", "All is well", "Requests", "Response time", "Peers", "CPU"];
            let tables = ["Refused, by reason", "Torrents by seeders", "Client software"];
            let places: Vec<_> = parts.iter().chain(&tables).map(|part| all.find(part)).collect();
            assert!(places.iter().all(Option::is_some), "{width}×{height} {places:?}\n{all}");
            assert!(places.is_sorted(), "{width}×{height} {places:?}\n{all}");
        }
    }

    #[test]
    fn says_what_is_wrong_and_what_to_do() {
        let mut snapshot = snapshot();
        snapshot.apply(Update::Status(json!({ "level": "error", "upgrade_pending": true, "health": [
            { "level": "error", "area": "records", "text": "The disk of the records is full.",
              "remedy": "Free some space in state.dir; what waits is written then, and nothing is lost." },
            { "level": "warning", "area": "certificates", "text": "A certificate ends soon.", "remedy": null },
        ] })));
        let text = text(&snapshot, 60, 40);
        let expected = [
            "Something is wrong   an upgrade is pending",
            "  The disk of the records is full.",
            "    Free some space in state.dir; what waits is written",
            "    then, and nothing is lost.",
            "  A certificate ends soon.",
        ];
        assert_eq!(text[1..6], expected, "{text:#?}");
        snapshot.apply(Update::Status(Value::Null));
        assert!(lines(&snapshot, &view(60, 40))[1].text().starts_with("Requests"));
    }

    #[test]
    fn shows_names_of_torrents_and_their_age_as_far_as_known() {
        let mut snapshot = snapshot();
        let rows = json!([
            { "info_hash": "ab".repeat(20), "name": "Debian\n13", "seeders": 5, "age_s": 800 },
            { "info_hash": "cd".repeat(20), "seeders": 4, "age_s": 7300 },
        ]);
        snapshot.apply(Update::Torrents(Ok(json!({ "torrents": rows }))));
        let text = text(&snapshot, 60, 40);
        let at = text.iter().position(|line| line.starts_with("Torrents by")).unwrap();
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&text[at + 1])[1..], ["5", "0", "0", "<", "17", "min"]);
        assert!(text[at + 1].starts_with("Debian") && !text[at + 1].contains('\n'));
        assert_eq!(words(&text[at + 2]), ["cd".repeat(12).as_str(), "4", "0", "0", "2", "h"]);
    }

    #[test]
    fn frame_fits_its_view() {
        let mut snapshot = snapshot();
        for width in [0, 1, 20, 60, 79, 80, 300] {
            for height in [0, 1, 9, 10, 14, 24, 60] {
                let text = text(&snapshot, width, height);
                assert!(text.len() <= height, "{width}×{height}");
                assert!(text.iter().all(|line| line.chars().count() <= width), "{width}×{height}");
            }
        }
        assert_eq!(text(&snapshot, 80, 24).len(), 24, "torrents fill the view");
        snapshot.apply(Update::Disconnected("gone".into()));
        snapshot.apply(Update::Torrents(Err("This is not allowed: x".into())));
        let all = text(&snapshot, 80, 24).join("\n");
        assert!(all.contains("no data: gone") && all.contains("This is not allowed: x"), "{all}");
    }

    #[test]
    fn the_last_line_shows_the_keys() {
        let snapshot = snapshot();
        for (width, height) in [(60, 16), (80, 24), (100, 60)] {
            let view = View { has_keys: true, ..view(width, height) };
            let all: Vec<_> = lines(&snapshot, &view).iter().map(StyledLine::text).collect();
            assert_eq!(all.len(), height, "{width}×{height}");
            assert!(
                all[height - 1].starts_with("q quit   sort torrents by: s seeders"),
                "{all:#?}"
            );
        }
        let small = View { has_keys: true, ..view(80, 15) };
        assert!(!lines(&snapshot, &small).iter().any(|line| line.text().contains("q quit")));
    }

    #[test]
    fn shortens_numbers() {
        let numbers =
            [0.0, 0.04, 1.26, 9.96, 999.4, 999.6, 1234.0, 12_340.0, 123_456.0, 1e6, 2.5e9];
        let due = ["0", "0", "1.3", "10", "999", "1k", "1.23k", "12.3k", "123k", "1M", "2.5G"];
        assert_eq!(numbers.map(si), due);
        assert_eq!([0.0, 0.05, 0.5, 2.0].map(percent), ["0 %", "5.0 %", "50 %", "200 %"]);
        assert_eq!([0.0, 7.0, 1500.0, 2e6].map(micros), ["-", "7 µs", "1.5 ms", "2 s"]);
    }
}
