//! A switch between interfaces, whose links lose and delay frames.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};
use nix::sys::time::TimeVal;

use super::Namespace;

/// A link-layer address.
type Mac = [u8; 6];

/// The longest frame.
const FRAME_MAX: usize = 2048;
/// Enough for a burst from all hosts.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Milliseconds between two looks whether the switch has to end.
const LOOK_MS: i64 = 50;

/// Delay and loss of frames in one direction between two interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// The time that a frame takes.
    pub delay: Duration,
    /// The most that a frame takes longer or shorter. Frames do not overtake each other.
    pub jitter: Duration,
    /// Frames that are lost, of a thousand.
    pub loss_permille: u32,
    /// True if all are lost.
    pub is_cut: bool,
}

impl Link {
    /// Everything is lost.
    pub const CUT: Self =
        Self { delay: Duration::ZERO, jitter: Duration::ZERO, loss_permille: 0, is_cut: true };
}

/// Threads that move frames between interfaces.
#[derive(Debug)]
pub(super) struct Switch {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    ports: HashMap<Mac, Port>,
    links: Mutex<HashMap<(Mac, Mac), Link>>,
    ends: AtomicBool,
}

#[derive(Debug)]
struct Port {
    socket: OwnedFd,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Frames that wait for their time.
#[derive(Debug, Default)]
struct Waiting {
    frames: BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>,
    /// By their sources: the time of the last one.
    last: HashMap<Mac, Instant>,
    number: u64,
}

impl Switch {
    /// Starts to move frames between interfaces of a namespace. A port is an interface, and the address of what
    /// is at its other end.
    pub(super) fn start(namespace: &Namespace, ports: Vec<(String, Mac)>) -> Result<Self> {
        let open_port = |(interface, mac): (String, Mac)| {
            let socket = namespace.run(|| open(&interface))?;
            setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, 1000 * LOOK_MS))?;
            let port = Port { socket, waiting: Mutex::default(), changed: Condvar::new() };
            Ok((mac, port))
        };
        let ports: Result<HashMap<Mac, Port>> = ports.into_iter().map(open_port).collect();
        let (links, ends) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { ports: ports?, links, ends });
        let mut threads = Vec::new();
        for mac in shared.ports.keys().copied() {
            for (name, run) in [("in", Shared::receive as fn(&Shared, Mac)), ("out", Shared::send)]
            {
                let shared = Arc::clone(&shared);
                let thread = thread::Builder::new().name(format!("switch-{name}"));
                threads.push(thread.spawn(move || run(&shared, mac)).context("no thread")?);
            }
        }
        Ok(Self { shared, threads })
    }

    /// Sets what happens to frames in one direction.
    pub(super) fn set_link(&self, from: Mac, to: Mac, link: Link) {
        locked(&self.shared.links).insert((from, to), link);
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.ports.values().for_each(|port| port.changed.notify_all());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Moves what comes from a port.
    fn receive(&self, from: Mac) {
        let mut frame = vec![0; FRAME_MAX];
        let mut random =
            u64::from_be_bytes([0, 0, from[0], from[1], from[2], from[3], from[4], from[5]]);
        while !self.ends() {
            match recv(self.ports[&from].socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                Ok(len) if len >= 12 => self.forward(from, &frame[..len], &mut random),
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                // The interface is down.
                Err(_) => return,
            }
        }
    }

    fn forward(&self, from: Mac, frame: &[u8], random: &mut u64) {
        let mut to = [0; 6];
        to.copy_from_slice(&frame[..6]);
        // Broadcasts go nowhere: neighbours are known from the start.
        let Some(port) = self.ports.get(&to) else { return };
        let link = locked(&self.links).get(&(from, to)).copied().unwrap_or_default();
        if link.is_cut || next(random) % 1000 < u64::from(link.loss_permille) {
            return;
        }
        let mut waiting = locked(&port.waiting);
        if link.delay.is_zero() && waiting.frames.is_empty() {
            drop(waiting);
            return port.send(frame);
        }
        let spread = 2 * link.jitter.as_micros() as u64 + 1;
        let jitter = Duration::from_micros(next(random) % spread);
        let due = Instant::now() + (link.delay + jitter).saturating_sub(link.jitter);
        let due = waiting.last.get(&from).map_or(due, |last| due.max(*last));
        waiting.last.insert(from, due);
        waiting.number += 1;
        let number = waiting.number;
        waiting.frames.push(Reverse((due, number, frame.to_vec())));
        port.changed.notify_one();
    }

    /// Sends to a port what has waited.
    fn send(&self, to: Mac) {
        let port = &self.ports[&to];
        let mut waiting = locked(&port.waiting);
        while !self.ends() {
            let now = Instant::now();
            let due = waiting.frames.peek().map(|Reverse((due, ..))| *due);
            if due.is_some_and(|due| due <= now) {
                if let Some(Reverse((_, _, frame))) = waiting.frames.pop() {
                    drop(waiting);
                    port.send(&frame);
                    waiting = locked(&port.waiting);
                }
                continue;
            }
            let patience = Duration::from_millis(LOOK_MS.unsigned_abs());
            let wait = due.map_or(patience, |due| due.saturating_duration_since(now));
            let waited = port.changed.wait_timeout(waiting, wait.min(patience));
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Port {
    fn send(&self, frame: &[u8]) {
        // A full interface drops the frame, as at any switch.
        let _ = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
    }
}

/// Opens a socket that receives and sends whole frames at an interface.
fn open(interface: &str) -> Result<OwnedFd> {
    let is_it = |it: &InterfaceAddress| it.interface_name == interface;
    let mut addresses = getifaddrs()?.filter(is_it).filter_map(|it| it.address);
    let link = addresses.find_map(|address| address.as_link_addr().copied());
    let link = link.with_context(|| format!("no interface {interface}"))?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    bind(socket.as_raw_fd(), &link)?;
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

/// Splitmix64: the next of a sequence of numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
