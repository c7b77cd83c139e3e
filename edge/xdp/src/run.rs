//! The loop of a worker with AF_XDP sockets.
//!
//! A turn serves up to a full batch of each queue: frames are parsed where the driver wrote them, the
//! handler writes replies into the same chunks, headers go before them. Now and then, and when no frames
//! come, a turn serves the worker's UDP sockets, too: fragments come to them, and whatever else the
//! program passes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use primitives::{IpPrefix, Random};

use super::RingDrops;
use super::chunks::Chunk;
use super::frame::Datagram;
use super::next_hops::NextHops;
use super::queue::Queue;
use net::engine::{EngineIo, Round, Slot, SocketEngine, Span, engine_loop, sleep_until_readable};
use net::{BATCH_MAX, Handler, REPLY_MAX, UdpSocket, UdpWorker, run_udp};

/// The sockets are served once in this many turns even if the queues are never empty.
const TURNS_PER_SOCKET_TURN: u32 = 16;
/// The longest v6 reply: no router on the way may fragment it, and 1,280 bytes pass any.
const REPLY_V6_MAX: usize = 1280 - 40 - 8;
/// A frame is prefetched while this many before it are parsed.
const PREFETCHED_AHEAD: u32 = 8;
const CACHE_LINE: u32 = 64;
/// For batches whose datagrams have their destinations with them.
const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The AF_XDP sockets of a worker.
#[derive(Default)]
pub struct WorkerQueues {
    pub(super) queues: Vec<WorkerQueue>,
}

/// An AF_XDP socket of a worker.
pub(super) struct WorkerQueue {
    pub(super) queue: Queue,
    /// Replaced by the thread that follows changes of the network.
    next_hops: Arc<ArcSwap<NextHops>>,
    pub(super) status: Arc<QueueStatus>,
    /// The frames in hand.
    frames: Vec<Frame>,
    random: Random,
    /// Frames that are not what the program steers.
    unparsed: u64,
    /// Replies for which the ring had no place.
    tx_full: u64,
}

/// The status of a queue that is served. Other threads read it, and can have the worker leave the queue alone.
#[derive(Debug, Default)]
pub(super) struct QueueStatus {
    /// Asks the worker to leave the queue alone, for a process that takes it over.
    park: AtomicBool,
    /// True if the worker leaves the queue alone.
    parked: AtomicBool,
    /// True if the socket has been closed, because its interface is gone or polling reported an error.
    closed: AtomicBool,
    drops: ArcSwap<RingDrops>,
}

/// A frame in hand.
struct Frame {
    chunk: Chunk,
    payload: Span,
    datagram: Datagram,
    /// The number of its listener's socket.
    socket: usize,
}

/// A worker's sockets by address.
struct Listeners(Vec<SocketAddr>);

/// The AF_XDP sockets of a worker, and its UDP sockets.
struct XdpEngine {
    queues: Vec<WorkerQueue>,
    listeners: Listeners,
    sockets: SocketEngine,
    turn: u32,
}

/// Serves `worker` and its AF_XDP sockets, as [`run_udp`] does. Without AF_XDP sockets it is the same.
///
/// # Errors
///
/// Those of [`run_udp`]. A failure of an AF_XDP socket is none: the UDP sockets get its datagrams then.
pub fn run(
    worker: UdpWorker,
    queues: WorkerQueues,
    handler: &mut impl Handler,
    stop: &AtomicBool,
) -> io::Result<()> {
    if queues.queues.is_empty() {
        return run_udp(worker, handler, stop);
    }
    let mut engine = XdpEngine {
        queues: queues.queues,
        listeners: Listeners(worker.sockets.iter().map(UdpSocket::local_addr).collect()),
        sockets: SocketEngine::new(worker)?,
        turn: 0,
    };
    engine_loop(&mut engine, handler, stop)
}

impl EngineIo for XdpEngine {
    fn poll_once(&mut self, handler: &mut impl Handler) -> io::Result<Round> {
        let mut round = Round::default();
        for queue in &mut self.queues {
            round.add_batch(queue.turn(&self.listeners, handler));
        }
        self.turn = self.turn.wrapping_add(1);
        if round.is_empty() || self.turn.is_multiple_of(TURNS_PER_SOCKET_TURN) {
            round.add_round(self.sockets.poll_once(handler)?);
        }
        Ok(round)
    }

