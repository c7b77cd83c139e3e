//! The program's maps, and typed views of them.
//!
//! All that changes while the program runs is in arrays that are mapped into this process's memory, so
//! that no system call is made after the start: the sandbox denies bpf(2). There is one writer of each
//! word, the program or this process; words are read and written whole. The structures here are those of
//! `program.c`, in the same order. What the program compares with packets is in network order, loaded as
//! a little-endian number, so that it need not convert anything.
//!
//! | map | one for each | written by |
//! |---|---|---|
//! | [`Config`] | process | this process |
//! | [`Bans`] | process | this process |
//! | [`Buckets`] | process | the program |
//! | [`InterfaceConfig`] | interface | this process |
//! | [`Counts`] | interface | the program |
//! | AF_XDP sockets by queue | interface | this process, at the start |
//!
//! Lists are changed in place. An entry that stays is never missing meanwhile.

#![allow(unsafe_code)]

mod list;
mod mapped_words;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use primitives::IpPrefix;

#[cfg(test)]
use super::bpf::look_up_element;
use super::bpf::{MapKind, MapSpec, Reference, create_map, link, load_program, update_element};
use super::interface::Endpoint;
use super::next_hops::NextHops;
use super::program::RELOCATIONS;
use super::{ConnectRate, IdSlices, ListenerCounts, ProtocolNumbers, SetupError};
use list::{UNUSED_V4, UNUSED_V6, network_words, raw_v4, raw_v6, replace, set};
use mapped_words::{MappedWords, Words};

/// Queues of an interface that are distinguished. AF_XDP sockets exist for these only.
pub(super) const QUEUES_MAX: usize = 64;
/// Listeners that are distinguished.
pub(super) const LISTENERS_MAX: usize = 16;
/// Maximum numbers of addresses with ports that listeners have.
pub(super) const ENDPOINTS_V4_MAX: usize = 64;
pub(super) const ENDPOINTS_V6_MAX: usize = 32;
/// Maximum numbers of networks that are always passed.
pub(super) const PASSED_V4_MAX: usize = 32;
pub(super) const PASSED_V6_MAX: usize = 16;
/// Maximum number of blocked networks of each family.
pub(super) const BLOCKED_MAX: usize = net::SOURCE_FILTER_MAX;
/// Maximum number of networks of each family on an interface's link.
pub(super) const ON_LINK_MAX: usize = 8;

/// Longer datagrams are passed to the UDP sockets: the longest that a frame of Ethernet can hold. A chunk
/// of an AF_XDP socket has room for that in front of the reply.
const STEERED_LEN_MAX: u64 = 1472;

const ID_ENTRIES: usize = 4;
const RESULTS: usize = 16;
const WORDS_OF_BANS: usize = (1 << 24) / 64;

/// The instructions, which `cargo xtask bpf` compiles from `program.c`.
const PROGRAM: &[u8] = include_bytes!("program.bin");

#[cfg(not(target_endian = "little"))]
compile_error!("program.bin is for little-endian machines");

/// An array that the program refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapName {
    Config,
    Interface,
    Counts,
    Buckets,
    Bans4,
    Xsks,
}

/// The maps that all interfaces share.
pub(super) struct Maps {
    config: Arc<MappedWords<Config>>,
    bans: MappedWords<Bans>,
    buckets: OwnedFd,
}

/// Decides whether datagrams go to AF_XDP sockets.
#[derive(Clone)]
pub(super) struct Steering(Arc<MappedWords<Config>>);

pub(super) struct InterfaceMaps {
    config: MappedWords<InterfaceConfig>,
    counts: MappedWords<Counts>,
    sockets: OwnedFd,
}

