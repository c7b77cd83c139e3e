//! Drops datagrams from given networks in the kernel, before they use a socket's buffer.
//!
//! Reading a datagram only to drop it costs a third of serving it. A client that sends several times
//! what a worker can serve would still fill the buffer, and datagrams of other clients would be lost.
//! A filter on the socket (classic BPF, which needs no privileges) drops them before that.

use std::io;
use std::net::IpAddr;

use primitives::IpPrefix;
use socket2::{SockFilter, SockRef, Socket};

use super::{SOURCE_FILTER_MAX, UdpSocket};
use crate::option;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const STORE: u16 = libc::BPF_ST as u16;
const RECALL: u16 = (libc::BPF_LD | libc::BPF_MEM) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

impl UdpSocket {
    /// Makes the kernel drop datagrams from `networks` and no others. Uses the first [`SOURCE_FILTER_MAX`] of
    /// the socket's family. If there are none, no filter is attached.
    pub(super) fn source_filter(&self, networks: &[IpPrefix]) -> io::Result<()> {
        let is_v4 = self.local_addr().is_ipv4();
        let own = networks.iter().filter(|network| network.address().is_ipv4() == is_v4);
        let own: Vec<IpPrefix> = own.take(SOURCE_FILTER_MAX).copied().collect();
        let socket = SockRef::from(&self.socket);
        if own.is_empty() {
            return clear_filter(&socket);
        }
        socket.attach_filter(&program(is_v4, &own))
    }
}

pub(super) fn clear_filter(socket: &Socket) -> io::Result<()> {
    // There was no filter, or this kernel has none (emulators, some sandboxes).
    ignore(&[libc::ENOENT, libc::ENOPROTOOPT], socket.detach_filter())
}

/// Removes the program by which an earlier version distributed datagrams among the sockets of a group.
pub(super) fn clear_steering(socket: &Socket) -> io::Result<()> {
    let detached = option::set(socket, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0);
    // There was no program, there is no group, or this kernel has neither.
    ignore(&[libc::ENOENT, libc::EINVAL, libc::ENOPROTOOPT], detached)
}

/// Counts errors with one of these codes as success.
fn ignore(codes: &[i32], result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|code| codes.contains(&code)) => Ok(()),
        other => other,
    }
}

/// Returns a program that stores the words of the source address, then compares them with each network
/// in turn.
fn program(is_v4: bool, networks: &[IpPrefix]) -> Vec<SockFilter> {
    let step = SockFilter::new;
    // Offset and length, in words, of the source address in the IP header.
    let (first, words) = if is_v4 { (12, 1) } else { (8, 4) };
    let mut program = Vec::new();
    for word in 0..words {
        program.push(step(LOAD, 0, 0, libc::SKF_NET_OFF as u32 + first + 4 * word));
        program.push(step(STORE, 0, 0, word));
    }
    for network in networks {
        let masked_words = masked_words(network);
        let len = 3 * masked_words.len() as u8;
        for (word, (value, mask)) in masked_words.into_iter().enumerate() {
            program.push(step(RECALL, 0, 0, word as u32));
            program.push(step(AND, 0, 0, mask));
            // On a mismatch, jump behind this network's steps and its return.
            let done = 3 * (word as u8 + 1);
            program.push(step(JUMP_IF_EQUAL, 0, len - done + 1, value));
        }
        program.push(step(RETURN, 0, 0, 0));
    }
    program.push(step(RETURN, 0, 0, u32::MAX));
    program
}

/// Returns the words of a network's prefix, with their masks.
fn masked_words(network: &IpPrefix) -> Vec<(u32, u32)> {
    let needed = usize::from(network.bits()).div_ceil(32).max(1);
    words(network.address()).into_iter().zip(words(network.mask())).take(needed).collect()
}

