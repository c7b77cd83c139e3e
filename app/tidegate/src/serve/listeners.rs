//! Binds every listener before anything is served, and prints what listens where.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use net::process::{InheritedSockets, cores, own_addresses};
use net::{
    BindError, InheritedSocket, TcpOptions, UdpOptions, UdpSocket, adopt_tcp, adopt_udp, bind_tcp,
    bind_udp,
};
use tracing::{info, warn};

use crate::config::{Config, ListenerGroup, Transport};

/// Bound sockets.
pub(super) struct BoundListeners {
    pub(super) udp: Vec<BoundListener<UdpSocket>>,
    /// HTTP's, with TLS or without.
    pub(super) tcp: Vec<BoundListener<TcpListener>>,
    pub(super) admin: Vec<TcpListener>,
}

/// A listener.
pub(super) struct BoundListener<S> {
    /// A socket for each worker.
    pub(super) sockets: Vec<S>,
    /// What holds for it.
    pub(super) group: ListenerGroup,
}

/// Returns how many workers a setting means: 0 = one per core.
pub(super) fn worker_count(setting: usize) -> usize {
    if setting == 0 { cores().len().max(1) } else { setting }
}

/// The names of inherited sockets (LISTEN_FDNAMES), one for each kind of listener.
pub(super) const SOCKET_NAMES: &[&str] = &["udp", "http", "tls", "admin"];

/// Takes over or binds every listener of `config`. The error says which one cannot be bound, and why.
pub(super) fn bind(config: &Config, inherited: &mut InheritedSockets) -> Result<BoundListeners> {
    let udp_options = UdpOptions {
        engine: config.engine,
        receive_buffer: config.receive_buffer,
        ..UdpOptions::default()
    };
    let udp_workers = worker_count(config.udp_workers);
    let http_workers = worker_count(config.http_workers);
    let mut bound = BoundListeners { udp: Vec::new(), tcp: Vec::new(), admin: Vec::new() };
    for group in &config.groups {
        let name = group.transport.label();
        if group.transport == Transport::Udp {
            let udp = bind_all(&group.addresses, group.is_default, |at| {
                match take_inherited(name, at, udp_workers, inherited, InheritedSockets::take_udp) {
                    Some(take_inherited) => {
                        adopt_udp(take_inherited, at, udp_workers, &udp_options)
                    }
                    None => bind_udp(at, udp_workers, &udp_options),
                }
            })?;
            bound.udp.extend(
                udp.into_iter().map(|sockets| BoundListener { sockets, group: group.clone() }),
            );
        } else {
            let options = TcpOptions::default();
            let tcp = bind_all(&group.addresses, group.is_default, |at| {
                bind_or_adopt(name, at, http_workers, &options, inherited)
            })?;
            bound.tcp.extend(
                tcp.into_iter().map(|sockets| BoundListener { sockets, group: group.clone() }),
            );
        }
    }
    // Browsers open connections ahead of requests: they must be accepted at once.
    let options = TcpOptions { defer_accept: false, ..TcpOptions::default() };
    let admin = bind_all(&config.admin_listen, false, |at| {
        bind_or_adopt("admin", at, 1, &options, inherited)
    })?;
    bound.admin = admin.into_iter().flatten().collect();
    Ok(bound)
}

fn bind_or_adopt(
    name: &str,
    at: SocketAddr,
    workers: usize,
    options: &TcpOptions,
    inherited: &mut InheritedSockets,
) -> Result<Vec<TcpListener>, BindError> {
    match take_inherited(name, at, workers, inherited, InheritedSockets::take_tcp) {
        Some(take_inherited) => adopt_tcp(take_inherited, at, workers, options),
        None => bind_tcp(at, workers, options),
    }
}

/// Returns the inherited sockets for a listener, if there are any.
fn take_inherited(
    name: &str,
    at: SocketAddr,
    workers: usize,
    inherited: &mut InheritedSockets,
    take: impl FnOnce(&mut InheritedSockets, &str, SocketAddr) -> Vec<InheritedSocket>,
) -> Option<Vec<InheritedSocket>> {
    let had_some = !inherited.is_empty();
    let sockets = take(inherited, name, at);
    match sockets.len() {
        0 if had_some => {
            info!(listener = name, address = %at, "no inherited socket; bound a new one")
        }
        0 => {}
        sockets if sockets < workers => info!(
            listener = name, address = %at, sockets, workers,
            "fewer inherited sockets than workers: one socket per worker is faster"
        ),
        _ => {}
    }
    Some(sockets).filter(|sockets| !sockets.is_empty())
}

