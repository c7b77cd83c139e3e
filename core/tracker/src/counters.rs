//! Counters that operators see.
//!
//! A worker owns a plain [`Counters`] value for each listener and increments it without
//! synchronization. A few times a second it publishes a copy that other threads may read.

mod clients;
mod drop_reason;
mod latency;
mod services;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use types::{Family, PeerId, Refusal, labelled};

use crate::{ListenerPolicyId, RequestKind, Service};

pub use crate::frequent::Frequent;
pub use clients::{BusyNetworks, ClientPrefix, Clients, Sampling};
pub use drop_reason::DropReason;
pub use latency::Latency;
pub use services::{DayUptime, ServiceSummary, ServicesReport};

/// Everything that one worker counts at one listener. All fields only grow, except `connections_open`,
/// `clients` and `busy_networks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Requests by the client's family (v4, v6) and kind.
    pub requests: [[u64; RequestKind::ALL.len()]; 2],
    /// Responses by the client's family and kind; refusals are `Other`.
    pub responses: [[u64; RequestKind::ALL.len()]; 2],
    /// Refusals by reason.
    pub refusals: [u64; Refusal::ALL.len()],
    /// Silent drops and closed connections by reason.
    pub drops: [u64; DropReason::ALL.len()],
    /// Payload bytes received.
    pub bytes_in: u64,
    /// Payload bytes sent.
    pub bytes_out: u64,
    /// Peers in announce responses; WebTorrent: offers relayed.
    pub peers_sent: u64,
    /// Full scrapes, and lists in other forms, that were sent completely.
    pub full_scrapes: u64,
    /// Bytes of the bodies of full scrapes and other lists.
    pub full_scrape_bytes: u64,
    /// HTTP: requests for a path that is not served.
    pub not_found: u64,
    /// Prefixes that the kernel was asked to block.
    pub kernel_blocks: u64,
    /// TLS handshakes completed.
    pub tls_handshakes: u64,
    /// TCP connections accepted.
    pub connections_opened: u64,
    /// TCP connections closed.
    pub connections_closed: u64,
    /// TCP connections open now: a gauge.
    pub connections_open: u64,
    /// Time from reading a request to having its response ready. All datagrams of a batch count as
    /// long as the batch; over TCP, a sample of the requests is measured.
    pub latency: Latency,
    /// The client software that announces.
    pub clients: Clients,
    /// The networks that announce most.
    pub busy_networks: BusyNetworks,
    /// The choice of announces that are looked at for these.
    pub sampling: Sampling,
}

/// All zero. Not derived: the standard library has defaults for arrays of up to 32 values only.
impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            responses: Default::default(),
            refusals: [0; Refusal::ALL.len()],
            drops: [0; DropReason::ALL.len()],
            bytes_in: 0,
            bytes_out: 0,
            peers_sent: 0,
            full_scrapes: 0,
            full_scrape_bytes: 0,
            not_found: 0,
            kernel_blocks: 0,
            tls_handshakes: 0,
            connections_opened: 0,
            connections_closed: 0,
            connections_open: 0,
            latency: Latency::default(),
            clients: Clients::default(),
            busy_networks: BusyNetworks::default(),
            sampling: Sampling::default(),
        }
    }
}

impl Counters {
    /// Counts a request.
    #[inline]
    pub fn request(&mut self, family: Family, kind: RequestKind) {
        self.requests[family.index()][kind.index()] += 1;
    }

    /// Counts a response.
    #[inline]
    pub fn response(&mut self, family: Family, kind: RequestKind) {
        self.responses[family.index()][kind.index()] += 1;
    }

    /// Counts a refusal. Does not count its response.
    #[inline]
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refusals[refusal.index()] += 1;
    }

    /// Counts a silent drop.
    #[inline]
    pub fn drop(&mut self, reason: DropReason) {
        self.drops[reason.index()] += 1;
    }

    /// Counts announces that were accepted. Looks at one now and then: `last` returns the peer id and the address of
    /// the last of them.
    #[inline]
    pub fn announced(&mut self, count: u32, last: impl FnOnce() -> Option<(PeerId, IpAddr)>) {
        if self.sampling.pass(count)
            && let Some((id, from)) = last()
        {
            let announces = self.sampling.take();
            self.clients.count(clients::prefix(&id), announces);
            self.busy_networks.count(Some(clients::network(from)), announces);
        }
    }

    /// Counts a TCP connection that opens.
    #[inline]
    pub fn connection_opened(&mut self) {
        self.connections_opened += 1;
        self.connections_open += 1;
    }

    /// Counts a TCP connection that closes.
    #[inline]
    pub fn connection_closed(&mut self) {
        debug_assert!(self.connections_open > 0, "more connections closed than opened");
        self.connections_closed += 1;
        self.connections_open = self.connections_open.saturating_sub(1);
    }

    /// Adds another worker's counters.
    pub fn add(&mut self, other: &Self) {
        add_all(self.requests.as_flattened_mut(), other.requests.as_flattened());
        add_all(self.responses.as_flattened_mut(), other.responses.as_flattened());
        add_all(&mut self.refusals, &other.refusals);
        add_all(&mut self.drops, &other.drops);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.peers_sent += other.peers_sent;
        self.full_scrapes += other.full_scrapes;
        self.full_scrape_bytes += other.full_scrape_bytes;
        self.not_found += other.not_found;
        self.kernel_blocks += other.kernel_blocks;
        self.tls_handshakes += other.tls_handshakes;
        self.connections_opened += other.connections_opened;
        self.connections_closed += other.connections_closed;
        self.connections_open += other.connections_open;
        self.latency.add(&other.latency);
        self.clients.add(&other.clients);
        self.busy_networks.add(&other.busy_networks);
    }
}

