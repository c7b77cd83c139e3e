//! Sets up the program, and keeps what it knows up to date.
//!
//! [`Xdp::open`] needs rights and makes every system call that needs one. [`Control`] writes into mapped
//! memory and asks the kernel by a netlink socket that is open already, so it works in the sandbox.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use primitives::IpPrefix;

use super::ethtool::Ethtool;
use super::interface::{Endpoint, Interface, Network};
use super::maps::{
    InterfaceMaps, LISTENERS_MAX, Maps, NextHop, PASSED_V4_MAX, PASSED_V6_MAX, QUEUES_MAX, load,
};
use super::netlink::Netlink;
use super::{
    BlockLists, IdSlots, InterfaceStatus, Listener, ListenerCounts, Mode, ReplyMac, Rules,
    SetupError, SourceBlocks, WorkerQueues, XdpOptions, bpf,
};
use crate::process::{Capability, missing_capabilities, raise_locked_memory_limit};

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
    /// What keeps the program up to date.
    pub control: Control,
    /// The AF_XDP sockets of each worker. Empty if datagrams are not redirected.
    pub queues: Vec<WorkerQueues>,
}

/// What keeps the program up to date. The program is detached when this is dropped.
pub struct Control {
    listeners: Vec<Listener>,
    rules: Rules,
    /// Whether all of the exempt networks are in the program.
    has_all_exempt: bool,
    maps: Maps,
    interfaces: Vec<Attached>,
    netlink: Netlink,
    network: Network,
    blocks: Arc<BlockLists>,
    endpoints: Vec<Endpoint>,
    passed: Vec<IpPrefix>,
}

/// An interface with the program.
struct Attached {
    interface: Interface,
    maps: InterfaceMaps,
    mode: Mode,
    /// The program is detached when it closes.
    _link: OwnedFd,
    state: State,
    /// The destinations of replies over IPv4 and IPv6.
    next_hops: [NextHop; 2],
    /// What had been counted when the counts were taken last, by listener.
    taken: Vec<ListenerCounts>,
}

