//! Sets up the program, and keeps what it knows up to date.
//!
//! [`Xdp::open`] needs rights and makes every system call that needs one. [`Control`] writes into mapped
//! memory and asks the kernel by a netlink socket that is open already, so it works in the sandbox.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use primitives::IpPrefix;

use super::attached::Attached;
use super::ethtool::Ethtool;
use super::handover::{HandOver, InheritedXdp, TakeOver};
use super::interface::{Endpoint, Interface, Network};
use super::maps::{LISTENERS_MAX, Maps, PASSED_V4_MAX, PASSED_V6_MAX};
use super::netlink::Netlink;
use super::{
    IdSlices, InterfaceStatus, Listener, ListenerCounts, ReplyMac, Rules, SetupError, WorkerQueues,
    XdpOptions,
};
use net::process::{Capability, missing_capabilities, raise_locked_memory_limit};
use net::{BlockLists, SourceBlocks};

/// Sources whose datagrams are always passed: private and link-local networks, and loopback. The kernel
/// drops them where they cannot come from (`rp_filter`), which it cannot do with what it does not see.
const LOCAL_NETWORKS: [&str; 8] = [
    "10.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1",
    "fc00::/7",
    "fe80::/10",
];

/// The program on its interfaces, and AF_XDP sockets.
pub struct Xdp {
    /// The handle that keeps the program up to date.
    pub control: Control,
    /// The AF_XDP sockets of each worker. Empty if datagrams are not redirected.
    pub queues: Vec<WorkerQueues>,
    /// The last steps of an upgrade, in a process that takes over.
    pub take_over: TakeOver,
    /// A sentence about each queue that has no AF_XDP socket: its datagrams come to the UDP sockets.
    pub warnings: Vec<String>,
}

/// The handle that keeps the program up to date. The program is detached when this is dropped.
pub struct Control {
    listeners: Vec<Listener>,
    rules: Rules,
    /// True if the program has room for all exempt networks.
    has_all_exempt: bool,
    /// Networks some of whose addresses are banned.
    partly_banned: Vec<IpPrefix>,
    /// True if the program has room for all of `partly_banned`, too.
    has_all_bans: bool,
    maps: Maps,
    interfaces: Vec<Attached>,
    netlink: Netlink,
    network: Network,
    blocks: Arc<BlockLists>,
    endpoints: Vec<Endpoint>,
}

impl Xdp {
    /// Loads the program and attaches it to interfaces. It passes everything until [`Control::set_ids`],
    /// [`Control::set_rules`] and [`Control::refresh`] have been called. Call it before privileges are
    /// dropped and before the sandbox.
    ///
    /// At most 16 listeners have the program; the others are served by their sockets alone.
    ///
    /// # Errors
    ///
    /// If a right is missing, or the kernel refuses the program, its maps or an interface. Then nothing is
    /// attached.
    pub fn open(
        options: &XdpOptions,
        listeners: Vec<Listener>,
        mut inherited: InheritedXdp,
    ) -> Result<Self, SetupError> {
        check_rights(options.redirect)?;
        let cannot = |error| format!("cannot ask the kernel for network interfaces: {error}");
        let mut netlink = Netlink::open().map_err(cannot)?;
        let ethtool = Ethtool::open().map_err(cannot)?;
        let network = Network::read(&mut netlink).map_err(cannot)?;
        let chosen =
            network.choose(options, &listeners, &ethtool, |name| inherited.has_link(name))?;
        // Maps count as locked memory before Linux 5.11.
        let _ = raise_locked_memory_limit();
        let maps = Maps::create(&options.protocol, options.secret)
            .map_err(|error| format!("the kernel refuses the maps of the XDP program: {error}"))?;
        let attach = |interface: Interface| {
            let link = inherited.take_link(&interface.name, interface.index);
            let link = link.map(|link| (link, network.mode(interface.index)));
            Attached::open(interface, &maps, options, link)
        };
        let mut interfaces = chosen.into_iter().map(attach).collect::<Result<Vec<_>, _>>()?;
        let (mut queues, mut warnings) = (Vec::new(), Vec::new());
        if options.redirect {
            queues.resize_with(options.workers.max(1), WorkerQueues::default);
            warnings = open_sockets(&mut interfaces, options, inherited, &mut queues)?;
        }
        let exchanges = interfaces.iter_mut().filter_map(Attached::take_exchange).collect();
        let statuses = interfaces.iter().flat_map(Attached::queue_statuses);
        let take_over = TakeOver { exchanges, queues: statuses.collect() };
        maps.steering().set(options.redirect);
        let listeners = listeners.into_iter().take(LISTENERS_MAX).collect();
        let control = Control {
            listeners,
            rules: Rules::default(),
            has_all_exempt: true,
            partly_banned: Vec::new(),
            has_all_bans: true,
            maps,
            interfaces,
            netlink,
            network,
            blocks: Arc::default(),
            endpoints: Vec::new(),
        };
        Ok(Self { control, queues, take_over, warnings })
    }

