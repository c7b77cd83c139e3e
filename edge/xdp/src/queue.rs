//! An AF_XDP socket: the frames of one receive queue of one interface.
//!
//! # Safety
//!
//! System calls get structures that live until they return, and one address that lives longer: that of
//! the chunks, which are mapped as long as the socket exists.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{from_mut, from_ref, null, null_mut};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::RingDrops;
use super::chunks::{CHUNK_LEN, Rings};
use super::ring::{Consumer, Producer, RingLayout};
use super::umem::Mapping;
use net::engine::Area;

/// Entries of the rings of received frames and of replies.
const RX_TX_LEN: u32 = 2048;
/// The most chunks of a queue: 1 GiB.
pub(super) const CHUNKS_MAX: u32 = 1 << 18;
/// The longest time that the kernel may take to release a queue whose socket was closed.
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// An AF_XDP socket with its rings and chunks.
#[derive(Debug)]
pub struct Queue {
    socket: OwnedFd,
    memory: File,
    /// `None` after [`Queue::take_area`].
    area: Option<Area>,
    pub(super) rings: Rings,
}

impl Queue {
    /// Opens the socket of `queue` of the interface with number `ifindex`, with `chunks` of 4 KiB, rounded
    /// up to a power of two. `zero_copy` lets the driver write into them. Needs CAP_NET_RAW. If the kernel
    /// has not yet released the queue of a process that has ended, waits for a second.
    ///
    /// # Errors
    ///
    /// ResourceBusy if another socket has the queue. OutOfMemory, with a text that says so, if the chunks
    /// are more memory than the process may lock. Unsupported if the driver cannot do it.
    pub fn open(ifindex: u32, queue: u32, chunks: u32, zero_copy: bool) -> io::Result<Self> {
        let chunks = chunks.clamp(RX_TX_LEN, CHUNKS_MAX).next_power_of_two();
        let memory = create_memory(chunks)?;
        // SAFETY: no pointers.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: the descriptor is new, so nothing else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(check(socket)?) };
        let mapping = Arc::new(map_memory(memory.as_fd(), chunks)?);
        register_memory(&socket, &mapping)?;
        for (name, len) in [
            (libc::XDP_UMEM_FILL_RING, chunks),
            (libc::XDP_UMEM_COMPLETION_RING, chunks),
            (libc::XDP_RX_RING, RX_TX_LEN),
            (libc::XDP_TX_RING, RX_TX_LEN),
        ] {
            set_option(&socket, name, &len)?;
        }
        let mut this = Self::over(socket, memory, mapping, chunks)?;
        this.rings.fill_all(chunks);
        this.bind(ifindex, queue, zero_copy)?;
        Ok(this)
    }

    /// Takes over a socket of another process, by its [`Queue::descriptors`]. That process must have stopped
    /// serving it, between two turns: then no chunk is in hand, and what is in the rings continues from
    /// there.
    pub fn inherit(socket: OwnedFd, memory: OwnedFd) -> io::Result<Self> {
        let memory = File::from(memory);
        let len = memory.metadata()?.len();
        let chunks = u32::try_from(len / CHUNK_LEN as u64).unwrap_or_default();
        if !chunks.is_power_of_two() || !(RX_TX_LEN..=CHUNKS_MAX).contains(&chunks) {
            let text = format!("expected the memory of an AF_XDP socket, found {len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mapping = Arc::new(map_memory(memory.as_fd(), chunks)?);
        Self::over(socket, memory, mapping, chunks)
    }

    /// Maps the rings.
    fn over(socket: OwnedFd, memory: File, mapping: Arc<Mapping>, chunks: u32) -> io::Result<Self> {
        let offsets = offsets(&socket)?;
        let map = |ring: &libc::xdp_ring_offset, page: u64, entries: u32, entry_len: usize| {
            let layout = RingLayout {
                producer: ring.producer as usize,
                consumer: ring.consumer as usize,
                flags: ring.flags as usize,
                entries: ring.desc as usize,
            };
            let len = layout.entries + entries as usize * entry_len;
            Ok::<_, io::Error>((Arc::new(Mapping::new(socket.as_fd(), page as i64, len)?), layout))
        };
        let fill = map(&offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING, chunks, 8)?;
        let completion = map(&offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, chunks, 8)?;
        let rx = map(&offsets.rx, libc::XDP_PGOFF_RX_RING as u64, RX_TX_LEN, 16)?;
        let tx = map(&offsets.tx, libc::XDP_PGOFF_TX_RING as u64, RX_TX_LEN, 16)?;
        let rings = Rings {
            fill: Producer::new(fill.0, &fill.1, chunks),
            completion: Consumer::new(completion.0, &completion.1, chunks),
            rx: Consumer::new(rx.0, &rx.1, RX_TX_LEN),
            tx: Producer::new(tx.0, &tx.1, RX_TX_LEN),
        };
        // SAFETY: nothing else in this process accesses the chunks. Those who access the area keep to chunks
        // in hand, into which the kernel does not write.
        let area = unsafe { Area::mapped(mapping.start(), mapping.len(), mapping) };
        Ok(Self { socket, memory, area: Some(area), rings })
    }

    fn bind(&self, ifindex: u32, queue: u32, zero_copy: bool) -> io::Result<()> {
        let copying = if zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: copying | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of_val(&address) as libc::socklen_t;
        let given_up = Instant::now() + RELEASE_TIME;
        loop {
            // SAFETY: the pointer is to an address of `len` bytes, which the call only reads.
            let bound =
                unsafe { libc::bind(self.socket.as_raw_fd(), from_ref(&address).cast(), len) };
            match check(bound) {
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < given_up =>
                {
                    thread::sleep(Duration::from_millis(20));
                }
                result => return result.map(drop),
            }
        }
    }

    /// Returns the descriptors of the socket and of its memory, for a process that takes over.
    pub fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.socket.as_fd(), self.memory.as_fd())
    }