/// Whether an interface can have datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Down,
    /// There is no such interface any more.
    Gone,
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
    pub fn open(options: &XdpOptions, listeners: Vec<Listener>) -> Result<Self, SetupError> {
        check_rights(options.redirect)?;
        let cannot = |error| format!("cannot ask the kernel for network interfaces: {error}");
        let mut netlink = Netlink::open().map_err(cannot)?;
        let ethtool = Ethtool::open().map_err(cannot)?;
        let network = Network::read(&mut netlink).map_err(cannot)?;
        let chosen = network.choose(options, &listeners, &ethtool, |_| false)?;
        // Maps count as locked memory before Linux 5.11.
        let _ = raise_locked_memory_limit();
        let maps = Maps::create(&options.protocol, options.secret)
            .map_err(|error| format!("the kernel refuses the maps of the XDP program: {error}"))?;
        let attach = |interface| Attached::open(interface, &maps, options);
        let interfaces = chosen.into_iter().map(attach).collect::<Result<Vec<_>, _>>()?;
        let listeners = listeners.into_iter().take(LISTENERS_MAX).collect();
        let control = Control {
            listeners,
            rules: Rules::default(),
            has_all_exempt: true,
            maps,
            interfaces,
            netlink,
            network,
            blocks: Arc::default(),
            endpoints: Vec::new(),
            passed: Vec::new(),
        };
        Ok(Self { control, queues: Vec::new() })
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

impl Attached {
    fn open(interface: Interface, maps: &Maps, options: &XdpOptions) -> Result<Self, SetupError> {
        let name = &interface.name;
        let mut own_maps = InterfaceMaps::create().map_err(|error| {
            format!("the kernel refuses the maps of the XDP program for {name}: {error}")
        })?;
        own_maps.set_vlans(&options.vlans);
        let program = load(maps, &own_maps)
            .map_err(|error| SetupError { reason: error.to_string(), verifier_log: error.log })?;
        let (link, mode) = attach(&program, &interface, options.mode)?;
        let taken = vec![ListenerCounts::default(); LISTENERS_MAX];
        let next_hops = [NextHop::Swap; 2];
        let state = State::Running;
        Ok(Self { interface, maps: own_maps, mode, _link: link, state, next_hops, taken })
    }

    /// Returns what was counted since the start, by listener.
    fn counts(&self, listeners: usize) -> Vec<ListenerCounts> {
        let mut counts = vec![ListenerCounts::default(); listeners];
        // All: the number of queues may have grown since the start.
        for (queue, listener) in
            (0..QUEUES_MAX).flat_map(|queue| (0..listeners).map(move |it| (queue, it)))
        {
            counts[listener].add(&self.maps.counts(queue, listener));
        }
        counts
    }

    /// Sets the destinations of replies, as far as they have changed. Returns a sentence about each.
    fn set_next_hops(
        &mut self,
        reply_mac: ReplyMac,
        network: &Network,
        netlink: &mut Netlink,
    ) -> Vec<String> {
        let mut changes = Vec::new();
        let name = self.interface.name.clone();
        for (at, is_v4, family) in [(0, true, "IPv4"), (1, false, "IPv6")] {
            let next_hop = match reply_mac {
                ReplyMac::Swap => NextHop::Swap,
                ReplyMac::Fixed(mac) => NextHop::Always(mac),
                ReplyMac::Gateway => {
                    let gateway = network.gateway(is_v4, &self.interface);
                    let mac = gateway.and_then(|(index, ip)| netlink.neighbour(index, ip).ok()?);
                    mac.map_or(NextHop::Unknown, NextHop::OffLink)
                }
            };
            if self.next_hops[at] == next_hop {
                continue;
            }
            self.next_hops[at] = next_hop;
            if is_v4 {
                self.maps.set_next_hop_v4(next_hop);
            } else {
                self.maps.set_next_hop_v6(next_hop);
            }
            match next_hop {
                NextHop::OffLink(mac) => changes.push(format!(
                    "replies over {family} leave {name} for the gateway at {}",
                    mac_text(mac)
                )),
                NextHop::Unknown => changes.push(format!(
                    "the MAC address of {name}'s gateway for {family} is not known: the sockets answer"
                )),
                NextHop::Swap | NextHop::Always(_) => {}
            }
        }
        if reply_mac == ReplyMac::Gateway {
            self.maps.set_on_link(&network.on_link(&self.interface));
        }
        changes
    }

    /// Asks whether the interface is there and running. Returns a sentence if that has changed.
    fn check_state(&mut self, netlink: &mut Netlink) -> Option<String> {
        let state = match netlink.link(self.interface.index) {
            Ok(Some(link)) if link.is_running => State::Running,
            Ok(Some(_)) => State::Down,
            Ok(None) => State::Gone,
            Err(_) => return None,
        };
        if std::mem::replace(&mut self.state, state) == state {
            return None;
        }
        let name = &self.interface.name;
        Some(match state {
            State::Running => format!("{name} is up"),
            State::Down => format!("{name} is down"),
            State::Gone => format!(
                "{name} is gone, and the XDP program with it: an upgrade (SIGUSR2) attaches it to a new \
                 interface of that name"
            ),
        })
    }
}

/// Attaches the program in the first mode that works, which is returned.
fn attach(
    program: &OwnedFd,
    interface: &Interface,
    mode: Mode,
) -> Result<(OwnedFd, Mode), SetupError> {
    let modes: &[Mode] = match mode {
        Mode::Auto => &[Mode::Driver, Mode::Generic],
        Mode::Driver => &[Mode::Driver],
        Mode::Generic => &[Mode::Generic],
    };
    let mut reasons = Vec::new();
    for mode in modes {
        match bpf::attach_xdp(program.as_fd(), interface.index, *mode) {
            Ok(link) => return Ok((link, *mode)),
            Err(error) => {
                let reason = refusal(&error, interface);
                reasons.push(format!("{} mode: {reason}", mode.label()));
            }
        }
    }
    let reason = format!("{} refuses the XDP program: {}", interface.name, reasons.join("; "));
    Err(reason.into())
}

/// Returns in words why an interface refuses the program.
fn refusal(error: &std::io::Error, interface: &Interface) -> String {
    let Interface { name, mtu, features, .. } = interface;
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => "it has another one already".into(),
        Some(libc::EOPNOTSUPP) => "the driver has no XDP".into(),
        Some(libc::ERANGE) => format!("an MTU of {mtu} is too large for the driver"),
        _ if features.lro => format!("{error}; `ethtool -K {name} lro off` may help"),
        _ if features.gro_hw => format!("{error}; `ethtool -K {name} rx-gro-hw off` may help"),
        _ => format!("{error} (MTU {mtu}, {} queues)", interface.queues),
    }
}

impl Control {
    /// Sets which connection ids are issued and valid. Call it at least every 250 ms.
    pub fn set_ids(&mut self, slots: &IdSlots) {
        self.maps.set_ids(slots);
    }

    /// Replaces the banned ranges of IPv4 addresses, each by its first and last one. Only /24s that a range
    /// covers whole are dropped by the program. Writes 2 MiB: call it after changes only.
    pub fn set_bans(&mut self, ranges: impl IntoIterator<Item = (Ipv4Addr, Ipv4Addr)>) {
        self.maps.set_bans(ranges);
    }