    /// Also drops queues whose socket has an error.
    fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        let mut polls: Vec<libc::pollfd> = self.queues.iter().map(WorkerQueue::poll).collect();
        polls.extend(self.sockets.polls());
        // Replies that the kernel could not take yet are tried again soon.
        let mut served = self.queues.iter_mut().filter(|queue| !queue.status.is_parked());
        let is_sending = served.any(|queue| queue.queue.rings.tx.pending() > 0);
        let wait = if is_sending { Duration::ZERO } else { wait };
        sleep_until_readable(&mut polls, wait)?;
        let mut polls = polls.iter();
        self.queues.retain(|queue| {
            let events = polls.next().map_or(0, |poll| poll.revents);
            let has_failed = events & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
            if has_failed {
                queue.status.closed.store(true, Ordering::Relaxed);
            }
            !has_failed
        });
        Ok(())
    }

    fn block_sources(&mut self, networks: &[IpPrefix]) {
        self.sockets.block_sources(networks);
    }

    fn check(&mut self) {
        self.queues.retain_mut(WorkerQueue::check);
    }

    /// Serves frames that have arrived already, up to a full batch of each queue.
    fn finish(&mut self, handler: &mut impl Handler) {
        for queue in &mut self.queues {
            queue.turn(&self.listeners, handler);
            queue.check();
        }
    }
}

impl Listeners {
    /// Returns the number of the socket that a datagram to `to` belongs to: that of the address itself, or
    /// of the wildcard address.
    #[inline]
    fn find(&self, to: SocketAddr) -> Option<usize> {
        let is_wildcard = |own: &SocketAddr| {
            own.port() == to.port() && own.ip().is_unspecified() && own.is_ipv4() == to.is_ipv4()
        };
        let exact = self.0.iter().position(|own| (own.ip(), own.port()) == (to.ip(), to.port()));
        exact.or_else(|| self.0.iter().position(is_wildcard))
    }
}

impl QueueStatus {
    /// Returns the status of a queue that another process still serves.
    pub(super) fn new_parked() -> Self {
        let (park, parked) = (AtomicBool::new(true), AtomicBool::new(true));
        Self { park, parked, ..Self::default() }
    }

    /// Asks the worker to leave the queue alone, or to serve it again.
    pub(super) fn park(&self, park: bool) {
        self.park.store(park, Ordering::Release);
    }

    /// Returns whether the worker leaves the queue alone.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }

    /// Returns true if the queue is not served any more, because its interface is gone or polling reported an
    /// error.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns what was dropped, as of a moment ago.
    pub(super) fn drops(&self) -> RingDrops {
        **self.drops.load()
    }
}

impl WorkerQueue {
    pub(super) fn new(
        queue: Queue,
        next_hops: Arc<ArcSwap<NextHops>>,
        status: Arc<QueueStatus>,
    ) -> Self {
        let seed = u64::from(std::process::id()) ^ (queue.descriptors().0.as_raw_fd() as u64) << 32;
        Self {
            queue,
            next_hops,
            status,
            frames: Vec::with_capacity(BATCH_MAX),
            random: Random::new(seed),
            unparsed: 0,
            tx_full: 0,
        }
    }

    /// Returns the entry for poll(2). While another process serves the queue, it is not polled.
    fn poll(&self) -> libc::pollfd {
        let is_parked = self.status.is_parked();
        let fd = if is_parked { -1 } else { self.queue.descriptors().0.as_raw_fd() };
        libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
    }

    /// Serves the frames that have come, up to a full batch. Returns their number.
    fn turn(&mut self, listeners: &Listeners, handler: &mut impl Handler) -> usize {
        // Between turns no chunk is in hand, so another process may go on from here.
        let is_parked = self.status.park.load(Ordering::Acquire);
        let was_parked = self.status.parked.swap(is_parked, Ordering::AcqRel);
        if is_parked {
            return 0;
        }
        if was_parked {
            self.queue.rings.resume();
        }
        self.queue.rings.recycle_sent();
        let received = self.receive(listeners);
        while let Some(first) = self.frames.first() {
            let socket = first.socket;
            let of_socket = self.frames.iter().take_while(|frame| frame.socket == socket);
            let count = of_socket.count();
            self.serve(socket, count, handler);
        }
        self.queue.rings.publish();
        self.queue.wake_driver();
        self.send();
        received
    }

