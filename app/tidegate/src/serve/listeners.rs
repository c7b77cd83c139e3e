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
    pub(super) tcp: Vec<BoundListener<TcpListener>>,
    pub(super) admin: Vec<TcpListener>,
    pub(crate) site: Option<TcpListener>,
}

pub(crate) struct BoundListener<S> {
    pub(super) sockets: Vec<S>,
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
    for group in config.groups.iter().filter(|group| group.transport == Transport::Udp) {
        bound.udp.extend(bind_group(group, |at| {
            let take = InheritedSockets::take_udp;
            let sockets = take_inherited("udp", at, udp_workers, inherited, take);
            bind_udp(at, sockets, udp_workers, &udp_options)
        })?);
    }
    let mut tcp = |name: &str, at: SocketAddr, workers: usize, options: &TcpOptions| {
        let sockets = take_inherited(name, at, workers, inherited, InheritedSockets::take_tcp);
        bind_tcp(at, sockets, workers, options)
    };
    for group in &config.groups {
        let (name, options) = (group.transport.label(), TcpOptions::default());
        if group.transport != Transport::Udp {
            bound.tcp.extend(bind_group(group, |at| tcp(name, at, http_workers, &options))?);
        }
    }
    let admin = |at: &SocketAddr| tcp("admin", *at, 1, &admin_options());
    let admin: Vec<_> = config.admin_listen.iter().map(admin).collect::<Result<_, _>>()?;
    bound.admin = admin.into_iter().flatten().collect();
    let of_site = config.site.as_ref().and_then(|site| site.listen);
    let site = of_site.map(|at| tcp(SITE, at, 1, &admin_options())).transpose()?;
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
fn bind_group<S>(
    group: &ListenerGroup,
    mut bind: impl FnMut(SocketAddr) -> Result<Vec<S>, BindError>,
) -> Result<Vec<BoundListener<S>>> {
    let mut bound = Vec::new();
    for address in &group.addresses {
        match bind(*address) {
            Ok(sockets) => bound.push(BoundListener { sockets, group: group.clone() }),
            Err(error) if group.is_default && error.is_family_absent() => {
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
