//! Workers that serve HTTP, WebTorrent and both over TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use front::Clock;
use front::http::{HttpListener, HttpOptions, HttpWorker, MemoryLimits, Pages, StopOrder, serve};
use front::webtorrent::{WebOptions, WorkerLink};
use net::tls::{Certificate, Certificates, TlsConfig};
use net::{TcpOptions, bind_tcp};
use rcgen::generate_simple_self_signed;
use socket2::SockRef;
use tokio::sync::watch;
use tracker::counters::{Counters, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, Networks, Tracker};

use super::{Client, WebClient, manual_tick, tracker, wait_until};

/// The size of the send buffers of connections. By default the kernel grows them to some megabytes: so much would
/// have to be sent to each client that does not read.
const SEND_BUFFER: usize = 64 * 1024;

/// HTTP without TLS and with it.
pub(crate) const HTTP: [Protocol; 2] = [Protocol::Http, Protocol::Https];
/// The same for WebSockets.
pub(crate) const WEB: [Protocol; 2] = [Protocol::Ws, Protocol::Wss];

/// The certificate of all servers, for `tracker.test`.
static CERTIFICATES: LazyLock<Arc<Certificates>> = LazyLock::new(|| {
    let own = generate_simple_self_signed(["tracker.test".to_owned()]).unwrap();
    let pem = own.cert.pem() + &own.signing_key.serialize_pem();
    let certificates = Certificates::default();
    let certificate = Certificate::from_pem(pem.as_bytes(), Path::new("own.pem")).unwrap();
    certificates.replace(vec![certificate]);
    Arc::new(certificates)
});

/// Options of a listener whose clients come through the proxy, named by forwarding headers.
pub(crate) fn behind_proxy() -> HttpOptions {
    let trusted_proxies = Networks::parse(["127.0.0.1"]).unwrap();
    HttpOptions { trusted_proxies, ..HttpOptions::default() }
}

/// The same with clients that are named by PROXY headers.
pub(crate) fn behind_proxy_protocol() -> HttpOptions {
    HttpOptions { proxy_protocol: true, ..behind_proxy() }
}

/// Workers with one tracker that serve until they are stopped. Their clock stands still unless the test
/// advances it.
pub(crate) struct HttpServer {
    /// Of the first worker's listener.
    pub(crate) address: SocketAddr,
    /// Of each worker's listener, which speaks no TLS.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Of the first worker's other listener. It speaks TLS for `tracker.test`, unless a test has options for it.
    pub(crate) second_address: SocketAddr,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) registry: Arc<MetricsRegistry>,
    pub(crate) stop: watch::Sender<Option<StopOrder>>,
    pub(crate) workers: Vec<JoinHandle<()>>,
    /// The tick that the workers' clock shows.
    tick: &'static AtomicU32,
}

/// The settings of a test's workers.
#[derive(Default)]
pub(crate) struct Setup {
    /// `None` = one of their own.
    pub(crate) tracker: Option<Arc<Tracker>>,
    pub(crate) registry: Arc<MetricsRegistry>,
    /// One for each worker, which has listeners of its own; empty = one worker.
    pub(crate) links: Vec<WorkerLink>,
    pub(crate) options: HttpOptions,
    /// Options of a second listener instead of that with TLS.
    pub(crate) others: Option<HttpOptions>,
    /// The pages of each listener.
    pub(crate) pages: Option<Arc<dyn Pages>>,
    pub(crate) memory_limits: MemoryLimits,
}

impl HttpServer {
    /// One worker at 127.0.0.1 with default options.
    pub(crate) fn start() -> Self {
        Self::with(HttpOptions::default())
    }

    /// One worker at 127.0.0.1.
    pub(crate) fn with(options: HttpOptions) -> Self {
        Self::set_up(Setup { options, ..Setup::default() })
    }

    /// One worker at 127.0.0.1 that serves WebTorrent with these options.
    pub(crate) fn web(web: WebOptions) -> Self {
        Self::with(HttpOptions { web: Some(web), ..HttpOptions::default() })
    }

    pub(crate) fn set_up(mut setup: Setup) -> Self {
        let tracker = setup.tracker.take().unwrap_or_else(|| tracker(setup.options.non_compact));
        let links = match std::mem::take(&mut setup.links) {
            links if links.is_empty() => WorkerLink::for_workers(1),
            links => links,
        };
        let (stop, stopped) = watch::channel(None);
        let tick = manual_tick();
        let mut addresses = Vec::new();
        let mut second_addresses = Vec::new();
        let mut workers = Vec::new();
        for link in links {
            let first = setup.listener(None, &setup.options);
            let second = match &setup.others {
                Some(others) => setup.listener(None, others),
                None => setup.listener(Some(TlsConfig::new(&CERTIFICATES)), &setup.options),
            };
            addresses.push(first.socket.local_addr().unwrap());
            second_addresses.push(second.socket.local_addr().unwrap());
            let worker = HttpWorker {
                tracker: Arc::clone(&tracker),
                listeners: vec![first, second],
                clock: Clock::Manual(tick),
                seed: 7,
                link,
                memory_limits: setup.memory_limits,
                // A thread with a low priority makes next to no progress beside the tests of other crates.
                lower_priority: || {},
            };
            let stopped = stopped.clone();
            workers.push(std::thread::spawn(move || serve(worker, stopped).unwrap()));
        }
        Self {
            address: addresses[0],
            addresses,
            second_address: second_addresses[0],
            tracker,
            registry: setup.registry,
            stop,
            workers,
            tick,
        }
    }

