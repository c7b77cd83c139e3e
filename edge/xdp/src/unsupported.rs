//! Stand-ins for what needs Linux and the feature `program`.
#![allow(missing_docs, reason = "stand-ins have the documentation of what they stand for")]

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{
    IdSlices, Inspection, InterfaceStatus, Listener, ListenerCounts, Rules, SetupError, XdpOptions,
};
use net::process::InheritedSockets;
use net::{Handler, SourceBlocks, UdpWorker, run_udp};

/// The reason why there is no program.
const REASON: &str =
    if cfg!(feature = "program") { "XDP needs Linux" } else { "this build has no `xdp`" };

#[derive(Default)]
pub struct WorkerQueues(());

pub struct Xdp {
    pub control: Control,
    pub queues: Vec<WorkerQueues>,
    pub take_over: TakeOver,
    pub warnings: Vec<String>,
}

pub struct Control(Infallible);

#[derive(Debug, Default)]
pub struct InheritedXdp;

pub struct HandOver(Infallible);

#[derive(Default)]
pub struct TakeOver;

impl InheritedXdp {
    pub fn from_inherited(_: &mut InheritedSockets) -> Self {
        Self
    }
}

impl HandOver {
    pub fn begin(&self, _: Duration) -> bool {
        match self.0 {}
    }

    pub fn cancel(&self) {
        match self.0 {}
    }
}

impl TakeOver {
    pub fn complete(
        self,
        _: impl Fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>,
    ) -> Vec<String> {
        Vec::new()
    }
}

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

pub fn is_link_name(_: &str) -> bool {
    false
}

impl Xdp {
    pub fn open(_: &XdpOptions, _: Vec<Listener>, _: InheritedXdp) -> Result<Self, SetupError> {
        Err(String::from(REASON).into())
    }

    pub fn descriptors(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        match self.control.0 {}
    }

    pub fn hand_over(&self) -> HandOver {
        match self.control.0 {}
    }
}

impl Inspection {
    pub fn new(_: &XdpOptions, _: Vec<Listener>) -> Self {
        Self { obstacle: Some(REASON.into()), ..Self::default() }
    }
}

impl Control {
    pub fn set_ids(&mut self, _: &IdSlices) {
        match self.0 {}
    }

    pub fn set_bans(&mut self, _: &[(Ipv4Addr, Ipv4Addr)], _: &[(Ipv6Addr, Ipv6Addr)]) -> bool {
        match self.0 {}
    }

    pub fn set_rules(&mut self, _: Rules) -> bool {
        match self.0 {}
    }

    pub fn blocks(&self) -> SourceBlocks {
        match self.0 {}
    }

    pub fn apply_blocks(&mut self) {
        match self.0 {}
    }

    pub fn refresh(&mut self) -> Vec<String> {
        match self.0 {}
    }

    pub fn take_counts(&mut self) -> Vec<ListenerCounts> {
        match self.0 {}
    }

    pub fn interfaces(&self) -> Vec<InterfaceStatus> {
        match self.0 {}
    }
}