    /// Replaces the rules. [`Control::refresh`] completes that. Returns whether all exempt networks fit;
    /// otherwise connects go to the sockets while there is a rate.
    pub fn set_rules(&mut self, rules: Rules) -> bool {
        if self.rules.rate != rules.rate {
            self.maps.set_rate(rules.rate);
        }
        self.rules = rules;
        self.pass_networks()
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

    /// Looks what has changed about interfaces, addresses and gateways, and tells the program. Call it about
    /// once a second. Returns a sentence for the log about each change.
    pub fn refresh(&mut self) -> Vec<String> {
        let mut changes: Vec<String> = Vec::new();
        let with_routes = self.rules.reply_mac == ReplyMac::Gateway;
        if let Err(error) = self.network.refresh(&mut self.netlink, with_routes) {
            changes.push(format!("cannot ask the kernel for addresses: {error}"));
        }
        for attached in &mut self.interfaces {
            changes.extend(attached.check_state(&mut self.netlink));
            let reply_mac = self.rules.reply_mac;
            changes.extend(attached.set_next_hops(reply_mac, &self.network, &mut self.netlink));
        }
        self.pass_networks();
        changes.extend(self.set_endpoints());
        changes
    }

    /// Tells the program at which addresses it takes datagrams, if that has changed. Returns a sentence
    /// about each change but the first.
    fn set_endpoints(&mut self) -> Option<String> {
        let Rules { answers, verifies, rate, .. } = &self.rules;
        let answers = *answers && (rate.is_none() || self.has_all_exempt);
        let interfaces: Vec<_> = self.interfaces.iter().map(|it| it.interface.clone()).collect();
        let mut endpoints = self.network.endpoints(&self.listeners, &interfaces);
        for endpoint in &mut endpoints {
            endpoint.answers &= answers;
            endpoint.verifies &= *verifies;
        }
        if endpoints == self.endpoints {
            return None;
        }
        let addresses = |endpoints: &[Endpoint]| -> BTreeSet<IpAddr> {
            endpoints.iter().map(|it| it.address.ip()).collect()
        };
        let (old, new) = (addresses(&self.endpoints), addresses(&endpoints));
        let omitted = self.maps.set_endpoints(&endpoints);
        self.endpoints = endpoints;
        (old != new).then(|| {
            let list: Vec<_> = new.iter().map(IpAddr::to_string).collect();
            let list = if list.is_empty() { "no address".into() } else { list.join(", ") };
            match omitted {
                0 => format!("XDP serves {list}"),
                _ => format!("XDP serves {list}, without {omitted} that are too many"),
            }
        })
    }

    /// Tells the program whose datagrams are always passed. Returns whether all exempt networks fit.
    fn pass_networks(&mut self) -> bool {
        let local = LOCAL_NETWORKS.iter().filter_map(|text| text.parse().ok());
        let all = local.chain(self.rules.exempt.iter().copied());
        let mut passed: Vec<IpPrefix> = Vec::new();
        // Wide networks first, so that those within them are left out.
        let mut all: Vec<IpPrefix> = all.collect();
        all.sort_by_key(IpPrefix::bits);
        for network in all {
            if !passed.iter().any(|wider| contains(wider, &network)) {
                passed.push(network);
            }
        }
        let v4 = passed.iter().filter(|network| network.address().is_ipv4()).count();
        self.has_all_exempt = v4 <= PASSED_V4_MAX && passed.len() - v4 <= PASSED_V6_MAX;
        // Last: if there are too many, forged ones of the rest are answered, to ourselves.
        for own in self.network.own_addresses() {
            let own = IpPrefix::from(own);
            if !passed.iter().any(|wider| contains(wider, &own)) {
                passed.push(own);
            }
        }
        if passed != self.passed {
            self.maps.set_passed(&passed);
            self.passed = passed;
        }
        self.has_all_exempt
    }

    /// Returns what the program has done since the last call, by listener and in their order.
    pub fn take_counts(&mut self) -> Vec<ListenerCounts> {
        let mut taken = vec![ListenerCounts::default(); self.listeners.len()];
        for attached in &mut self.interfaces {
            let counts = attached.counts(taken.len());
            for ((taken, counts), before) in taken.iter_mut().zip(counts).zip(&mut attached.taken) {
                taken.add(&counts.since(before));
                *before = counts;
            }
        }
        taken
    }

    /// Returns the interfaces with what the program had done there at the last [`Control::take_counts`].
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        let status = |attached: &Attached| {
            let mut counts = ListenerCounts::default();
            attached.taken.iter().for_each(|of_listener| counts.add(of_listener));
            let Interface { name, driver, queues, .. } = attached.interface.clone();
            InterfaceStatus {
                name,
                driver,
                mode: attached.mode,
                zero_copy: false,
                queues,
                is_up: attached.state == State::Running,
                counts,
            }
        };
        self.interfaces.iter().map(status).collect()
    }
}

/// Returns whether a network lies within a wider one, or is the same.
fn contains(wider: &IpPrefix, network: &IpPrefix) -> bool {
    wider.bits() <= network.bits()
        && wider.contains(network.address())
        && wider.address().is_ipv4() == network.address().is_ipv4()
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
