//! The network of a case, inside its namespace.

use crate::command::{command, output};
use anyhow::Result;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address family between clients and tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// Address 1 is the tracker's, 2 the seeder's, 3 the leecher's. Clients that cannot be bound to an address
    /// send from 1 as well.
    pub(super) fn address(self, host: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 99, 0, host).into(),
            Self::V6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host.into()).into(),
        }
    }

    /// Its label in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }
}

/// Sets up three addresses on a device. Loopback addresses are not enough for WebRTC: it ignores the
/// loopback device, and a browser tells its peers only the address of the default route.
pub(crate) fn set_up() -> Result<()> {
    let ip = |words: &str| {
        let words: Vec<&str> = std::iter::once("ip").chain(words.split(' ')).collect();
        output(command(&words))
    };
    ip("link set lo up")?;
    ip("link add wire type veth peer name end")?;
    ip("link set wire up")?;
    ip("link set end up")?;
    for host in 1..=3 {
        ip(&format!("address add {}/24 dev wire", Family::V4.address(host)))?;
        ip(&format!("address add {}/64 dev wire nodad", Family::V6.address(host)))?;
    }
    ip(&format!("route add default dev wire src {}", Family::V4.address(1)))?;
    Ok(())
}
