//! Sets up the program, and keeps what it knows up to date.
//!
//! [`Xdp::open`] needs rights and makes every system call that needs one. [`Control`] writes into mapped
//! memory and asks the kernel by a netlink socket that is open already, so it works in the sandbox.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use primitives::IpPrefix;

use super::attached::Attached;
use super::ethtool::Ethtool;
use super::interface::{Endpoint, Network};
use super::maps::{LISTENERS_MAX, Maps, PASSED_V4_MAX, PASSED_V6_MAX};
use super::netlink::Netlink;
use super::{
    BlockLists, IdSlots, InterfaceStatus, Listener, ListenerCounts, ReplyMac, Rules, SetupError,
    SourceBlocks, WorkerQueues, XdpOptions,
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
    /// A sentence about each queue that has no AF_XDP socket: its datagrams come to the UDP sockets.
    pub warnings: Vec<String>,
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
        let mut interfaces = chosen.into_iter().map(attach).collect::<Result<Vec<_>, _>>()?;
        let (mut queues, mut warnings) = (Vec::new(), Vec::new());
        if options.redirect {
            queues.resize_with(options.workers.max(1), WorkerQueues::default);
            warnings = open_sockets(&mut interfaces, options, &mut queues)?;
        }
        let listeners = listeners.into_iter().take(LISTENERS_MAX).collect();
        let mut control = Control {
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
        control.maps.set_steering(options.redirect);
        Ok(Self { control, queues, warnings })
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
    workers: &mut [WorkerQueues],
) -> Result<Vec<String>, SetupError> {
    let mut warnings = Vec::new();
    let mut opened = 0;
    for attached in interfaces {
        for queue in 0..attached.interface.queues {
            match attached.open_socket(queue, options) {
                Ok((socket, warning)) => {
                    let worker = opened % workers.len();
                    workers[worker].queues.push(socket);
                    opened += 1;
                    warnings.extend(warning);
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
        self.interfaces.iter().map(Attached::status).collect()
    }
}

/// Returns whether a network lies within a wider one, or is the same.
fn contains(wider: &IpPrefix, network: &IpPrefix) -> bool {
    wider.bits() <= network.bits()
        && wider.contains(network.address())
        && wider.address().is_ipv4() == network.address().is_ipv4()
}
