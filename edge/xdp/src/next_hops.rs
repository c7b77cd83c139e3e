//! Where replies go in the link layer: the rule that the program and the workers follow.

use std::net::IpAddr;

use primitives::IpPrefix;

/// The next hops of one interface. Replaced as a whole when the network changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NextHops {
    pub(super) v4: NextHop,
    pub(super) v6: NextHop,
    /// The networks on the link.
    pub(super) on_link: Vec<IpPrefix>,
}

/// The destination of replies over one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NextHop {
    /// The source of the request.
    #[default]
    Swap,
    /// Always this one.
    Always([u8; 6]),
    /// This one, and for hosts on the link the source of the request.
    OffLink([u8; 6]),
    /// It is not known: nothing is answered.
    Unknown,
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

impl NextHop {
    /// Returns the word that the program reads: the address in its lower six bytes, in network order, and the kind
    /// above it.
    pub(super) fn word(self) -> u64 {
        let (kind, [a, b, c, d, e, f]) = match self {
            Self::Swap => (0, [0; 6]),
            Self::Always(mac) => (1, mac),
            Self::OffLink(mac) => (2, mac),
            Self::Unknown => (3, [0; 6]),
        };
        u64::from_le_bytes([a, b, c, d, e, f, kind, 0])
    }
}
