//! What the operator can count. A worker owns a plain [`Counters`] struct for each listener and
//! increments it without synchronisation; now and then it publishes a copy that others may read.

mod clients;
mod latency;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use types::{Family, Refusal};

use crate::{ListenerPolicyId, RequestKind};

pub use clients::{ClientPrefix, Clients};
pub use latency::Latency;

/// Why something was dropped without a word, or a connection closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// UDP: fewer bytes than any request has.
    TooShort,
    /// UDP: more bytes than any request has.
    Oversize,
    /// UDP: not a connect and no known action: not tracker traffic.
    NotATracker,
    /// UDP: a connection id that was not issued to the source address, or is too old.
    BadConnectionId,
    /// UDP: BEP 41 options that run past the packet.
    MalformedOptions,
    /// The reply could not be sent.
    SendFailed,
    /// The reply was dropped because the socket's send buffer was full.
    Blocked,
    /// A PROXY or Simple Proxy header from an address that is no trusted proxy.
    UntrustedProxy,
    /// A trusted proxy that sent no such header, or a broken one.
    BadProxyHeader,
    /// HTTP: request line or headers above the limit.
    HeadTooLarge,
    /// HTTP: bytes that are no HTTP request, or one that this server does not take.
    BadHttp,
    /// HTTP: the client was silent, or slower than allowed.
    TimedOut,
    /// TCP: a connection above the limit.
    ConnectionLimit,
    /// TCP: a connection above the limit of its client's prefix.
    PrefixConnectionLimit,
    /// UDP: a connect above the limit of its prefix.
    ConnectRate,
    /// UDP: an announce or scrape above the limit of its prefix.
    RequestRate,
    /// UDP: a request of a network that is banned. TCP: a connection of one.
    Banned,
    /// TCP: the connection broke.
    Reset,
    /// TLS: the client broke it, has no version or cipher in common, left in the handshake because it does
    /// not trust the certificate, or speaks something else.
    BadTls,
    /// WebSocket: a request for one that is not as RFC 6455 has it.
    BadUpgrade,
    /// WebSocket: a page of a site that may not use the tracker.
    ForbiddenOrigin,
    /// WebSocket: the client broke RFC 6455.
    BadFrame,
    /// WebSocket: a message above the limit.
    MessageTooBig,
    /// WebSocket: the client did not read what was sent to it.
    SlowReader,
    /// WebTorrent: an answer to an offer that is not outstanding.
    StrayAnswer,
    /// WebTorrent: a message to a client of another worker, which was too busy to take it.
    MailboxFull,
}

impl DropReason {
    /// Every reason, in the order of [`DropReason::index`].
    pub const ALL: [Self; 26] = [
        Self::TooShort,
        Self::Oversize,
        Self::NotATracker,
        Self::BadConnectionId,
        Self::MalformedOptions,
        Self::SendFailed,
        Self::Blocked,
        Self::UntrustedProxy,
        Self::BadProxyHeader,
        Self::HeadTooLarge,
        Self::BadHttp,
        Self::TimedOut,
        Self::ConnectionLimit,
        Self::PrefixConnectionLimit,
        Self::ConnectRate,
        Self::RequestRate,
        Self::Banned,
        Self::Reset,
        Self::BadTls,
        Self::BadUpgrade,
        Self::ForbiddenOrigin,
        Self::BadFrame,
        Self::MessageTooBig,
        Self::SlowReader,
        Self::StrayAnswer,
        Self::MailboxFull,
    ];

    /// The place in tables.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::Oversize => "oversize",
            Self::NotATracker => "not_a_tracker",
            Self::BadConnectionId => "bad_connection_id",
            Self::MalformedOptions => "malformed_options",
            Self::SendFailed => "send_failed",
            Self::Blocked => "blocked",
            Self::UntrustedProxy => "untrusted_proxy",
            Self::BadProxyHeader => "bad_proxy_header",
            Self::HeadTooLarge => "head_too_large",
            Self::BadHttp => "bad_http",
            Self::TimedOut => "timed_out",
            Self::ConnectionLimit => "connection_limit",
            Self::PrefixConnectionLimit => "prefix_connection_limit",
            Self::ConnectRate => "connect_rate",
            Self::RequestRate => "request_rate",
            Self::Banned => "banned",
            Self::Reset => "reset",
            Self::BadTls => "bad_tls",
            Self::BadUpgrade => "bad_upgrade",
            Self::ForbiddenOrigin => "forbidden_origin",
            Self::BadFrame => "bad_frame",
            Self::MessageTooBig => "message_too_big",
            Self::SlowReader => "slow_reader",
            Self::StrayAnswer => "stray_answer",
            Self::MailboxFull => "mailbox_full",
        }
    }
}

