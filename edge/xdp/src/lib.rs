//! Before the socket: an XDP program that answers connects and drops what is not worth a socket's time, and
//! AF_XDP sockets that take the rest past the kernel's UDP path. Linux.
//!
//! Of BitTorrent it knows what the program answers and checks: the connect request and the connection ID of UDP.
//!
//! On a veth pair, measured from outside, the engine answers 1.95 times the announces of sockets, and 2.1 to 3.2 times
//! those of other trackers. `tidegate-bench xdp loads` measures it; `docs/benchmarks.md` has the records. No physical
//! network card has run it yet.
//!
//! | part | what it does |
//! |---|---|
//! | [`bpf`] | bpf(2): maps, programs, links |
//! | `maps` | the program's maps, and typed views of them |
//! | `frame` | parses frames and builds the headers of replies |
//! | `queue`, `ring`, `chunks` | AF_XDP sockets: their memory, its rings, what goes round in them |
//! | `run` | the engine's loop |
//! | `netlink`, `ethtool` | asks the kernel about network interfaces |
//! | `interface` | chooses those that get the program, and finds obstacles |
//! | `attached` | an interface with the program |
//! | `inspect` | reports obstacles before a start |
//! | `handover` | upgrades |
//! | `setup` | sets all of it up, and keeps it up to date |
//! | `status` | what operators see: JSON, metrics and problems |
//!
//! # Safety
//!
//! The modules that allow unsafe code are `bpf` (bpf), `maps` (mapped arrays), `ring` (rings in mapped memory), `queue`
//! (hands mapped memory to a worker) and `ethtool` (ioctl). What is shared with the kernel for longer
//! than a call is mapped, and unmapped when the last of its users is dropped.

#[cfg(all(target_os = "linux", feature = "program"))]
mod attached;
#[cfg(all(target_os = "linux", feature = "program"))]
pub mod bpf;
#[cfg(all(target_os = "linux", feature = "program"))]
mod chunks;
#[cfg(all(target_os = "linux", feature = "program"))]
mod ethtool;
pub mod frame;
#[cfg(all(target_os = "linux", feature = "program"))]
mod handover;
#[cfg(all(target_os = "linux", feature = "program"))]
mod inspect;
#[cfg(all(target_os = "linux", feature = "program"))]
mod interface;
#[cfg(all(target_os = "linux", feature = "program"))]
mod maps;
#[cfg(all(target_os = "linux", feature = "program"))]
mod netlink;
#[cfg(all(target_os = "linux", feature = "program"))]
mod next_hops;
#[cfg(all(target_os = "linux", feature = "program"))]
mod program;
#[cfg(test)]
#[cfg(all(target_os = "linux", feature = "program"))]
mod program_tests;
#[cfg(all(target_os = "linux", feature = "program"))]
mod queue;
#[cfg(all(target_os = "linux", feature = "program"))]
mod ring;
#[cfg(all(target_os = "linux", feature = "program"))]
mod run;
#[cfg(all(target_os = "linux", feature = "program"))]
mod setup;
mod status;
#[cfg(test)]
#[cfg(all(target_os = "linux", feature = "program"))]
mod test_frames;
#[cfg(test)]
#[cfg(all(target_os = "linux", feature = "program"))]
mod test_kernel;

#[cfg(not(all(target_os = "linux", feature = "program")))]
mod unsupported;

#[cfg(all(target_os = "linux", feature = "program"))]
pub use bpf::update_link as exchange_program;
#[cfg(all(target_os = "linux", feature = "program"))]
pub use handover::{HandOver, InheritedXdp, TakeOver, is_link_name};
#[cfg(all(target_os = "linux", feature = "program"))]
pub use queue::Queue;
#[cfg(all(target_os = "linux", feature = "program"))]
pub use run::{WorkerQueues, run};
#[cfg(all(target_os = "linux", feature = "program"))]
pub use setup::{Control, Xdp};
#[cfg(not(all(target_os = "linux", feature = "program")))]
pub use unsupported::{WorkerQueues, exchange_program, run};

