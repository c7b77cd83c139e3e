//! Sockets that send and receive whole frames.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket, sockopt,
};

/// Pause between two looks for frames.
const POLL_PERIOD: Duration = Duration::from_millis(2);
/// The largest frame.
const FRAME_MAX: usize = 65_536;
/// Enough for all frames of a test.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// A socket that sends at one interface, and one that receives at another or the same. It does not receive
/// what it sends.
#[derive(Debug)]
pub struct PacketSocket {
    sender: OwnedFd,
    receiver: OwnedFd,
}

impl PacketSocket {
    /// Opens one in this thread's namespace.
    pub(super) fn open(sender: &str, receiver: &str) -> Result<Self> {
        let receives = open(receiver)?;
        // A socket does not receive what it sends; two at the same interface would.
        let sends = if sender == receiver { receives.try_clone()? } else { open(sender)? };
        Ok(Self { sender: sends, receiver: receives })
    }

    /// Sends a frame, from its destination in the link layer on, without the check sequence.
    ///
    /// # Errors
    ///
    /// If the interface is down or the frame too long.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(self.sender.as_raw_fd(), frame, MsgFlags::empty())?;
        Ok(())
    }

    /// Returns the next frame for which `is_wanted`; others are dropped. None after `patience`.
    ///
    /// # Errors
    ///
    /// If the interface goes down.
    pub fn receive(
        &mut self,
        patience: Duration,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut frame = vec![0; FRAME_MAX];
        loop {
            match recv(self.receiver.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                Ok(len) if is_wanted(&frame[..len]) => {
                    frame.truncate(len);
                    return Ok(Some(frame));
                }
                Ok(_) => continue,
                Err(Errno::EAGAIN) if Instant::now() < deadline => {
                    std::thread::sleep(POLL_PERIOD);
                }
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Opens a socket at one interface.
pub(super) fn open(interface: &str) -> Result<OwnedFd> {
    let is_it = |it: &InterfaceAddress| it.interface_name == interface;
    let mut addresses = getifaddrs()?.filter(is_it).filter_map(|it| it.address);
    let link = addresses.find_map(|address| address.as_link_addr().copied());
    let link = link.with_context(|| format!("no interface {interface}"))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
    bind(socket.as_raw_fd(), &link)?;
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}
