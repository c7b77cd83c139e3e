//! An interface with the program, and its AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::handover::{Exchange, SharedLink, link_name, socket_names};
use super::interface::{Interface, Network};
use super::maps::{InterfaceMaps, LISTENERS_MAX, Maps, load};
use super::netlink::Netlink;
use super::next_hops::{NextHop, NextHops};
use super::queue::Queue;
use super::run::{QueueStatus, WorkerQueue};
use super::{
    InterfaceStatus, ListenerCounts, Mode, QueueState, ReplyMac, SetupError, WorkerQueues,
    XdpOptions, bpf,
};

/// An interface with the program.
pub(super) struct Attached {
    pub(super) interface: Interface,
    maps: InterfaceMaps,
    mode: Mode,
    /// The program is detached when it closes.
    link: SharedLink,
    /// The program, until it replaces that of the old process.
    waiting: Option<OwnedFd>,
    state: State,
    /// The counts since the start, as of the last [`Self::take_counts`], by listener.
    taken: Vec<ListenerCounts>,
    /// The destinations of replies, which the workers read.
    next_hops: Arc<ArcSwap<NextHops>>,
    queues: Vec<AttachedQueue>,
}

/// The interface's record of an AF_XDP socket. The socket itself belongs to a worker.
struct AttachedQueue {
    queue: u32,
    status: Arc<QueueStatus>,
}

/// The state of an interface. Datagrams can arrive only while it is `Running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Down,
    /// There is no such interface any more.
    Gone,
}

impl Attached {
    /// Attaches the program to an interface. If the old process has handed over its link, whose program
    /// runs in `mode`, that is kept, and gets the program later.
    pub(super) fn open(
        interface: Interface,
        maps: &Maps,
        options: &XdpOptions,
        inherited: Option<(OwnedFd, Mode)>,
    ) -> Result<Self, SetupError> {
        let name = &interface.name;
        let mut own_maps = InterfaceMaps::create().map_err(|error| {
            format!("the kernel refuses the maps of the XDP program for {name}: {error}")
        })?;
        own_maps.set_vlans(&options.vlans);
        let program = load(maps, &own_maps)?;
        let (link, mode, waiting) = match inherited {
            Some((link, mode)) => (link, mode, Some(program)),
            None => {
                let (link, mode) = attach(&program, &interface, options.mode)?;
                (link, mode, None)
            }
        };
        Ok(Self {
            interface,
            maps: own_maps,
            mode,
            link: Arc::new(Mutex::new(Some(link))),
            waiting,
            state: State::Running,
            next_hops: Arc::default(),
            taken: vec![ListenerCounts::default(); LISTENERS_MAX],
            queues: Vec::new(),
        })
    }

    /// Adds what an upgrade hands over: copies of the link and the sockets of `queues`, with their names.
    pub(super) fn add_descriptors(
        &self,
        queues: &[WorkerQueues],
        into: &mut Vec<(String, OwnedFd)>,
    ) -> io::Result<()> {
        let name = &self.interface.name;
        if let Some(link) = &*self.link.lock().unwrap_or_else(PoisonError::into_inner) {
            into.push((link_name(name), link.try_clone()?));
        }
        let all = queues.iter().flat_map(|it| &it.queues);
        for own in &self.queues {
            let is_own = |it: &&WorkerQueue| Arc::ptr_eq(&it.status, &own.status);
            let Some(found) = all.clone().find(is_own) else { continue };
            let (socket, memory) = found.queue.descriptors();
            for (name, it) in socket_names(name, own.queue).into_iter().zip([socket, memory]) {
                into.push((name, it.try_clone_to_owned()?));
            }
        }
        Ok(())
    }

    pub(super) fn queue_statuses(&self) -> impl Iterator<Item = Arc<QueueStatus>> {
        self.queues.iter().map(|queue| Arc::clone(&queue.status))
    }

    /// Takes the program that replaces that of the old process, with its link.
    pub(super) fn take_exchange(&mut self) -> Option<Exchange> {
        let program = self.waiting.take()?;
        let (interface, link) = (self.interface.name.clone(), Arc::clone(&self.link));
        Some(Exchange { interface, link, program })
    }

    /// Takes over the AF_XDP socket of a queue, which the old process still serves.
    pub(super) fn take_over_socket(
        &mut self,
        queue: u32,
        (socket, memory): (OwnedFd, OwnedFd),
    ) -> io::Result<WorkerQueue> {
        let inherited = Queue::inherit(socket, memory)?;
        if inherited.is_gone() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.maps.set_socket(queue, inherited.descriptors().0)?;
        Ok(self.add_queue(queue, inherited, QueueStatus::new_parked()))
    }

