//! Networks inside the kernel, for tests of what no loopback device has: other hosts, drivers, frames.
//!
//! ```text
//! clients                       router                       tracker
//! eth0  198.18.1–8.2/16      ── clients  198.18.0.1
//!       2001:db8:1:1–8::2/48             2001:db8:1::1
//!                               tracker  203.0.113.1   ──── eth0  203.0.113.2–5/24
//!                                        2001:db8:2::1            2001:db8:2::2–5/64
//! ```
//!
//! Each is a [`Namespace`] without a name: nothing of it is left when the process that made it ends, however
//! it ends. Tests that run at once do not meet. The addresses look public to a tracker.

mod namespace;
mod pass_program;
pub mod sites;
mod switch;

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};

use crate::Directory;
pub use namespace::{Entered, Namespace};
pub use switch::Link;

/// The link-layer addresses of the router's interface at the tracker, and of the tracker's.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
/// See [`ROUTER_MAC`].
const TRACKER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 2];
/// Those of the clients' link.
const CLIENT_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
/// The driver of veth pairs refuses programs if packets are longer than a page.
const DRIVER_MTU_MAX: u32 = 3000;
/// Addresses of the clients' host, and of the tracker's.
const CLIENTS: u8 = 8;
const TRACKER_ADDRESSES: u8 = 4;
/// The router's addresses on both links.
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const ROUTER_AT_TRACKER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);

/// Capabilities that programs in the network need, each with its bit in the sets.
const CAPABILITIES: [(u32, &str); 4] =
    [(12, "CAP_NET_ADMIN"), (13, "CAP_NET_RAW"), (21, "CAP_SYS_ADMIN"), (39, "CAP_BPF")];

/// Where in the kernel an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Driver,
    /// In the generic path.
    Generic,
}

/// The largest packet in most networks, in bytes.
pub const MTU: u32 = 1500;

/// Clients, a router, and the host of a tracker.
#[derive(Debug)]
pub struct Network {
    /// Where clients run.
    pub clients: Namespace,
    /// Between them.
    pub router: Namespace,
    /// Where the tracker runs.
    pub tracker: Namespace,
}

