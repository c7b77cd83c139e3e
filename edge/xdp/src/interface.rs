//! Chooses the interfaces that get the program, finds what stands in its way, and lists the addresses that
//! are reached through them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::ethtool::{Ethtool, Features};
use super::netlink::{DefaultRoute, Link, LocalAddress, Netlink};
use super::{Listener, Mode, XdpOptions};
use net::process::is_routed;
use primitives::IpPrefix;

/// The machine's network, as it is at one moment.
pub(super) struct Network {
    pub(super) links: Vec<Link>,
    addresses: Vec<LocalAddress>,
    routes: Vec<DefaultRoute>,
}

/// An interface that gets the program.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) index: u32,
    pub(super) name: String,
    /// The driver's name, or the kind of a virtual interface.
    pub(super) driver: String,
    /// Receive queues.
    pub(super) queues: u32,
    /// Bytes of an IP packet.
    pub(super) mtu: u32,
    /// It, the bonds and bridges that it is a port of, and the VLANs on it that are ours: packets to their
    /// addresses arrive here.
    pub(super) indexes: Vec<u32>,
    pub(super) features: Features,
    pub(super) is_veth: bool,
}

/// An address and port at which packets for a listener arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    /// The listener's index.
    pub(super) listener: u8,
    /// True if the program answers connects.
    pub(super) answers: bool,
    /// True if the program drops datagrams with a bad connection id, and those that are no request.
    pub(super) verifies: bool,
    /// True if the program drops datagrams of banned and blocked networks.
    pub(super) filters: bool,
}

impl Network {
    pub(super) fn read(netlink: &mut Netlink) -> io::Result<Self> {
        Ok(Self {
            links: netlink.links()?,
            addresses: netlink.addresses()?,
            routes: netlink.default_routes()?,
        })
    }