    fn add_queue(&mut self, number: u32, queue: Queue, status: QueueStatus) -> WorkerQueue {
        let status = Arc::new(status);
        self.queues.push(AttachedQueue { queue: number, status: Arc::clone(&status) });
        WorkerQueue::new(queue, Arc::clone(&self.next_hops), status)
    }

    /// Opens the AF_XDP socket of a queue. The error is a sentence about what stands in the way.
    pub(super) fn open_socket(&mut self, queue: u32, frames: u32) -> Result<WorkerQueue, String> {
        let Interface { index, name, .. } = &self.interface;
        let cannot = |error: io::Error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                format!("another program has an AF_XDP socket for queue {queue} of {name}")
            }
            _ => format!("cannot open an AF_XDP socket for queue {queue} of {name}: {error}"),
        };
        let opened = Queue::open(*index, queue, frames).map_err(cannot)?;
        self.maps.set_socket(queue, opened.descriptors().0).map_err(cannot)?;
        Ok(self.add_queue(queue, opened, QueueStatus::default()))
    }

    /// Returns the status of the interface, with the counts of the last `Control::take_counts`.
    pub(super) fn status(&self) -> InterfaceStatus {
        let mut counts = ListenerCounts::default();
        self.taken.iter().for_each(|of_listener| counts.add(of_listener));
        let queues = self.queues.iter().map(|it| QueueState {
            queue: it.queue,
            is_open: !it.status.is_closed(),
            drops: it.status.drops(),
        });
        InterfaceStatus {
            name: self.interface.name.clone(),
            driver: self.interface.driver.clone(),
            mode: self.mode,
            zero_copy: false,
            queues: self.interface.queues,
            is_up: self.state == State::Running,
            counts,
            sockets: queues.collect(),
        }
    }

    /// Returns what was counted for a listener since the last call.
    pub(super) fn take_counts(&mut self, listener: usize) -> ListenerCounts {
        let counts = self.maps.counts(listener);
        let before = std::mem::replace(&mut self.taken[listener], counts);
        counts.since(&before)
    }

    /// Sets the destinations of replies. Returns a sentence about each that has changed.
    pub(super) fn set_next_hops(
        &mut self,
        reply_mac: ReplyMac,
        network: &Network,
        netlink: &mut Netlink,
    ) -> Vec<String> {
        let mut next_hop = |is_v4| match reply_mac {
            ReplyMac::Swap => NextHop::Swap,
            ReplyMac::Fixed(mac) => NextHop::Always(mac),
            ReplyMac::Gateway => {
                let gateway = network.gateway(is_v4, &self.interface);
                let mac = gateway.and_then(|(index, ip)| netlink.neighbour(index, ip).ok()?);
                mac.map_or(NextHop::Unknown, NextHop::OffLink)
            }
        };
        let mut new = NextHops { v4: next_hop(true), v6: next_hop(false), on_link: Vec::new() };
        if reply_mac == ReplyMac::Gateway {
            new.on_link = network.on_link(&self.interface);
        }
        let old = self.next_hops.load_full();
        if *old == new {
            return Vec::new();
        }
        self.maps.set_next_hops(&new);
        let families = [("IPv4", old.v4, new.v4), ("IPv6", old.v6, new.v6)];
        let changed = families.into_iter().filter(|(_, old, new)| old != new);
        let changes = changed.filter_map(|(family, _, new)| self.describe(family, new)).collect();
        self.next_hops.store(Arc::new(new));
        changes
    }

    /// Returns a sentence about a new next hop, if it is one that operators should know.
    fn describe(&self, family: &str, next_hop: NextHop) -> Option<String> {
        let name = &self.interface.name;
        match next_hop {
            NextHop::OffLink(mac) => Some(format!(
                "replies over {family} leave {name} for the gateway at {}",
                mac_text(mac)
            )),
            NextHop::Unknown => Some(format!(
                "the MAC address of {name}'s gateway for {family} is not known: the sockets answer"
            )),
            NextHop::Swap | NextHop::Always(_) => None,
        }
    }

    /// Asks whether the interface is there and running. Returns a sentence if that has changed.
    pub(super) fn check_state(&mut self, netlink: &mut Netlink) -> Option<String> {
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
fn refusal(error: &io::Error, interface: &Interface) -> String {
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

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
