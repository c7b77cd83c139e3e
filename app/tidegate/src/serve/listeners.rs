//! Binds every listener before anything is served.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use net::process::{InheritedSockets, is_root};
use net::{
    BindError, InheritedSocket, SocketOwner, TcpOptions, UdpOptions, UdpSocket, bind_tcp, bind_udp,
};
use tracing::{info, warn};

use config::{Config, ListenerGroup, Transport, worker_count};

pub(crate) struct BoundListeners {
    pub(super) udp: Vec<BoundListener<UdpSocket>>,
    /// HTTP's, with TLS or without.
    pub(super) tcp: Vec<BoundListener<TcpListener>>,
    pub(super) admin: Vec<TcpListener>,
    pub(crate) site: Option<TcpListener>,
}

pub(crate) struct BoundListener<S> {
    pub(super) sockets: Vec<S>,
    /// Configuration of the listener's group, whose rules apply to it.
    pub(super) group: ListenerGroup,
}

const SITE: &str = "site";
/// The names of inherited sockets (LISTEN_FDNAMES), one for each kind of listener.
pub(super) const SOCKET_NAMES: &[&str] = &["udp", "http", "tls", "admin", SITE];

/// Takes over or binds every listener of `config`. The error says which one cannot be bound, and why.
pub(super) fn bind(config: &Config, inherited: &mut InheritedSockets) -> Result<BoundListeners> {
    let udp_options = udp_options(config);
    let udp_workers = worker_count(config.udp_workers);
    let http_workers = worker_count(config.http_workers);
    let mut bound =
        BoundListeners { udp: Vec::new(), tcp: Vec::new(), admin: Vec::new(), site: None };
    for group in &config.groups {
        let name = group.transport.label();
        if group.transport == Transport::Udp {
            let udp = bind_all(&group.addresses, group.is_default, |at| {
                let take = InheritedSockets::take_udp;
                let sockets = take_inherited(name, at, udp_workers, inherited, take);
                bind_udp(at, sockets, udp_workers, &udp_options)
            })?;
            bound.udp.extend(
                udp.into_iter().map(|sockets| BoundListener { sockets, group: group.clone() }),
            );
        } else {
            let options = TcpOptions::default();
            let tcp = bind_all(&group.addresses, group.is_default, |at| {
                let take = InheritedSockets::take_tcp;
                let sockets = take_inherited(name, at, http_workers, inherited, take);
                bind_tcp(at, sockets, http_workers, &options)
            })?;
            bound.tcp.extend(
                tcp.into_iter().map(|sockets| BoundListener { sockets, group: group.clone() }),
            );
        }
    }
    let admin = bind_all(&config.admin_listen, false, |at| {
        let sockets = take_inherited("admin", at, 1, inherited, InheritedSockets::take_tcp);
        bind_tcp(at, sockets, 1, &admin_options())
    })?;
    bound.admin = admin.into_iter().flatten().collect();
    let of_site = config.site.as_ref().and_then(|site| site.listen);
    let site = bind_all(of_site.as_slice(), false, |at| {
        let sockets = take_inherited(SITE, at, 1, inherited, InheritedSockets::take_tcp);
        bind_tcp(at, sockets, 1, &admin_options())
    })?;
    bound.site = site.into_iter().flatten().next();
    Ok(bound)
}

fn admin_options() -> TcpOptions {
    // Browsers open connections ahead of requests: they must be accepted at once.
    TcpOptions { defer_accept: false, ..TcpOptions::default() }
}

fn udp_options(config: &Config) -> UdpOptions {
    UdpOptions {
        engine: config.engine,
        receive_buffer: config.receive_buffer,
        ..UdpOptions::default()
    }
}

#[derive(Debug, Default)]
pub(super) struct BindProblems {
    /// Ports that a running tidegate has, probably with this configuration.
    pub(super) in_use_by_tidegate: Vec<String>,
    pub(super) others: Vec<String>,
}

/// Returns whether a port is in use by a process that only root may see.
fn is_unseen(error: &BindError) -> bool {
    error.cause.kind() == io::ErrorKind::AddrInUse && error.owner.is_none() && !is_root()
}

/// Returns whether a process is a tidegate, also if one of the two programs has another file name.
fn is_tidegate(owner: &SocketOwner) -> bool {
    owner.is_same_program() || owner.program.starts_with(env!("CARGO_PKG_NAME"))
}

/// Binds each listener of `config`, and frees it again.
pub(super) fn check(config: &Config) -> BindProblems {
    let udp_options = udp_options(config);
    let mut problems = BindProblems::default();
    let mut check = |address: &SocketAddr, is_default: bool, bound: Result<(), BindError>| {
        match bound {
            Err(error) if is_default && error.is_family_absent() => {}
            Err(error) => match error.owner.as_ref().filter(|owner| is_tidegate(owner)) {
                Some(owner) => problems.in_use_by_tidegate.push(format!(
                    "{} port {address} is in use by the running tidegate, pid {}",
                    error.transport(),
                    owner.pid
                )),
                None if is_unseen(&error) => problems.others.push(format!(
                    "{error}. Run this check as root or as the tracker's user: ports of the running \
                     tracker are no problem then"
                )),
                None => problems.others.push(error.to_string()),
            },
            Ok(()) => {}
        }
    };
    for group in &config.groups {
        for address in &group.addresses {
            let bound = match group.transport {
                Transport::Udp => bind_udp(*address, Vec::new(), 1, &udp_options).map(drop),
                _ => bind_tcp(*address, Vec::new(), 1, &TcpOptions::default()).map(drop),
            };
            check(address, group.is_default, bound);
        }
    }
    let of_site = config.site.as_ref().and_then(|site| site.listen.as_ref());
    for address in config.admin_listen.iter().chain(of_site) {
        check(address, false, bind_tcp(*address, Vec::new(), 1, &admin_options()).map(drop));
    }
    problems
}

fn take_inherited(
    name: &str,
    at: SocketAddr,
    workers: usize,
    inherited: &mut InheritedSockets,
    take: impl FnOnce(&mut InheritedSockets, &str, SocketAddr) -> Vec<InheritedSocket>,
) -> Vec<InheritedSocket> {
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
    sockets
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
    pub(super) fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let udp = self.udp.iter().flat_map(|open| &open.sockets);
        let udp = udp.map(|socket| Ok((Transport::Udp.label().to_owned(), socket.descriptor()?)));
        let copy = |name: &str, socket: &TcpListener| {
            Ok((name.to_owned(), socket.as_fd().try_clone_to_owned()?))
        };
        let tcp = self.tcp.iter().flat_map(|open| {
            let name = open.group.transport.label();
            open.sockets.iter().map(move |socket| copy(name, socket))
        });
        let admin = self.admin.iter().map(|socket| copy("admin", socket));
        let site = self.site.iter().map(|socket| copy(SITE, socket));
        udp.chain(tcp).chain(admin).chain(site).collect()
    }
}
