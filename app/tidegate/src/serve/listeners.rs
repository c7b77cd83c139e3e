//! Binding every listener before anything is served, and saying what listens where.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};

use anyhow::Result;
use net::{BindError, TcpOptions, UdpOptions, UdpSocket, bind_tcp, bind_udp};
use tracing::warn;

use super::workers::count;
use crate::config::{Config, Listen};

/// Bound sockets: a list for each listener, with a socket for each worker.
pub(super) struct Bound {
    pub(super) udp: Vec<Vec<UdpSocket>>,
    pub(super) http: Vec<Vec<TcpListener>>,
    pub(super) tls: Vec<Vec<TcpListener>>,
    pub(super) admin: Vec<TcpListener>,
}

/// Binds all that `config` names, or says what cannot be bound and why.
pub(super) fn bind(config: &Config) -> Result<Bound> {
    let udp_options = UdpOptions {
        engine: config.engine,
        receive_buffer: config.receive_buffer,
        ..UdpOptions::default()
    };
    let udp_workers = count(config.udp_workers);
    let http_workers = count(config.http_workers);
    let udp = bind_all(&config.udp_listen, |at| bind_udp(at, udp_workers, &udp_options))?;
    let http =
        bind_all(&config.http_listen, |at| bind_tcp(at, http_workers, &TcpOptions::default()))?;
    let tls =
        bind_all(&config.tls_listen, |at| bind_tcp(at, http_workers, &TcpOptions::default()))?;
    let admin = Listen { addresses: config.admin_listen.clone(), is_default: false };
    // Its clients may be slow to ask: they must be accepted before they do.
    let options = TcpOptions { defer_accept: false, ..TcpOptions::default() };
    let admin = bind_all(&admin, |at| bind_tcp(at, 1, &options))?;
    Ok(Bound { udp, http, tls, admin: admin.into_iter().flatten().collect() })
}

/// Binds each address. Of the default list, those whose family the system lacks are left out.
fn bind_all<S>(
    listen: &Listen,
    bind: impl Fn(SocketAddr) -> Result<Vec<S>, BindError>,
) -> Result<Vec<Vec<S>>> {
    let mut bound = Vec::new();
    for address in &listen.addresses {
        match bind(*address) {
            Ok(sockets) => bound.push(sockets),
            Err(error) if listen.is_default && error.is_family_absent() => {
                warn!("{error}; going on without it");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bound)
}

impl Bound {
    /// What the start prints: listeners, and the URLs to announce to. Writing to a `String` cannot
    /// fail.
    pub(super) fn lines(&self, config: &Config) -> String {
        let mut text = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
        let mut urls = String::new();
        for sockets in &self.udp {
            let Some(socket) = sockets.first() else { continue };
            let address = socket.local_addr();
            let granted = socket.receive_buffer() / 1024;
            let engine = config.engine.resolve().label();
            let workers = sockets.len();
            let _ = writeln!(
                text,
                "  udp    {address}  ({workers} workers, {engine}, {granted} KiB receive buffer each)"
            );
            let _ = writeln!(urls, "  announce to udp://{}/announce", host(address));
        }
        for sockets in &self.http {
            let Some(address) = sockets.first().and_then(|s| s.local_addr().ok()) else { continue };
            let _ = writeln!(text, "  http   {address}  ({} workers)", sockets.len());
            let _ = writeln!(urls, "  announce to http://{}/announce", host(address));
            if let Some(web) = &config.http.web {
                let path = web.paths.first().map_or("/", String::as_str);
                let _ = writeln!(urls, "  WebTorrent  ws://{}{path}", host(address));
            }
        }
        for sockets in &self.tls {
            let Some(address) = sockets.first().and_then(|s| s.local_addr().ok()) else { continue };
            let _ = writeln!(text, "  https  {address}  ({} workers)", sockets.len());
            let _ = writeln!(urls, "  announce to https://{}/announce", host(address));
            if let Some(web) = &config.http.web {
                let path = web.paths.first().map_or("/", String::as_str);
                let _ = writeln!(urls, "  WebTorrent  wss://{}{path}", host(address));
            }
        }
        for address in self.admin.iter().filter_map(|listener| listener.local_addr().ok()) {
            let _ = writeln!(text, "  admin  http://{address}/metrics");
        }
        let asked = config.receive_buffer;
        let granted = self.udp.iter().flatten().map(UdpSocket::receive_buffer).min();
        if granted.is_some_and(|granted| granted < asked) {
            let _ = writeln!(
                text,
                "  the kernel granted less receive buffer than the {} KiB asked for: \
                 sysctl -w net.core.rmem_max={asked}",
                asked / 1024
            );
        }
        text + &urls
    }
}

/// The host of a URL: what was bound, or a word for all addresses.
fn host(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        let family = if address.is_ipv4() { "IPV4" } else { "IPV6" };
        format!("THIS_HOST_{family}:{}", address.port())
    } else {
        address.to_string()
    }
}
