//! The threads that serve clients and operators.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use ::xdp::WorkerQueues;
use admin::{Api, Service};
use anyhow::{Context, Result};
use front::http::{HttpListener, HttpWorker, MemoryLimits};
use front::udp::{UdpFront, UdpListener};
use front::webtorrent::WorkerLink;
use net::process::raise_priority;
use net::tls::TlsConfig;
use net::{UdpSocket, UdpWorker};
use pages::{ListenerPages, PublicUrl, Site, SiteOptions};
use tracker::counters::{Listener, Protocol};
use types::limits;

use super::{Workers, give_way};
use crate::serve::listeners::BoundListener;
use crate::serve::sources::uptime;
use config::{Config, ListenerGroup, Transport, worker_count};

impl Workers {
    /// Starts the UDP workers: one for the first socket of every listener, one for the second, … `equip`
    /// prepares each of them, and returns its AF_XDP sockets.
    pub(in crate::serve) fn start_udp(
        &mut self,
        listeners: Vec<BoundListener<UdpSocket>>,
        config: &Config,
        mut equip: impl FnMut(usize, &mut UdpWorker) -> WorkerQueues,
    ) -> Result<()> {
        for (number, sockets_of_worker) in
            distribute(listeners, worker_count(config.udp_workers)).into_iter().enumerate()
        {
            let listeners = sockets_of_worker
                .iter()
                .map(|(socket, group)| self.udp_listener(socket.local_addr(), group))
                .collect();
            let sockets: Vec<_> = sockets_of_worker.into_iter().map(|(socket, _)| socket).collect();
            let mut front =
                UdpFront::new(Arc::clone(&self.tracker), listeners, self.clock, seed()?);
            let mut worker = UdpWorker::new(sockets, config.engine);
            let queues = equip(number, &mut worker);
            let stop = Arc::clone(&self.stop);
            self.start(&format!("udp-{number}"), raise_priority, move || {
                Ok(::xdp::run(worker, queues, &mut front, &stop)?)
            })?;
        }
        Ok(())
    }

    fn udp_listener(&self, address: SocketAddr, group: &ListenerGroup) -> UdpListener {
        let listener_policy = group.listener_policy;
        let listener = Listener { protocol: Protocol::Udp, address, listener_policy };
        UdpListener {
            metrics: self.registry.register(listener),
            listener_policy,
            proxies: group.simple_proxies.clone(),
        }
    }

    /// Returns what pages and statistics of HTTP workers show. `node` is the number of a node of a cluster.
    pub(in crate::serve) fn site(
        &self,
        urls: Vec<PublicUrl>,
        config: &Config,
        node: Option<u8>,
        api: &Arc<Api>,
    ) -> Arc<Site> {
        let api = Arc::clone(api);
        Arc::new(Site::new(SiteOptions {
            urls,
            host: config.public_host.clone(),
            text: config.page_text.clone(),
            services: Box::new(move || api.services()),
            registry: Arc::clone(&self.registry),
            // That of the process, as in metrics.
            uptime_s: Box::new(|| uptime().as_secs()),
            version: env!("CARGO_PKG_VERSION"),
            node: node.unwrap_or(0),
        }))
    }

    /// Starts the HTTP workers, likewise. `tls` is for listeners that use it.
    pub(in crate::serve) fn start_http(
        &mut self,
        listeners: Vec<BoundListener<TcpListener>>,
        tls: &TlsConfig,
        site: &Arc<Site>,
        config: &Config,
        node: Option<u8>,
    ) -> Result<()> {
        let workers = distribute(listeners, worker_count(config.http_workers));
        let links = if let Some(node) = node {
            let (links, letters) =
                WorkerLink::for_workers_of_node(workers.len(), node, limits::LETTERS_BYTES_PER_S);
            // Set once: the workers start once.
            let _ = self.letters.set(letters);
            links
        } else {
            WorkerLink::for_workers(workers.len())
        };
        for (number, (sockets_of_worker, link)) in workers.into_iter().zip(links).enumerate() {
            let listener = |(socket, group): (TcpListener, ListenerGroup)| {
                let (address, listener_policy) = (socket.local_addr()?, group.listener_policy);
                let tls = (group.transport == Transport::Tls).then(|| tls.clone());
                let protocols = match tls {
                    None => [Protocol::Http, Protocol::Ws],
                    Some(_) => [Protocol::Https, Protocol::Wss],
                };
                let [http, web] = protocols.map(|protocol| {
                    self.registry.register(Listener { protocol, address, listener_policy })
                });
                let pages = ListenerPages {
                    tracker: Arc::clone(&self.tracker),
                    site: Arc::clone(site),
                    listener_policy,
                    options: group.pages,
                };
                let pages = Some(Arc::new(pages) as _);
                anyhow::Ok(HttpListener { socket, tls, options: group.http, pages, http, web })
            };
            let worker = HttpWorker {
                tracker: Arc::clone(&self.tracker),
                listeners: sockets_of_worker.into_iter().map(listener).collect::<Result<_>>()?,
                clock: self.clock,
                seed: seed()?,
                link,
                memory_limits: MemoryLimits::default(),
                lower_priority: give_way,
            };
            let stop = self.stop_http.subscribe();
            self.start(&format!("http-{number}"), raise_priority, move || {
                Ok(front::http::serve(worker, stop)?)
            })?;
        }
        Ok(())
    }

    pub(in crate::serve) fn start_admin(
        &mut self,
        listeners: Vec<TcpListener>,
        service: Service,
    ) -> Result<()> {
        if listeners.is_empty() {
            return Ok(());
        }
        let stop = self.stopping();
        self.start("admin", raise_priority, move || Ok(admin::serve(listeners, &service, stop)?))
    }
}

fn seed() -> Result<u64> {
    getrandom::u64().context("cannot get random numbers from the system")
}

/// Distributes the sockets of each listener, of which there may be more or fewer, over at most `count` workers.
fn distribute<S>(listeners: Vec<BoundListener<S>>, count: usize) -> Vec<Vec<(S, ListenerGroup)>> {
    let mut workers: Vec<Vec<(S, ListenerGroup)>> = Vec::new();
    workers.resize_with(count, Vec::new);
    for BoundListener { sockets, group } in listeners {
        for (number, socket) in sockets.into_iter().enumerate() {
            workers[number % count].push((socket, group.clone()));
        }
    }
    workers.retain(|sockets| !sockets.is_empty());
    workers
}