    /// Returns whether the driver writes into the chunks itself.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        let mut options = libc::xdp_options { flags: 0 };
        get_option(&self.socket, libc::XDP_OPTIONS, &mut options)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns what the kernel has dropped.
    pub(super) fn drops(&self) -> io::Result<RingDrops> {
        let mut counts = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        get_option(&self.socket, libc::XDP_STATISTICS, &mut counts)?;
        Ok(RingDrops {
            rx_full: counts.rx_ring_full,
            // Of a driver that copies, the first has frames, and of one that does not, the second has tries.
            fill_empty: counts.rx_dropped.max(counts.rx_fill_ring_empty_descs),
            rx_invalid: counts.rx_invalid_descs,
            tx_invalid: counts.tx_invalid_descs,
            tx_full: 0,
        })
    }

    /// Takes the memory of the chunks, once. Access only chunks that are in hand: the kernel writes into
    /// the others.
    pub(super) fn take_area(&mut self) -> Option<Area> {
        self.area.take()
    }

    /// Returns whether the socket has lost its interface for good.
    pub(super) fn is_gone(&self) -> bool {
        self.send().is_err_and(|error| error.raw_os_error() == Some(libc::ENXIO))
    }

    /// Asks the kernel to send up to 32 replies. A higher limit (`XDP_MAX_TX_SKB_BUDGET`) is not measurably
    /// faster. Fails if the interface is gone or down.
    pub(super) fn send(&self) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        // SAFETY: an empty buffer and no address.
        let sent = unsafe { libc::sendto(socket, null(), 0, libc::MSG_DONTWAIT, null(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wakes the driver, so that it takes chunks, if it waits for that.
    pub(super) fn wake_driver(&self) {
        if self.rings.fill.needs_wakeup() {
            let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT);
            // SAFETY: an empty buffer and no address.
            unsafe { libc::recvfrom(socket, null_mut(), 0, flags, null_mut(), null_mut()) };
        }
    }
}

/// Makes the memory of `chunks` chunks, as a file, so that it can be handed over.
fn create_memory(chunks: u32) -> io::Result<File> {
    // SAFETY: the name is a constant string.
    let memory = unsafe { libc::memfd_create(c"tidegate-frames".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new, so nothing else owns it.
    let memory = unsafe { File::from_raw_fd(check(memory)?) };
    memory.set_len(u64::from(chunks) * CHUNK_LEN as u64)?;
    Ok(memory)
}

fn map_memory(memory: BorrowedFd<'_>, chunks: u32) -> io::Result<Mapping> {
    Mapping::new(memory, 0, chunks as usize * CHUNK_LEN)
}

/// Tells the kernel where the chunks are. It locks them in memory.
fn register_memory(socket: &OwnedFd, mapping: &Mapping) -> io::Result<()> {
    let memory = libc::xdp_umem_reg {
        addr: mapping.start().as_ptr() as u64,
        len: mapping.len() as u64,
        chunk_size: CHUNK_LEN as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set_option(socket, libc::XDP_UMEM_REG, &memory).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOBUFS) => io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "frames take {} MiB of locked memory, which is over the limit: raise RLIMIT_MEMLOCK \
                 (LimitMEMLOCK of the unit, `ulimit -l`) or grant CAP_IPC_LOCK",
                mapping.len() >> 20
            ),
        ),
        _ => error,
    })
}

/// Asks where the indices and entries of each ring are.
fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    let none = || libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut offsets = libc::xdp_mmap_offsets { rx: none(), tx: none(), fr: none(), cr: none() };
    let len = get_option(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    if len == size_of_val(&offsets) {
        Ok(offsets)
    } else {
        // Without flags of rings. Needs Linux 5.4.
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// `value` is a number, or a structure of numbers without padding.
fn set_option<T>(socket: &OwnedFd, name: c_int, value: &T) -> io::Result<()> {
    let (socket, len) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer is to `len` bytes, which the call only reads.
    let result =
        unsafe { libc::setsockopt(socket, libc::SOL_XDP, name, from_ref(value).cast(), len) };
    check(result).map(drop)
}

/// `value` is a structure of numbers. Returns how many bytes of it were written.
fn get_option<T>(socket: &OwnedFd, name: c_int, value: &mut T) -> io::Result<usize> {
    let (socket, mut len) = (socket.as_raw_fd(), size_of::<T>() as libc::socklen_t);
    // SAFETY: the pointer is to `len` bytes, of which the call writes at most as many, and all bits of numbers
    // are valid.
    let result =
        unsafe { libc::getsockopt(socket, libc::SOL_XDP, name, from_mut(value).cast(), &mut len) };
    check(result)?;
    Ok(len as usize)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
