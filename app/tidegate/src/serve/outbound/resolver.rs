//! Resolves host names on threads of its own, and returns only addresses that may be connected to.
//!
//! The system's resolver blocks, for many seconds if no name server answers. On the threads of the runtime it
//! would delay the API's reads of the records. What is returned here is what is connected to, so a name that
//! resolves to another address the next time gains nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use hyper::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::oneshot;
use tower_service::Service;
use tracker::Networks;

/// Threads: as many names may be slow to resolve before others wait.
const THREADS: usize = 2;
/// Names that wait for a thread. Further ones fail.
const QUEUE_MAX: usize = 64;

/// Addresses that may be connected to.
#[derive(Clone, Debug)]
pub(in crate::serve) enum Targets {
    /// Those of one URL in the configuration.
    Any,
    /// These ports of public addresses of other machines, and of the networks in `private`. `own` are the addresses of
    /// this machine when the process started: a firewall may protect its ports from others, but not from itself.
    Webhooks { ports: Arc<[u16]>, private: Networks, own: Arc<[IpAddr]> },
}

impl Targets {
    pub(in crate::serve) fn allow(&self, ip: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Webhooks { private, own, .. } => {
                private.contains(ip) || admin::is_public_address(ip) && !is_own(ip, own)
            }
        }
    }

    /// Returns an error if the port of `url` must not be connected to.
    pub(in crate::serve) fn check_port(&self, url: &Uri) -> Result<(), String> {
        let Self::Webhooks { ports, .. } = self else { return Ok(()) };
        let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
        let port = url.port_u16().unwrap_or(default);
        if ports.contains(&port) {
            return Ok(());
        }
        Err(format!("admin.webhook_ports does not contain port {port}: add it and restart"))
    }

    /// Describes a host that must not be connected to.
    pub(in crate::serve) fn refusal(host: &str) -> String {
        format!(
            "{host} has no public address of another machine: to allow it, add its address to admin.webhook_private"
        )
    }
}

/// Returns whether this machine has the address. The sandbox denies to list those that have come since the start. But
/// what a machine sends to itself comes from the same address.
fn is_own(ip: IpAddr, at_start: &[IpAddr]) -> bool {
    let ip = ip.to_canonical();
    let unspecified: IpAddr =
        if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // Nothing is sent. Without a route to the address, no connection to it can be made either.
    let source = || {
        let socket = UdpSocket::bind((unspecified, 0)).ok()?;
        socket.connect((ip, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    at_start.contains(&ip) || source() == Some(ip)
}

/// Returns the addresses of a host. May block.
pub(super) type Lookup = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Returns what the system knows of a host.
pub(super) fn system(host: &str) -> io::Result<Vec<SocketAddr>> {
    // The port of the URL replaces this one.
    Ok((host, 0).to_socket_addrs()?.collect())
}

/// Resolves names for one client. Its threads end when the last clone is dropped.
#[derive(Clone)]
pub(in crate::serve) struct Resolver {
    queue: SyncSender<Query>,
    targets: Targets,
}

struct Query {
    host: String,
    reply: oneshot::Sender<io::Result<Vec<SocketAddr>>>,
}

impl Resolver {
    pub(super) fn start(lookup: Lookup, targets: Targets) -> io::Result<Self> {
        let (queue, queries) = sync_channel(QUEUE_MAX);
        let queries = Arc::new(Mutex::new(queries));
        for number in 0..THREADS {
            let queries = Arc::clone(&queries);
            let thread = thread::Builder::new().name(format!("resolver-{number}"));
            thread.spawn(move || run(&queries, lookup))?;
        }
        Ok(Self { queue, targets })
    }
}

fn run(queries: &Mutex<Receiver<Query>>, lookup: Lookup) {
    loop {
        let next = queries.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Query { host, reply }) = next else { return };
        // The request may have timed out.
        if !reply.is_closed() {
            let _ = reply.send(lookup(&host));
        }
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (reply, answer) = oneshot::channel();
        let (host, targets) = (name.as_str().to_owned(), self.targets.clone());
        let is_queued = self.queue.try_send(Query { host: host.clone(), reply }).is_ok();
        Box::pin(async move {
            if !is_queued {
                return Err(io::Error::other("too many host names wait for the name server"));
            }
            let found = answer.await.map_err(|_| io::Error::other("the resolver has ended"))?;
            let mut addresses = found?;
            addresses.retain(|address| targets.allow(address.ip()));
            if addresses.is_empty() {
                return Err(io::Error::other(Targets::refusal(&host)));
            }
            Ok(addresses.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lookup(host: &str) -> io::Result<Vec<SocketAddr>> {
        match host {
            // Longer than any test.
            "stalled.example" => loop {
                thread::sleep(Duration::from_secs(60));
            },
            "none.example" => Ok(Vec::new()),
            "self.example" => Ok(vec![([9, 9, 9, 9], 0).into()]),
            "inside.example" => {
                Ok(vec![([169, 254, 169, 254], 0).into(), ([10, 0, 0, 7], 0).into()])
            }
            _ => Ok(vec![([10, 0, 0, 7], 0).into(), ([1, 1, 1, 1], 0).into()]),
        }
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn returns_only_addresses_that_may_be_connected_to() {
        let resolve = |host: &str, allowed: &[&str]| {
            let networks = Networks::parse(allowed.iter().copied()).unwrap();
            let own = [[9, 9, 9, 9].into()].into();
            let targets = Targets::Webhooks { ports: [443].into(), private: networks, own };
            let mut resolver = Resolver::start(lookup, targets).unwrap();
            let found = run(resolver.call(host.parse().unwrap()));
            found.map(Vec::from_iter).map_err(|error| error.to_string())
        };
        let (private, public) = (([10, 0, 0, 7], 0).into(), ([1, 1, 1, 1], 0).into());
        assert_eq!(resolve("mixed.example", &[]), Ok(vec![public]));
        assert_eq!(resolve("inside.example", &["10.0.0.0/24"]), Ok(vec![private]));
        assert_eq!(resolve("self.example", &["9.9.9.9"]), Ok(vec![([9, 9, 9, 9], 0).into()]));
        for host in ["inside.example", "none.example", "self.example"] {
            let refusal = resolve(host, &[]).unwrap_err();
            assert!(refusal.contains("no public address"), "{refusal}");
        }
        let mut resolver = Resolver::start(lookup, Targets::Any).unwrap();
        let all = run(resolver.call("mixed.example".parse().unwrap())).unwrap();
        assert_eq!(Vec::from_iter(all), [private, public]);
    }

    #[test]
    fn a_machine_knows_its_own_addresses_without_a_list() {
        assert!(is_own([127, 0, 0, 1].into(), &[]));
        assert!(is_own("::ffff:127.0.0.1".parse().unwrap(), &[]));
        assert!(!is_own([198, 51, 100, 1].into(), &[]));
    }

    #[test]
    fn stalled_names_wait_apart_and_are_limited() {
        let mut resolver = Resolver::start(lookup, Targets::Any).unwrap();
        let mut call = |host: &str| resolver.call(host.parse().unwrap());
        run(async {
            // One stalled name leaves the other thread.
            let stalled = call("stalled.example");
            assert_eq!(call("mixed.example").await.unwrap().count(), 2);
            // With all threads busy, names wait up to a limit.
            let waiting: Vec<_> =
                (0..THREADS + QUEUE_MAX).map(|_| call("stalled.example")).collect();
            let refused = call("mixed.example").await.map(drop).unwrap_err();
            assert!(refused.to_string().contains("too many"), "{refused}");
            drop((stalled, waiting));
        });
    }
}
