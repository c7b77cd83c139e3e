//! Sends and receives datagrams in batches: by recvmmsg, sendmmsg, and segmentation offload (`UDP_SEGMENT`), with which
//! a batch of datagrams of equal length passes the stack as one.

use std::array;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, sendmmsg, sendmsg,
    setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

/// Datagrams per receive call.
const BATCH: usize = 64;
/// Buffer size of a response. The largest is an announce response over IPv6 with 200 peers: 3620 bytes.
const DATAGRAM_BUFFER: usize = 4096;
/// Spin for the last part of a wait, because a sleep may take this much longer.
const SPIN_BEFORE: Duration = Duration::from_micros(60);

/// Datagrams per offloaded send: the limit of every kernel with offload.
const SEGMENTS_MAX: usize = 64;
/// Longer datagrams may exceed the path's packet size, which segments must not.
const SEGMENT_MAX: usize = 1200;

/// Datagram buffers, shared by all sockets of a thread.
pub(super) struct DatagramIo {
    headers: MultiHeaders<()>,
    /// Those of sent datagrams, which have no control messages: the kernel would take received ones for
    /// orders.
    sent_headers: MultiHeaders<()>,
    buffers: Box<[[u8; DATAGRAM_BUFFER]; BATCH]>,
    offload: bool,
    timestamps: bool,
}

impl DatagramIo {
    /// Creates buffers. `offload` uses segmentation offload if the system supports it. `timestamps`
    /// reports when datagrams arrived rather than when they were read.
    pub(super) fn new(offload: bool, timestamps: bool) -> Self {
        let buffers = vec![[0; DATAGRAM_BUFFER]; BATCH].into_boxed_slice();
        let buffers =
            buffers.try_into().unwrap_or_else(|_| Box::new([[0; DATAGRAM_BUFFER]; BATCH]));
        let control = timestamps.then(|| nix::cmsg_space!(TimeSpec));
        let headers = MultiHeaders::preallocate(BATCH, control);
        let sent_headers = MultiHeaders::preallocate(BATCH, None);
        Self { headers, sent_headers, buffers, offload, timestamps }
    }

    /// Configures a socket for use.
    pub(super) fn register(&self, socket: &UdpSocket) -> io::Result<()> {
        if self.timestamps {
            setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
        }
        Ok(())
    }

    /// Receives available datagrams, or some of them, without blocking. Passes on each datagram,
    /// whether it was truncated, and how long it was queued.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        mut on_datagram: impl FnMut(&[u8], bool, Duration),
    ) -> io::Result<()> {
        let mut buffers = self.buffers.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] = array::from_fn(|_| {
            [IoSliceMut::new(buffers.next().map_or(&mut [], |buffer| buffer.as_mut_slice()))]
        });
        let flags = MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_raw_fd();
        let messages = recvmmsg(fd, &mut self.headers, slices.iter_mut(), flags, None)?;
        let now = self.timestamps.then(SystemTime::now);
        for message in messages {
            let queued = now.and_then(|now| {
                let came = message.cmsgs().ok()?.find_map(|control| match control {
                    ControlMessageOwned::ScmTimestampns(came) => Some(Duration::from(came)),
                    _ => None,
                })?;
                // If the clock is set at this moment, count no queueing time.
                now.duration_since(SystemTime::UNIX_EPOCH + came).ok()
            });
            let bytes = message.iovs().next().unwrap_or_default();
            let is_truncated = message.flags.contains(MsgFlags::MSG_TRUNC);
            on_datagram(bytes, is_truncated, queued.unwrap_or_default());
        }
        Ok(())
    }

    /// Sends consecutive datagrams of `len` bytes each.
    pub(super) fn send(&mut self, socket: &UdpSocket, batch: &[u8], len: usize) -> io::Result<()> {
        for batch in batch.chunks(len * SEGMENTS_MAX) {
            if batch.len() <= len {
                socket.send(batch)?;
            } else if !self.offload || len > SEGMENT_MAX || !self.send_as_one(socket, batch, len)? {
                self.send_each(socket, batch, len)?;
            }
        }
        Ok(())
    }

    /// Sends with offload. Returns false, and disables offload, if the system does not support it.
    fn send_as_one(&mut self, socket: &UdpSocket, batch: &[u8], len: usize) -> io::Result<bool> {
        let segment = u16::try_from(len).unwrap_or(u16::MAX);
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        let (fd, vector) = (socket.as_raw_fd(), [IoSlice::new(batch)]);
        match sendmsg::<()>(fd, &vector, &control, MsgFlags::MSG_DONTWAIT, None) {
            Ok(_) => Ok(true),
            Err(Errno::EIO | Errno::EINVAL | Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => {
                self.offload = false;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn send_each(&mut self, socket: &UdpSocket, batch: &[u8], len: usize) -> io::Result<()> {
        let mut left = batch;
        while !left.is_empty() {
            let slices: Vec<_> =
                left.chunks(len).take(BATCH).map(|datagram| [IoSlice::new(datagram)]).collect();
            let addresses = vec![None::<()>; slices.len()];
            let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            let sent = sendmmsg(fd, &mut self.sent_headers, slices.iter(), addresses, [], flags)?;
            let sent = sent.count().max(1);
            left = left.get(sent * len..).unwrap_or_default();
        }
        Ok(())
    }
}

/// Waits for many sockets.
pub(super) struct Poller {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

/// Events per wait; further ones are reported by the next.
const EVENTS: usize = 256;

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        // By default a sleep may take 50 µs longer than requested. Best effort.
        let _ = set_timerslack(1);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); EVENTS] })
    }

    /// Registers a socket, which is reported by this number.
    pub(super) fn add(&mut self, socket: UdpSocket, number: usize) -> io::Result<UdpSocket> {
        self.epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, number as u64))?;
        Ok(socket)
    }

    /// Waits until sockets are ready or until `until`. Returns the numbers of ready sockets.
    /// `is_exact` asks for microsecond precision.
    pub(super) fn wait(
        &mut self,
        until: Instant,
        is_exact: bool,
    ) -> io::Result<impl Iterator<Item = usize>> {
        let left = until.saturating_duration_since(Instant::now());
        let mut rest = EpollTimeout::ZERO;
        if let Some(sleep) = left.checked_sub(SPIN_BEFORE).filter(|_| is_exact) {
            // An epoll descriptor is readable when one of its sockets is, and only ppoll has
            // nanosecond timeouts.
            let mut polls = [PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut polls, Some(TimeSpec::from_duration(sleep)), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        } else if !is_exact {
            let ms = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
            rest = EpollTimeout::from(ms);
        }
        let count = match self.epoll.wait(&mut self.events, rest) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(self.events.iter().take(count).map(|event| event.data() as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Timestamps of received datagrams must not go out with the next ones.
    #[test]
    fn sends_each_datagram_after_receiving_timestamps() {
        let [one, two] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(two.local_addr().unwrap()).unwrap();
        two.connect(one.local_addr().unwrap()).unwrap();
        let mut io = DatagramIo::new(false, true);
        io.register(&two).unwrap();
        for _ in 0..2 {
            io.send(&one, b"aabb", 2).unwrap();
            let mut received = Vec::new();
            while received.len() < 2 {
                // Loopback delivers at once; if not, there is nothing to receive yet.
                let _ = io.receive(&two, |bytes, _, _| received.push(bytes.to_vec()));
            }
            assert_eq!(received, [b"aa", b"bb"]);
        }
    }
}