fn words(ip: IpAddr) -> Vec<u32> {
    let octets = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    octets.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{InheritedSocket, UdpOptions, bind_udp};

    fn network(address: &str, bits: u8) -> IpPrefix {
        IpPrefix::new(address.parse().unwrap(), bits)
    }

    fn server(address: &str) -> UdpSocket {
        bind_udp(address.parse().unwrap(), Vec::new(), 1, &UdpOptions::default()).unwrap().remove(0)
    }

    /// Returns whether a datagram from `host` arrives. A second one from `good`, which is never blocked,
    /// follows it: datagrams keep their order on a loopback device.
    fn arrives(server: &UdpSocket, host: &str, good: &str) -> bool {
        let mut heard = Vec::new();
        server.socket.set_nonblocking(false).unwrap();
        server.socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for (host, byte) in [(host, 1), (good, 2)] {
            let client = std::net::UdpSocket::bind((host, 0)).unwrap();
            client.send_to(&[byte], server.local_addr()).unwrap();
        }
        while heard.last() != Some(&2) {
            let mut byte = [0];
            server.socket.recv(&mut byte).unwrap();
            heard.push(byte[0]);
        }
        heard.len() == 2
    }

    #[test]
    fn drops_only_the_given_networks() {
        let server = server("127.0.0.1:0");
        let arrives = |host| arrives(&server, host, "127.0.0.1");
        server.source_filter(&[]).unwrap();
        assert!(arrives("127.0.0.9"));
        server.source_filter(&[network("127.0.0.9", 32), network("::1", 128)]).unwrap();
        assert!(!arrives("127.0.0.9") && arrives("127.0.0.8"));
        server.source_filter(&[network("127.9.8.7", 24), network("127.7.0.0", 16)]).unwrap();
        assert!(arrives("127.0.0.9") && !arrives("127.9.8.1") && !arrives("127.7.8.9"));
        assert!(arrives("127.9.9.1") && arrives("127.6.255.255"));
        let many: Vec<IpPrefix> =
            (0..100).map(|host| network(&format!("127.1.0.{host}"), 32)).collect();
        server.source_filter(&many).unwrap();
        assert!(!arrives("127.1.0.31") && arrives("127.1.0.32"));
        server.source_filter(&[]).unwrap();
        assert!(arrives("127.1.0.31"));
    }

    #[test]
    fn adopting_a_socket_clears_its_filter() {
        let server = server("127.0.0.1:0");
        server.source_filter(&[network("127.0.0.9", 32)]).unwrap();
        let inherited = InheritedSocket(Socket::from(server.descriptor().unwrap()));
        let options = UdpOptions::default();
        let heir = bind_udp(server.local_addr(), vec![inherited], 1, &options).unwrap().remove(0);
        drop(server);
        assert!(arrives(&heir, "127.0.0.9", "127.0.0.1"));
    }

    /// A loopback device has only one v6 address, so the masked words are checked instead.
    #[test]
    fn compares_all_words_of_v6_networks() {
        let server = server("[::1]:0");
        let client = std::net::UdpSocket::bind("[::1]:0").unwrap();
        for (shut, expected) in [("::", 96), ("::1", 128), ("::2", 128), ("1::1", 128)]
            .map(|(address, bits)| (network(address, bits), !matches!(address, "::" | "::1")))
        {
            server.source_filter(&[shut]).unwrap();
            client.send_to(&[7], server.local_addr()).unwrap();
            server.source_filter(&[]).unwrap();
            server.socket.set_nonblocking(true).unwrap();
            // On a loopback device, a datagram has arrived when sending returns.
            assert_eq!(server.socket.recv(&mut [0]).is_ok(), expected, "{shut:?}");
        }
        let words = |address, bits| masked_words(&network(address, bits));
        assert_eq!(words("2001:db8:1:2:3::", 64), [(0x2001_0db8, !0), (0x0001_0002, !0)]);
        assert_eq!(words("2001:db8:ffff::", 36), [(0x2001_0db8, !0), (0xf000_0000, 0xf000_0000)]);
        assert_eq!(words("10.1.2.3", 0), [(0, 0)]);
        assert_eq!(words("10.1.2.3", 8), [(0x0a00_0000, 0xff00_0000)]);
    }

    /// Returns how many of the sockets received any of 32 clients.
    fn receivers(sockets: &[UdpSocket]) -> usize {
        let to = sockets[0].local_addr();
        for _ in 0..32 {
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(&[1], to).unwrap();
        }
        let count =
            |socket: &UdpSocket| std::iter::from_fn(|| socket.socket.recv(&mut [0]).ok()).count();
        sockets.iter().filter(|socket| count(socket) > 0).count()
    }

    #[test]
    fn inherited_sockets_share_the_datagrams_whatever_the_old_process_chose() {
        use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
        let at = "127.0.0.1:0".parse().unwrap();
        let sockets = bind_udp(at, Vec::new(), 3, &UdpOptions::default()).unwrap();
        // All datagrams go to the first socket.
        let mut filter = [libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: 0 }];
        let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
        setsockopt(&sockets[0].socket, AttachReusePortCbpf, &program).unwrap();
        assert_eq!(receivers(&sockets), 1);
        let local = sockets[0].local_addr();
        let inherit = |socket: UdpSocket| InheritedSocket(socket.socket.into());
        let inherited = sockets.into_iter().map(inherit).collect();
        let sockets = bind_udp(local, inherited, 3, &UdpOptions::default()).unwrap();
        assert!(receivers(&sockets) > 1);
    }
}
