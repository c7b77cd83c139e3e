//! A listener of one worker, as its connections see it.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

use net::tls::TlsConfig;
use tracker::counters::{Counters, DropReason, WorkerMetrics};
use tracker::{ConnectionPermit, Limiter, ListenerShare, PermitDenied, Service};
use types::Tick;

use crate::connection_error::{ConnectionError, ConnectionResult};
use crate::http::{HttpListener, HttpOptions, Pages};
use crate::webtorrent::options::WebOptions;
use crate::worker::Worker;

/// State that the connections of a listener share.
pub(crate) struct Listener {
    /// The listener's place among those of the worker.
    pub(crate) number: usize,
    pub(crate) options: HttpOptions,
    pub(crate) pages: Option<Arc<dyn Pages>>,
    /// The settings of WebSockets. Used only if `options.web` is set.
    pub(crate) web_options: WebOptions,
    /// Its part of the worker's connections, if that is smaller than the whole.
    pub(crate) share: Option<ListenerShare>,
    /// The service of its HTTP clients.
    pub(crate) service: Service,
    /// The service of its WebSockets.
    pub(crate) web_service: Service,
    /// The TLS configuration; `None` = no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// The places of its connections in the worker's table, in no order. Used only if it has a share.
    pub(crate) seats: RefCell<Vec<u32>>,
    /// Its connections that made room for others, and whose tasks have not ended yet.
    pub(crate) displaced: Cell<u32>,
    http: RefCell<WorkerMetrics>,
    ws: RefCell<WorkerMetrics>,
}

impl Listener {
    /// Returns the state of `listener`, and its socket. Networks are limited to their share of its own
    /// connections if it may hold fewer than `worker_max`, the most that the worker may hold at all listeners.
    ///
    /// # Errors
    ///
    /// Returns the error of the socket if it has no address.
    pub(crate) fn new(
        number: usize,
        listener: HttpListener,
        worker_max: usize,
    ) -> io::Result<(Self, TcpListener)> {
        let HttpListener { socket, tls, options, pages, http, web } = listener;
        let address = socket.local_addr()?;
        let connections_max = options.connections_max;
        let is_smaller = connections_max < worker_max;
        let listener = Self {
            number,
            web_options: options.web.clone().unwrap_or_default(),
            share: is_smaller.then_some(ListenerShare { address, connections_max, worker_max }),
            options,
            pages,
            tls,
            service: http.service,
            web_service: web.service,
            seats: RefCell::default(),
            displaced: Cell::default(),
            http: RefCell::new(http),
            ws: RefCell::new(web),
        };
        Ok((listener, socket))
    }

    /// Returns the counters of HTTP. Panics if they are borrowed already: hold them for one statement.
    #[inline]
    pub(crate) fn http(&self) -> RefMut<'_, Counters> {
        RefMut::map(self.http.borrow_mut(), |metrics| &mut metrics.counters)
    }

    /// Returns the counters of WebSockets. Panics if they are borrowed already: hold them for one statement.
    #[inline]
    pub(crate) fn ws(&self) -> RefMut<'_, Counters> {
        RefMut::map(self.ws.borrow_mut(), |metrics| &mut metrics.counters)
    }

    pub(crate) fn publish(&self) {
        self.http.borrow_mut().publish();
        self.ws.borrow_mut().publish();
    }

    /// Returns true if the listener holds as many connections as it may.
    pub(crate) fn is_full(&self) -> bool {
        let open = self.http().connections_open + self.ws().connections_open;
        open >= self.options.connections_max as u64 + u64::from(self.displaced.get())
    }

    /// Returns a permit for a new connection from `ip`, which counts against the rates of its prefix. Trusted
    /// proxies need none: they carry the connections of others.
    ///
    /// # Errors
    ///
    /// Returns the reason if the client is banned, or has all that it may.
    pub(crate) fn admit(&self, worker: &Worker, ip: IpAddr) -> ConnectionResult<ConnectionPermit> {
        let (over_tls, share) = (self.tls.is_some(), self.share.as_ref());
        self.take_permit(worker, ip, |limiter, now| limiter.open(now, ip, over_tls, share))
    }

    /// Returns a permit for a client of a connection that is open already.
    pub(crate) fn permit(&self, worker: &Worker, ip: IpAddr) -> ConnectionResult<ConnectionPermit> {
        self.take_permit(worker, ip, |limiter, _| limiter.permit(ip, self.share.as_ref()))
    }

    fn take_permit(
        &self,
        worker: &Worker,
        ip: IpAddr,
        take: impl FnOnce(&Limiter, Tick) -> Result<ConnectionPermit, PermitDenied>,
    ) -> ConnectionResult<ConnectionPermit> {
        if self.options.trusted_proxies.contains(ip) {
            return Ok(ConnectionPermit::uncounted());
        }
        let now = worker.now();
        if worker.tracker.bans().contains(now, ip) {
            return Err(ConnectionError::NotAdmitted(DropReason::Banned));
        }
        take(worker.tracker.limiter(), now).map_err(|denied| {
            ConnectionError::NotAdmitted(match denied {
                PermitDenied::Prefix => DropReason::PrefixConnectionLimit,
                PermitDenied::Network => DropReason::NetworkConnectionLimit,
                PermitDenied::OpeningRate => DropReason::ConnectionRate,
                PermitDenied::HandshakeRate => DropReason::HandshakeRate,
                PermitDenied::UnfinishedHandshakes => DropReason::HandshakeLimit,
            })
        })
    }
}
