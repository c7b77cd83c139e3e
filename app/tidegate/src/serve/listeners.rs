//! Binding every listener before anything is served, and saying what listens where.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use net::process::{Inherited, cores, own_addresses};
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

/// What sockets of each kind of listener are called when they are handed over.
pub(super) const SOCKET_NAMES: &[&str] = &["udp", "http", "tls", "admin"];

/// Takes over or binds all that `config` names, or says what cannot be bound and why.
pub(super) fn bind(config: &Config, inherited: &mut Inherited) -> Result<BoundListeners> {
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
                match take_inherited(name, at, udp_workers, inherited, Inherited::take_udp) {
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
    // Its clients may be slow to ask: they must be accepted before they do.
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
    inherited: &mut Inherited,
) -> Result<Vec<TcpListener>, BindError> {
    match take_inherited(name, at, workers, inherited, Inherited::take_tcp) {
        Some(take_inherited) => adopt_tcp(take_inherited, at, workers, options),
        None => bind_tcp(at, workers, options),
    }
}

/// The sockets that were handed over for a listener, if any were.
fn take_inherited(
    name: &str,
    at: SocketAddr,
    workers: usize,
    inherited: &mut Inherited,
    take: impl FnOnce(&mut Inherited, &str, SocketAddr) -> Vec<InheritedSocket>,
) -> Option<Vec<InheritedSocket>> {
    let had_some = !inherited.is_empty();
    let sockets = take(inherited, name, at);
    match sockets.len() {
        0 if had_some => info!("{name} {at} is not among the sockets handed over: bound here"),
        0 => {}
        worker_count if worker_count < workers => info!(
            "{name} {at}: {workers} workers share {worker_count} of the sockets handed over; one for \
             each is faster"
        ),
        _ => {}
    }
    Some(sockets).filter(|sockets| !sockets.is_empty())
}

/// Binds each address. Of the default list, those whose family the system lacks are left out.
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
                warn!("{error}; going on without it");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bound)
}

impl BoundListeners {
    /// Another descriptor of each socket, with the name of its kind of listener.
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

    /// What the start prints: listeners, and the URLs to announce to. Writing to a `String` cannot
    /// fail.
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
                "  udp    {address}  ({workers} workers, {engine}, {granted} KiB receive buffer each)"
            );
            for host in hosts.of(address) {
                let _ = writeln!(urls, "  announce to udp://{host}/announce");
            }
        }
        for BoundListener { sockets, group } in &self.tcp {
            let Some(address) = sockets.first().and_then(|s| s.local_addr().ok()) else { continue };
            let [name, http, ws] = match group.transport {
                Transport::Tls => ["https", "https", "wss"],
                Transport::Http | Transport::Udp => ["http ", "http", "ws"],
            };
            let _ = writeln!(text, "  {name}  {address}  ({} workers)", sockets.len());
            for host in hosts.of(address) {
                let _ = writeln!(urls, "  announce to {http}://{host}/announce");
                if let Some(web) = &group.http.web {
                    let path = web.paths.first().map_or("/", String::as_str);
                    let _ = writeln!(urls, "  WebTorrent  {ws}://{host}{path}");
                }
            }
        }
        for address in self.admin.iter().filter_map(|listener| listener.local_addr().ok()) {
            let _ = writeln!(text, "  admin  http://{address}/metrics");
        }
        let asked = config.receive_buffer;
        let sockets = self.udp.iter().flat_map(|open| &open.sockets);
        let granted = sockets.map(UdpSocket::receive_buffer).min();
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

/// The addresses of this machine.
struct LocalAddresses(Vec<IpAddr>);

impl LocalAddresses {
    /// As many of a machine's addresses are shown: the first are those of the first interfaces.
    const SHOWN_MAX: usize = 2;

    /// The hosts of URLs that lead to a listener: what was bound or, for all addresses, this
    /// machine's own. One that only has its loopback is reached from nowhere else.
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
    fn urls_name_addresses_that_can_be_reached() {
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