pub use status::{InterfaceStatus, QueueState, XdpStatus};

use std::net::SocketAddr;
use std::str::FromStr;

use primitives::IpPrefix;

/// Options for setting up the program and its sockets.
#[derive(Clone, Debug)]
pub struct XdpOptions {
    /// Names of interfaces. Empty: those of the default routes and of the listeners' own addresses.
    pub interfaces: Vec<String>,
    /// The place in the kernel where the program runs.
    pub mode: Mode,
    /// Frames of 4 KiB for each queue.
    pub frames: u32,
    /// VLAN ids of frames that are ours.
    pub vlans: Vec<u16>,
    /// The protocol's numbers.
    pub protocol: ProtocolNumbers,
    /// Random numbers, which keep clients from knowing which prefixes share a bucket of connect rates.
    pub secret: [u64; 3],
    /// True if datagrams go to AF_XDP sockets. Otherwise they go to the UDP sockets.
    pub redirect: bool,
    /// UDP workers, among which the queues are distributed.
    pub workers: usize,
}

/// The place in the kernel where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver if it can, in the generic path otherwise.
    #[default]
    Auto,
    /// In the driver, before the kernel allocates anything.
    Driver,
    /// In the generic path, which all interfaces have.
    Generic,
}

/// The destination of replies in the link layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMac {
    /// The request's source.
    #[default]
    Swap,
    /// The next hop of the default route, for sources that are not on the link.
    Gateway,
    /// This address.
    Fixed([u8; 6]),
}

impl FromStr for ReplyMac {
    /// A text about what was expected.
    type Err = &'static str;

    /// Parses `swap`, `gateway` or the address of an interface, such as `02:00:5e:10:00:01`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "swap" => Ok(Self::Swap),
            "gateway" => Ok(Self::Gateway),
            _ => parse_mac(text)
                .map(Self::Fixed)
                .ok_or("expected `swap`, `gateway` or the MAC address of one interface"),
        }
    }
}

/// Parses six bytes in hex with colons between them. Addresses of groups belong to no interface.
fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes = text.split(':').map(|byte| {
        let is_hex = byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_hex { u8::from_str_radix(byte, 16).ok() } else { None }
    });
    let mac: [u8; 6] = bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()?;
    let is_group = mac[0] & 1 == 1;
    (!is_group && mac != [0; 6]).then_some(mac)
}

/// A listener, as the program needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address, which may be a wildcard.
    pub address: SocketAddr,
    /// False if its clients come through proxies. The program neither answers nor drops their datagrams then.
    pub is_direct: bool,
}

/// The numbers of the protocol that the program compares and writes. A request begins with a connection id
/// of 8 bytes, an action of 4 and a transaction id of 4; the reply to a connect is its action, the
/// transaction id and the connection id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolNumbers {
    /// The value that a connect has in place of a connection id.
    pub connect_magic: u64,
    /// The action of a connect.
    pub connect_action: u32,
    /// The action of the reply to it.
    pub connect_reply_action: u32,
    /// Bytes of the shortest request.
    pub head_len: u16,
}

/// Settings that a reload can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// True if connects are answered, at listeners where that is allowed.
    pub answers: bool,
    /// True if datagrams with a bad connection id are dropped, at listeners where that is allowed.
    pub verifies: bool,
    /// The maximum rate of connects from one prefix. `None` = unlimited.
    pub rate: Option<ConnectRate>,
    /// Networks without a rate. Their datagrams are passed to the UDP sockets.
    pub exempt: Vec<IpPrefix>,
    /// The destination of replies in the link layer.
    pub reply_mac: ReplyMac,
}

