//! Workers that serve HTTP, WebTorrent and both over TLS.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use front::Clock;
use front::http::{
    HttpListener, HttpOptions, HttpWorker, ListenerPages, MemoryLimits, PageOptions, PublicUrl,
    Site, SiteOptions, StopOrder, serve,
};
use front::webtorrent::{WebOptions, WorkerLink};
use net::tls::{Certificates, TlsConfig};
use net::{TcpOptions, bind_tcp};
use tokio::sync::watch;
use tracker::counters::{Counters, Listener, MetricsRegistry, Protocol};
use tracker::{ListenerPolicyId, RequestKind, Tracker};
use types::{InfoHash, SwarmCounts, Tick};

use super::{
    Client, HASH, TlsClient, VERSIONS, WebClient, certificate, client_config, client_of,
    manual_tick, tracker, wait_until,
};

/// Options by which no connection is ever late.
pub(crate) fn patient() -> HttpOptions {
    let [head_timeout_s, idle_timeout_s, write_timeout_s] = [u32::MAX; 3];
    HttpOptions { head_timeout_s, idle_timeout_s, write_timeout_s, ..HttpOptions::default() }
}

/// Workers with one tracker that serve until they are stopped. Their clock stands still unless the test
/// advances it.
pub(crate) struct HttpServer {
    /// Of the first worker's listener.
    pub(crate) address: SocketAddr,
    /// Of each worker's listener, which speaks no TLS.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Of the first worker's other listener, if there is one.
    pub(crate) second_address: Option<SocketAddr>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) registry: Arc<MetricsRegistry>,
    pub(crate) stop: watch::Sender<Option<StopOrder>>,
    pub(crate) workers: Vec<JoinHandle<()>>,
    /// The tick that the workers' clock shows.
    tick: &'static AtomicU32,
    /// Stops the workers inside a request.
    pause: Arc<Pause>,
}

/// Makes requests for statistics wait.
#[derive(Default)]
struct Pause {
    gate: Mutex<()>,
    is_waited_for: AtomicBool,
}

impl Pause {
    fn wait(&self) {
        self.is_waited_for.store(true, Ordering::Relaxed);
        drop(self.gate.lock());
    }
}

/// The other listener of a worker.
#[derive(Default)]
enum Second {
    #[default]
    None,
    /// One with the same options that speaks TLS.
    Tls,
    /// One with these options.
    Plain(Box<HttpOptions>),
}

/// What a test chooses about its workers.
#[derive(Default)]
struct Setup {
    /// The address to listen on; `None` = 127.0.0.1.
    listen: Option<String>,
    /// `None` = one of their own.
    tracker: Option<Arc<Tracker>>,
    /// One for each worker; empty = one worker.
    links: Vec<WorkerLink>,
    second: Second,
    options: HttpOptions,
    pages: PageOptions,
    memory_limits: MemoryLimits,
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

    /// One worker at 127.0.0.1 with these pages.
    pub(crate) fn with_pages(options: HttpOptions, pages: PageOptions) -> Self {
        Self::set_up(Setup { options, pages, ..Setup::default() })
    }

    /// One worker at 127.0.0.1 that serves WebTorrent with these options.
    pub(crate) fn web(web: WebOptions) -> Self {
        Self::with(HttpOptions { web: Some(web), ..HttpOptions::default() })
    }

    /// One worker at 127.0.0.1 with a tracker of its own.
    pub(crate) fn of(tracker: Arc<Tracker>, options: HttpOptions) -> Self {
        Self::set_up(Setup { tracker: Some(tracker), options, ..Setup::default() })
    }

    /// One worker at an address.
    pub(crate) fn at(listen: &str, options: HttpOptions) -> Self {
        Self::set_up(Setup { listen: Some(listen.to_owned()), options, ..Setup::default() })
    }

    /// One worker at 127.0.0.1 whose buffers may take this much memory.
    pub(crate) fn with_memory(options: HttpOptions, memory_limits: MemoryLimits) -> Self {
        Self::set_up(Setup { options, memory_limits, ..Setup::default() })
    }

    /// Several workers, each with a listener of its own.
    pub(crate) fn workers(count: usize, options: HttpOptions) -> Self {
        Self::set_up(Setup { links: WorkerLink::for_workers(count), options, ..Setup::default() })
    }

    /// One worker with a listener that speaks TLS for `tracker.test`, and one that does not.
    pub(crate) fn tls(options: HttpOptions) -> Self {
        Self::set_up(Setup { second: Second::Tls, options, ..Setup::default() })
    }

    /// One worker with a listener with the first options, and one with the others.
    pub(crate) fn two(options: HttpOptions, others: HttpOptions) -> Self {
        let second = Second::Plain(Box::new(others));
        Self::set_up(Setup { second, options, ..Setup::default() })
    }

    /// The workers of a node of a cluster, which shares `tracker` with the other nodes: their stores are the
    /// same, and their connections are not.
    pub(crate) fn node(tracker: Arc<Tracker>, links: Vec<WorkerLink>) -> Self {
        Self::set_up(Setup { tracker: Some(tracker), links, ..Setup::default() })
    }

