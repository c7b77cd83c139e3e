//! An AF_XDP socket: the frames of one receive queue of one interface.
//!
//! # Safety
//!
//! The one unsafe block hands the memory of the chunks to the worker, which keeps to those in hand.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use memmap2::{MmapOptions, MmapRaw};
use net::Batch;
use net::engine::Area;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use super::RingDrops;
use super::chunks::{CHUNK_LEN, Rings};
use super::ring::{Consumer, Producer, RingLayout};

/// Entries of the rings of received frames and of replies.
const RX_TX_LEN: u32 = 2048;
/// The most chunks of a queue: 1 GiB.
pub(super) const CHUNKS_MAX: u32 = 1 << 18;
/// The longest time that the kernel may take to release a queue whose socket was closed.
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// An AF_XDP socket with its rings and chunks.
pub struct Queue {
    socket: OwnedFd,
    memory: File,
    /// A view of the chunks. Access only those that are in hand: the kernel writes into the others.
    pub(super) batch: Batch,
    pub(super) rings: Rings,
}

impl Queue {
    /// Opens the socket of `queue` of the interface with number `ifindex`, with `chunks` of 4 KiB, rounded
    /// up to a power of two. Needs CAP_NET_RAW. If the kernel has not yet released the queue of a process
    /// that has ended, waits for a second.
    ///
    /// # Errors
    ///
    /// ResourceBusy if another socket has the queue. OutOfMemory, with a text that says so, if the chunks
    /// are more memory than the process may lock. Unsupported if the driver cannot do it.
    pub fn open(ifindex: u32, queue: u32, chunks: u32) -> io::Result<Self> {
        let chunks = chunks.clamp(RX_TX_LEN, CHUNKS_MAX).next_power_of_two();
        // A file, so that it can be handed over.
        let memory = File::from(memfd_create(c"tidegate-frames", MemfdFlags::CLOEXEC)?);
        memory.set_len(u64::from(chunks) * CHUNK_LEN as u64)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let mapping = map_memory(&memory, chunks)?;
        register_memory(&socket, &mapping)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, chunks)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, chunks)?;
        sockopt::set_xdp_rx_ring_size(&socket, RX_TX_LEN)?;
        sockopt::set_xdp_tx_ring_size(&socket, RX_TX_LEN)?;
        let mut this = Self::over(socket, memory, mapping, chunks)?;
        this.rings.fill_all(chunks);
        this.bind(ifindex, queue)?;
        Ok(this)
    }

    /// Takes over a socket of another process, by its [`Queue::descriptors`]. That process must have stopped
    /// serving it, between two turns: then no chunk is in hand, and what is in the rings continues from
    /// there. Fails with `InvalidData` if `memory` is not that of chunks.
    pub(super) fn inherit(socket: OwnedFd, memory: OwnedFd) -> io::Result<Self> {
        let memory = File::from(memory);
        let len = memory.metadata()?.len();
        let chunks = u32::try_from(len / CHUNK_LEN as u64).unwrap_or_default();
        if !chunks.is_power_of_two() || !(RX_TX_LEN..=CHUNKS_MAX).contains(&chunks) {
            let text = format!("expected the memory of an AF_XDP socket, found {len} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mapping = map_memory(&memory, chunks)?;
        Self::over(socket, memory, mapping, chunks)
    }

    /// Maps the rings.
    fn over(socket: OwnedFd, memory: File, mapping: Arc<MmapRaw>, chunks: u32) -> io::Result<Self> {
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let map = |ring: &XdpRingOffset, page, entries: u32, entry_len| {
            let layout = RingLayout {
                producer: ring.producer as usize,
                consumer: ring.consumer as usize,
                // Needs Linux 5.4.
                flags: ring.flags.ok_or(io::ErrorKind::Unsupported)? as usize,
                entries: ring.desc as usize,
            };
            let len = layout.entries + entries as usize * entry_len;
            let mapping = MmapOptions::new().offset(page).len(len).populate().map_raw(&socket)?;
            Ok::<_, io::Error>((Arc::new(mapping), layout))
        };
        let fill = map(&offsets.fr, XDP_UMEM_PGOFF_FILL_RING, chunks, 8)?;
        let completion = map(&offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING, chunks, 8)?;
        let rx = map(&offsets.rx, XDP_PGOFF_RX_RING, RX_TX_LEN, 16)?;
        let tx = map(&offsets.tx, XDP_PGOFF_TX_RING, RX_TX_LEN, 16)?;
        let rings = Rings {
            fill: Producer::new(fill.0, &fill.1, chunks),
            completion: Consumer::new(completion.0, &completion.1, chunks),
            rx: Consumer::new(rx.0, &rx.1, RX_TX_LEN),
            tx: Producer::new(tx.0, &tx.1, RX_TX_LEN),
        };
        Ok(Self::of_parts(socket, memory, mapping, rings))
    }

    /// Returns a queue with chunks in `mapping`, which is `memory`, and these rings.
    pub(super) fn of_parts(
        socket: OwnedFd,
        memory: File,
        mapping: Arc<MmapRaw>,
        rings: Rings,
    ) -> Self {
        let start = NonNull::new(mapping.as_mut_ptr()).expect("a mapping has an address");
        // SAFETY: nothing else in this process accesses the chunks. Those who access the area keep to chunks
        // in hand, into which the kernel does not write.
        let area = unsafe { Area::mapped(start, mapping.len(), mapping) };
        Self { socket, memory, batch: Batch::over(area), rings }
    }

    fn bind(&self, ifindex: u32, queue: u32) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let address = SocketAddrXdp::new(flags, ifindex, queue);
        let given_up = Instant::now() + RELEASE_TIME;
        loop {
            match rustix::net::bind(&self.socket, &address) {
                Err(Errno::BUSY) if Instant::now() < given_up => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => return Ok(result?),
            }
        }
    }

    /// Returns the descriptors of the socket and of its memory, for a process that takes over.
    pub(super) fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.socket.as_fd(), self.memory.as_fd())
    }

    /// Returns what the kernel has dropped.
    pub(super) fn drops(&self) -> io::Result<RingDrops> {
        let counts = sockopt::xdp_statistics(&self.socket)?;
        // Of a driver that copies, the first has frames, and of one that does not, the second has tries.
        let fill_empty = counts.rx_dropped.max(counts.rx_fill_ring_empty_descs.unwrap_or(0));
        Ok(RingDrops {
            rx_full: counts.rx_ring_full.unwrap_or(0),
            fill_empty,
            rx_invalid: counts.rx_invalid_descs,
            tx_invalid: counts.tx_invalid_descs,
            tx_full: 0,
        })
    }

    /// Returns whether the socket has lost its interface for good.
    pub(super) fn is_gone(&self) -> bool {
        self.send() == Err(Errno::NXIO)
    }

    /// Asks the kernel to send up to 32 replies. A higher limit (`XDP_MAX_TX_SKB_BUDGET`) is not measurably
    /// faster. Fails if the interface is gone or down.
    pub(super) fn send(&self) -> Result<(), Errno> {
        rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT).map(drop)
    }

    /// Wakes the driver, so that it takes chunks, if it waits for that.
    pub(super) fn wake_driver(&self) {
        if self.rings.fill.needs_wakeup() {
            // It never has data for recv(2).
            let _ = rustix::net::recv(&self.socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
        }
    }
}

fn map_memory(memory: &File, chunks: u32) -> io::Result<Arc<MmapRaw>> {
    let len = chunks as usize * CHUNK_LEN;
    Ok(Arc::new(MmapOptions::new().len(len).populate().map_raw(memory)?))
}

/// Tells the kernel where the chunks are. It locks them in memory.
fn register_memory(socket: &OwnedFd, mapping: &MmapRaw) -> io::Result<()> {
    let memory = XdpUmemReg {
        addr: mapping.as_ptr().expose_provenance() as u64,
        len: mapping.len() as u64,
        chunk_size: CHUNK_LEN as u32,
        headroom: 0,
        flags: XdpUmemRegFlags::empty(),
        tx_metadata_len: 0,
    };
    sockopt::set_xdp_umem_reg(socket, memory).map_err(|error| match error {
        Errno::NOBUFS => io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "frames take {} MiB of locked memory, which is over the limit: raise RLIMIT_MEMLOCK \
                 (LimitMEMLOCK of the unit, `ulimit -l`) or grant CAP_IPC_LOCK",
                mapping.len() >> 20
            ),
        ),
        error => error.into(),
    })
}
