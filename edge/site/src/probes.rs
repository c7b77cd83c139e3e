//! Probes: does a client accept connections? UNIT3D has a column for it, `connectable`.
//!
//! An announce asks for a probe and does not wait; the thread `site-probe` opens a TCP connection from an address that the
//! operator names, and closes it. It must be of no use against others, so it connects only to the address that the
//! announce came from, never to private or own ones or to ports of services, once in half an hour, and not often to one
//! address or network. See decision 0077.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use primitives::IpPrefix;
use serde::Serialize;
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracker::{SiteAnnounce, SiteProtocol};
use types::{Event, Tick, limits};
use utoipa::ToSchema;

const SHARDS: usize = 64;
/// Time that a client has to accept the connection.
const PATIENCE: Duration = Duration::from_millis(500);
/// Probes that wait for their turn. More are skipped: their clients announce again.
const WAITING_MAX: usize = 4_096;
/// Bits of a network, within which probes are few.
const NETWORK_BITS: (u8, u8) = (24, 48);

/// The settings of probes.
#[derive(Clone)]
pub struct ProbeConfig {
    /// Local addresses from which connections are opened, at most one of each family. Empty = no probes.
    pub from: Vec<IpAddr>,
    /// True if clients that accept no connection are not handed out, and get no peers.
    pub required: bool,
    /// Returns whether an address may be probed: public ones.
    pub may_probe: fn(IpAddr) -> bool,
}

/// The number of probes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProbeCounts {
    /// Clients that accepted the connection.
    pub open: u64,
    /// Clients that did not.
    pub closed: u64,
    /// Probes that were not made, because there were too many, or cannot be made from this machine.
    pub skipped: u64,
}

/// Results by client, and the queue of clients that are to be probed.
pub(crate) struct Probes {
    config: ProbeConfig,
    shards: Box<[Mutex<HashMap<SocketAddr, Known>>]>,
    hasher: RandomState,
    queue: Sender<SocketAddr>,
    waiting: Mutex<Option<Receiver<SocketAddr>>>,
    open: AtomicU64,
    closed: AtomicU64,
    skipped: AtomicU64,
}

#[derive(Clone, Copy)]
struct Known {
    /// The last result, if there is one.
    is_open: Option<bool>,
    /// When the last probe was asked for.
    asked_s: u32,
}

/// Probes of the last half hour.
#[derive(Default)]
struct Budget {
    since_s: u64,
    addresses: HashMap<IpAddr, u32>,
    networks: HashMap<IpPrefix, u32>,
}

impl Probes {
    /// Returns `None` if no address to probe from is named.
    pub(crate) fn new(config: &ProbeConfig) -> Option<Self> {
        if config.from.is_empty() {
            return None;
        }
        let (queue, waiting) = channel(WAITING_MAX);
        Some(Self {
            config: config.clone(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            queue,
            waiting: Mutex::new(Some(waiting)),
            open: AtomicU64::default(),
            closed: AtomicU64::default(),
            skipped: AtomicU64::default(),
        })
    }

    /// Returns true if clients that accept no connection are not handed out.
    pub(crate) fn are_required(&self) -> bool {
        self.config.required
    }

    /// Asks for a probe of the client that announces, if that is permitted and none is valid.
    pub(crate) fn ask(&self, now: Tick, announce: &SiteAnnounce<'_>) {
        let SiteAnnounce { announce: it, from, client_ip, protocol, .. } = announce;
        let at = SocketAddr::new(from.to_canonical(), it.port);
        let is_own = from == client_ip && *protocol != SiteProtocol::WebTorrent;
        if !is_own || it.event == Event::Stopped || !self.permits(at) {
            return;
        }
        let mut shard = self.shard(at).lock();
        let is_valid = |known: &Known| now.0 < known.asked_s + limits::SITE_PROBE_VALID_S;
        let known = shard.get(&at).copied();
        if known.is_some_and(|known| is_valid(&known)) {
            return;
        }
        if known.is_none() && shard.len() >= limits::SITE_PROBES_REMEMBERED / SHARDS {
            shard.retain(|_, known| is_valid(known));
            if shard.len() >= limits::SITE_PROBES_REMEMBERED / SHARDS {
                self.skip();
                return;
            }
        }
        match self.queue.try_send(at) {
            Ok(()) => {
                let is_open = known.and_then(|known| known.is_open);
                shard.insert(at, Known { is_open, asked_s: now.0 });
            }
            Err(_) => self.skip(),
        }
    }

    /// Returns whether a client accepts connections, or `None` if that is unknown.
    pub(crate) fn is_open(&self, ip: IpAddr, port: u16) -> Option<bool> {
        let at = SocketAddr::new(ip, port);
        self.shard(at).lock().get(&at)?.is_open
    }

    pub(crate) fn counts(&self) -> ProbeCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProbeCounts {
            open: read(&self.open),
            closed: read(&self.closed),
            skipped: read(&self.skipped),
        }
    }

