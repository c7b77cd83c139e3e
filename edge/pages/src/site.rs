//! The data of the public page and the statistics: announce URLs, and figures of the whole process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracker::counters::{Clients, Counters, DropReason, MetricsRegistry, Protocol, ServicesReport};
use tracker::{ListenerPolicyId, RequestKind, Totals, Tracker};
use types::{InfoHash, Refusal, Tick};

use crate::services::ServiceTexts;

/// The data that all workers show. Figures are gathered at most once a second, and passes over all
/// torrents are made at most twice a minute, for any number of clients.
pub struct Site {
    pub(crate) options: SiteOptions,
    figures: Kept<Figures>,
    services: Kept<ServiceTexts>,
    overview: Kept<Overview>,
    is_refreshing: AtomicBool,
}

/// A value, and when it was made.
type Kept<T> = Mutex<Option<(Tick, Arc<T>)>>;

/// The parts that a [`Site`] is made from.
pub struct SiteOptions {
    /// The announce URLs of all listeners.
    pub urls: Vec<PublicUrl>,
    /// The name of this host in URLs; `None` = that of the request.
    pub host: Option<String>,
    /// The operator's own text for the public page; empty lines divide paragraphs.
    pub text: String,
    /// Returns what the services did over hours and days; called at most every ten seconds.
    pub services: Box<dyn Fn() -> ServicesReport + Send + Sync>,
    /// The counters of all workers.
    pub registry: Arc<MetricsRegistry>,
    /// Returns the seconds since the process began.
    pub uptime_s: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The version of the program.
    pub version: &'static str,
    /// The number of the node; 0 outside clusters.
    pub node: u8,
}

/// An announce URL but for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// The scheme, such as `udp`.
    pub scheme: &'static str,
    /// The port of the listener.
    pub port: u16,
    /// The path, such as `/announce`.
    pub path: String,
    /// The policy of the listener, which says whether clients need a key.
    pub listener_policy: ListenerPolicyId,
    /// True if only this machine can reach the listener.
    pub is_loopback: bool,
}

/// Seconds for which the texts about services are served.
const SERVICES_S: u32 = 10;
/// Seconds for which an overview is served.
const OVERVIEW_S: u32 = 30;
/// Torrents with the most peers that an overview has.
pub(crate) const TOP_MAX: usize = 100;

/// Sums over all workers and listeners.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) totals: Totals,
    pub(crate) uptime_s: u64,
    pub(crate) version: &'static str,
    pub(crate) node: u8,
    pub(crate) udp: Traffic,
    pub(crate) tcp: Traffic,
    pub(crate) full_scrapes: u64,
    pub(crate) full_scrape_bytes: u64,
    pub(crate) errors: Errors,
    pub(crate) clients: Clients,
}

/// Requests over UDP or TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// UDP: requests. TCP: connections.
    pub(crate) opened: u64,
    pub(crate) connects: u64,
    pub(crate) announces: u64,
    pub(crate) scrapes: u64,
    /// UDP: datagrams with a bad connection id.
    pub(crate) bad_ids: u64,
}

/// Requests that were not served, in opentracker's classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Errors {
    pub(crate) malformed: u64,
    pub(crate) bad_parameter: u64,
    pub(crate) not_modest: u64,
    pub(crate) denied: u64,
    pub(crate) not_found: u64,
}

/// The result of a pass over all torrents.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    /// Torrents with peers.
    pub(crate) active: u64,
    /// Those with the most peers, the largest first.
    pub(crate) by_peers: Vec<(u32, InfoHash)>,
    /// Those with the most seeders.
    pub(crate) by_seeders: Vec<(u32, InfoHash)>,
}

/// The right to make the next overview, which one request has at a time.
pub(crate) struct OverviewTicket(Arc<Site>);

impl Drop for OverviewTicket {
    fn drop(&mut self) {
        self.0.is_refreshing.store(false, Ordering::Release);
    }
}

/// A request's access to an overview.
pub(crate) enum OverviewAccess {
    /// The overview that is kept.
    Ready(Arc<Overview>),
    /// The request has to make one, on a thread of its own.
    Due(OverviewTicket),
    /// Another request makes the first one.
    Busy,
}

impl Site {
    /// Returns the site of a process.
    pub fn new(options: SiteOptions) -> Self {
        Self {
            options,
            figures: Mutex::default(),
            services: Mutex::default(),
            overview: Mutex::default(),
            is_refreshing: AtomicBool::new(false),
        }
    }

    /// Returns figures of this second.
    pub(crate) fn figures(&self, tracker: &Tracker, now: Tick) -> Arc<Figures> {
        fresh(&self.figures, now, 1, || self.gather(tracker))
    }

    fn gather(&self, tracker: &Tracker) -> Figures {
        let mut figures = Figures {
            totals: tracker.totals(),
            uptime_s: (self.options.uptime_s)(),
            version: self.options.version,
            node: self.options.node,
            ..Figures::default()
        };
        for (listener, counters) in self.options.registry.read() {
            match listener.protocol {
                Protocol::Udp => {
                    let requests = counters.requests.as_flattened().iter().sum();
                    figures.udp.add(&counters, requests);
                }
                Protocol::Http | Protocol::Https => {
                    figures.tcp.add(&counters, counters.connections_opened);
                }
                // Their connections were HTTP's first.
                Protocol::Ws | Protocol::Wss => figures.tcp.add(&counters, 0),
            }
            figures.full_scrapes += counters.full_scrapes;
            figures.full_scrape_bytes += counters.full_scrape_bytes;
            figures.errors.add(&counters);
            figures.clients.add(&counters.clients);
        }
        figures
    }

