//! Hosts at several sites, for tests of clusters.
//!
//! ```text
//! clients  eth0  198.18.0.1–200/16 ─┐                        ┌─ eth1  10.77.0.100/24
//! host 1   eth0  198.18.1.1/16 ─────┤ bridge        backbone ├─ eth1  10.77.0.1/24
//! host 2   eth0  198.18.1.2/16 ─────┤                        ├─ eth1  10.77.0.2/24
//! ...                               ┘                        └─ ...
//! ```
//!
//! Clients reach every host at once. Between sites is the backbone, where each [`Link`] can be cut, delayed and
//! made lossy. The kernel's own netem is a module that many machines lack, so that a switch in this process
//! moves the frames. Where speed matters and no link fails, the backbone is a bridge, too.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::Result;

use super::switch::{Link, Switch};
use super::{Namespace, mac};

/// The number of the clients' host on the backbone.
const CLIENTS: u8 = 100;
/// Addresses of the clients' host.
const CLIENT_ADDRESSES: u8 = 200;

/// The kind of the backbone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backbone {
    /// A switch of this process, which can lose and delay.
    Switch,
    /// A bridge of the kernel.
    Bridge,
}

/// Hosts, and clients that reach all of them.
#[derive(Debug)]
pub struct Sites {
    hosts: Vec<Arc<Namespace>>,
    clients: Arc<Namespace>,
    switch: Option<Switch>,
    // Where the bridges are.
    _middle: Namespace,
}

impl Sites {
    /// Sets up a network with this many hosts, at most 99.
    ///
    /// # Errors
    ///
    /// If there is a [`super::Network::obstacle`], or `ip` (iproute2) or `ethtool` is not installed.
    pub fn new(hosts: u8, backbone: Backbone) -> Result<Self> {
        let middle = Namespace::new()?;
        // It speaks to none of them.
        middle.set("net/ipv6/conf/default/disable_ipv6", "1")?;
        middle
            .ip("link set lo up\nlink add bridge type bridge stp_state 0\nlink set bridge up\n")?;
        if backbone != Backbone::Switch {
            middle.ip("link add backbone type bridge stp_state 0\nlink set backbone up\n")?;
        }
        let numbers: Vec<u8> = (1..=hosts).chain([CLIENTS]).collect();
        let mut all = Vec::new();
        for number in &numbers {
            all.push(Arc::new(attach(&middle, *number, backbone)?));
        }
        for (host, number) in all.iter().zip(&numbers) {
            let others = numbers.iter().filter(|other| *other != number);
            let neighbours = others.map(|other| {
                let (ip, mac) = (backbone_address(*other), mac(port_mac(*other)));
                format!("neighbour add {ip} lladdr {mac} dev eth1 nud permanent\n")
            });
            host.ip(&neighbours.collect::<String>())?;
        }
        let ports = || numbers.iter().map(|it| (format!("port{it}"), port_mac(*it))).collect();
        let is_switch = backbone == Backbone::Switch;
        let switch = is_switch.then(|| Switch::start(&middle, ports())).transpose()?;
        let clients = all.pop().unwrap_or_else(|| unreachable!("the clients' host is the last"));
        Ok(Self { hosts: all, clients, switch, _middle: middle })
    }

    /// The numbers of all hosts.
    pub(crate) fn numbers(&self) -> RangeInclusive<u8> {
        1..=self.hosts.len() as u8
    }

    /// A host, counted from 1.
    ///
    /// # Panics
    ///
    /// If there is none with this number.
    pub fn host(&self, number: u8) -> &Arc<Namespace> {
        &self.hosts[usize::from(number) - 1]
    }

    /// Where clients are.
    pub fn clients(&self) -> &Arc<Namespace> {
        &self.clients
    }

    /// Has the link between two hosts be like this, in both directions.
    ///
    /// # Panics
    ///
    /// If the backbone is a bridge.
    pub fn set_link(&self, one: u8, other: u8, link: Link) {
        let switch = self.switch.as_ref().expect("a bridge's links do not change");
        switch.set_link(port_mac(one), port_mac(other), link);
        switch.set_link(port_mac(other), port_mac(one), link);
    }

