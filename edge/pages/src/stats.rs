//! Statistics in the forms of other trackers: opentracker's modes, and the page and JSON of
//! bittorrent-tracker. docs/http.md lists them.
//!
//! Monitoring tools parse these texts to the letter, so they keep the words of the tracker that they
//! come from.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use tracker::Networks;
use types::limits;
use wire::http::{RequestHead, TorrentList, parameter};

use crate::site::{Errors, Figures, Overview, TOP_MAX, Traffic};

/// The statistics of a listener.
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// Where they are, such as `/stats`.
    pub path: String,
    /// The response to a request without a mode.
    pub form: StatsForm,
    /// Clients that may read them.
    pub networks: Networks,
}

/// The response to a request for statistics that names no mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsForm {
    /// The page of bittorrent-tracker.
    Page,
    /// The first mode of opentracker: peers.
    Opentracker,
}

/// The data that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatsRequest<'a> {
    /// The [`text`] of a mode of opentracker, which needs no pass over the torrents.
    Text(&'a [u8]),
    List(TorrentList),
    /// Figures that need one.
    Overview(OverviewForm),
    /// A format that does not exist.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverviewForm {
    /// opentracker's list of the largest torrents.
    Top(usize),
    /// The page of bittorrent-tracker.
    Page,
    /// The same as JSON.
    Json,
}

impl StatsOptions {
    /// Returns the data that a request asks for; `None` if it is not for statistics.
    pub(crate) fn read<'a>(&self, request: &RequestHead<'a>) -> Option<StatsRequest<'a>> {
        let rest = request.path.strip_prefix(self.path.as_bytes())?;
        if rest == b".json" {
            return Some(StatsRequest::Overview(OverviewForm::Json));
        }
        if !rest.is_empty() {
            return None;
        }
        Some(match (parameter(request.query, "mode"), self.form) {
            (Some(mode), _) => read_mode(mode, parameter(request.query, "format")),
            (None, StatsForm::Opentracker) => StatsRequest::Text(PEERS),
            (None, StatsForm::Page) if request.wants_json() => {
                StatsRequest::Overview(OverviewForm::Json)
            }
            (None, StatsForm::Page) => StatsRequest::Overview(OverviewForm::Page),
        })
    }
}

/// opentracker's mode for peers.
const PEERS: &[u8] = b"peer";

fn read_mode<'a>(mode: &'a [u8], format: Option<&[u8]>) -> StatsRequest<'a> {
    match mode {
        b"top10" => StatsRequest::Overview(OverviewForm::Top(10)),
        b"top100" => StatsRequest::Overview(OverviewForm::Top(TOP_MAX)),
        b"statedump" => {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            StatsRequest::List(TorrentList::State { minutes: since_1970.as_secs() / 60 })
        }
        b"tpbs" => match format {
            None | Some(b"ben") => StatsRequest::List(TorrentList::Bencoded),
            Some(b"txt") => StatsRequest::List(TorrentList::Text),
            Some(b"txtp") => StatsRequest::List(TorrentList::TextWithDownloads),
            Some(b"url") => StatsRequest::List(TorrentList::PercentEncoded),
            Some(b"bin") => StatsRequest::List(TorrentList::Binary),
            Some(_) => StatsRequest::Unknown,
        },
        mode => StatsRequest::Text(mode),
    }
}

/// Returns the text of a mode of opentracker; `None` if the mode does not exist, or tidegate has nothing for
/// it.
pub(crate) fn text(mode: &[u8], figures: &Figures) -> Option<String> {
    let Figures { totals, udp, tcp, full_scrapes, full_scrape_bytes, .. } = figures;
    let served = |opened: u64, done: u64, rest: &str| {
        let (per_s, done_per_s) = (figures.per_s(opened), figures.per_s(done));
        figures.mrtg(opened, done, &format!("{rest}, {per_s} conns/s :: {done_per_s} success/s."))
    };
    Some(match mode {
        PEERS => serving(figures.peers(), figures.seeders(), totals.torrents),
        b"torr" => serving(totals.torrents, 0, totals.torrents),
        b"conn" => {
            let done = tcp.announces + udp.announces + udp.connects;
            served(tcp.opened + udp.opened, done, "opentracker connections")
        }
        b"udp4" => served(udp.opened, udp.announces + udp.connects, "opentracker udp4 stats"),
        b"tcp4" => served(tcp.opened, tcp.announces, "opentracker tcp4 stats"),
        b"scrp" => {
            let per_s = figures.per_s(tcp.scrapes + udp.scrapes);
            let rest = format!("opentracker scrape stats, {per_s} scrape/s (tcp and udp)");
            figures.mrtg(tcp.scrapes, udp.scrapes, &rest)
        }
        b"fscr" => {
            let (per_s, bytes) = (figures.per_s(*full_scrapes), figures.per_s(*full_scrape_bytes));
            let rest =
                format!("opentracker full scrape stats, {per_s} conns/s :: {bytes} bytes/s.");
            figures.mrtg(full_scrapes * 1000, *full_scrape_bytes, &rest)
        }
        b"completed" => {
            let per_h = totals.downloads / (figures.uptime_s / 3600).max(1);
            figures.mrtg(totals.downloads, 0, &format!("opentracker, {per_h} completed/h."))
        }
        b"herr" => figures.errors.text(),
        b"version" => format!("tidegate {}\n", figures.version),
        b"everything" => everything(figures),
        _ => return None,
    })
}

