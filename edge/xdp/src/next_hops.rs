//! Where replies of AF_XDP sockets go in the link layer.

use std::net::IpAddr;

use primitives::IpPrefix;

use super::maps::NextHop;

/// The next hops of one interface. Replaced as a whole when the network changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NextHops {
    /// Of IPv4.
    pub(super) v4: NextHop,
    /// Of IPv6.
    pub(super) v6: NextHop,
    /// The networks on the link.
    pub(super) on_link: Vec<IpPrefix>,
}

/// Where one reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To the source of the request.
    Back,
    /// To this address.
    Mac([u8; 6]),
    /// It is not known.
    Unknown,
}

impl Default for NextHops {
    /// All replies go back to where the request came from.
    fn default() -> Self {
        Self { v4: NextHop::Swap, v6: NextHop::Swap, on_link: Vec::new() }
    }
}

impl NextHops {
    /// Returns where a reply to `client` goes.
    #[inline]
    pub(super) fn of(&self, client: IpAddr) -> Destination {
        match if client.is_ipv4() { self.v4 } else { self.v6 } {
            NextHop::Swap => Destination::Back,
            NextHop::Always(mac) => Destination::Mac(mac),
            NextHop::OffLink(_) if self.on_link.iter().any(|link| link.contains(client)) => {
                Destination::Back
            }
            NextHop::OffLink(mac) => Destination::Mac(mac),
            NextHop::Unknown => Destination::Unknown,
        }
    }
}
