//! Asks the kernel for interfaces, addresses, routes and neighbours (rtnetlink).
//!
//! The socket is opened before the sandbox, which allows no new ones, and is used until the end.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// The offset in a route's message of the length of its destination's prefix: 0 for a default route.
const ROUTE_PREFIX_AT: usize = 1;

/// A socket for requests to the kernel.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// True if the interface is up and has a carrier.
    pub(super) is_running: bool,
    pub(super) is_loopback: bool,
    /// Bytes of an IP packet.
    pub(super) mtu: u32,
    pub(super) mac: Option<[u8; 6]>,
    /// The kind of a virtual interface, e.g. `vlan`, `bond`, `veth`. Empty for hardware.
    pub(super) kind: String,
    /// The interface below it, for a VLAN; the other end, for a veth in the same namespace.
    pub(super) lower: Option<u32>,
    pub(super) vlan: Option<u16>,
    /// The bond or bridge that it is a port of.
    pub(super) controller: Option<u32>,
    /// The most receive queues that it can have.
    pub(super) queues_max: u32,
    /// The id of the XDP program that is attached.
    pub(super) program: Option<u32>,
    /// True if that program runs in the generic path.
    pub(super) is_generic: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LocalAddress {
    /// The interface's index.
    pub(super) index: u32,
    pub(super) ip: IpAddr,
    /// Bits of the network that is on the link.
    pub(super) prefix: u8,
}

/// A default route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DefaultRoute {
    /// The interface's index.
    pub(super) index: u32,
    pub(super) is_v4: bool,
    /// The next hop. `None` if all hosts are on the link.
    pub(super) gateway: Option<IpAddr>,
    /// Routes with a lower metric are preferred.
    pub(super) metric: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Makes the kernel filter routes by their table (Linux 4.20).
        socket.set_netlink_get_strict_chk(true)?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let found = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        Ok(found.into_iter().filter_map(link).collect())
    }

    /// Returns an interface, or `None` if it is gone.
    pub(super) fn link(&mut self, index: u32) -> io::Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let found = self.look_up(RouteNetlinkMessage::GetLink(message), libc::ENODEV)?;
        Ok(found.and_then(link))
    }

    pub(super) fn addresses(&mut self) -> io::Result<Vec<LocalAddress>> {
        let found = self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        Ok(found.into_iter().filter_map(local_address).collect())
    }

    /// Returns the default routes of the main table, preferred ones first.
    pub(super) fn default_routes(&mut self) -> io::Result<Vec<DefaultRoute>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            message.header.table = RouteHeader::RT_TABLE_MAIN;
            let found = self.dump(RouteNetlinkMessage::GetRoute(message))?;
            routes.extend(found.into_iter().flat_map(default_routes));
        }
        routes.sort_by_key(|route| route.metric);
        Ok(routes)
    }

    /// Returns the MAC address of a neighbour, if the kernel knows it.
    pub(super) fn neighbour(&mut self, index: u32, ip: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = index;
        let (family, address) = match ip {
            IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
            IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
        };
        message.header.family = family;
        message.attributes.push(NeighbourAttribute::Destination(address));
        let found = self.look_up(RouteNetlinkMessage::GetNeighbour(message), libc::ENOENT)?;
        let Some(RouteNetlinkMessage::NewNeighbour(found)) = found else { return Ok(None) };
        let state = u16::from(found.header.state);
        let is_valid = state & (libc::NUD_INCOMPLETE | libc::NUD_FAILED) == 0;
        let mac = found.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(mac) => mac.as_slice().try_into().ok(),
            _ => None,
        });
        Ok(mac.filter(|_| is_valid))
    }

    /// Sends a request whose answer is one message. Returns `None` if the kernel answers `absent`.
    fn look_up(
        &mut self,
        request: RouteNetlinkMessage,
        absent: i32,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(request, NLM_F_REQUEST)?;
        let mut found = Vec::new();
        match self.receive(&mut found) {
            Err(error) if error.raw_os_error() == Some(absent) => Ok(None),
            Err(error) => Err(error),
            Ok(_) => Ok(found.pop()),
        }
    }

    /// Sends a request whose answer is a list, and returns that.
    fn dump(&mut self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(request, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut found = Vec::new();
        while !self.receive(&mut found)? {}
        Ok(found)
    }

    fn send(&mut self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Receives once, and appends the messages to `found`. Returns true if a list is complete. Messages that the
    /// crate cannot parse are skipped: a newer kernel may send attributes that it does not know. So are routes
    /// that are no default route: a router may have a million of them.
    fn receive(&self, found: &mut Vec<RouteNetlinkMessage>) -> io::Result<bool> {
        let (received, _) = self.socket.recv_from_full()?;
        let mut left = received.as_slice();
        while let Ok(message) = NetlinkBuffer::new_checked(left) {
            let length = message.length() as usize;
            let bytes = left.get(..length).unwrap_or_default();
            left = left.get(length.next_multiple_of(4)..).unwrap_or_default();
            if message.sequence_number() != self.sequence {
                continue;
            }
            let kind = message.message_type();
            let is_control = i32::from(kind) < libc::NLMSG_MIN_TYPE;
            if kind == libc::RTM_NEWROUTE && message.payload().get(ROUTE_PREFIX_AT) != Some(&0) {
                continue;
            }
            match NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes) {
                Ok(message) => match message.payload {
                    NetlinkPayload::Done(_) => return Ok(true),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                },
                Err(_) if is_control => return Err(io::ErrorKind::InvalidData.into()),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}

fn link(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        is_running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        is_loopback: flags.contains(LinkFlags::Loopback),
        ..Link::default()
    };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(bytes) => link.mtu = bytes,
            LinkAttribute::Address(mac) => link.mac = mac.try_into().ok(),
            LinkAttribute::Link(index) => link.lower = Some(index).filter(|index| *index != 0),
            LinkAttribute::Controller(index) => link.controller = Some(index),
            LinkAttribute::NumRxQueues(queues) => link.queues_max = queues,
            LinkAttribute::Xdp(xdp) => {
                link.program = xdp.iter().find_map(program_id);
                link.is_generic = xdp.iter().any(|it| matches!(it, LinkXdp::SkbProgId(_)));
            }
            LinkAttribute::LinkInfo(infos) => infos.iter().for_each(|info| match info {
                LinkInfo::Kind(kind) => link.kind = kind.to_string(),
                LinkInfo::Data(InfoData::Vlan(data)) => {
                    link.vlan = data.iter().find_map(|info| match info {
                        InfoVlan::Id(id) => Some(*id),
                        _ => None,
                    });
                }
                _ => {}
            }),
            _ => {}
        }
    }
    Some(link)
}

