//! Resolves host names on threads of its own, and returns only addresses that may be connected to.
//!
//! The system's resolver blocks, for many seconds if no name server answers. On the threads of the runtime it
//! would delay the API's reads of the records. What is returned here is what is connected to, so a name that
//! resolves to another address the next time gains nothing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use hyper::Uri;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{Semaphore, oneshot};
use tower_service::Service;
use tracker::Networks;

/// Lookups at a time, each on a thread. Further ones fail.
const LOOKUPS_MAX: usize = 16;

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

#[derive(Clone)]
pub(in crate::serve) struct Resolver {
    lookups: Arc<Semaphore>,
    targets: Targets,
}

impl Resolver {
    pub(super) fn new(targets: Targets) -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)), targets }
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
        let (host, targets) = (name.as_str().to_owned(), self.targets.clone());
        let permit = Arc::clone(&self.lookups).try_acquire_owned();
        Box::pin(async move {
            let busy = |_| io::Error::other("too many host names wait for the name server");
            let permit = permit.map_err(busy)?;
            let (reply, answer) = oneshot::channel();
            let name = host.clone();
            thread::Builder::new().name("resolver".into()).spawn(move || {
                // The port of the URL replaces this one.
                let found = (name.as_str(), 0).to_socket_addrs();
                // The request may have timed out.
                let _ = reply.send(found.map(Vec::from_iter));
                drop(permit);
            })?;
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
    use super::*;

    #[test]
    fn only_public_addresses_of_others_and_private_ones_that_are_named_are_allowed() {
        let targets = Targets::Webhooks {
            ports: [443].into(),
            private: Networks::parse(["10.0.0.0/24", "9.9.9.8"]).unwrap(),
            own: [[9, 9, 9, 9].into(), [9, 9, 9, 8].into()].into(),
        };
        let allowed =
            ["1.1.1.1", "10.0.0.7", "9.9.9.8"].map(|ip| targets.allow(ip.parse().unwrap()));
        assert_eq!(allowed, [true; 3]);
        let refused = ["169.254.169.254", "10.0.1.7", "9.9.9.9", "127.0.0.1", "::ffff:127.0.0.1"];
        assert_eq!(refused.map(|ip| targets.allow(ip.parse().unwrap())), [false; 5]);
        assert!(Targets::Any.allow([10, 0, 1, 7].into()));
    }
}