pub(crate) fn content_type(mode: &[u8]) -> &'static str {
    if mode == b"everything" { "text/xml" } else { "text/plain" }
}

impl Figures {
    pub(crate) fn seeders(&self) -> u64 {
        let totals = &self.totals;
        totals.v4.seeders + totals.v6.seeders + totals.web.seeders
    }

    pub(crate) fn leechers(&self) -> u64 {
        let totals = &self.totals;
        totals.v4.leechers + totals.v6.leechers + totals.web.leechers
    }

    fn peers(&self) -> u64 {
        self.seeders() + self.leechers()
    }

    fn per_s(&self, events: u64) -> u64 {
        events / self.uptime_s.max(1)
    }

    /// Returns two values, the uptime and a name, as MRTG reads them.
    fn mrtg(&self, first: u64, second: u64, rest: &str) -> String {
        let Self { uptime_s, .. } = self;
        format!("{first}\n{second}\n{uptime_s} seconds ({} hours)\n{rest}", uptime_s / 3600)
    }
}

fn serving(first: u64, second: u64, torrents: u64) -> String {
    format!("{first}\n{second}\nopentracker serving {torrents} torrents\nopentracker")
}

impl Errors {
    fn text(&self) -> String {
        let Self { malformed, bad_parameter, denied, not_found, .. } = self;
        // tidegate never redirects, refuses no compact=0, and has no status 500.
        format!(
            "302 RED 0\n400 ... {malformed}\n400 PAR {bad_parameter}\n400 COM 0\n403 IP  {denied}\n\
             404 INV {not_found}\n500 SRV 0\n"
        )
    }
}

/// Returns the XML that exporters read. Some read it by the order of its elements.
fn everything(figures: &Figures) -> String {
    let Figures { totals, uptime_s, version, node, errors, .. } = figures;
    let torrents = totals.torrents;
    let Errors { malformed, bad_parameter, not_modest, denied, not_found } = errors;
    let Traffic { opened: accept, announces, scrapes, .. } = figures.tcp;
    let udp = &figures.udp;
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<stats>\n  <tracker_id>{node}</tracker_id>\n  \
         <version>\ntidegate {version}\n  </version>\n  <uptime>{uptime_s}</uptime>\n  <torrents>\n    \
         <count_mutex>{torrents}</count_mutex>\n    <count_iterator>{torrents}</count_iterator>\n  \
         </torrents>\n"
    );
    let counts =
        [("peers", figures.peers()), ("seeds", figures.seeders()), ("completed", totals.downloads)];
    // Writing to a `String` cannot fail, here and below.
    for (name, count) in counts {
        let _ = writeln!(xml, "  <{name}>\n    <count>{count}</count>\n  </{name}>");
    }
    let Traffic { opened, connects, announces: udp_announces, scrapes: udp_scrapes, bad_ids } = udp;
    let _ = write!(
        xml,
        "  <connections>\n    <tcp>\n      <accept>{accept}</accept>\n      \
         <announce>{announces}</announce>\n      <scrape>{scrapes}</scrape>\n    </tcp>\n    <udp>\n      \
         <overall>{opened}</overall>\n      <connect>{connects}</connect>\n      \
         <announce>{udp_announces}</announce>\n      <scrape>{udp_scrapes}</scrape>\n      \
         <missmatch>{bad_ids}</missmatch>\n    </udp>\n    <livesync>\n      <count>0</count>\n    \
         </livesync>\n  </connections>\n  <debug>\n    <renew>\n    </renew>\n    <http_error>\n"
    );
    for (code, count) in [
        ("302 Redirect", &0),
        ("400 Parse Error", malformed),
        ("400 Invalid Parameter", bad_parameter),
        ("400 Invalid Parameter (compact=0)", &0),
        ("400 Not Modest", not_modest),
        ("403 Access Denied", denied),
        ("404 Not found", not_found),
        ("500 Internal Server Error", &0),
    ] {
        let _ = writeln!(xml, "      <count code=\"{code}\">{count}</count>");
    }
    xml + "    </http_error>\n    <mutex_stall>\n      <count>0</count>\n    </mutex_stall>\n  </debug>\n\
           </stats>"
}