/// The words that all of the program's runs read.
#[repr(C)]
struct Config {
    /// 1 if datagrams go to AF_XDP sockets, otherwise 0.
    steering: AtomicU64,
    /// The longest payload that goes there, in bytes.
    steered_len_max: AtomicU64,
    connect_magic: AtomicU64,
    connect_action: AtomicU64,
    reply_action: AtomicU64,
    /// Bytes of the head of a request; shorter datagrams are dropped.
    head_len: AtomicU64,
    /// 0: nothing is banned; otherwise the number of the half of [`Bans`] that is in force.
    bans: AtomicU64,
    /// The number of the entry of the current slice. That before it has the slice before, that after it the
    /// next one. The fourth is not read, so a turn to the next slice is one store.
    current: AtomicU64,
    ids: [IdEntry; ID_ENTRIES],
    /// Debt that a connect adds to its prefix, in units of 256 ns; 0 = unlimited.
    rate_cost: AtomicU64,
    /// The debt above which connects are dropped, in the same units.
    rate_tolerance: AtomicU64,
    /// The key of the hash of prefixes.
    rate_secret: [AtomicU64; 3],
    rate_mask_v6: [AtomicU64; 2],
    lengths: Lengths,
    endpoints_v4: [[AtomicU64; 1]; ENDPOINTS_V4_MAX],
    endpoints_v6: [[AtomicU64; 3]; ENDPOINTS_V6_MAX],
    passed_v4: [[AtomicU64; 1]; PASSED_V4_MAX],
    passed_v6: [[AtomicU64; 4]; PASSED_V6_MAX],
    blocked_v4: [[AtomicU64; 1]; BLOCKED_MAX],
    blocked_v6: [[AtomicU64; 4]; BLOCKED_MAX],
}

/// The number of entries of each list that the program reads.
#[repr(C)]
struct Lengths {
    endpoints_v4: AtomicU64,
    endpoints_v6: AtomicU64,
    passed_v4: AtomicU64,
    passed_v6: AtomicU64,
    blocked_v4: AtomicU64,
    blocked_v6: AtomicU64,
}

#[repr(C)]
struct IdEntry {
    /// 0 = not in use.
    slice: AtomicU64,
    key: [AtomicU64; 2],
}

/// The words that differ between interfaces.
#[repr(C)]
struct InterfaceConfig {
    next_hop_v4: AtomicU64,
    next_hop_v6: AtomicU64,
    on_link_v4_len: AtomicU64,
    on_link_v6_len: AtomicU64,
    on_link_v4: [[AtomicU64; 1]; ON_LINK_MAX],
    on_link_v6: [[AtomicU64; 4]; ON_LINK_MAX],
    /// A bit for each id.
    vlans: [AtomicU64; 64],
}

/// A bit for each IPv4 /24 that is banned as a whole. The half that is not in force is filled, then the
/// halves change their roles.
#[repr(C)]
struct Bans([[AtomicU64; WORDS_OF_BANS]; 2]);

/// By queue, listener and result.
#[repr(C)]
struct Counts([[[AtomicU64; RESULTS]; LISTENERS_MAX]; QUEUES_MAX]);

/// The recent connects of prefixes.
///
/// Plain form: a map from prefix to the time at which its debt will be paid. A connect adds its cost, and
/// one whose debt is more than the tolerance is dropped (the generic cell rate algorithm). Departures:
///
/// 1. The table is an array of 65,536 words in sets of 8, which are a cache line. A word has a tag of 20
///    bits and the time in units of 256 ns, modulo 2^44 (52 days).
/// 2. A prefix without a word takes the one of its set with the least debt, as in the tracker's own table
///    of connects. An entry into a hash table of the kernel costs more than answering a connect.
/// 3. Two CPUs may change a word at the same moment; then one connect is not counted.
#[repr(C)]
struct Buckets([[AtomicU64; 8]; 1 << 13]);

const CONFIG: MapSpec = mappable("tidegate_config", size_of::<Config>(), 1);
const INTERFACE: MapSpec = mappable("tidegate_if", size_of::<InterfaceConfig>(), 1);
const COUNTS: MapSpec = mappable("tidegate_counts", size_of::<Counts>(), 1);
const BUCKETS: MapSpec = mappable("tidegate_rates", size_of::<Buckets>(), 1);
const BANS: MapSpec = mappable("tidegate_bans", size_of::<Bans>() / 2, 2);
const SOCKETS: MapSpec = MapSpec {
    name: "tidegate_socks",
    kind: MapKind::Sockets,
    value_len: 4,
    entries: QUEUES_MAX as u32,
};

const fn mappable(name: &'static str, value_len: usize, entries: u32) -> MapSpec {
    MapSpec { name, kind: MapKind::MappableArray, value_len: value_len as u32, entries }
}

impl Maps {
    /// Creates the maps. Nothing is answered, dropped or steered until the setters have said what. `secret`
    /// is random.
    pub(super) fn create(protocol: &ProtocolNumbers, secret: [u64; 3]) -> io::Result<Self> {
        let maps = Self {
            config: Arc::new(MappedWords::create(&CONFIG)?),
            bans: MappedWords::create(&BANS)?,
            buckets: create_map(&BUCKETS)?,
        };
        let config = maps.config.view();
        set(&config.steered_len_max, STEERED_LEN_MAX);
        set(&config.connect_magic, protocol.connect_magic.swap_bytes());
        set(&config.connect_action, protocol.connect_action.swap_bytes().into());
        set(&config.reply_action, protocol.connect_reply_action.swap_bytes().into());
        set(&config.head_len, protocol.head_len.into());
        for (word, number) in config.rate_secret.iter().zip(secret) {
            // The hash multiplies by them.
            set(word, number | 1);
        }
        Ok(maps)
    }