/// Binds each address. Default addresses of a family that the system lacks are skipped.
fn bind_all<S>(
    addresses: &[SocketAddr],
    is_default: bool,
    mut bind: impl FnMut(SocketAddr) -> Result<Vec<S>, BindError>,
) -> Result<Vec<Vec<S>>> {
    let mut bound = Vec::new();
    for address in addresses {
        match bind(*address) {
            Ok(sockets) => bound.push(sockets),
            Err(error) if is_default && error.is_family_absent() => {
                warn!(%address, %error, "skipped a default address");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bound)
}

impl BoundListeners {
    /// Returns a duplicate of each socket, with the name of its kind of listener.
    pub(super) fn descriptors(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        let udp = self.udp.iter().flat_map(|open| &open.sockets);
        let udp = udp.map(|socket| Ok((Transport::Udp.label(), socket.descriptor()?)));
        let copy = |name, socket: &TcpListener| Ok((name, socket.as_fd().try_clone_to_owned()?));
        let tcp = self.tcp.iter().flat_map(|open| {
            let name = open.group.transport.label();
            open.sockets.iter().map(move |socket| copy(name, socket))
        });
        let admin = self.admin.iter().map(|socket| copy("admin", socket));
        udp.chain(tcp).chain(admin).collect()
    }

    /// Returns the startup text: listeners, and the URLs to announce to.
    // Writing to a `String` cannot fail.
    pub(super) fn startup_text(&self, config: &Config) -> String {
        let mut text = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
        let mut urls = String::new();
        let hosts = LocalAddresses(own_addresses());
        for BoundListener { sockets, .. } in &self.udp {
            let Some(socket) = sockets.first() else { continue };
            let address = socket.local_addr();
            let granted = socket.receive_buffer() / 1024;
            let engine = config.engine.resolve().label();
            let workers = sockets.len();
            let _ = writeln!(
                text,
                "  udp    {address}  ({}, {engine}, {granted} KiB receive buffer per socket)",
                plural(workers)
            );
            for host in hosts.of(address) {
                let _ = writeln!(urls, "  announce URL  udp://{host}/announce");
            }
        }
        for BoundListener { sockets, group } in &self.tcp {
            let Some(address) = sockets.first().and_then(|s| s.local_addr().ok()) else { continue };
            let [name, http, ws] = match group.transport {
                Transport::Tls => ["https", "https", "wss"],
                Transport::Http | Transport::Udp => ["http ", "http", "ws"],
            };
            let _ = writeln!(text, "  {name}  {address}  ({})", plural(sockets.len()));
            for host in hosts.of(address) {
                let _ = writeln!(urls, "  announce URL  {http}://{host}/announce");
                if let Some(web) = &group.http.web {
                    let path = web.paths.first().map_or("/", String::as_str);
                    let _ = writeln!(urls, "  WebTorrent    {ws}://{host}{path}");
                }
            }
        }
        for address in self.admin.iter().filter_map(|listener| listener.local_addr().ok()) {
            let scheme = if config.admin_tls { "https" } else { "http" };
            let _ = writeln!(text, "  admin  {scheme}://{address}/  (dashboard, API, metrics)");
        }
        let asked = config.receive_buffer;
        let sockets = self.udp.iter().flat_map(|open| &open.sockets);
        let granted = sockets.map(UdpSocket::receive_buffer).min();
        if granted.is_some_and(|granted| granted < asked) {
            let _ = writeln!(
                text,
                "  the kernel granted less than the configured {} KiB of receive buffer; to allow more: \
                 sysctl -w net.core.rmem_max={asked}",
                asked / 1024
            );
        }
        text + &urls
    }
}

fn plural(workers: usize) -> String {
    format!("{workers} worker{}", if workers == 1 { "" } else { "s" })
}

impl BoundListeners {
    /// Returns the URL of the dashboard, as it is reached from this machine.
    pub(super) fn dashboard_url(&self, config: &Config) -> Option<String> {
        let address = self.admin.first()?.local_addr().ok()?;
        let host = LocalAddresses(Vec::new()).of(address).remove(0);
        let scheme = if config.admin_tls { "https" } else { "http" };
        Some(format!("{scheme}://{host}/"))
    }
}

/// The addresses of this machine, in the order of its interfaces.
struct LocalAddresses(Vec<IpAddr>);

impl LocalAddresses {
    /// How many of the machine's addresses are shown.
    const SHOWN_MAX: usize = 2;

    /// Returns the addresses at which a listener can be reached: the bound one or, for a wildcard
    /// address, those of this machine, or else loopback.
    fn of(&self, bound: SocketAddr) -> Vec<SocketAddr> {
        if !bound.ip().is_unspecified() {
            return vec![bound];
        }
        let of_family = self.0.iter().filter(|ip| ip.is_ipv4() == bound.is_ipv4());
        let mut hosts: Vec<SocketAddr> =
            of_family.take(Self::SHOWN_MAX).map(|ip| SocketAddr::new(*ip, bound.port())).collect();
        if hosts.is_empty() {
            let loopback: IpAddr = if bound.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                [0, 0, 0, 0, 0, 0, 0, 1].into()
            };
            hosts.push(SocketAddr::new(loopback, bound.port()));
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_wildcards_in_urls() {
        let of = |own: &[&str], bound: &str| {
            let hosts = LocalAddresses(own.iter().map(|ip| ip.parse().unwrap()).collect());
            let of = hosts.of(bound.parse().unwrap()).iter().map(SocketAddr::to_string).collect();
            let of: Vec<String> = of;
            of.join(" ")
        };
        let own = ["192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3"];
        assert_eq!(of(&own, "0.0.0.0:6969"), "192.0.2.1:6969 192.0.2.2:6969");
        assert_eq!(of(&own, "[::]:6969"), "[2001:db8::1]:6969");
        assert_eq!(of(&own, "198.51.100.7:1"), "198.51.100.7:1");
        assert_eq!(of(&[], "0.0.0.0:1"), "127.0.0.1:1");
        assert_eq!(of(&[], "[::]:1"), "[::1]:1");
    }
}
