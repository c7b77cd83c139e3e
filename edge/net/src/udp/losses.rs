//! Datagrams that the kernel dropped at UDP sockets because their receive buffers were full.

use std::io;
use std::os::fd::OwnedFd;

use super::UdpSocket;

/// Counts datagrams that did not fit into the receive buffers of sockets, which may meanwhile belong to workers.
///
/// The kernel has one count for these and for what a filter drops. While a filter blocks sources, nothing is counted.
#[derive(Debug, Default)]
pub struct ReceiveLosses {
    sockets: Vec<Watched>,
    lost: u64,
}

#[derive(Debug)]
struct Watched {
    socket: OwnedFd,
    last: Reading,
}

/// Values that the kernel reports about a socket. Other systems than Linux report none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// Datagrams dropped since it was created. Wraps.
    drops: u32,
    is_filtered: bool,
}

#[cfg(target_os = "linux")]
impl Reading {
    fn of(socket: &OwnedFd) -> io::Result<Self> {
        /// The last of what SO_MEMINFO returns.
        const SK_MEMINFO_DROPS: usize = 8;
        // Under another name for reading. Without room for it, only the length of the filter is returned.
        const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;
        let mut memory = [0; SK_MEMINFO_DROPS + 1];
        crate::option::get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut memory)?;
        let filter_len = crate::option::get(socket, libc::SOL_SOCKET, SO_GET_FILTER, &mut [])?;
        Ok(Self { drops: memory[SK_MEMINFO_DROPS], is_filtered: filter_len > 0 })
    }
}

#[cfg(not(target_os = "linux"))]
impl Reading {
    fn of(_: &OwnedFd) -> io::Result<Self> {
        Ok(Self::default())
    }
}

impl ReceiveLosses {
    /// Begins to count for these sockets. Elsewhere than on Linux nothing is counted.
    ///
    /// # Errors
    ///
    /// If a descriptor cannot be duplicated, or the kernel has no such count.
    pub fn of<'a>(sockets: impl IntoIterator<Item = &'a UdpSocket>) -> io::Result<Self> {
        let watch = |socket: &UdpSocket| {
            let socket = socket.descriptor()?;
            let last = Reading::of(&socket)?;
            Ok(Watched { socket, last })
        };
        let sockets = sockets.into_iter().map(watch).collect::<io::Result<_>>()?;
        Ok(Self { sockets, lost: 0 })
    }

    /// Returns how many datagrams were lost since counting began. Call about once a second: if a filter is attached
    /// now or was at the last call, what was dropped in between is not counted.
    pub fn count(&mut self) -> u64 {
        for Watched { socket, last } in &mut self.sockets {
            // Does not fail where it succeeded before.
            let Ok(now) = Reading::of(socket) else { continue };
            if !now.is_filtered && !last.is_filtered {
                self.lost += u64::from(now.drops.wrapping_sub(last.drops));
            }
            *last = now;
        }
        self.lost
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::UdpSocket as Client;

    use super::*;
    use crate::udp::{Engine, UdpOptions, bind_udp};

    #[test]
    fn counts_what_does_not_fit_but_not_what_a_filter_drops() {
        let options = UdpOptions { engine: Engine::Portable, receive_buffer: 4096, send_buffer: 0 };
        let sockets = bind_udp("127.0.0.1:0".parse().unwrap(), Vec::new(), 1, &options).unwrap();
        let mut losses = ReceiveLosses::of(&sockets).unwrap();
        let client = Client::bind("127.0.0.1:0").unwrap();
        let to = sockets[0].local_addr();
        let send = |times| (0..times).for_each(|_| _ = client.send_to(&[0; 1000], to).unwrap());
        assert_eq!(losses.count(), 0);
        // They are not read. Sending over loopback delivers at once.
        send(2000);
        let lost = losses.count();
        assert!(lost > 1000 && lost < 2000, "{lost}");
        assert_eq!(losses.count(), lost);
        sockets[0].source_filter(&["127.0.0.0/8".parse().unwrap()]).unwrap();
        send(100);
        assert_eq!(losses.count(), lost);
        sockets[0].source_filter(&[]).unwrap();
        assert_eq!(losses.count(), lost);
        send(100);
        assert_eq!(losses.count(), lost + 100);
    }
}