    /// Probes until `stop` is notified. Call once.
    pub(crate) fn run(self: Arc<Self>, stop: &Notify) -> io::Result<()> {
        let Some(waiting) = self.waiting.lock().take() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                () = self.probe_all(waiting) => {}
                () = stop.notified() => {}
            }
        });
        Ok(())
    }

    async fn probe_all(self: &Arc<Self>, mut waiting: Receiver<SocketAddr>) {
        let mut pace = interval(Duration::from_secs(1) / limits::SITE_PROBES_PER_S);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut budget = Budget::default();
        let start = tokio::time::Instant::now();
        while let Some(at) = waiting.recv().await {
            if !budget.take(start.elapsed().as_secs(), at.ip()) || is_own(at.ip()) {
                self.skip();
                continue;
            }
            pace.tick().await;
            // At this rate and with this patience, some fifty are under way at most.
            let probes = Arc::clone(self);
            tokio::spawn(async move { probes.probe(at).await });
        }
    }

    async fn probe(&self, at: SocketAddr) {
        let from = self.source(at.ip());
        let accepted = match from.map(|from| begin(from, at)) {
            Some(Ok(connect)) => timeout(PATIENCE, connect).await,
            // The address is not one of this machine, or there are no sockets left: nothing is known of the client.
            Some(Err(error)) => {
                if self.skipped.load(Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        target: "site",
                        "cannot probe from site.connectable_from: {error}; further ones are only counted"
                    );
                }
                return self.skip();
            }
            None => return self.skip(),
        };
        let is_open = matches!(accepted, Ok(Ok(_)));
        let count = if is_open { &self.open } else { &self.closed };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(known) = self.shard(at).lock().get_mut(&at) {
            known.is_open = Some(is_open);
        }
    }

    /// Returns whether a probe of this address and port is permitted.
    fn permits(&self, at: SocketAddr) -> bool {
        let ip = at.ip();
        at.port() >= limits::SITE_PROBE_PORT_MIN
            && (self.config.may_probe)(ip)
            && !self.config.from.contains(&ip)
            && self.source(ip).is_some()
    }

    /// Returns the local address of the same family.
    fn source(&self, ip: IpAddr) -> Option<IpAddr> {
        self.config.from.iter().copied().find(|from| from.is_ipv4() == ip.is_ipv4())
    }

    fn skip(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn shard(&self, at: SocketAddr) -> &Mutex<HashMap<SocketAddr, Known>> {
        &self.shards[self.hasher.hash_one(at) as usize % SHARDS]
    }
}

impl Budget {
    /// Counts a probe. Returns false if its address or network has had too many. `now_s` are seconds since any moment.
    fn take(&mut self, now_s: u64, ip: IpAddr) -> bool {
        if now_s >= self.since_s + u64::from(limits::SITE_PROBE_VALID_S) {
            *self = Self { since_s: now_s, ..Self::default() };
        }
        let (v4, v6) = NETWORK_BITS;
        let of_network = self.networks.entry(IpPrefix::of_client(ip, v4, v6)).or_default();
        let of_address = self.addresses.entry(ip).or_default();
        let is_free = *of_address < limits::SITE_PROBES_PER_ADDRESS
            && *of_network < limits::SITE_PROBES_PER_NETWORK;
        if is_free {
            *of_address += 1;
            *of_network += 1;
        }
        is_free
    }
}

/// Returns whether an address is one of this machine: only these can be bound.
fn is_own(ip: IpAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// Returns the first address to probe from that is not one of this machine.
pub(crate) fn find_foreign(from: &[IpAddr]) -> Option<IpAddr> {
    from.iter().copied().find(|ip| !is_own(*ip))
}

/// Begins a connection from a local address.
fn begin(
    from: IpAddr,
    to: SocketAddr,
) -> io::Result<impl Future<Output = io::Result<tokio::net::TcpStream>>> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(from, 0))?;
    Ok(socket.connect(to))
}
