//! Stand-ins on other systems for what needs Linux.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{
    IdSlots, Inspection, InterfaceStatus, Listener, ListenerCounts, Rules, SetupError, XdpOptions,
};
use net::process::InheritedSockets;
use net::{Handler, SourceBlocks, UdpWorker, run_udp};

/// The AF_XDP sockets of a worker: none.
#[derive(Debug, Default)]
pub struct WorkerQueues(());

/// The program, which cannot exist here.
pub struct Xdp {
    /// Cannot exist here.
    pub control: Control,
    /// Cannot exist here.
    pub queues: Vec<WorkerQueues>,
    /// Cannot exist here.
    pub take_over: TakeOver,
    /// Cannot exist here.
    pub warnings: Vec<String>,
}

/// Cannot exist here.
pub struct Control(Infallible);

/// Nothing.
#[derive(Debug, Default)]
pub struct InheritedXdp;

/// Cannot exist here.
pub struct HandOver(Infallible);

/// Nothing to do.
#[derive(Default)]
pub struct TakeOver;

impl InheritedXdp {
    /// Takes nothing.
    pub fn from_inherited(_: &mut InheritedSockets) -> Self {
        Self
    }
}

impl HandOver {
    /// Cannot happen.
    pub fn begin(&self, _: Duration) -> bool {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn cancel(&self) {
        match self.0 {}
    }
}

impl TakeOver {
    /// Does nothing.
    pub fn complete(
        self,
        _: impl Fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>,
    ) -> Vec<String> {
        Vec::new()
    }
}

/// Cannot happen.
pub fn exchange_program(_: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Serves the sockets of `worker`: see [`run_udp`].
pub fn run(
    worker: UdpWorker,
    _: WorkerQueues,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    run_udp(worker, handler, stop)
}

/// There are none.
pub fn is_link_name(_: &str) -> bool {
    false
}

impl Xdp {
    /// Always fails, because XDP needs Linux.
    pub fn open(_: &XdpOptions, _: Vec<Listener>, _: InheritedXdp) -> Result<Self, SetupError> {
        Err(String::from("XDP needs Linux").into())
    }

    /// Cannot happen.
    pub fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        match self.control.0 {}
    }

    /// Cannot happen.
    pub fn hand_over(&self) -> HandOver {
        match self.control.0 {}
    }
}

impl Inspection {
    /// Says that XDP needs Linux.
    pub fn new(_: &XdpOptions, _: Vec<Listener>) -> Self {
        Self { obstacle: Some("XDP needs Linux".into()), ..Self::default() }
    }
}

impl Control {
    /// Cannot happen.
    pub fn set_ids(&mut self, _: &IdSlots) {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn set_bans(&mut self, _: &[(Ipv4Addr, Ipv4Addr)], _: &[(Ipv6Addr, Ipv6Addr)]) -> bool {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn set_rules(&mut self, _: Rules) -> bool {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn blocks(&self) -> SourceBlocks {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn apply_blocks(&mut self) {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn refresh(&mut self) -> Vec<String> {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn take_counts(&mut self) -> Vec<ListenerCounts> {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        match self.0 {}
    }
}