    /// Returns copies of what an upgrade hands over, with their names. Call it before the queues are given
    /// to workers.
    ///
    /// # Errors
    ///
    /// If the process has too many descriptors.
    pub fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut all = Vec::new();
        for interface in &self.control.interfaces {
            interface.add_descriptors(&self.queues, &mut all)?;
        }
        Ok(all)
    }

    /// Returns what an upgrade needs to hand over to a new process.
    pub fn hand_over(&self) -> HandOver {
        HandOver {
            steering: self.control.maps.steering(),
            queues: self.control.interfaces.iter().flat_map(Attached::queue_statuses).collect(),
        }
    }
}

/// Opens AF_XDP sockets for all queues, and distributes them among the workers. Returns a sentence about
/// each that cannot be opened.
///
/// # Errors
///
/// If none can be opened.
fn open_sockets(
    interfaces: &mut [Attached],
    options: &XdpOptions,
    mut inherited: InheritedXdp,
    workers: &mut [WorkerQueues],
) -> Result<Vec<String>, SetupError> {
    let mut warnings = Vec::new();
    let mut opened = 0;
    for attached in interfaces {
        for queue in 0..attached.interface.queues {
            let old = inherited.take_socket(&attached.interface.name, queue);
            let old = old.and_then(|old| attached.take_over_socket(queue, old).ok());
            match old.map_or_else(|| attached.open_socket(queue, options.frames), Ok) {
                Ok(socket) => {
                    let worker = opened % workers.len();
                    workers[worker].queues.push(socket);
                    opened += 1;
                }
                Err(reason) => warnings.push(reason),
            }
        }
    }
    match warnings.first() {
        Some(reason) if opened == 0 => Err(reason.clone().into()),
        _ => Ok(warnings),
    }
}

/// Checks for the capabilities that the kernel asks for.
fn check_rights(redirect: bool) -> Result<(), String> {
    let has_all = missing_capabilities(&[Capability::CAP_SYS_ADMIN]).is_empty();
    let mut needed = vec![Capability::CAP_NET_ADMIN];
    if !has_all {
        needed.insert(0, Capability::CAP_BPF);
        // Without it, the verifier refuses offsets into frames that are not constant.
        needed.push(Capability::CAP_PERFMON);
    }
    if redirect {
        needed.push(Capability::CAP_NET_RAW);
    }
    let missing = missing_capabilities(&needed);
    match missing.as_slice() {
        [] => Ok(()),
        [one] => Err(format!("{one} is missing")),
        [most @ .., last] => Err(format!("{} and {last} are missing", most.join(", "))),
    }
}

impl Control {
    /// Sets which connection ids are issued and valid. Call it at least every 250 ms.
    pub fn set_ids(&mut self, slices: &IdSlices) {
        self.maps.set_ids(slices);
    }

    /// Replaces the banned ranges, each by its first and last address. The program drops datagrams of IPv4
    /// /24s that a range covers whole. Those of networks around other ranges are passed: the sockets'
    /// handler knows the exact ones. Writes 2 MiB: call it after changes only. Returns whether all of these
    /// networks fit; otherwise connects go to the sockets.
    pub fn set_bans(&mut self, v4: &[(Ipv4Addr, Ipv4Addr)], v6: &[(Ipv6Addr, Ipv6Addr)]) -> bool {
        self.maps.set_bans(v4.iter().copied());
        self.partly_banned = v4.iter().flat_map(|range| partial_networks(*range)).collect();
        let v6 = v6.iter().map(|(first, last)| {
            let bits = (first.to_bits() ^ last.to_bits()).leading_zeros() as u8;
            IpPrefix::v6(*first, bits)
        });
        self.partly_banned.extend(v6);
        self.pass_networks();
        self.write_endpoints();
        self.has_all_bans
    }