    /// Takes frames in hand. Returns how many have come.
    fn receive(&mut self, listeners: &Listeners) -> usize {
        let mut received = 0;
        let rings = &mut self.queue.rings;
        while received < BATCH_MAX {
            let Some((chunk, span)) = rings.receive() else { break };
            received += 1;
            let area = self.queue.batch.area();
            if let Some(begin) = rings.upcoming(PREFETCHED_AHEAD) {
                area.prefetch(begin);
                area.prefetch(begin + CACHE_LINE);
            }
            let datagram = Datagram::parse(area.get(span));
            let owner =
                datagram.and_then(|datagram| Some((listeners.find(datagram.to)?, datagram)));
            let Some((socket, datagram)) = owner else {
                self.unparsed += 1;
                rings.recycle(chunk);
                continue;
            };
            let payload = Span {
                at: span.at + datagram.payload.start as u32,
                len: datagram.payload.len() as u16,
            };
            self.frames.push(Frame { chunk, payload, datagram, socket });
        }
        let is_mixed = self.frames.windows(2).any(|pair| pair[0].socket != pair[1].socket);
        if is_mixed {
            self.frames.sort_by_key(|frame| frame.socket);
        }
        received
    }

    /// Passes the first `count` frames, which are of one socket, to the handler, and queues the replies.
    fn serve(&mut self, socket: usize, count: usize, handler: &mut impl Handler) {
        let Queue { batch, rings, .. } = &mut self.queue;
        batch.clear(UNSPECIFIED);
        for frame in self.frames.iter().take(count) {
            batch.push_slot(frame.slot());
        }
        handler.batch(socket, batch);
        let (mut refused, mut blocked) = (0, 0);
        let next_hops = self.next_hops.load();
        for (at, Frame { chunk, datagram, .. }) in self.frames.drain(..count).enumerate() {
            let len = batch.reply_len(at);
            if len == 0 {
                rings.recycle(chunk);
                continue;
            }
            let mac = next_hops.mac(datagram.from.ip(), datagram.from_mac);
            // No datagram can be sent to port 0: the source is forged.
            let Some(mac) = mac.filter(|_| datagram.from.port() != 0) else {
                rings.recycle(chunk);
                refused += 1;
                continue;
            };
            let frame = chunk.reply_frame(len);
            let buffer = batch.area().get_mut(frame);
            let begin = datagram.write_reply_headers(buffer, mac, self.random.next() as u16);
            blocked += usize::from(!rings.transmit(chunk, frame, begin));
        }
        self.tx_full += blocked as u64;
        if refused > 0 {
            handler.send_failed(socket, refused, false);
        }
        if blocked > 0 {
            handler.send_failed(socket, blocked, true);
        }
    }

    /// Calls the kernel until it has taken all replies. It takes a limited number at a time, and none if the
    /// interface cannot take more: they stay in the ring then.
    fn send(&mut self) {
        let mut pending = self.queue.rings.tx.pending();
        while pending > 0 && self.queue.rings.tx.needs_wakeup() {
            // The error says only that there is more, or that no more can be taken now.
            let _ = self.queue.send();
            let left = self.queue.rings.tx.pending();
            if left == pending {
                break;
            }
            pending = left;
        }
    }

    /// Publishes what was dropped. Returns whether the queue can be served.
    fn check(&mut self) -> bool {
        let Ok(drops) = self.queue.drops() else { return true };
        let rx_invalid = drops.rx_invalid + self.unparsed;
        let drops = RingDrops { rx_invalid, tx_full: self.tx_full, ..drops };
        self.status.drops.store(Arc::new(drops));
        let is_gone = self.queue.is_gone();
        self.status.closed.store(is_gone, Ordering::Relaxed);
        !is_gone
    }
}

impl Frame {
    fn slot(&self) -> Slot {
        let room = if self.datagram.from.is_ipv4() { REPLY_MAX } else { REPLY_V6_MAX };
        Slot {
            from: self.datagram.from,
            to: Some(self.datagram.to.ip()),
            request: self.payload,
            reply: Span { at: self.chunk.reply_at(), len: 0 },
            room: room as u16,
            truncated: false,
        }
    }
}

#[cfg(test)]
mod tests;