impl Network {
    /// Returns why networks cannot be set up here, if so.
    pub fn obstacle() -> Option<String> {
        // Programs are loaded for the whole machine, so that root of a user namespace may not do it.
        let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if !users.split_whitespace().eq(["0", "0", "4294967295"]) {
            return Some("in a user namespace".into());
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default();
        let missing = CAPABILITIES.iter().filter(|(bit, _)| set >> bit & 1 == 0);
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        (!missing.is_empty()).then(|| format!("without {}", missing.join(", ")))
    }

    /// Sets one up. If `mtu` is larger than 3000, XDP programs run in the generic path only.
    ///
    /// # Errors
    ///
    /// If there is an [`Self::obstacle`], or `ip` (iproute2) or `ethtool` is not installed.
    pub fn new(mtu: u32) -> Result<Self> {
        let network = Self {
            clients: Namespace::new().context("no network namespace")?,
            router: Namespace::new()?,
            tracker: Namespace::new()?,
        };
        for namespace in [&network.clients, &network.router, &network.tracker] {
            // Addresses are in use at once, not after a second of asking who else has them.
            namespace.set("net/ipv6/conf/default/dad_transmits", "0")?;
        }
        network.link(mtu)?;
        network.address()?;
        // XDP_TX and XDP_REDIRECT of a veth pair need a program at the other end.
        if mtu <= DRIVER_MTU_MAX {
            network.attach_pass_program(&network.router, "tracker", XdpMode::Driver)?;
        }
        Ok(network)
    }

    /// The pairs of interfaces. Those of the tracker's side have two queues.
    fn link(&self, mtu: u32) -> Result<()> {
        let (router_mac, tracker_mac) = (mac(ROUTER_MAC), mac(TRACKER_MAC));
        let [router_mac1, client_mac] = CLIENT_MACS.map(mac);
        let (clients, tracker) = (self.clients.path(), self.tracker.path());
        self.router.ip(&format!(
            "link add clients address {router_mac1} mtu {mtu} type veth \
             peer name eth0 address {client_mac} mtu {mtu} netns {clients}\n\
             link add tracker address {router_mac} mtu {mtu} numrxqueues 2 numtxqueues 2 type veth \
             peer name eth0 address {tracker_mac} mtu {mtu} numrxqueues 2 numtxqueues 2 netns {tracker}\n",
        ))
    }

    /// Assigns all addresses.
    fn address(&self) -> Result<()> {
        // IPv6 neighbours are known from the start: a question that comes before an interface has joined
        // its multicast groups is repeated only after a second.
        let neighbour = |ip: Ipv6Addr, of: [u8; 6], interface: &str| {
            format!("neighbour add {ip} lladdr {} dev {interface} nud reachable\n", mac(of))
        };
        let up = "link set lo up\nlink set eth0 up\n";
        let (mut clients, mut router) = (up.to_owned(), String::new());
        for host in 1..=CLIENTS {
            let (v4, v6) = (client(host), client_v6(host));
            clients +=
                &format!("address add {v4}/16 dev eth0\naddress add {v6}/48 dev eth0 nodad\n");
            router += &neighbour(v6, CLIENT_MACS[1], "clients");
        }
        let mut addresses = up.to_owned();
        for number in 1..=TRACKER_ADDRESSES {
            let (v4, v6) = (tracker(number), tracker_v6(number));
            addresses +=
                &format!("address add {v4}/24 dev eth0\naddress add {v6}/64 dev eth0 nodad\n");
            router += &neighbour(v6, TRACKER_MAC, "tracker");
        }
        self.router.ip(&format!(
            "link set lo up\nlink set clients up\nlink set tracker up\n\
             address add 198.18.0.1/16 dev clients\naddress add 203.0.113.1/24 dev tracker\n\
             address add {ROUTER_V6}/48 dev clients nodad\n\
             address add {ROUTER_AT_TRACKER_V6}/64 dev tracker nodad\n\
             {router}"
        ))?;
        self.clients.ip(&format!(
            "{clients}{}route add default via 198.18.0.1\nroute add default via {ROUTER_V6}\n",
            neighbour(ROUTER_V6, CLIENT_MACS[0], "eth0")
        ))?;
        self.tracker.ip(&format!(
            "{addresses}{}route add default via 203.0.113.1\n\
             route add default via {ROUTER_AT_TRACKER_V6}\n",
            neighbour(ROUTER_AT_TRACKER_V6, ROUTER_MAC, "eth0")
        ))?;
        self.router.set("net/ipv4/ip_forward", "1")?;
        self.router.set("net/ipv6/conf/all/forwarding", "1")
    }

    /// Attaches a program that passes every frame.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn attach_pass_program(
        &self,
        namespace: &Namespace,
        interface: &str,
        mode: XdpMode,
    ) -> Result<()> {
        let directory = Directory::new()?;
        let file = directory.write("pass.o", pass_program::object())?;
        let file = file.to_str().context("the temporary directory's name is no UTF-8")?;
        let mode = match mode {
            XdpMode::Driver => "xdpdrv",
            XdpMode::Generic => "xdpgeneric",
        };
        namespace
            .run_command("ip", &["link", "set", interface, mode, "obj", file, "sec", "xdp"])?;
        Ok(())
    }
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The addresses of the tracker's host: `number` is 1 to 4.
pub fn tracker(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, 1 + number)
}

/// The same for IPv6.
pub fn tracker_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1 + u16::from(number))
}

/// The addresses of clients, each in a network of its own: `number` is 1 to 8.
pub fn client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, number, 2)
}

/// The same for IPv6.
pub fn client_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, number.into(), 0, 0, 0, 2)
}