    /// Replaces the rules. [`Control::refresh`] completes that. Returns false if the exempt networks exceed the
    /// map; then the sockets answer connects whenever a rate limit is set.
    pub fn set_rules(&mut self, rules: Rules) -> bool {
        if self.rules.rate != rules.rate {
            self.maps.set_rate(rules.rate);
        }
        self.rules = rules;
        self.pass_networks();
        self.has_all_exempt
    }

    /// Returns the list of blocked networks of one more worker.
    pub fn blocks(&self) -> SourceBlocks {
        self.blocks.register()
    }

    /// Puts into the program what workers have blocked since the last call.
    pub fn apply_blocks(&mut self) {
        if let Some(networks) = self.blocks.take_change() {
            self.maps.set_blocked(&networks);
        }
    }

    /// Checks interfaces, addresses and gateways for changes, and updates the program. Call it about once a
    /// second. Returns a sentence for the log about each change.
    pub fn refresh(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        let reply_mac = self.rules.reply_mac;
        // Only the gateway depends on routes.
        let reads_routes = reply_mac == ReplyMac::Gateway;
        if let Err(error) = self.network.refresh(&mut self.netlink, reads_routes) {
            changes.push(format!("cannot ask the kernel for addresses: {error}"));
        }
        for interface in &mut self.interfaces {
            changes.extend(interface.check_state(&mut self.netlink));
            changes.extend(interface.set_next_hops(reply_mac, &self.network, &mut self.netlink));
        }
        // Both depend on the machine's addresses.
        self.pass_networks();
        changes.extend(self.set_endpoints());
        changes
    }

    /// Determines the addresses of the listeners anew. Returns a sentence if these have changed.
    fn set_endpoints(&mut self) -> Option<String> {
        let interfaces: Vec<_> = self.interfaces.iter().map(|it| it.interface.clone()).collect();
        let endpoints = self.network.endpoints(&self.listeners, &interfaces);
        let addresses = |endpoints: &[Endpoint]| -> BTreeSet<IpAddr> {
            endpoints.iter().map(|it| it.address.ip()).collect()
        };
        let (old, new) = (addresses(&self.endpoints), addresses(&endpoints));
        self.endpoints = endpoints;
        let omitted = self.write_endpoints();
        let list: Vec<_> = new.iter().map(IpAddr::to_string).collect();
        let list = if list.is_empty() { "no address".into() } else { list.join(", ") };
        match omitted {
            _ if old == new => None,
            0 => Some(format!("XDP serves {list}")),
            _ => Some(format!("XDP serves {list}, without {omitted} endpoints that are too many")),
        }
    }

    /// Writes the endpoints to the program, with what the rules allow there. Returns how many do not fit.
    fn write_endpoints(&mut self) -> usize {
        let Rules { answers, verifies, rate, .. } = &self.rules;
        let knows_sources = self.has_all_bans && (rate.is_none() || self.has_all_exempt);
        let answers = *answers && knows_sources;
        let endpoint = |endpoint: &Endpoint| Endpoint {
            answers: endpoint.answers && answers,
            verifies: endpoint.verifies && *verifies,
            ..*endpoint
        };
        let endpoints: Vec<_> = self.endpoints.iter().map(endpoint).collect();
        self.maps.set_endpoints(&endpoints)
    }

    /// Writes the pass list (networks never filtered) to the program's map.
    fn pass_networks(&mut self) {
        let mut passed = Vec::new();
        let local = LOCAL_NETWORKS.iter().filter_map(|text| text.parse().ok());
        add_networks(&mut passed, local.chain(self.rules.exempt.iter().copied()));
        self.has_all_exempt = do_fit(&passed);
        add_networks(&mut passed, self.partly_banned.iter().copied());
        self.has_all_bans = do_fit(&passed);
        // Last: if there are too many, forged ones of the rest are answered, to ourselves.
        add_networks(&mut passed, self.network.own_addresses().map(IpPrefix::from));
        self.maps.set_passed(&passed);
    }