    /// Has all links between hosts be like this.
    ///
    /// # Panics
    ///
    /// If the backbone is a bridge.
    pub fn set_links(&self, link: Link) {
        for one in self.numbers() {
            self.numbers().filter(|other| *other > one).for_each(|it| self.set_link(one, it, link));
        }
    }
}

/// The address at which clients reach a host.
pub fn public_address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 1, host)
}

/// The same for IPv6.
pub fn public_address_v6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 1, host.into())
}

/// The address of a host at the backbone.
pub fn backbone_address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, host)
}

/// The addresses of the clients' host: `number` is 1 to 200.
pub fn site_client(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, 0, number)
}

/// The same for IPv6; `number` is 1.
pub fn site_client_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, number.into())
}

/// The link-layer address of a host at the backbone.
fn port_mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 3, host]
}

/// Makes a host with both of its interfaces.
fn attach(middle: &Namespace, number: u8, backbone: Backbone) -> Result<Namespace> {
    let host = Namespace::new()?;
    host.set("net/ipv6/conf/default/dad_transmits", "0")?;
    let (path, mac) = (host.path(), mac(port_mac(number)));
    middle.ip(&format!(
        "link add public{number} type veth peer name eth0 netns {path}\n\
         link set public{number} master bridge up\n\
         link add port{number} type veth peer name eth1 address {mac} netns {path}\n\
         link set port{number} up\n"
    ))?;
    let mut setup = format!(
        "link set lo up\nlink set eth0 up\nlink set eth1 up\n\
         address add {}/24 dev eth1\n",
        backbone_address(number)
    );
    if number == CLIENTS {
        for client in 1..=CLIENT_ADDRESSES {
            setup += &format!("address add {}/16 dev eth0\n", site_client(client));
        }
        setup += &format!("address add {}/64 dev eth0 nodad\n", site_client_v6(1));
    } else {
        let (v4, v6) = (public_address(number), public_address_v6(number));
        setup += &format!("address add {v4}/16 dev eth0\naddress add {v6}/64 dev eth0 nodad\n");
    }
    host.ip(&setup)?;
    match backbone {
        // Frames come as they would on a wire: no longer than its packets, with their checksums.
        Backbone::Switch => {
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            host.run_command("ethtool", &[&["-K", "eth1"], &off[..]].concat())?;
        }
        Backbone::Bridge => middle.ip(&format!("link set port{number} master backbone\n"))?,
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

    use crate::network::Network;

    fn socket(namespace: &Namespace, ip: Ipv4Addr) -> UdpSocket {
        namespace.run(|| UdpSocket::bind((ip, 0))).unwrap()
    }

    /// Sends datagrams and returns how many came.
    fn sent(from: &UdpSocket, to: &UdpSocket, count: u32) -> u32 {
        let address = to.local_addr().unwrap();
        (0..count).for_each(|_| assert_eq!(from.send_to(b"x", address).unwrap(), 1));
        let mut came = 0;
        to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        while to.recv_from(&mut [0; 9]).is_ok() {
            came += 1;
        }
        came
    }

    #[test]
    fn links_are_cut_and_lossy() {
        if let Some(obstacle) = Network::obstacle() {
            return eprintln!("skipped {obstacle}");
        }
        let sites = Sites::new(2, Backbone::Switch).unwrap();
        let one = socket(sites.host(1), backbone_address(1));
        let two = socket(sites.host(2), backbone_address(2));
        sites.set_link(1, 2, Link::CUT);
        assert_eq!(sent(&one, &two, 10), 0);
        sites.set_link(1, 2, Link::default());
        assert_eq!(sent(&one, &two, 10), 10);
        sites.set_links(Link { loss_permille: 500, ..Link::default() });
        let came = sent(&one, &two, 200);
        assert!((50..150).contains(&came), "{came} of 200");
    }
}
