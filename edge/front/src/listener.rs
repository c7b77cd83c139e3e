//! A listener of one worker, as its connections see it.

use std::cell::{Cell, RefCell, RefMut};
use std::net::{IpAddr, SocketAddr};

use net::tls::TlsConfig;
use tracker::counters::{Counters, DropReason, WorkerMetrics};
use tracker::{ConnectionPermit, Limiter, ListenerShare, PermitDenied, Tracker};
use types::Tick;

use crate::connection_error::ConnectionError;
use crate::http::options::HttpOptions;
use crate::webtorrent::options::WebOptions;

/// State that the connections of a listener share.
pub(crate) struct Listener {
    /// The listener's place among those of the worker.
    pub(crate) number: usize,
    pub(crate) options: HttpOptions,
    /// The settings of WebSockets. Used only if `options.web` is set.
    pub(crate) web_options: WebOptions,
    /// Its part of the worker's connections, if that is smaller than the whole.
    pub(crate) share: Option<ListenerShare>,
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
    pub(crate) fn new(
        number: usize,
        options: HttpOptions,
        tls: Option<TlsConfig>,
        http: WorkerMetrics,
        ws: WorkerMetrics,
    ) -> Self {
        let web_options = options.web.clone().unwrap_or_default();
        let (http, ws) = (RefCell::new(http), RefCell::new(ws));
        let (seats, displaced) = (RefCell::default(), Cell::default());
        Self { number, options, web_options, share: None, tls, seats, displaced, http, ws }
    }

    /// Limits networks to their share of this listener's own connections if a worker may hold more at all
    /// listeners. `address` is the listener's.
    pub(crate) fn with_share(self, address: SocketAddr, worker_max: usize) -> Self {
        let connections_max = self.options.connections_max;
        let is_smaller = connections_max < worker_max;
        let share = is_smaller.then_some(ListenerShare { address, connections_max, worker_max });
        Self { share, ..self }
    }

    /// The counters of HTTP. Panics if they are borrowed already: hold them for one statement.
    #[inline]
    pub(crate) fn http(&self) -> RefMut<'_, Counters> {
        RefMut::map(self.http.borrow_mut(), |metrics| &mut metrics.counters)
    }

    /// The counters of WebSockets. Panics if they are borrowed already: hold them for one statement.
    #[inline]
    pub(crate) fn ws(&self) -> RefMut<'_, Counters> {
        RefMut::map(self.ws.borrow_mut(), |metrics| &mut metrics.counters)
    }

    /// Publishes the counters to readers in other threads.
    pub(crate) fn publish(&self) {
        self.http.borrow_mut().publish();
        self.ws.borrow_mut().publish();
    }

    /// Returns true if the listener holds as many connections as it may.
    pub(crate) fn is_full(&self) -> bool {
        let open = self.http().connections_open + self.ws().connections_open;
        open >= self.options.connections_max as u64 + u64::from(self.displaced.get())
    }

    /// A permit for a new connection from `ip`, which counts against the rates of its prefix. Trusted proxies
    /// need none: they carry the connections of others.
    pub(crate) fn admit(
        &self,
        tracker: &Tracker,
        now: Tick,
        ip: IpAddr,
    ) -> Result<ConnectionPermit, ConnectionError> {
        let (over_tls, share) = (self.tls.is_some(), self.share.as_ref());
        self.take_permit(tracker, now, ip, |limiter| limiter.open(now, ip, over_tls, share))
    }

    /// A permit for a client of a connection that is open already.
    pub(crate) fn permit(
        &self,
        tracker: &Tracker,
        now: Tick,
        ip: IpAddr,
    ) -> Result<ConnectionPermit, ConnectionError> {
        self.take_permit(tracker, now, ip, |limiter| limiter.permit(ip, self.share.as_ref()))
    }

    fn take_permit(
        &self,
        tracker: &Tracker,
        now: Tick,
        ip: IpAddr,
        take: impl FnOnce(&Limiter) -> Result<ConnectionPermit, PermitDenied>,
    ) -> Result<ConnectionPermit, ConnectionError> {
        if self.options.trusted_proxies.contains(ip) {
            return Ok(ConnectionPermit::uncounted());
        }
        if tracker.bans().contains(now, ip) {
            return Err(ConnectionError::NotAdmitted(DropReason::Banned));
        }
        take(tracker.limiter()).map_err(|denied| {
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