    /// Returns the interfaces that get the program. The error is a sentence about the first that cannot.
    /// `is_ours` returns true if the program attached to an interface is our own.
    pub(super) fn choose(
        &self,
        options: &XdpOptions,
        listeners: &[Listener],
        ethtool: &Ethtool,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<Vec<Interface>, String> {
        let links = if options.interfaces.is_empty() {
            self.serving_links(listeners)?
        } else {
            let named = options.interfaces.iter().map(|name| self.named_link(name));
            named.collect::<Result<Vec<_>, _>>()?
        };
        let interfaces = links.into_iter().map(|link| {
            let interface = self.interface(link, &options.vlans, ethtool);
            let other = link.program.filter(|_| !is_ours(&link.name));
            match self.obstacle(link, &interface.features, other) {
                Some(obstacle) => Err(obstacle),
                None => Ok(interface),
            }
        });
        interfaces.collect()
    }

    /// Returns where the program of an interface runs.
    pub(super) fn mode(&self, index: u32) -> Mode {
        let is_generic = self.links.iter().any(|link| link.index == index && link.is_generic);
        if is_generic { Mode::Generic } else { Mode::Driver }
    }

    fn named_link(&self, name: &str) -> Result<&Link, String> {
        let found = self.links.iter().find(|link| link.name == name);
        found.ok_or_else(|| {
            let names: Vec<_> = self.links.iter().map(|link| link.name.as_str()).collect();
            format!("there is no interface {name}, only {}", names.join(", "))
        })
    }

    /// Returns the interfaces of the default routes, and those that have an address of a listener.
    fn serving_links(&self, listeners: &[Listener]) -> Result<Vec<&Link>, String> {
        let is_served = |is_v4: bool| {
            listeners.iter().any(|listener| {
                listener.address.ip().is_unspecified() && listener.address.is_ipv4() == is_v4
            })
        };
        let of_routes = self.routes.iter().filter(|route| is_served(route.is_v4));
        let has_listener = |local: &&LocalAddress| {
            listeners.iter().any(|listener| listener.address.ip() == local.ip)
        };
        let of_addresses = self.addresses.iter().filter(has_listener);
        let indexes =
            of_routes.map(|route| route.index).chain(of_addresses.map(|local| local.index));
        let mut links: Vec<&Link> = Vec::new();
        for index in indexes {
            let link = self.links.iter().find(|link| link.index == index && !link.is_loopback);
            if let Some(link) = link
                && !links.iter().any(|known| known.index == index)
            {
                links.push(link);
            }
        }
        if links.is_empty() {
            return Err("no interface has a default route or an address of udp.listen: name the \
                        interfaces in xdp.interfaces"
                .into());
        }
        Ok(links)
    }

    fn interface(&self, link: &Link, vlans: &[u16], ethtool: &Ethtool) -> Interface {
        let driver = ethtool.driver(&link.name).ok().filter(|driver| !driver.is_empty());
        let queues = ethtool.queues(&link.name).ok().filter(|queues| *queues > 0);
        Interface {
            index: link.index,
            name: link.name.clone(),
            driver: driver.unwrap_or_else(|| link.kind.clone()),
            queues: queues.unwrap_or(link.queues_max).max(1),
            mtu: link.mtu,
            indexes: self.indexes(link, vlans),
            features: ethtool.features(&link.name).unwrap_or_default(),
            is_veth: link.kind == "veth",
        }
    }

    /// Returns the index of a link, of its bonds and bridges, and of the VLANs on these that are in
    /// `vlans`.
    fn indexes(&self, link: &Link, vlans: &[u16]) -> Vec<u32> {
        let mut indexes = vec![link.index];
        let mut upper = link.controller;
        while let Some(index) = upper.filter(|index| !indexes.contains(index)) {
            indexes.push(index);
            let link = self.links.iter().find(|link| link.index == index);
            upper = link.and_then(|link| link.controller);
        }
        let is_ours = |link: &&Link| {
            link.vlan.is_some_and(|id| vlans.contains(&id))
                && link.lower.is_some_and(|lower| indexes.contains(&lower))
        };
        let tagged: Vec<u32> = self.links.iter().filter(is_ours).map(|link| link.index).collect();
        indexes.extend(tagged);
        indexes
    }

    /// Returns why a link cannot have the program. `program` is the id of another one that it has.
    fn obstacle(&self, link: &Link, features: &Features, program: Option<u32>) -> Option<String> {
        let Link { name, kind, .. } = link;
        let names_of = |is_wanted: &dyn Fn(&Link) -> bool| {
            let wanted = self.links.iter().filter(|link| is_wanted(link));
            wanted.map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        if link.is_loopback {
            return Some(format!(
                "{name} is a loopback interface, whose packets go to the sockets"
            ));
        }
        if let (Some(vlan), Some(lower)) = (link.vlan, link.lower) {
            let lower = names_of(&|link| link.index == lower);
            return Some(format!(
                "{name} is VLAN {vlan} of {lower}: set xdp.interfaces = [\"{lower}\"] and xdp.vlans = \
                 [\"{vlan}\"]"
            ));
        }
        let ports = names_of(&|port| port.controller == Some(link.index));
        if matches!(kind.as_str(), "bond" | "bridge" | "team") {
            return Some(format!("{name} is a {kind} of {ports}: name these in xdp.interfaces"));
        }
        if link.mac.is_none_or(|mac| mac == [0; 6]) {
            return Some(format!("{name} has no MAC address: its frames are not Ethernet"));
        }
        let is_tagged = |child: &Link| child.lower == Some(link.index) && child.vlan.is_some();
        let children = names_of(&is_tagged);
        if features.strips_vlan && !children.is_empty() {
            return Some(format!(
                "{name} has VLANs ({children}) and takes their tags off frames before a program sees \
                 them: `ethtool -K {name} rxvlan off` leaves them on"
            ));
        }
        program.map(|id| {
            format!(
                "{name} has another XDP program already, with id {id} (`bpftool prog show id {id}`)"
            )
        })
    }

    /// Returns the endpoints of the listeners. A listener's own address counts while any interface has
    /// it; a wildcard stands for the addresses of `interfaces`, and those of the loopback interface that
    /// others can reach.
    pub(super) fn endpoints(
        &self,
        listeners: &[Listener],
        interfaces: &[Interface],
    ) -> Vec<Endpoint> {
        let is_reached = |local: &LocalAddress| {
            let is_loopback =
                self.links.iter().any(|link| link.index == local.index && link.is_loopback);
            is_loopback || interfaces.iter().any(|it| it.indexes.contains(&local.index))
        };
        let mut endpoints: Vec<Endpoint> = Vec::new();
        for (at, listener) in (0..).zip(listeners) {
            let (ip, port) = (listener.address.ip(), listener.address.port());
            let is_wanted = |local: &&LocalAddress| match ip.is_unspecified() {
                true => local.ip.is_ipv4() == ip.is_ipv4() && is_reached(local),
                false => local.ip == ip,
            };
            for local in self.addresses.iter().filter(is_wanted).filter(|it| is_routed(it.ip)) {
                let address = SocketAddr::new(local.ip, port);
                // The sockets bound to an address of their own come before those of a wildcard.
                let known = endpoints.iter_mut().find(|known| known.address == address);
                let endpoint = Endpoint {
                    address,
                    listener: at,
                    answers: listener.is_direct,
                    verifies: listener.is_direct,
                    filters: listener.is_direct,
                };
                match known {
                    Some(known) if !ip.is_unspecified() => *known = endpoint,
                    Some(_) => {}
                    None => endpoints.push(endpoint),
                }
            }
        }
        endpoints
    }

    /// Returns the networks of hosts on the link of an interface, each once.
    pub(super) fn on_link(&self, interface: &Interface) -> Vec<IpPrefix> {
        let is_here =
            |local: &&LocalAddress| interface.indexes.contains(&local.index) && is_routed(local.ip);
        let mut networks = Vec::new();
        for local in self.addresses.iter().filter(is_here) {
            // Several addresses may be of one network.
            let network = IpPrefix::new(local.ip, local.prefix);
            if !networks.contains(&network) {
                networks.push(network);
            }
        }
        networks
    }

    /// Returns the next hop of the preferred default route through an interface, with the index of the link
    /// on which it is.
    pub(super) fn gateway(&self, is_v4: bool, interface: &Interface) -> Option<(u32, IpAddr)> {
        let is_own =
            |it: &&DefaultRoute| it.is_v4 == is_v4 && interface.indexes.contains(&it.index);
        let route = self.routes.iter().find(is_own)?;
        Some((route.index, route.gateway?))
    }

    /// Returns the addresses of the machine.
    pub(super) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|local| local.ip)
    }

