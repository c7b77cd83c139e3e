//! Sends and receives datagrams in batches: by recvmmsg, and by segmentation offload (`UDP_SEGMENT`), with which a batch
//! of datagrams of equal length passes the stack as one.

use std::array;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, recvmmsg, sendmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;

/// Datagrams per receive call.
const BATCH: usize = 64;
/// Buffer size of a response. The largest is an announce response over IPv6 with 200 peers: 3620 bytes.
const DATAGRAM_BUFFER: usize = 4096;

/// Datagrams per offloaded send: the limit of every kernel with offload.
const SEGMENTS_MAX: usize = 64;
/// Longer datagrams may exceed the path's packet size, which segments must not.
const SEGMENT_MAX: usize = 1200;

/// Datagram buffers, shared by all sockets of a thread.
pub(super) struct DatagramIo {
    headers: MultiHeaders<()>,
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
        Self { headers, buffers, offload, timestamps }
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
            let has_many = batch.len() > len && len <= SEGMENT_MAX;
            if has_many && self.offload && self.send_as_one(socket, batch, len)? {
                continue;
            }
            for datagram in batch.chunks(len) {
                socket.send(datagram)?;
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
}
