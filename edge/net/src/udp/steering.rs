//! Steers each datagram to the worker on the core that received it. Linux.
//!
//! Without this, the kernel chooses the socket of a group by a hash of the client's address, so that
//! most datagrams are received on one core, and read and freed on another: that costs a twelfth of the
//! CPU time. The program on the group (classic BPF, which needs no privileges) chooses by core instead.
//!
//! It belongs to the group, not to a socket or a process. During an upgrade both processes' workers read
//! the same sockets, and the new process replaces the program by its own.

use std::io;

use libc::sock_filter;
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

use super::UdpSocket;
use super::source_filter::{JUMP_IF_EQUAL, LOAD, RETURN, ignore};
use crate::option;

/// The offset that stands for the number of the core.
const CORE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_CPU) as u32;
/// No socket has this number, so the kernel chooses by hash.
const BY_HASH: u32 = u32::MAX;
/// More cores do not fit into a program.
const CORES_MAX: usize = 2000;

/// Steers datagrams that `cores[i]` receives to socket `i` of a listener's group. Those of other cores
/// are distributed by hash, and so are all if `cores` is empty. `sockets` are as [`super::bind_udp`]
/// returned them.
///
/// # Errors
///
/// If the kernel refuses the program.
pub fn steer_udp(sockets: &[UdpSocket], cores: &[usize]) -> io::Result<()> {
    let [first, _, ..] = sockets else { return Ok(()) };
    if cores.is_empty() {
        let detach = libc::SO_DETACH_REUSEPORT_BPF;
        let detached = option::set(&first.socket, libc::SOL_SOCKET, detach, 0);
        // There was no program, there is no group, or this kernel has neither.
        return ignore(&[libc::ENOENT, libc::EINVAL, libc::ENOPROTOOPT], detached);
    }
    let mut program = program(cores);
    let len = program.len().try_into().map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    Ok(setsockopt(&first.socket, AttachReusePortCbpf, &program)?)
}

/// Compares the core with each of `cores`, and returns the number of the first that is equal.
fn program(cores: &[usize]) -> Vec<sock_filter> {
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut program = vec![step(LOAD, 0, 0, CORE)];
    for (socket, core) in cores.iter().take(CORES_MAX).enumerate() {
        program.push(step(JUMP_IF_EQUAL, 0, 1, *core as u32));
        program.push(step(RETURN, 0, 0, socket as u32));
    }
    program.push(step(RETURN, 0, 0, BY_HASH));
    program
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket as Client;

    use super::*;
    use crate::process::{cores, pin_to_core};
    use crate::{InheritedSocket, UdpOptions, bind_udp};

    /// Returns which of the sockets received each of 32 clients, all on this core. On a loopback device,
    /// the core that sends also receives.
    fn receivers(sockets: &[UdpSocket]) -> Vec<usize> {
        let clients: Vec<Client> = (0..32).map(|_| Client::bind("127.0.0.1:0").unwrap()).collect();
        let to = sockets[0].local_addr();
        clients.iter().for_each(|client| assert_eq!(client.send_to(&[1], to).unwrap(), 1));
        let count =
            |socket: &UdpSocket| std::iter::from_fn(|| socket.socket.recv(&mut [0]).ok()).count();
        sockets.iter().map(count).collect()
    }

    #[test]
    fn datagrams_go_to_the_socket_of_their_core() {
        std::thread::spawn(|| {
            let core = cores()[0];
            pin_to_core(core).unwrap();
            let at = "127.0.0.1:0".parse().unwrap();
            let sockets = bind_udp(at, Vec::new(), 3, &UdpOptions::default()).unwrap();
            let is_spread = |all: &[usize]| all.iter().filter(|count| **count > 0).count() > 1;
            assert!(is_spread(&receivers(&sockets)));
            steer_udp(&sockets, &[core + 1, core, core]).unwrap();
            assert_eq!(receivers(&sockets), [0, 32, 0]);
            // A core without a worker.
            steer_udp(&sockets, &[core + 1, core + 2, core + 3]).unwrap();
            assert!(is_spread(&receivers(&sockets)));
            // The program of a group holds for a process that takes the group over, until it has its own.
            steer_udp(&sockets, &[core + 1, core + 1, core]).unwrap();
            let local = sockets[0].local_addr();
            let inherit = |socket: UdpSocket| InheritedSocket(socket.socket.into());
            let inherited = sockets.into_iter().map(inherit).collect();
            let sockets = bind_udp(local, inherited, 3, &UdpOptions::default()).unwrap();
            assert_eq!(receivers(&sockets), [0, 0, 32]);
            steer_udp(&sockets, &[]).unwrap();
            assert!(is_spread(&receivers(&sockets)));
            // Without a program, there is nothing to remove; nor without a group.
            steer_udp(&sockets, &[]).unwrap();
            steer_udp(&bind_udp(at, Vec::new(), 1, &UdpOptions::default()).unwrap(), &[core])
                .unwrap();
        })
        .join()
        .unwrap();
    }
}