/// Everything that one worker counts at one listener. All figures but those of clients only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Peers given in answers; WebTorrent: offers passed on.
    pub peers_sent: u64,
    /// Networks that the kernel was asked to shut out.
    pub kernel_blocks: u64,
    /// TLS handshakes completed.
    pub tls_handshakes: u64,
    /// TCP connections accepted.
    pub connections_opened: u64,
    /// TCP connections ended.
    pub connections_closed: u64,
    /// TCP connections open now: a gauge, unlike the other fields.
    pub connections_open: u64,
    /// From when a request was taken in to when its answer was ready to leave. Datagrams that came
    /// together take as long as all of them; of what comes over TCP a part is measured.
    pub latency: Latency,
    /// Which software announces.
    pub clients: Clients,
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

    /// Counts a refusal; its response is counted apart.
    #[inline]
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refusals[refusal.index()] += 1;
    }

    /// Counts a silent drop.
    #[inline]
    pub fn drop(&mut self, reason: DropReason) {
        self.drops[reason.index()] += 1;
    }

    /// Counts a TCP connection that begins.
    #[inline]
    pub fn connection_opened(&mut self) {
        self.connections_opened += 1;
        self.connections_open += 1;
    }

    /// Counts a TCP connection that ends.
    #[inline]
    pub fn connection_closed(&mut self) {
        debug_assert!(self.connections_open > 0, "more connections closed than opened");
        self.connections_closed += 1;
        self.connections_open = self.connections_open.saturating_sub(1);
    }

    /// Adds another worker's figures.
    pub fn add(&mut self, other: &Self) {
        add_all(self.requests.as_flattened_mut(), other.requests.as_flattened());
        add_all(self.responses.as_flattened_mut(), other.responses.as_flattened());
        add_all(&mut self.refusals, &other.refusals);
        add_all(&mut self.drops, &other.drops);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.peers_sent += other.peers_sent;
        self.kernel_blocks += other.kernel_blocks;
        self.tls_handshakes += other.tls_handshakes;
        self.connections_opened += other.connections_opened;
        self.connections_closed += other.connections_closed;
        self.connections_open += other.connections_open;
        self.latency.add(&other.latency);
        self.clients.add(&other.clients);
    }
}

fn add_all(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// BEP 15.
    Udp,
    /// BEP 3.
    Http,
    /// The same over TLS.
    Https,
    /// WebTorrent.
    Ws,
    /// The same over TLS.
    Wss,
}

impl Protocol {
    /// The name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }
}

/// A listener, as the operator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it listens.
    pub address: SocketAddr,
    /// What is decided for it.
    pub listener_policy: ListenerPolicyId,
}

/// All ledgers of the process.
#[derive(Default)]
pub struct MetricsRegistry {
    published: Mutex<Vec<(Listener, Slot)>>,
}

type Slot = Arc<Mutex<Published>>;

/// The last copy of a ledger's figures.
#[derive(Default)]
struct Published {
    counters: Counters,
    /// How often there was one.
    times: u64,
}

/// One worker's account of one listener.
pub struct WorkerMetrics {
    /// The running figures.
    pub counters: Counters,
    published: Slot,
}

impl MetricsRegistry {
    /// A new account; several workers may have one for the same listener.
    pub fn register(&self, listener: Listener) -> WorkerMetrics {
        let published = Slot::default();
        let mut all = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((listener, Arc::clone(&published)));
        WorkerMetrics { counters: Counters::default(), published }
    }

    /// What was last published, summed up by listener, in the order of registration.
    pub fn read(&self) -> Vec<(Listener, Counters)> {
        let all = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums: Vec<(Listener, Counters)> = Vec::new();
        for (listener, slot) in all.iter() {
            let published = slot.lock().unwrap_or_else(PoisonError::into_inner);
            match sums.iter_mut().find(|(known, _)| known == listener) {
                Some((_, sum)) => sum.add(&published.counters),
                None => sums.push((*listener, published.counters.clone())),
            }
        }
        sums
    }

    /// How often each account was published, in the order of registration. Workers publish all of
    /// theirs a few times a second: a number that stands still is that of a worker that is stuck.
    pub fn publish_counts(&self) -> Vec<(Listener, u64)> {
        let all = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        let times = |slot: &Slot| slot.lock().unwrap_or_else(PoisonError::into_inner).times;
        all.iter().map(|(listener, slot)| (*listener, times(slot))).collect()
    }
}

impl WorkerMetrics {
    /// Lets others see the figures as they are now. Costs a lock nobody else holds for long, and a
    /// copy of a kilobyte or two: for a few times a second.
    pub fn publish(&mut self) {
        let mut published = self.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.counters.clone_from(&self.counters);
        published.times += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_index_order() {
        assert!(DropReason::ALL.iter().enumerate().all(|(at, drop)| drop.index() == at));
    }

    #[test]
    fn board_sums_workers_of_a_listener() {
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