fn add_all(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

labelled! {
    /// The protocol of a listener.
    pub enum Protocol {
        /// BEP 15.
        Udp = "udp",
        /// BEP 3.
        Http = "http",
        /// BEP 3 over TLS.
        Https = "https",
        /// WebTorrent.
        Ws = "ws",
        /// WebTorrent over TLS.
        Wss = "wss",
    }
}

/// A listener, as the operator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its protocol.
    pub protocol: Protocol,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// Its policy.
    pub listener_policy: ListenerPolicyId,
}

impl Listener {
    /// Returns the service that it belongs to.
    pub fn service(&self) -> Service {
        Service::new(self.protocol, Family::of(self.address.ip()))
    }
}

/// The published counters of all workers.
#[derive(Default)]
pub struct MetricsRegistry {
    published: Mutex<Vec<(Listener, SharedCopy)>>,
}

type SharedCopy = Arc<Mutex<Published>>;

/// The last published copy of a worker's counters.
#[derive(Default)]
struct Published {
    counters: Counters,
    /// Number of copies published so far.
    times: u64,
}

/// One worker's counters for one listener.
pub struct WorkerMetrics {
    /// The running counters.
    pub counters: Counters,
    /// The service of the listener.
    pub service: Service,
    published: SharedCopy,
}

impl MetricsRegistry {
    /// Returns new counters for a worker of `listener`. Several workers may serve the same listener.
    pub fn register(&self, listener: Listener) -> WorkerMetrics {
        let published = SharedCopy::default();
        self.published.lock().push((listener, Arc::clone(&published)));
        let service = listener.service();
        WorkerMetrics { counters: Counters::default(), service, published }
    }

    /// Returns what was published last, summed up by listener, in the order of registration.
    pub fn read(&self) -> Vec<(Listener, Counters)> {
        let mut sums: Vec<(Listener, Counters)> = Vec::new();
        for (listener, copy) in self.published.lock().iter() {
            let published = copy.lock();
            match sums.iter_mut().find(|(known, _)| known == listener) {
                Some((_, sum)) => sum.add(&published.counters),
                None => sums.push((*listener, published.counters.clone())),
            }
        }
        sums
    }

    /// Returns how often each worker has published, in the order of registration. Workers publish a
    /// few times a second: a number that does not change belongs to a stuck worker.
    pub fn publish_counts(&self) -> Vec<(Listener, u64)> {
        let all = self.published.lock();
        all.iter().map(|(listener, copy)| (*listener, copy.lock().times)).collect()
    }
}

impl WorkerMetrics {
    /// Publishes a copy of the counters. Takes a short lock and copies one or two kilobytes: call it a
    /// few times a second.
    pub fn publish(&mut self) {
        self.counters.sampling.adapt();
        let mut published = self.published.lock();
        published.counters.clone_from(&self.counters);
        published.times += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_sums_the_workers_of_a_listener() {
        let registry = MetricsRegistry::default();
        let udp = Listener {
            protocol: Protocol::Udp,
            address: ([127, 0, 0, 1], 1).into(),
            listener_policy: ListenerPolicyId(0),
        };
        let http = Listener { protocol: Protocol::Http, ..udp };
        let mut metrics = [udp, udp, http].map(|listener| registry.register(listener));
        for metrics in &mut metrics {
            metrics.counters.request(Family::V6, RequestKind::Scrape);
            metrics.counters.drop(DropReason::Reset);
        }
        assert_eq!(registry.read()[0].1, Counters::default(), "nothing is published yet");
        metrics.iter_mut().for_each(WorkerMetrics::publish);
        metrics[1].publish();
        assert_eq!(registry.publish_counts(), [(udp, 1), (udp, 2), (http, 1)]);
        let sums = registry.read();
        assert_eq!(sums.len(), 2);
        assert_eq!(sums[0].1.requests[1][RequestKind::Scrape.index()], 2);
        assert_eq!(sums[0].1.drops[DropReason::Reset.index()], 2);
        assert_eq!(sums[1].1.requests[1][RequestKind::Scrape.index()], 1);
    }
}