fn program_id(attribute: &LinkXdp) -> Option<u32> {
    match attribute {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
        _ => None,
    }
}

fn local_address(message: RouteNetlinkMessage) -> Option<LocalAddress> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let find = |is_local: bool| {
        message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(ip) if is_local => Some(*ip),
            AddressAttribute::Address(ip) if !is_local => Some(*ip),
            _ => None,
        })
    };
    // On point-to-point links, the other attribute is the address of the other end.
    let ip = find(true).or_else(|| find(false))?;
    let prefix = message.header.prefix_len;
    Some(LocalAddress { index: message.header.index, ip, prefix })
}

/// Returns a route for each of the next hops.
fn default_routes(message: RouteNetlinkMessage) -> Vec<DefaultRoute> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return Vec::new() };
    let header = &message.header;
    if header.kind != RouteType::Unicast || header.table != RouteHeader::RT_TABLE_MAIN {
        return Vec::new();
    }
    let is_v4 = header.address_family == AddressFamily::Inet;
    let metric = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let metric = metric.unwrap_or(0);
    let route =
        |index, attributes| DefaultRoute { index, is_v4, gateway: gateway(attributes), metric };
    let mut routes = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => routes.push(route(*index, &message.attributes)),
            RouteAttribute::MultiPath(hops) => {
                routes.extend(hops.iter().map(|hop| route(hop.interface_index, &hop.attributes)))
            }
            _ => {}
        }
    }
    routes
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip))
        | RouteAttribute::Via(RouteVia::Inet(ip)) => Some(IpAddr::V4(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip))
        | RouteAttribute::Via(RouteVia::Inet6(ip)) => Some(IpAddr::V6(*ip)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn unknown_neighbours_have_no_address() {
        let mut netlink = Netlink::open().unwrap();
        let links = netlink.links().unwrap();
        let loopback = links.iter().find(|link| link.is_loopback).unwrap();
        let unknown = Ipv4Addr::new(192, 0, 2, 77).into();
        assert_eq!(netlink.neighbour(loopback.index, unknown).unwrap(), None);
        // Answers of the next request are not mixed up with this one's.
        assert!(!netlink.links().unwrap().is_empty());
        for route in netlink.default_routes().unwrap() {
            assert!(links.iter().any(|link| link.index == route.index), "{route:?}");
        }
    }
}