    /// Returns what decides whether datagrams go to AF_XDP sockets, on queues that have one.
    pub(super) fn steering(&self) -> Steering {
        Steering(Arc::clone(&self.config))
    }

    /// Replaces the addresses that datagrams are taken for. Returns how many did not fit: their datagrams
    /// are passed.
    pub(super) fn set_endpoints(&mut self, endpoints: &[Endpoint]) -> usize {
        let config = self.config.view();
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for endpoint in endpoints {
            let word = endpoint_word(endpoint);
            match endpoint.address.ip() {
                IpAddr::V4(ip) => v4.push([u64::from(raw_v4(ip)) << 32 | word]),
                IpAddr::V6(ip) => {
                    let [high, low] = raw_v6(ip);
                    v6.push([high, low, word]);
                }
            }
        }
        replace(&config.endpoints_v4, &config.lengths.endpoints_v4, [0], &v4)
            + replace(&config.endpoints_v6, &config.lengths.endpoints_v6, [0; 3], &v6)
    }

    /// Replaces the networks whose datagrams are always passed to the UDP sockets. Returns how many did not
    /// fit.
    pub(super) fn set_passed(&mut self, networks: &[IpPrefix]) -> usize {
        let config = self.config.view();
        let (v4, v6) = network_words(networks);
        replace(&config.passed_v4, &config.lengths.passed_v4, UNUSED_V4, &v4)
            + replace(&config.passed_v6, &config.lengths.passed_v6, UNUSED_V6, &v6)
    }

    /// Replaces the networks whose datagrams are dropped. Returns how many did not fit.
    pub(super) fn set_blocked(&mut self, networks: &[IpPrefix]) -> usize {
        let config = self.config.view();
        let (v4, v6) = network_words(networks);
        replace(&config.blocked_v4, &config.lengths.blocked_v4, UNUSED_V4, &v4)
            + replace(&config.blocked_v6, &config.lengths.blocked_v6, UNUSED_V6, &v6)
    }

    /// Replaces the banned IPv4 addresses: ranges, each with its first and last address. Only /24s that a
    /// range covers whole are dropped here. Writes 2 MiB: call it after changes only.
    pub(super) fn set_bans(&mut self, ranges: impl IntoIterator<Item = (Ipv4Addr, Ipv4Addr)>) {
        let in_force = self.config.view().bans.load(Ordering::Relaxed);
        let next = usize::from(in_force == 1);
        let bits = &self.bans.view().0[next];
        bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let mut is_any = false;
        for (first, last) in ranges {
            let networks = whole_networks(first, last);
            if networks.is_empty() {
                continue;
            }
            is_any = true;
            for word in networks.start / 64..networks.end.div_ceil(64) {
                let from = networks.start.max(word * 64) - word * 64;
                let until = networks.end.min(word * 64 + 64) - word * 64;
                let mask = (u64::MAX >> (64 - (until - from))) << from;
                bits[word as usize].fetch_or(mask, Ordering::Relaxed);
            }
        }
        set(&self.config.view().bans, if is_any { next as u64 + 1 } else { 0 });
    }

    /// Sets the rate of connects of one prefix. `None` = no limit.
    pub(super) fn set_rate(&mut self, rate: Option<ConnectRate>) {
        let config = self.config.view();
        let Some(rate) = rate.filter(|rate| rate.per_s > 0) else {
            return set(&config.rate_cost, 0);
        };
        let (cost, tolerance) = cost_and_tolerance(&rate);
        let prefix = IpPrefix::v6(Ipv6Addr::from_bits(u128::MAX), rate.prefix_v6);
        let [_, _, high, low] = network_words(&[prefix]).1[0];
        set(&config.rate_mask_v6[0], high);
        set(&config.rate_mask_v6[1], low);
        set(&config.rate_tolerance, tolerance);
        set(&config.rate_cost, cost);
    }

    /// Makes the rate slower than [`Maps::set_rate`] can: no test may depend on how long it takes.
    #[cfg(test)]
    pub(super) fn set_cost(&mut self, cost: u64, tolerance: u64) {
        set(&self.config.view().rate_tolerance, tolerance);
        set(&self.config.view().rate_cost, cost);
    }