    /// Returns texts about the services that are at most ten seconds old.
    pub(crate) fn service_texts(&self, now: Tick) -> Arc<ServiceTexts> {
        fresh(&self.services, now, SERVICES_S, || ServiceTexts::new(&(self.options.services)()))
    }

    /// Returns the kept overview, a ticket to refresh it, or `Busy`.
    pub(crate) fn overview(self: &Arc<Self>, now: Tick) -> OverviewAccess {
        let kept = lock(&self.overview).clone();
        let is_fresh = kept.as_ref().is_some_and(|(at, _)| now.since(*at) < OVERVIEW_S);
        let is_due = !is_fresh && !self.is_refreshing.swap(true, Ordering::Acquire);
        match kept {
            _ if is_due => OverviewAccess::Due(OverviewTicket(Arc::clone(self))),
            Some((_, overview)) => OverviewAccess::Ready(overview),
            None => OverviewAccess::Busy,
        }
    }
}

impl OverviewTicket {
    /// Makes an overview, for all requests of the next time.
    pub(crate) fn refresh(self, tracker: &Tracker, now: Tick) -> Arc<Overview> {
        let mut overview = Overview::default();
        tracker.overview(|stats| {
            let (seeders, leechers) = (stats.counts.seeders(), stats.counts.leechers());
            let peers = seeders.saturating_add(leechers);
            overview.active += u64::from(peers > 0);
            insert(&mut overview.by_peers, peers, stats.info_hash);
            insert(&mut overview.by_seeders, seeders, stats.info_hash);
        });
        let overview = Arc::new(overview);
        *lock(&self.0.overview) = Some((now, Arc::clone(&overview)));
        overview
    }
}

/// Inserts a torrent into a list of the largest, if it belongs there. A torrent that was visited twice
/// stays once.
fn insert(top: &mut Vec<(u32, InfoHash)>, count: u32, info_hash: InfoHash) {
    let is_small = top.len() >= TOP_MAX && top.last().is_some_and(|(least, _)| count <= *least);
    if count == 0 || is_small || top.iter().any(|(_, known)| *known == info_hash) {
        return;
    }
    let at = top.partition_point(|(other, _)| *other >= count);
    top.insert(at, (count, info_hash));
    top.truncate(TOP_MAX);
}

impl Traffic {
    fn add(&mut self, counters: &Counters, opened: u64) {
        let [v4, v6] = &counters.responses;
        let of = |kind: RequestKind| v4[kind.index()] + v6[kind.index()];
        self.opened += opened;
        self.connects += of(RequestKind::Connect);
        self.announces += of(RequestKind::Announce);
        self.scrapes += of(RequestKind::Scrape);
        self.bad_ids += counters.drops[DropReason::BadConnectionId.index()];
    }
}

impl Errors {
    fn add(&mut self, counters: &Counters) {
        let drops = |reason: DropReason| counters.drops[reason.index()];
        self.malformed += drops(DropReason::BadHttp) + drops(DropReason::HeadTooLarge);
        self.not_found += counters.not_found;
        for (refusal, count) in Refusal::ALL.into_iter().zip(counters.refusals) {
            let class = match refusal {
                Refusal::InfoHashMissing
                | Refusal::InfoHashMalformed
                | Refusal::PeerIdMalformed
                | Refusal::PortMalformed
                | Refusal::PortZero
                | Refusal::LeftMalformed
                | Refusal::FullScrape => &mut self.bad_parameter,
                Refusal::TooManyRequests
                | Refusal::TooSoon { .. }
                | Refusal::KeyRate
                | Refusal::FullScrapeTooSoon { .. }
                | Refusal::FullScrapesBusy { .. } => &mut self.not_modest,
                _ => &mut self.denied,
            };
            *class += count;
        }
    }
}

/// Returns the value that is kept, or makes it anew if it is `valid_s` old.
fn fresh<T>(kept: &Kept<T>, now: Tick, valid_s: u32, make: impl FnOnce() -> T) -> Arc<T> {
    let mut kept = lock(kept);
    match &*kept {
        Some((at, value)) if now.since(*at) < valid_s => Arc::clone(value),
        _ => {
            let value = Arc::new(make());
            *kept = Some((now, Arc::clone(&value)));
            value
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_lists_have_the_largest_torrents_once() {
        let mut top = Vec::new();
        // Each torrent is visited twice.
        for number in (0..1000_u32).chain(0..1000) {
            let count = number * 7 % 1000;
            let hash = [count.to_be_bytes(); 5].as_flattened().try_into().unwrap();
            insert(&mut top, count, InfoHash(hash));
        }
        let counts: Vec<u32> = top.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, (900..1000).rev().collect::<Vec<_>>());
    }
}