/// The time slices whose connection ids are valid. Slices count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdSlices {
    /// The key of all ids.
    pub key: [u8; 16],
    /// The slice of ids that are issued now. That before it is valid, too, unless it is 0.
    pub current: u32,
    /// True if the ids of the slice after `current` are valid already.
    pub accepts_next: bool,
}

/// The maximum rate of connects from one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRate {
    /// Connects a second in the long run.
    pub per_s: u32,
    /// Connects that may come at once.
    pub burst: u32,
    /// Bits of an IPv6 address that make a prefix.
    pub prefix_v6: u8,
}

/// Counts of what the program did with the datagrams of one listener, in the order of `enum result` of `program.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct ListenerCounts {
    /// Connects answered.
    pub connects: u64,
    /// Datagrams redirected to AF_XDP sockets.
    pub steered: u64,
    /// Datagrams passed to the UDP sockets.
    pub passed: u64,
    /// Datagrams of banned networks, dropped.
    pub banned: u64,
    /// Datagrams of blocked networks, dropped.
    pub blocked: u64,
    /// Connects over the rate of their prefix, dropped.
    pub over_rate: u64,
    /// Datagrams with a bad connection id, dropped.
    pub bad_connection_ids: u64,
    /// Connects without the protocol's magic number, dropped.
    pub wrong_magic: u64,
    /// Datagrams too short for a request, dropped.
    pub too_short: u64,
    /// Payload bytes of all that were dropped.
    pub dropped_bytes: u64,
}

impl ListenerCounts {
    /// Returns what was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (count, before) in since.words_mut().iter_mut().zip(before.words()) {
            *count = count.wrapping_sub(*before);
        }
        since
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (count, other) in self.words_mut().iter_mut().zip(other.words()) {
            *count = count.wrapping_add(*other);
        }
    }

    fn words(&self) -> &[u64; 10] {
        bytemuck::cast_ref(self)
    }

    fn words_mut(&mut self) -> &mut [u64; 10] {
        bytemuck::cast_mut(self)
    }
}

/// Counts of frames and replies that an AF_XDP socket has dropped since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingDrops {
    /// Frames for which the ring of received frames had no place.
    pub rx_full: u64,
    /// Frames for which there was no chunk, or that were longer than one.
    pub fill_empty: u64,
    /// Frames whose chunk is invalid, or that are not what the program redirects.
    pub rx_invalid: u64,
    /// Replies whose descriptor is invalid.
    pub tx_invalid: u64,
    /// Replies for which the ring of replies had no place.
    pub tx_full: u64,
}

/// Findings about XDP on this machine, for operators, before a start. Sentences without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The reason why the program cannot be set up.
    pub obstacle: Option<String>,
    /// Findings that make it slower, or that may make it fail.
    pub warnings: Vec<String>,
    /// Other findings.
    pub notes: Vec<String>,
}

/// The reason why the program could not be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SetupError {
    /// A sentence for the operator, without a full stop.
    pub reason: String,
    /// The output of the kernel's verifier, if it refused the program. Otherwise empty.
    pub verifier_log: String,
}

impl From<String> for SetupError {
    fn from(reason: String) -> Self {
        Self { reason, verifier_log: String::new() }
    }
}

impl Mode {
    /// Returns the name in configuration, logs and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Driver => "driver",
            Self::Generic => "generic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_destinations_of_replies() {
        assert_eq!("swap".parse(), Ok(ReplyMac::Swap));
        assert_eq!("gateway".parse(), Ok(ReplyMac::Gateway));
        let fixed = "02:00:5e:10:00:fF".parse();
        assert_eq!(fixed, Ok(ReplyMac::Fixed([2, 0, 0x5e, 0x10, 0, 0xff])));
        for bad in [
            "",
            "Swap",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "2:0:5e:10:0:1",
            "02-00-5e-10-00-01",
            "+2:00:5e:10:00:01",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ] {
            assert!(bad.parse::<ReplyMac>().is_err(), "{bad}");
        }
    }
}