    /// Returns the recent connects of prefixes: [`Buckets`], as they are.
    #[cfg(test)]
    pub(super) fn buckets(&self) -> Vec<u64> {
        let mut bytes = vec![0; size_of::<Buckets>()];
        look_up_element(self.buckets.as_fd(), &BUCKETS, 0, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    }

    #[cfg(test)]
    pub(super) fn set_buckets(&mut self, buckets: &[u64]) {
        let bytes: Vec<u8> = buckets.iter().flat_map(|word| word.to_le_bytes()).collect();
        update_element(self.buckets.as_fd(), &BUCKETS, 0, &bytes).unwrap();
    }

    /// Sets which connection ids are issued and valid. Call it at least as often as the slice changes and
    /// some seconds before, with `accepts_next`. Then no moment refuses an id that another part of the
    /// tracker issued. Ids of another key than before are refused at once.
    pub(super) fn set_ids(&mut self, slices: &IdSlices) {
        let config = self.config.view();
        let key = words_of_key(&slices.key);
        let slice = u64::from(slices.current);
        let entry = |from_current: usize| {
            let current = config.current.load(Ordering::Relaxed) as usize;
            &config.ids[(current + from_current) % ID_ENTRIES]
        };
        if !entry(0).is(slice, key) {
            entry(1).write(slice, key);
            let current = config.current.load(Ordering::Relaxed) as usize;
            set(&config.current, ((current + 1) % ID_ENTRIES) as u64);
        }
        entry(ID_ENTRIES - 1).write(slice.saturating_sub(1), key);
        let next = slices.current.checked_add(1).filter(|_| slices.accepts_next);
        entry(1).write(next.map_or(0, u64::from), key);
        entry(2).write(0, key);
    }
}

impl Steering {
    /// Sets whether they do.
    pub(super) fn set(&self, is_on: bool) {
        set(&self.0.view().steering, is_on.into());
    }
}

impl InterfaceMaps {
    pub(super) fn create() -> io::Result<Self> {
        Ok(Self {
            config: MappedWords::create(&INTERFACE)?,
            counts: MappedWords::create(&COUNTS)?,
            sockets: create_map(&SOCKETS)?,
        })
    }

    /// Directs datagrams of `queue` to an AF_XDP socket. This is a system call: do it before the sandbox.
    pub(super) fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd().to_ne_bytes();
        update_element(self.sockets.as_fd(), &SOCKETS, queue, &value)
    }

    /// Sets the destinations of replies in the link layer. Returns how many networks on the link did not fit.
    pub(super) fn set_next_hops(&mut self, next_hops: &NextHops) -> usize {
        let config = self.config.view();
        set(&config.next_hop_v4, next_hops.v4.word());
        set(&config.next_hop_v6, next_hops.v6.word());
        let (v4, v6) = network_words(&next_hops.on_link);
        replace(&config.on_link_v4, &config.on_link_v4_len, UNUSED_V4, &v4)
            + replace(&config.on_link_v6, &config.on_link_v6_len, UNUSED_V6, &v6)
    }

    /// Sets the ids of VLANs whose frames are taken. Frames without a tag always are. Id 0 is the tag of
    /// frames with a priority and without a VLAN.
    pub(super) fn set_vlans(&mut self, ids: &[u16]) {
        let mut words = [0; 64];
        for id in ids {
            words[usize::from(id % 4096 / 64)] |= 1 << (id % 64);
        }
        for (place, word) in self.config.view().vlans.iter().zip(words) {
            set(place, word);
        }
    }