    /// Reads addresses again, and routes if `with_routes` is set.
    pub(super) fn refresh(&mut self, netlink: &mut Netlink, with_routes: bool) -> io::Result<()> {
        self.addresses = netlink.addresses()?;
        if with_routes {
            self.routes = netlink.default_routes()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str) -> Link {
        Link {
            index,
            name: name.into(),
            mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            ..Link::default()
        }
    }

    fn local(index: u32, ip: &str, prefix: u8) -> LocalAddress {
        LocalAddress { index, ip: ip.parse().unwrap(), prefix }
    }

    fn route(index: u32, gateway: &str, metric: u32) -> DefaultRoute {
        let gateway: IpAddr = gateway.parse().unwrap();
        DefaultRoute { index, is_v4: gateway.is_ipv4(), gateway: Some(gateway), metric }
    }

    fn listener(address: &str) -> Listener {
        Listener { address: address.parse().unwrap(), is_direct: true }
    }

    /// A machine with a bond of two ports, a VLAN on it, and another interface with a VLAN.
    fn network() -> Network {
        let port = |link| Link { controller: Some(4), ..link };
        let vlan = |link, lower, id| Link { lower: Some(lower), vlan: Some(id), ..link };
        Network {
            links: vec![
                Link { is_loopback: true, ..link(1, "lo") },
                port(link(2, "eth0")),
                port(link(3, "eth1")),
                Link { kind: "bond".into(), ..link(4, "bond0") },
                vlan(link(5, "bond0.7"), 4, 7),
                link(6, "eth2"),
                vlan(link(7, "eth2.9"), 6, 9),
                Link { mac: None, ..link(8, "wg0") },
                Link { program: Some(33), ..link(9, "eth3") },
            ],
            addresses: vec![
                local(1, "127.0.0.1", 8),
                local(1, "198.51.100.5", 32),
                local(4, "192.0.2.4", 24),
                local(4, "fe80::4", 64),
                local(4, "2001:db8::4", 64),
                local(5, "203.0.113.5", 24),
                local(6, "192.0.2.6", 24),
            ],
            routes: vec![route(4, "192.0.2.1", 0), route(4, "2001:db8::1", 1024)],
        }
    }

    fn interface(index: u32, vlans: &[u16]) -> Interface {
        let network = network();
        let link = network.links.iter().find(|link| link.index == index).unwrap();
        network.interface(link, vlans, &Ethtool::open().unwrap())
    }

    fn obstacle(index: u32, features: Features) -> Option<String> {
        let network = network();
        let link = network.links.iter().find(|link| link.index == index).unwrap();
        network.obstacle(link, &features, link.program)
    }

    #[test]
    fn says_what_stands_in_the_way() {
        let plain = Features::default();
        let strips_vlan = Features { strips_vlan: true, ..plain };
        assert_eq!(obstacle(2, strips_vlan), None, "the VLAN is on the bond");
        assert_eq!(obstacle(6, plain), None);
        for (index, features, expected) in [
            (1, plain, "lo is a loopback interface"),
            (4, plain, "bond0 is a bond of eth0, eth1: name these in xdp.interfaces"),
            (5, plain, "bond0.7 is VLAN 7 of bond0: set xdp.interfaces = [\"bond0\"] and"),
            (6, strips_vlan, "eth2 has VLANs (eth2.9) and takes their tags off frames"),
            (8, plain, "wg0 has no MAC address"),
            (9, plain, "eth3 has another XDP program already, with id 33"),
        ] {
            let found = obstacle(index, features).unwrap();
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[test]
    fn chooses_interfaces_of_default_routes_and_listeners() {
        let chosen = |listeners: &[&str]| {
            let listeners: Vec<_> = listeners.iter().map(|address| listener(address)).collect();
            let network = network();
            let links = network.serving_links(&listeners)?;
            Ok::<_, String>(links.iter().map(|link| link.name.clone()).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["0.0.0.0:1", "[::]:1"]).unwrap(), ["bond0"]);
        assert_eq!(chosen(&["192.0.2.6:1"]).unwrap(), ["eth2"]);
        assert_eq!(chosen(&["[::]:1", "203.0.113.5:1"]).unwrap(), ["bond0", "bond0.7"]);
        let none = chosen(&["127.0.0.1:1"]).unwrap_err();
        assert!(none.contains("name the interfaces in xdp.interfaces"), "{none}");
        let unknown = network().named_link("eth9").unwrap_err();
        assert!(unknown.starts_with("there is no interface eth9, only lo, eth0,"), "{unknown}");
    }

    #[test]
    fn ports_have_the_addresses_of_their_bond() {
        let endpoints = |listeners: &[&str], interfaces: &[Interface]| {
            let listeners: Vec<_> = listeners.iter().map(|address| listener(address)).collect();
            let all = network().endpoints(&listeners, interfaces);
            all.iter().map(|it| format!("{} {}", it.address, it.listener)).collect::<Vec<_>>()
        };
        let port = [interface(2, &[])];
        let both = ["0.0.0.0:1", "[::]:2"];
        let expected = ["198.51.100.5:1 0", "192.0.2.4:1 0", "[2001:db8::4]:2 1"];
        assert_eq!(endpoints(&both, &port), expected);
        let with_vlan = [interface(3, &[7])];
        assert!(endpoints(&both, &with_vlan).contains(&"203.0.113.5:1 0".into()));
        let other = [interface(6, &[])];
        assert_eq!(endpoints(&both, &other), ["198.51.100.5:1 0", "192.0.2.6:1 0"]);
        // An address of its own counts wherever it is, and comes before a wildcard.
        let own = ["0.0.0.0:1", "192.0.2.6:1", "192.0.2.99:1"];
        assert_eq!(endpoints(&own, &other), ["198.51.100.5:1 0", "192.0.2.6:1 1"]);
    }

    #[test]
    fn gateways_are_those_of_the_bond() {
        let port = interface(2, &[]);
        let gateway = |is_v4, interface: &Interface| network().gateway(is_v4, interface);
        assert_eq!(gateway(true, &port), Some((4, "192.0.2.1".parse().unwrap())));
        assert_eq!(gateway(false, &port), Some((4, "2001:db8::1".parse().unwrap())));
        assert_eq!(gateway(true, &interface(6, &[])), None);
        let networks = network().on_link(&port);
        let texts: Vec<_> = networks.iter().map(IpPrefix::to_string).collect();
        assert_eq!(texts, ["192.0.2.0/24", "2001:db8::/64"]);
    }
}
