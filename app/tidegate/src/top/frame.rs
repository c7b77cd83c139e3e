//! Lays out a snapshot as lines of styled text for a terminal.

use std::iter::repeat_n;

use serde_json::Value;

use super::snapshot::{PROTOCOLS, Snapshot};
use crate::admin::{Sort, bytes, date, span};
use crate::cli::printable;
use crate::dates;

/// What the user sees.
pub(super) struct View {
    /// The URL of the API.
    pub(super) url: String,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) sort: Sort,
}

/// A line of words with their styles.
#[derive(Debug, Default)]
pub(super) struct StyledLine(pub(super) Vec<(Style, String)>);

/// The style of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    /// For labels.
    Dim,
    Chart,
    /// For values that should be 0, and errors.
    Warning,
}

use Style::{Bold, Chart, Dim, Plain, Warning};

/// Width of the labels before values.
const LABEL: usize = 10;
/// Width of a count.
const COUNT: usize = 11;
/// Maximum rows of the tables of reasons and clients.
const RANKS: usize = 8;
/// Lines below the tables.
const BELOW: usize = 3;

impl StyledLine {
    /// Returns a line that begins with a label.
    fn labelled(label: &str) -> Self {
        Self(vec![(Dim, format!("{label:<LABEL$}"))])
    }

    fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Appends a name and its value.
    fn figure(self, name: &str, value: impl Into<String>) -> Self {
        self.and(Dim, format!("{name} ")).and(Plain, value).and(Plain, "   ")
    }

    /// Appends a name and a rate that should be 0.
    fn bad_rate(self, name: &str, value: f64) -> Self {
        let style = if value > 0.0 { Warning } else { Plain };
        self.and(Dim, format!("{name} ")).and(style, rate(value)).and(Plain, "   ")
    }