    /// Returns what the program has done since the last call, by listener and in their order.
    pub fn take_counts(&mut self) -> Vec<ListenerCounts> {
        let mut taken = vec![ListenerCounts::default(); self.listeners.len()];
        for attached in &mut self.interfaces {
            for (listener, taken) in taken.iter_mut().enumerate() {
                taken.add(&attached.take_counts(listener));
            }
        }
        taken
    }

    /// Returns the interfaces with what the program had done there at the last [`Control::take_counts`].
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        self.interfaces.iter().map(Attached::status).collect()
    }
}

/// Adds networks to a list, wide ones first, but not those that lie within others.
fn add_networks(list: &mut Vec<IpPrefix>, networks: impl Iterator<Item = IpPrefix>) {
    let mut networks: Vec<IpPrefix> = networks.collect();
    networks.sort_by_key(IpPrefix::bits);
    for network in networks {
        // A thousand do not fit anyway.
        if list.len() < 1000 && !list.iter().any(|wider| contains(wider, &network)) {
            list.push(network);
        }
    }
}

/// Returns whether the program has room for all of these networks.
fn do_fit(passed: &[IpPrefix]) -> bool {
    let v4 = passed.iter().filter(|network| network.address().is_ipv4()).count();
    v4 <= PASSED_V4_MAX && passed.len() - v4 <= PASSED_V6_MAX
}

/// Returns the /24s that a range covers in part.
fn partial_networks((first, last): (Ipv4Addr, Ipv4Addr)) -> Vec<IpPrefix> {
    let is_within = |ip: Ipv4Addr, end: u8| ip.octets()[3] != end;
    let mut networks = Vec::new();
    if is_within(first, 0)
        || IpPrefix::v4(first, 24) == IpPrefix::v4(last, 24) && is_within(last, 255)
    {
        networks.push(IpPrefix::v4(first, 24));
    }
    if is_within(last, 255) && !networks.contains(&IpPrefix::v4(last, 24)) {
        networks.push(IpPrefix::v4(last, 24));
    }
    networks
}

/// Returns whether a network lies within a wider one, or is the same.
fn contains(wider: &IpPrefix, network: &IpPrefix) -> bool {
    wider.bits() <= network.bits()
        && wider.contains(network.address())
        && wider.address().is_ipv4() == network.address().is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_part_leave_their_networks_to_the_sockets() {
        let networks = |first: &str, last: &str| {
            let range = (first.parse().unwrap(), last.parse().unwrap());
            let texts = partial_networks(range);
            texts.iter().map(IpPrefix::to_string).collect::<Vec<_>>()
        };
        assert!(networks("192.0.2.0", "192.0.2.255").is_empty());
        assert!(networks("0.0.0.0", "255.255.255.255").is_empty());
        assert_eq!(networks("192.0.2.7", "192.0.2.7"), ["192.0.2.0/24"]);
        assert_eq!(networks("192.0.2.0", "192.0.2.7"), ["192.0.2.0/24"]);
        assert_eq!(networks("192.0.2.0", "192.0.3.7"), ["192.0.3.0/24"]);
        assert_eq!(networks("192.0.2.9", "192.0.3.7"), ["192.0.2.0/24", "192.0.3.0/24"]);
        assert_eq!(networks("192.0.2.9", "192.0.4.255"), ["192.0.2.0/24"]);
    }

    #[test]
    fn networks_within_others_take_no_room() {
        let mut list = Vec::new();
        let parse = |texts: &[&str]| {
            texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpPrefix>>().into_iter()
        };
        add_networks(&mut list, parse(&["10.1.0.0/16", "10.0.0.0/8", "fc00::/7"]));
        add_networks(&mut list, parse(&["10.2.3.4", "fd00::1", "192.0.2.1", "::a00:1"]));
        let texts: Vec<_> = list.iter().map(IpPrefix::to_string).collect();
        assert_eq!(texts, ["fc00::/7", "10.0.0.0/8", "192.0.2.1/32", "::a00:1/128"]);
        assert!(do_fit(&list));
        let many = (0..=PASSED_V4_MAX as u32).map(|at| IpPrefix::v4(Ipv4Addr::from(at << 8), 24));
        assert!(!do_fit(&many.collect::<Vec<_>>()));
    }
}