    fn set_up(setup: Setup) -> Self {
        let Setup { listen, tracker: shared, mut links, second, options, pages, memory_limits } =
            setup;
        let listen = listen.as_deref().unwrap_or("127.0.0.1:0");
        let tracker = shared.unwrap_or_else(|| tracker(options.non_compact));
        if links.is_empty() {
            links = WorkerLink::for_workers(1);
        }
        let certificates = Arc::new(Certificates::default());
        if matches!(second, Second::Tls) {
            certificates.replace(vec![certificate("tracker.test")]);
        }
        let registry = Arc::new(MetricsRegistry::default());
        let (stop, stopped) = watch::channel(None);
        let tick = manual_tick();
        let pause = Arc::new(Pause::default());
        let site = Arc::new(Site::new(site_options(&registry, &pause)));
        let listener = |socket: TcpListener, tls: Option<TlsConfig>, options: &HttpOptions| {
            let address = socket.local_addr().unwrap();
            let protocols = match tls {
                Some(_) => [Protocol::Https, Protocol::Wss],
                None => [Protocol::Http, Protocol::Ws],
            };
            let listener_policy = ListenerPolicyId(0);
            let [http, web] = protocols
                .map(|protocol| registry.register(Listener { protocol, address, listener_policy }));
            let pages = ListenerPages {
                tracker: Arc::clone(&tracker),
                site: Arc::clone(&site),
                listener_policy,
                options: pages.clone(),
            };
            let pages = Some(Box::new(pages) as _);
            HttpListener { socket, tls, options: options.clone(), pages, http, web }
        };
        let (mut addresses, mut second_address, mut workers) = (Vec::new(), None, Vec::new());
        for link in links {
            let (address, socket) = bind(listen);
            addresses.push(address);
            let mut listeners = vec![listener(socket, None, &options)];
            let other = match &second {
                Second::None => None,
                Second::Tls => Some((Some(TlsConfig::new(&certificates)), &options)),
                Second::Plain(other) => Some((None, other.as_ref())),
            };
            if let Some((tls, options)) = other {
                let (address, socket) = bind(listen);
                second_address = Some(address);
                listeners.push(listener(socket, tls, options));
            }
            let tracker = Arc::clone(&tracker);
            let clock = Clock::manual(tick);
            let worker = HttpWorker { tracker, listeners, clock, seed: 7, link, memory_limits };
            let stopped = stopped.clone();
            workers.push(std::thread::spawn(move || serve(worker, stopped).unwrap()));
        }
        let address = addresses[0];
        Self {
            address,
            addresses,
            second_address,
            certificates,
            tracker,
            registry,
            stop,
            workers,
            tick,
            pause,
        }
    }

    /// Advances the clock of all workers. A deadline of `n` seconds has passed after `n + 1`.
    pub(crate) fn advance(&self, seconds: u32) {
        self.tick.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Calls `meanwhile` while the first worker is inside a request for its statistics, at `target`, the first
    /// of this second.
    pub(crate) fn pause(&self, target: &str, meanwhile: impl FnOnce()) {
        let gate = self.pause.gate.lock();
        let mut client = self.client();
        client.send(format!("GET {target} HTTP/1.1\r\n\r\n"));
        wait_until("the worker waits", || self.pause.is_waited_for.load(Ordering::Relaxed));
        meanwhile();
        drop(gate);
        assert_eq!(client.receive().status, 200);
    }

    /// A connection to the first worker.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A TLS connection to the first worker, whose handshake comes with the first bytes.
    pub(crate) fn tls_client(&self) -> TlsClient {
        client_of(self.second_address.unwrap(), "tracker.test", client_config(&VERSIONS))
    }

    /// A WebSocket to the first worker.
    pub(crate) fn web_client(&self) -> WebClient {
        self.web_client_of(0)
    }

    /// A WebSocket to a worker.
    pub(crate) fn web_client_of(&self, worker: usize) -> WebClient {
        WebClient::open(Client::connect(self.addresses[worker]), "/")
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

    /// Seeders, leechers and downloads of the torrent [`HASH`].
    pub(crate) fn counts(&self) -> SwarmCounts {
        self.counts_of(HASH.0[0])
    }

    /// The same of the torrent whose info hash repeats a byte.
    pub(crate) fn counts_of(&self, byte: u8) -> SwarmCounts {
        let mut counts = [SwarmCounts::default()];
        let (view, from) = (self.tracker.view(Tick(0)), [127, 0, 0, 1].into());
        let grant = view.authorize(ListenerPolicyId(0), from, RequestKind::Scrape, None);
        view.scrape(grant.unwrap(), &[InfoHash([byte; 20])], &mut counts).unwrap();
        counts[0]
    }

    /// WebTorrent peers of all torrents.
    pub(crate) fn web_peers(&self) -> u64 {
        let totals = self.tracker.totals().web;
        totals.leechers + totals.seeders
    }

    /// Waits until there are `count` WebTorrent peers.
    pub(crate) fn wait_for_web_peers(&self, count: u64) {
        wait_until(&format!("{count} peers"), || self.web_peers() == count);
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
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.begin_stop(Duration::ZERO);
        // A panic of a worker has been printed.
        self.workers.drain(..).for_each(|worker| drop(worker.join()));
    }
}

/// A site with some announce URLs, one of which only this machine can use.
fn site_options(registry: &Arc<MetricsRegistry>, pause: &Arc<Pause>) -> SiteOptions {
    let pause = Arc::clone(pause);
    let url = |scheme, port, path: &str, is_loopback| PublicUrl {
        scheme,
        port,
        path: path.into(),
        listener_policy: ListenerPolicyId(0),
        is_loopback,
    };
    SiteOptions {
        urls: vec![
            url("udp", 6969, "/announce", false),
            url("udp", 6969, "/announce", false),
            url("http", 80, "/announce", false),
            url("wss", 8443, "/<&>", false),
            url("http", 8080, "/announce", true),
        ],
        host: None,
        registry: Arc::clone(registry),
        uptime_s: Box::new(move || {
            pause.wait();
            7265
        }),
        version: "1.2.3",
        node: 0,
    }
}

fn bind(listen: &str) -> (SocketAddr, TcpListener) {
    let sockets = bind_tcp(listen.parse().unwrap(), 1, &TcpOptions::default()).unwrap();
    let socket = sockets.into_iter().next().unwrap();
    (socket.local_addr().unwrap(), socket)
}