    /// Returns it as plain text.
    pub(super) fn text(&self) -> String {
        let text: String = self.0.iter().map(|(_, text)| text.as_str()).collect();
        text.trim_end().into()
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// Truncates it to `width` columns.
    fn cut(mut self, width: usize) -> Self {
        let mut left = width;
        for (_, text) in &mut self.0 {
            if let Some((at, _)) = text.char_indices().nth(left) {
                text.truncate(at);
            }
            left -= text.chars().count();
        }
        self
    }
}

/// Returns the lines of a frame, at most as many as the view has.
pub(super) fn lines(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let mut lines = above(snapshot, view);
    let room = view.height.saturating_sub(lines.len() + BELOW);
    lines.extend(tables(snapshot, view, room / 2));
    lines.extend(torrents(snapshot, view, view.height.saturating_sub(lines.len())));
    lines.truncate(view.height);
    lines.into_iter().map(|line| line.cut(view.width)).collect()
}

fn above(snapshot: &Snapshot, view: &View) -> Vec<StyledLine> {
    let count = |name: &str| si(snapshot.of(name));
    let table = |name: &str| snapshot.details[name].as_f64().unwrap_or_default();
    let mut requests =
        StyledLine::labelled("requests").and(Bold, rate(snapshot.requests())).and(Plain, "   ");
    for protocol in PROTOCOLS {
        requests = requests.figure(protocol, rate(snapshot.of(&format!("{protocol}_s"))));
    }
    let memory = match snapshot.details["memory_budget"].as_f64() {
        Some(budget) => format!("{} of {}", bytes(table("memory_used")), bytes(budget)),
        None => bytes(table("memory_used")),
    };
    let mut lines = vec![
        head(snapshot, view),
        StyledLine::default(),
        requests,
        request_history(snapshot, view),
        StyledLine::labelled("latency")
            .figure("p50", micros(snapshot.of("p50_us")))
            .figure("p99", micros(snapshot.of("p99_us")))
            .bad_rate("refused", snapshot.of("refusals_s"))
            .bad_rate("dropped", snapshot.of("drops_s"))
            .figure("in", format!("{}b/s", si(8.0 * snapshot.of("bytes_in_s"))))
            .figure("out", format!("{}b/s", si(8.0 * snapshot.of("bytes_out_s")))),
        StyledLine::labelled("swarms")
            .figure("torrents", count("torrents"))
            .figure("peers", si(snapshot.of("seeders") + snapshot.of("leechers")))
            .figure("seeders", count("seeders"))
            .figure("leechers", count("leechers"))
            .figure("downloads", si(table("downloads"))),
        StyledLine::labelled("process")
            .figure("CPU", percent(snapshot.of("cpu")))
            .figure("memory", bytes(snapshot.of("memory")))
            .figure("for swarms", memory)
            .figure("connections", count("connections")),
        StyledLine::labelled("access")
            .figure("keys", si(table("keys")))
            .figure("bans", si(table("bans")))
            .figure("allowed", si(table("allowed")))
            .figure("denied", si(table("denied"))),
        journal(&snapshot.details["swarms"]),
    ];
    lines.extend(cluster(&snapshot.details["cluster"]));
    lines.push(StyledLine::default());
    lines
}

/// Returns the state of the journal of swarms.
fn journal(swarms: &Value) -> StyledLine {
    let line = StyledLine::labelled("journal");
    let count = |name: &str| swarms[name].as_f64().unwrap_or_default();
    let (state, style) = match swarms["journal"].as_str() {
        // An older tracker does not send it.
        None | Some("off") => return line.and(Plain, "off"),
        Some("writing") => ("writing", Plain),
        Some(state) => (state, Warning),
    };
    line.and(style, printable(state))
        .and(Plain, "   ")
        .figure("round", span(count("round_age_s") as u64))
        .figure("disk", bytes(count("disk_bytes")))
        .figure("restored", si(count("restored")))
}

/// Returns what the cluster is doing, if the tracker is in one.
fn cluster(cluster: &Value) -> Option<StyledLine> {
    let state = printable(cluster["state"].as_str()?).replace('_', " ");
    let of = |name: &str| cluster[name].as_f64().unwrap_or_default();
    let problems = of("problems");
    let style = if problems > 0.0 { Warning } else { Plain };
    let line = StyledLine::labelled("cluster")
        .and(style, state)
        .and(Plain, "   ")
        .figure("node", si(of("node")))
        .figure("others heard", format!("{} of {}", of("heard"), of("others")))
        .figure("lag", micros(of("lag_s") * 1e6))
        .figure("waiting", bytes(of("unstored_bytes")));
    Some(match style {
        Warning => line.and(Dim, "problems ").and(Warning, si(problems)),
        _ => line,
    })
}

fn head(snapshot: &Snapshot, view: &View) -> StyledLine {
    let left = format!("tidegate {}", printable(&snapshot.version));
    let line = StyledLine(vec![(Bold, left), (Dim, format!("  {}  ", view.url))]);
    if let Some(why) = &snapshot.stream_error {
        return line.and(Warning, format!("no data: {}", printable(why)));
    }
    let up = span(snapshot.details["uptime_s"].as_f64().unwrap_or_default() as u64);
    let right = format!("up {up}  {} UTC", date(dates::now()));
    let gap = view.width.saturating_sub(line.len() + right.chars().count());
    line.and(Plain, " ".repeat(gap)).and(Dim, right)
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

/// Returns the tables of refusals, drops and client software, side by side.
fn tables(snapshot: &Snapshot, view: &View, room: usize) -> Vec<StyledLine> {
    let ranking = |table: &str, write: fn(f64) -> String| -> Vec<(String, String)> {
        let ranks = snapshot.ranking(table).into_iter().take(RANKS);
        ranks.map(|(name, value)| (printable(name), write(value))).collect()
    };
    let columns = [
        ("refused", ranking("refusals", rate), Warning),
        ("dropped", ranking("drops", rate), Warning),
        ("clients", ranking("clients", percent), Plain),
    ];
    let height = columns.iter().map(|(_, ranks, _)| ranks.len()).max().unwrap_or_default();
    let height = height.max(1).min(room.saturating_sub(2));
    if height == 0 {
        return Vec::new();
    }
    let width = (view.width / columns.len()).saturating_sub(2);
    let mut lines = vec![StyledLine::default()];
    for (title, _, _) in &columns {
        lines[0].0.push((Bold, format!("{title:<width$}  ")));
    }
    for at in 0..height {
        let mut line = StyledLine::default();
        for (_, ranks, style) in &columns {
            let (name, value) = match ranks.get(at) {
                Some((name, value)) => (name.as_str(), value.as_str()),
                None if at == 0 => ("none", ""),
                None => ("", ""),
            };
            let room = width.saturating_sub(value.chars().count() + 1);
            let name: String = name.chars().chain(repeat_n(' ', room)).take(room).collect();
            let style = if value.is_empty() { Dim } else { *style };
            line = line.and(Dim, name + " ").and(style, value).and(Plain, "  ");
        }
        lines.push(line);
    }
    lines.push(StyledLine::default());
    lines
}

fn torrents(snapshot: &Snapshot, view: &View, room: usize) -> Vec<StyledLine> {
    let by = match view.sort {
        Sort::Hash => "info hash",
        sort => sort.name(),
    };
    let mut lines = Vec::new();
    // If there is no room, info hashes are truncated.
    let width = view.width.saturating_sub(4 * COUNT).clamp(LABEL, 40);
    let title = format!("{:<width$.width$}", format!("torrents by {by}"));
    let heads = ["seeders", "leechers", "downloads", "age"].map(|head| format!("{head:>COUNT$}"));
    lines.push(StyledLine(vec![(Bold, title), (Dim, heads.concat())]));
    if let Some(why) = &snapshot.torrents_error {
        lines.push(StyledLine(vec![(Warning, printable(why))]));
        return lines;
    }
    if snapshot.torrents.is_empty() {
        lines.push(StyledLine(vec![(Dim, "none".into())]));
    }
    for torrent in snapshot.torrents.iter().take(room.saturating_sub(1)) {
        let counts = [torrent.seeders, torrent.leechers, torrent.downloads];
        let counts = counts.map(|count| format!("{:>COUNT$}", si(count as f64))).concat();
        let (hash, age) = (printable(&torrent.info_hash), span(torrent.age_s));
        let row = format!("{hash:<width$.width$}{counts}{age:>COUNT$}");
        lines.push(StyledLine(vec![(Plain, row)]));
    }
    lines
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
            "uptime_s": 3700.5, "memory_used": 1024, "memory_budget": 2048,
            "cluster": {
                "state": "not_stored", "node": 2, "heard": 1, "others": 4, "lag_s": 0.0415,
                "unstored_bytes": 5 << 20, "problems": 2
            },
            "swarms": {
                "journal": "writing", "round_age_s": 130, "disk_bytes": 3 << 20, "restored": 4500
            },
        });
        snapshot.apply(update("details", &tables));
        let torrents: Vec<_> =
            (0..50).map(|at| json!({ "info_hash": format!("{at:040x}"), "seeders": at })).collect();
        snapshot.apply(Update::Torrents(Ok(json!({ "torrents": torrents }))));
        snapshot
    }

    fn text(snapshot: &Snapshot, width: usize, height: usize) -> Vec<String> {
        let view = View { url: "http://x".into(), width, height, sort: Sort::Seeders };
        lines(snapshot, &view).iter().map(StyledLine::text).collect()
    }

    #[test]
    fn shows_all_values() {
        let text = text(&snapshot(), 100, 40);
        let all = text.join("\n");
        for due in [
            "requests  1.23k/s   udp 1.2k/s   http 34/s   https 0/s",
            "latency   p50 12 µs   p99 1.5 ms   refused 3/s   dropped 0/s",
            "swarms    torrents 7   peers 17   seeders 8   leechers 9",
            "memory 1.0 GiB   for swarms 1.0 KiB of 2.0 KiB",
            "journal   writing   round 2 min   disk 3.0 MiB   restored 4.5k",
            "cluster   not stored   node 2   others heard 1 of 4   lag 42 ms   waiting 5.0 MiB   problems 2",
            "up 1 h  ",
        ] {
            assert!(all.contains(due), "{due}\n{all}");
        }
        assert_eq!(text[3], "           █", "an idle second, then a busy one");
        assert!(text[11].starts_with("refused") && text[11].ends_with("clients"));
        let row: Vec<_> = text[12].split_whitespace().collect();
        assert_eq!(row, ["not_listed", "3/s", "none", "qBittorrent", "75", "%"]);
        assert!(text[15].starts_with("torrents by seeders"));
        assert!(text[16].starts_with(&"0".repeat(40)));
    }

    #[test]
    fn frame_fits_its_view() {
        let mut snapshot = snapshot();
        for width in [0, 1, 20, 79, 80, 300] {
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
    fn shortens_numbers() {
        let numbers =
            [0.0, 0.04, 1.26, 9.96, 999.4, 999.6, 1234.0, 12_340.0, 123_456.0, 1e6, 2.5e9];
        let due = ["0", "0", "1.3", "10", "999", "1k", "1.23k", "12.3k", "123k", "1M", "2.5G"];
        assert_eq!(numbers.map(si), due);
        assert_eq!([0.0, 0.05, 0.5, 2.0].map(percent), ["0 %", "5.0 %", "50 %", "200 %"]);
        assert_eq!([0.0, 7.0, 1500.0, 2e6].map(micros), ["-", "7 µs", "1.5 ms", "2 s"]);
    }
}