    /// Advances the clock of all workers. A deadline of `n` seconds has passed after `n + 1`.
    pub(crate) fn advance(&self, seconds: u32) {
        self.tick.fetch_add(seconds, Ordering::Relaxed);
    }

    /// A connection to the first worker.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A TLS connection to the first worker, whose handshake comes with the first bytes.
    pub(crate) fn tls_client(&self) -> Client {
        Client::connect(self.second_address).begin_tls()
    }

    /// A client at the listener without TLS and one at that with TLS, with the protocols that these count.
    pub(crate) fn both_clients(&self) -> [(Protocol, Client); 2] {
        [(Protocol::Http, self.client()), (Protocol::Https, self.tls_client())]
    }

    /// The same as WebSockets.
    pub(crate) fn both_web_clients(&self) -> [(Protocol, WebClient); 2] {
        let [plain, tls] = self.both_clients().map(|(_, client)| WebClient::open(client, "/"));
        [(Protocol::Ws, plain), (Protocol::Wss, tls)]
    }

    /// A WebSocket to the first worker.
    pub(crate) fn web_client(&self) -> WebClient {
        self.web_client_of(0)
    }

    /// A WebSocket to a worker.
    pub(crate) fn web_client_of(&self, worker: usize) -> WebClient {
        WebClient::open(Client::connect(self.addresses[worker]), "/")
    }

    /// This many WebSockets to the first worker, with a peer each: the first has the number 1.
    pub(crate) fn joined(&self, count: u8) -> Vec<WebClient> {
        let join = |peer| {
            let mut client = self.web_client();
            client.join(peer);
            client
        };
        (1..=count).map(join).collect()
    }

    /// Returns the counters of a protocol's listeners, published at most a moment ago.
    pub(crate) fn counters(&self, protocol: Protocol) -> Counters {
        let mut sum = Counters::default();
        let all = self.registry.read();
        let own = all.iter().filter(|(listener, _)| listener.protocol == protocol);
        own.for_each(|(_, counters)| sum.add(counters));
        sum
    }

    /// Waits until `is_so` holds for the counters of a protocol's listeners.
    pub(crate) fn wait_for_counts(
        &self,
        protocol: Protocol,
        what: &str,
        mut is_so: impl FnMut(&Counters) -> bool,
    ) {
        wait_until(what, || is_so(&self.counters(protocol)));
    }

    /// Waits until there are `count` WebTorrent peers.
    pub(crate) fn wait_for_web_peers(&self, count: u64) {
        wait_until(&format!("{count} peers"), || {
            let totals = self.tracker.totals().web;
            totals.leechers + totals.seeders == count
        });
    }

    /// Returns true if the client can open another connection, which is closed.
    pub(crate) fn has_free_permit(&self, from: &str) -> bool {
        self.tracker.limiter().permit(from.parse().unwrap(), None).is_ok()
    }

    /// Has all workers stop. Idle connections are closed after `idle_grace`.
    pub(crate) fn begin_stop(&self, idle_grace: Duration) {
        self.stop.send_replace(Some(StopOrder { idle_grace }));
    }

    /// Stops all workers and waits until they have ended.
    pub(crate) fn end(&mut self) {
        if self.stop.borrow().is_none() {
            self.begin_stop(Duration::ZERO);
        }
        self.workers.drain(..).for_each(|worker| worker.join().unwrap());
    }

    /// The same, and what a protocol's listeners have counted in all.
    pub(crate) fn finish(mut self, protocol: Protocol) -> Counters {
        self.end();
        self.counters(protocol)
    }

    /// The same for a protocol without TLS and with it.
    pub(crate) fn finish_both(mut self, protocols: [Protocol; 2]) -> [Counters; 2] {
        self.end();
        protocols.map(|protocol| self.counters(protocol))
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.begin_stop(Duration::ZERO);
        // A panic of a worker has been printed.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

impl Setup {
    /// Binds a listener and registers its metrics.
    fn listener(&self, tls: Option<TlsConfig>, options: &HttpOptions) -> HttpListener {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = bind_tcp(here, Vec::new(), 1, &TcpOptions::default()).unwrap().remove(0);
        SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER).unwrap();
        let address = socket.local_addr().unwrap();
        let protocols = match tls {
            Some(_) => [Protocol::Https, Protocol::Wss],
            None => [Protocol::Http, Protocol::Ws],
        };
        let listener_policy = ListenerPolicyId(0);
        let [http, web] = protocols.map(|protocol| {
            self.registry.register(Listener { protocol, address, listener_policy })
        });
        let pages = self.pages.clone();
        HttpListener { socket, tls, options: options.clone(), pages, http, web }
    }
}