impl OverviewForm {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Top(_) => "text/plain",
            Self::Page => "text/html; charset=utf-8",
            Self::Json => "application/json",
        }
    }

    pub(crate) fn text(self, figures: &Figures, overview: &Overview) -> String {
        match self {
            Self::Top(len) => top(overview, len),
            Self::Page => page(figures, overview),
            Self::Json => json(figures, overview),
        }
    }
}

fn top(overview: &Overview, len: usize) -> String {
    let mut text = String::new();
    for (kind, torrents) in [("peers", &overview.by_peers), ("seeds", &overview.by_seeders)] {
        let _ = writeln!(text, "Top {len} torrents by {kind}:");
        for (count, info_hash) in torrents.iter().take(len) {
            let _ = writeln!(text, "\t{count}\t{}", info_hash.to_string().to_uppercase());
        }
    }
    text
}

/// Returns the eight figures of bittorrent-tracker, in its order: torrents, active ones, peers, seeders, leechers,
/// peers that are both, IPv4 and IPv6 peers. Ours are peers of single torrents, so none is both.
fn counts(figures: &Figures, overview: &Overview) -> [u64; 8] {
    let of = |family: tracker::FamilyTotals| family.seeders + family.leechers;
    let totals = &figures.totals;
    [
        totals.torrents,
        overview.active.min(totals.torrents),
        figures.peers(),
        figures.seeders(),
        figures.leechers(),
        0,
        of(totals.v4),
        of(totals.v6),
    ]
}

/// Returns the peers of each client software, by its share of recent announces. The name is the
/// beginning of the peer id, as bittorrent-tracker shows software that it does not know.
fn clients(figures: &Figures) -> Vec<(String, u64)> {
    let sum = u64::from(figures.clients.total());
    let share = |count: u32| (figures.peers() * u64::from(count) + sum / 2) / sum.max(1);
    let known = figures.clients.counts().iter();
    let mut all: Vec<(String, u64)> = known
        .map(|(prefix, count)| (String::from_utf8_lossy(prefix).into_owned(), share(*count)))
        .filter(|(_, peers)| *peers > 0)
        .collect();
    all.sort_by(|(a_name, a), (b_name, b)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    all.truncate(limits::STATS_CLIENTS_MAX);
    all
}

/// Returns the page. Figures stand in lines as in bittorrent-tracker's own, without a digit before them, because
/// scripts take the first number of each line.
fn page(figures: &Figures, overview: &Overview) -> String {
    let [torrents, active, peers, seeders, leechers, both, v4, v6] = counts(figures, overview);
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><head><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Tracker statistics</title></head><body><h1>{torrents} torrents ({active} active)</h1>\n\
         <h2>Connected Peers: {peers}</h2>\n<h3>Peers Seeding Only: {seeders}</h3>\n\
         <h3>Peers Leeching Only: {leechers}</h3>\n<h3>Peers Seeding &amp; Leeching: {both}</h3>\n\
         <h3>IPv4 Peers: {v4}</h3>\n<h3>IPv6 Peers: {v6}</h3>\n<h3>Clients:</h3>\n<ul>\n"
    );
    for (name, peers) in clients(figures) {
        // Prefixes have letters, digits, `-`, `.` and `_` only.
        let _ = writeln!(html, "<li><strong>unknown</strong> {name} : {peers}</li>");
    }
    html + "</ul></body></html>\n"
}

/// Returns the figures in the same order, wt-tracker's names of the first two, and the clients.
fn json(figures: &Figures, overview: &Overview) -> String {
    let [torrents, active, peers, seeders, leechers, both, v4, v6] = counts(figures, overview);
    let clients: Vec<String> =
        clients(figures).into_iter().map(|(name, peers)| format!("\"{name}\":{peers}")).collect();
    let unknown = match clients.is_empty() {
        true => String::new(),
        false => format!("\"unknown\":{{{}}}", clients.join(",")),
    };
    format!(
        "{{\"torrents\":{torrents},\"activeTorrents\":{active},\"peersAll\":{peers},\
         \"peersSeederOnly\":{seeders},\"peersLeecherOnly\":{leechers},\
         \"peersSeederAndLeecher\":{both},\"peersIPv4\":{v4},\"peersIPv6\":{v6},\
         \"torrentsCount\":{torrents},\"peersCount\":{peers},\"clients\":{{{unknown}}}}}"
    )
}

#[cfg(test)]
mod tests;
