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

impl Default for NextHops {
    /// All replies go back to where the request came from.
    fn default() -> Self {
        Self { v4: NextHop::Swap, v6: NextHop::Swap, on_link: Vec::new() }
    }
}

impl NextHops {
    /// Returns the MAC address to which a reply to `client` goes, whose request came from `from_mac`. `None` if it
    /// is not known.
    #[inline]
    pub(super) fn mac(&self, client: IpAddr, from_mac: [u8; 6]) -> Option<[u8; 6]> {
        match if client.is_ipv4() { self.v4 } else { self.v6 } {
            NextHop::Swap => Some(from_mac),
            NextHop::Always(mac) => Some(mac),
            NextHop::OffLink(_) if self.on_link.iter().any(|link| link.contains(client)) => {
                Some(from_mac)
            }
            NextHop::OffLink(mac) => Some(mac),
            NextHop::Unknown => None,
        }
    }
}