    /// Returns what was done since the start with the datagrams of a listener. Sums over all queues: the interface
    /// may have got more since.
    pub(super) fn counts(&self, listener: usize) -> ListenerCounts {
        let mut sum = ListenerCounts::default();
        for queue in &self.counts.view().0 {
            for (sum, count) in sum.words_mut().iter_mut().zip(&queue[listener]) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        sum
    }
}

/// Loads the program with its maps. They live as long as the program.
pub(super) fn load(maps: &Maps, interface: &InterfaceMaps) -> Result<OwnedFd, SetupError> {
    let instructions = link(PROGRAM, RELOCATIONS, |name| match name {
        MapName::Bans4 => (maps.bans.map(), Reference::Map),
        MapName::Xsks => (interface.sockets.as_fd(), Reference::Map),
        MapName::Config => (maps.config.map(), Reference::Value),
        MapName::Buckets => (maps.buckets.as_fd(), Reference::Value),
        MapName::Interface => (interface.config.map(), Reference::Value),
        MapName::Counts => (interface.counts.map(), Reference::Value),
    });
    load_program("tidegate", c"Dual MIT/GPL", &instructions)
}

/// Returns port, listener and flags, as the program reads them.
fn endpoint_word(endpoint: &Endpoint) -> u64 {
    let flags = u64::from(endpoint.answers)
        | u64::from(endpoint.verifies) << 1
        | u64::from(endpoint.filters) << 2;
    let port = endpoint.address.port().swap_bytes();
    u64::from(port) << 16 | u64::from(endpoint.listener) << 8 | flags
}

impl IdEntry {
    fn is(&self, slice: u64, key: [u64; 2]) -> bool {
        let own_key = self.key.each_ref().map(|word| word.load(Ordering::Relaxed));
        self.slice.load(Ordering::Relaxed) == slice && own_key == key
    }

    /// Changes nothing if it has these values already.
    fn write(&self, slice: u64, key: [u64; 2]) {
        if self.is(slice, key) {
            return;
        }
        set(&self.slice, 0);
        for (word, value) in self.key.iter().zip(key) {
            set(word, value);
        }
        set(&self.slice, slice);
    }
}

/// Returns the /24s, by number, that lie in the range as a whole.
fn whole_networks(first: Ipv4Addr, last: Ipv4Addr) -> std::ops::Range<u32> {
    let start = first.to_bits().div_ceil(256);
    let end = ((u64::from(last.to_bits()) + 1) / 256) as u32;
    start..end.max(start)
}

/// Returns cost of a connect and maximum debt, in units of 256 ns. The debt ends far below the range of
/// the times in [`Buckets`].
fn cost_and_tolerance(rate: &ConnectRate) -> (u64, u64) {
    const UNITS_PER_S: u64 = 1_000_000_000 / 256;
    const TOLERANCE_MAX: u64 = 1 << 42;
    let per_s = u64::from(rate.per_s.max(1));
    let cost = ((UNITS_PER_S + per_s / 2) / per_s).max(1);
    let burst = u64::from(rate.burst.max(1));
    (cost, (cost * (burst - 1)).min(TOLERANCE_MAX))
}

fn words_of_key(key: &[u8; 16]) -> [u64; 2] {
    let key = u128::from_le_bytes(*key);
    [key as u64, (key >> 64) as u64]
}

// SAFETY: they have only atomic words, and arrays and C structures of them.
unsafe impl Words for Config {}
// SAFETY: as above.
unsafe impl Words for InterfaceConfig {}
// SAFETY: as above.
unsafe impl Words for Bans {}
// SAFETY: as above.
unsafe impl Words for Counts {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact_to_two_percent() {
        for per_s in [1, 7, 1000, 2000, 30_000, 65_535, 100_000] {
            for burst in [1, per_s, 3 * per_s] {
                let rate = ConnectRate { per_s, burst, prefix_v6: 64 };
                let (cost, tolerance) = cost_and_tolerance(&rate);
                let exact = 1e9 / 256.0 / f64::from(per_s);
                assert!((cost as f64 / exact - 1.0).abs() < 0.02, "{per_s}/s: {cost} units");
                assert_eq!(tolerance, cost * u64::from(burst - 1));
            }
        }
        let rate = ConnectRate { per_s: 1, burst: u32::MAX, prefix_v6: 64 };
        assert_eq!(cost_and_tolerance(&rate).1, 1 << 42);
        let rate = ConnectRate { per_s: u32::MAX, burst: 0, ..rate };
        assert_eq!(cost_and_tolerance(&rate), (1, 0));
    }

    #[test]
    fn ranges_are_whole_networks() {
        let whole =
            |first: &str, last: &str| whole_networks(first.parse().unwrap(), last.parse().unwrap());
        assert_eq!(whole("0.0.0.0", "255.255.255.255"), 0..1 << 24);
        assert_eq!(whole("1.2.3.0", "1.2.3.255"), 0x010203..0x010204);
        assert!(whole("1.2.3.0", "1.2.3.254").is_empty());
        assert!(whole("1.2.3.1", "1.2.4.254").is_empty());
        assert!(whole("255.255.255.255", "255.255.255.255").is_empty());
        assert_eq!(whole("1.2.3.1", "1.2.5.0"), 0x010204..0x010205);
    }
}
