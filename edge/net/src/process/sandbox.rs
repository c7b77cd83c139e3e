//! The sandbox: after startup, the process gives up what serving does not need. Landlock restricts files
//! and new TCP connections, seccomp restricts system calls. Linux.
//!
//! Restrictions that the system does not support are skipped and reported.
#![cfg_attr(test, allow(unsafe_code))]

#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod seccomp;

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::SandboxPolicy;

/// The restrictions in force.
#[derive(Debug)]
pub struct Sandbox {
    policy: SandboxPolicy,
    /// `Ok` if files are restricted: true if new TCP connections are, too.
    files: Result<bool, String>,
    /// `Ok` if system calls are restricted: the number of those that are always denied.
    calls: Result<usize, String>,
    /// Keeps the kernel's inode of /proc/self alive. If the kernel dropped it and created it again, the
    /// rule about it would not apply any more.
    _proc_self: Option<File>,
}

/// Restricts the calling thread, and all threads that it starts later, for good. Only files of `policy`
/// and of /proc/self can be accessed. Without ports in `policy`, no sockets can be created; otherwise TCP
/// sockets, which can connect only to these ports, unless `policy` has all, and UDP sockets to resolve names. System calls that a
/// server does not need are denied, and so are signals to other processes. Systems other than Linux restrict
/// nothing.
///
/// Sockets that are open already stay usable for what they are: TCP listeners accept and connections send,
/// but neither can be connected elsewhere. Those of UDP listeners can send to any address.
pub fn confine(policy: SandboxPolicy) -> Sandbox {
    Sandbox {
        _proc_self: File::open("/proc/self").ok(),
        #[cfg(target_os = "linux")]
        files: landlock::restrict(&policy),
        #[cfg(target_os = "linux")]
        calls: seccomp::restrict(&policy),
        #[cfg(not(target_os = "linux"))]
        files: Err("needs Linux".into()),
        #[cfg(not(target_os = "linux"))]
        calls: Err("needs Linux".into()),
        policy,
    }
}

impl SandboxPolicy {
    /// Returns true if sockets can be created.
    fn has_sockets(&self) -> bool {
        self.any_port || !self.ports.is_empty()
    }
}

impl Sandbox {
    /// Returns whether the sandbox allows reading `path`. Permissions are not checked, and missing paths
    /// count as readable.
    pub fn can_read(&self, path: &Path) -> bool {
        let SandboxPolicy { readable, writable, .. } = &self.policy;
        // Missing paths are reported where they are opened.
        path.canonicalize().is_err() || self.files.is_err() || {
            readable.iter().chain(writable).any(|folder| contains_path(folder, path))
        }
    }

    /// Returns whether the sandbox allows creating files in `folder`, which must exist. Permissions are
    /// not checked.
    pub fn can_write(&self, folder: &Path) -> bool {
        self.files.is_err() || self.policy.writable.iter().any(|known| contains_path(known, folder))
    }

    /// Returns whether the sandbox allows TCP connections to `port`.
    pub fn can_connect(&self, port: u16) -> bool {
        let has_no_sockets = self.calls.is_ok() && !self.policy.has_sockets();
        let is_restricted = has_no_sockets || self.restricts_tcp();
        !is_restricted || self.policy.ports.contains(&port)
    }

    /// Returns whether Landlock restricts TCP to the ports of the policy.
    fn restricts_tcp(&self) -> bool {
        self.files == Ok(true) && !self.policy.any_port
    }

    /// Writes which sockets can still be created.
    fn fmt_sockets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = &self.policy.ports;
        let is_filtered = self.calls.is_ok();
        f.write_str("; new sockets: ")?;
        if is_filtered && !self.policy.has_sockets() {
            return f.write_str("none");
        }
        if self.policy.any_port && is_filtered {
            return f.write_str("TCP to any port, to probe peers; UDP");
        }
        if !self.restricts_tcp() {
            return f.write_str(match is_filtered {
                true => "TCP to any port (restricting it needs Linux 6.7), UDP",
                false => "not restricted",
            });
        }
        if ports.is_empty() {
            f.write_str("no TCP")?;
        }
        list(f, "TCP only to port ", ports.iter())?;
        f.write_str(if is_filtered { "; UDP" } else { "; others not restricted" })
    }

    /// Returns the readable files and folders.
    pub fn folders(&self) -> &[PathBuf] {
        &self.policy.readable
    }
}

fn contains_path(folder: &Path, path: &Path) -> bool {
    let folder = folder.canonicalize();
    folder.is_ok_and(|folder| path.canonicalize().is_ok_and(|it| it.starts_with(folder)))
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.files {
            Ok(_) => {
                let SandboxPolicy { readable, writable, .. } = &self.policy;
                write!(f, "files: ")?;
                if readable.is_empty() && writable.is_empty() {
                    write!(f, "none")?;
                }
                list(f, "readable: ", readable.iter().map(|folder| folder.display()))?;
                let before = if readable.is_empty() { "writable: " } else { "; writable: " };
                list(f, before, writable.iter().map(|folder| folder.display()))?;
            }
            Err(reason) => write!(f, "files: not restricted ({reason})")?,
        }
        self.fmt_sockets(f)?;
        match &self.calls {
            Ok(count) => write!(f, "; system calls: {count} denied"),
            Err(reason) => write!(f, "; system calls: not restricted ({reason})"),
        }
    }
}

fn list<T: fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    items: impl Iterator<Item = T>,
) -> fmt::Result {
    let mut before = before;
    for item in items {
        write!(f, "{before}{item}")?;
        before = ", ";
    }
    Ok(())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use harness::Directory;
    use rustix::io::Errno;
    use rustix::net::{
        MMsgHdr, SendAncillaryBuffer, SendFlags, Shutdown, bind, connect, connect_unspec, listen,
        sendmmsg, sendmsg_addr, sendto, shutdown,
    };
    use socket2::{Domain, Socket, Type};
    use std::io::ErrorKind::PermissionDenied;
    use std::io::{self, IoSlice};
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
    use std::process::Command;
    use std::{fs, thread};

    /// Runs `test` in its own thread, since restrictions cannot be lifted.
    fn confined<T: Send + 'static>(
        policy: SandboxPolicy,
        test: impl FnOnce(&Sandbox) -> T + Send + 'static,
    ) -> T {
        thread::spawn(move || test(&confine(policy))).join().unwrap()
    }

    /// Returns a policy with nothing but ports.
    fn ports(ports: &[u16]) -> SandboxPolicy {
        SandboxPolicy { ports: ports.to_vec(), ..SandboxPolicy::default() }
    }

    #[test]
    fn denies_programs_but_not_threads() {
        let before = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = before.local_addr().unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        confined(ports(&[]), move |sandbox| {
            assert!(Command::new("/bin/true").spawn().is_err());
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            // Sockets that are open already can be used.
            let here = udp.local_addr().unwrap();
            udp.send_to(b"x", here).unwrap();
            assert_eq!(udp.recv(&mut [0; 9]).unwrap(), 1);
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), PermissionDenied);
            assert_eq!(UdpSocket::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
            assert!(!sandbox.can_connect(address.port()));
            assert!(sandbox.to_string().contains("; new sockets: none; "), "{sandbox}");
        });
        // Other threads are not restricted.
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn files_and_ports_are_those_of_the_policy() {
        let folders = [(); 3].map(|()| {
            let directory = Directory::new().unwrap();
            directory.write("file", "x").unwrap();
            directory
        });
        let [readable, writable, other] = folders.each_ref().map(|it| it.root().to_owned());
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [wanted_at, other_at] = listeners.each_ref().map(|one| one.local_addr().unwrap());
        let policy = SandboxPolicy {
            readable: vec![readable.clone()],
            writable: vec![writable.clone()],
            ports: vec![wanted_at.port()],
            any_port: false,
        };
        confined(policy, move |sandbox| {
            let make = |folder: &Path| {
                fs::create_dir_all(folder.join("new"))?;
                fs::write(folder.join("new/one"), "one")?;
                fs::write(folder.join("new/one"), "o")?;
                fs::rename(folder.join("new/one"), folder.join("new/other"))?;
                let read = fs::read_to_string(folder.join("new/other"))?;
                fs::remove_file(folder.join("new/other"))?;
                File::open(folder.join("new"))?.sync_all()?;
                io::Result::Ok(read)
            };
            assert_eq!(fs::read_to_string(readable.join("file")).unwrap(), "x");
            assert_eq!(make(&writable).unwrap(), "o");
            assert!(sandbox.can_read(&readable));
            assert!(sandbox.can_read(&writable) && sandbox.can_write(&writable));
            TcpStream::connect(wanted_at).unwrap();
            if let Err(error) = &sandbox.files {
                // Nothing to see on a kernel without Landlock, but that it says so.
                assert!(sandbox.to_string().contains("not restricted"), "{error}");
                return;
            }
            for folder in [&readable, &other] {
                assert!(!sandbox.can_write(folder));
                assert_eq!(make(folder).unwrap_err().kind(), PermissionDenied);
                for file in ["file", "fresh"] {
                    let error = fs::write(folder.join(file), "y").unwrap_err();
                    assert_eq!(error.kind(), PermissionDenied, "{file}");
                }
            }
            assert!(!sandbox.can_read(&other));
            assert_eq!(fs::read(other.join("file")).unwrap_err().kind(), PermissionDenied);
            assert!(fs::read_to_string("/proc/self/statm").is_ok());
            assert!(fs::read_dir("/proc/self/fd").unwrap().count() > 0);
            assert!(fs::read_to_string("/proc/1/statm").is_err());
            if sandbox.restricts_tcp() {
                assert!(sandbox.can_connect(wanted_at.port()));
                assert!(!sandbox.can_connect(other_at.port()));
                assert_eq!(TcpStream::connect(other_at).unwrap_err().kind(), PermissionDenied);
                let told =
                    format!("writable: {}; new sockets: TCP only to port ", writable.display());
                assert!(sandbox.to_string().contains(&told), "{sandbox}");
            }
        });
    }

    /// Returns the error of a call, or 0.
    fn error_of<T>(result: Result<T, Errno>) -> i32 {
        result.map_or_else(Errno::raw_os_error, |_| 0)
    }

    /// Sends by the three calls that can connect a TCP socket by MSG_FASTOPEN. Returns their errors.
    fn fast_open(socket: BorrowedFd<'_>, to: SocketAddr) -> [i32; 3] {
        let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN.unsigned_abs());
        let text = [IoSlice::new(b"hello")];
        let any_to = to.into();
        let mut control = SendAncillaryBuffer::default();
        let several = MMsgHdr::new_with_addr(&any_to, &text, &mut control);
        [
            error_of(sendto(socket, b"hello", flags, &to)),
            error_of(sendmsg_addr(socket, &to, &text, &mut SendAncillaryBuffer::default(), flags)),
            error_of(sendmmsg(socket, &mut [several], flags)),
        ]
    }

    /// A listener and an accepted connection, opened before the sandbox, and a listener elsewhere.
    struct OpenSockets {
        listener: TcpListener,
        accepted: TcpStream,
        _client: TcpStream,
        elsewhere: TcpListener,
    }

    impl OpenSockets {
        fn new() -> Self {
            let [listener, elsewhere] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
            let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            elsewhere.set_nonblocking(true).unwrap();
            Self { listener, accepted, _client, elsewhere }
        }

        fn assert_none_is_connected(&self) {
            let error = self.elsewhere.accept().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }

    fn new_socket() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    #[test]
    fn open_sockets_cannot_be_connected_elsewhere() {
        let open = OpenSockets::new();
        let idle = new_socket();
        confined(ports(&[]), move |_| {
            let elsewhere = open.elsewhere.local_addr().unwrap();
            shutdown(&open.listener, Shutdown::Both).unwrap();
            assert_eq!(listen(&open.listener, 9), Err(Errno::PERM));
            assert_eq!(bind(&open.listener, &elsewhere), Err(Errno::PERM));
            assert_eq!(connect_unspec(&open.accepted), Err(Errno::PERM));
            for socket in [open.listener.as_fd(), open.accepted.as_fd(), idle.as_fd()] {
                assert_eq!(connect(socket, &elsewhere), Err(Errno::PERM));
                assert_eq!(fast_open(socket, elsewhere), [libc::EPERM; 3]);
            }
            open.assert_none_is_connected();
        });
    }

    #[test]
    fn no_socket_is_connected_without_connect() {
        let open = OpenSockets::new();
        confined(ports(&[443]), move |sandbox| {
            let elsewhere = open.elsewhere.local_addr().unwrap();
            let [new, another] = [new_socket(), new_socket()];
            shutdown(&open.listener, Shutdown::Both).unwrap();
            connect_unspec(&open.accepted).unwrap();
            for socket in [new.as_fd(), open.listener.as_fd(), open.accepted.as_fd()] {
                assert_eq!(fast_open(socket, elsewhere), [libc::EPERM; 3]);
                assert_eq!(listen(socket, 9), Err(Errno::PERM));
                if sandbox.restricts_tcp() {
                    assert_eq!(connect(socket, &elsewhere), Err(Errno::ACCESS));
                }
            }
            // TCP_ULP
            let arguments = [another.as_raw_fd().into(), libc::IPPROTO_TCP.into(), 31, 0];
            assert_eq!(call(libc::SYS_setsockopt, arguments), libc::EPERM);
            open.assert_none_is_connected();
        });
    }

    /// Makes a system call and returns its error, or 0.
    fn call(number: libc::c_long, arguments: [libc::c_long; 4]) -> i32 {
        let [a, b, c, d] = arguments;
        // SAFETY: the tests pass numbers only, and null where a pointer is optional.
        let status = unsafe { libc::syscall(number, a, b, c, d) };
        if status >= 0 { 0 } else { io::Error::last_os_error().raw_os_error().unwrap() }
    }

    /// Opens a socket and returns the error, or 0.
    fn open_socket(family: i32, kind: i32, protocol: i32) -> i32 {
        call(libc::SYS_socket, [family, kind, protocol, 0].map(libc::c_long::from))
    }

    fn assert_opens_none(families: &[i32]) {
        for family in families {
            for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET]
            {
                assert_eq!(open_socket(*family, kind, 0), libc::EPERM, "{family} {kind}");
            }
        }
    }

    /// Families that lead out of the process without TCP or UDP.
    const OTHER_FAMILIES: [i32; 7] = [
        libc::AF_UNIX,
        libc::AF_NETLINK,
        libc::AF_PACKET,
        libc::AF_ALG,
        libc::AF_VSOCK,
        libc::AF_BLUETOOTH,
        libc::AF_XDP,
    ];

    #[test]
    fn creates_no_sockets_without_ports() {
        confined(ports(&[]), |_| {
            assert_opens_none(&OTHER_FAMILIES);
            assert_opens_none(&[libc::AF_INET, libc::AF_INET6]);
        });
    }

    #[test]
    fn creates_tcp_and_udp_sockets_with_ports() {
        confined(ports(&[443]), |sandbox| {
            let (stream, datagram) = (libc::SOCK_STREAM, libc::SOCK_DGRAM);
            for family in [libc::AF_INET, libc::AF_INET6] {
                for kind in [stream, datagram, stream | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
                    // The system may lack IPv6.
                    assert_ne!(open_socket(family, kind, 0), libc::EPERM, "{family} {kind}");
                }
                for (kind, protocol) in [
                    (libc::SOCK_RAW, libc::IPPROTO_ICMP),
                    (libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP),
                    (stream, libc::IPPROTO_MPTCP),
                    (stream, libc::IPPROTO_SCTP),
                    (datagram, libc::IPPROTO_ICMP),
                    (datagram, libc::IPPROTO_UDPLITE),
                ] {
                    let error = open_socket(family, kind, protocol);
                    assert_eq!(error, libc::EPERM, "{family} {kind} {protocol}");
                }
            }
            assert_opens_none(&OTHER_FAMILIES);
            if sandbox.restricts_tcp() {
                let text = "; new sockets: TCP only to port 443; UDP; system calls: ";
                assert!(sandbox.to_string().contains(text), "{sandbox}");
            }
        });
    }

    #[test]
    fn with_any_port_sockets_connect_from_an_address_and_do_not_listen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fixed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let policy = SandboxPolicy { any_port: true, ..SandboxPolicy::default() };
        confined(policy, move |sandbox| {
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            bind(&socket, &any).unwrap();
            connect(&socket, &address).unwrap();
            UdpSocket::bind(any).unwrap();
            assert!(sandbox.can_connect(1));
            assert_eq!(TcpListener::bind(any).unwrap_err().kind(), PermissionDenied);
            if sandbox.files == Ok(true) {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                assert_eq!(bind(&socket, &fixed), Err(Errno::ACCESS));
            }
            let text = "; new sockets: TCP to any port, to probe peers; UDP; ";
            assert!(sandbox.to_string().contains(text), "{sandbox}");
        });
    }

    #[test]
    fn resolves_names_without_unix_and_netlink_sockets() {
        use std::net::ToSocketAddrs;
        let policy = SandboxPolicy { readable: vec!["/etc".into()], ..ports(&[53]) };
        confined(policy, |_| {
            let found: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
            assert!(found.iter().any(|address| address.ip().is_loopback()), "{found:?}");
        });
    }

    #[test]
    fn pairs_of_sockets_lead_nowhere_else() {
        confined(ports(&[]), |_| {
            std::os::unix::net::UnixStream::pair().unwrap();
            // One end could be connected to the socket of any program.
            let pair = std::os::unix::net::UnixDatagram::pair();
            assert_eq!(pair.unwrap_err().kind(), PermissionDenied);
        });
    }

    /// A system call with its arguments.
    type Call = (libc::c_long, [libc::c_long; 4]);

    #[test]
    fn permits_calls_about_the_own_process() {
        let own = libc::c_long::from(std::process::id());
        let files = libc::c_long::from(libc::RLIMIT_NOFILE);
        confined(ports(&[]), move |_| {
            let cores = [u8::MAX; 128];
            let cores_at = cores.as_ptr().expose_provenance() as libc::c_long;
            let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let permitted: [Call; 5] = [
                (libc::SYS_tgkill, [own, nix::unistd::gettid().as_raw().into(), 0, 0]),
                (libc::SYS_fcntl, [socket.as_raw_fd().into(), libc::F_GETFD.into(), 0, 0]),
                (libc::SYS_sched_setaffinity, [0, 128, cores_at, 0]),
                (libc::SYS_prlimit64, [0, files, 0, 0]),
                (libc::SYS_prlimit64, [own, files, 0, 0]),
            ];
            for (number, arguments) in permitted {
                assert_eq!(call(number, arguments), 0, "{number} {arguments:?}");
            }
            super::super::lower_priority().unwrap();
        });
    }

    #[test]
    fn denies_calls_that_reach_other_processes_or_the_system() {
        let parent = libc::c_long::from(std::os::unix::process::parent_id());
        confined(ports(&[]), move |_| {
            let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let socket = socket.as_raw_fd().into();
            let remove = libc::IPC_RMID.into();
            // Without a filter, the kernel would say ESRCH, ENOSYS, EBADF, EINVAL or EFAULT, or do it.
            let mut denied: Vec<Call> = vec![
                (libc::SYS_tgkill, [parent, parent, 0, 0]),
                (libc::SYS_tkill, [parent, 0, 0, 0]),
                (libc::SYS_kill, [parent, 0, 0, 0]),
                (libc::SYS_kill, [-1, 0, 0, 0]),
                // Signals of sockets: F_SETOWN and F_SETOWN_EX, FIOSETOWN and SIOCSPGRP.
                (libc::SYS_fcntl, [socket, libc::F_SETOWN.into(), parent, 0]),
                (libc::SYS_fcntl, [socket, 15, parent, 0]),
                (libc::SYS_ioctl, [socket, 0x8901, 0, 0]),
                (libc::SYS_ioctl, [socket, 0x8902, 0, 0]),
                // Typing into a terminal.
                (libc::SYS_ioctl, [socket, 0x5412, 0, 0]),
                (libc::SYS_ioctl, [socket, 0x541C, 0, 0]),
                // Scheduling and limits of other processes.
                (libc::SYS_sched_setaffinity, [parent, 128, 0, 0]),
                (libc::SYS_sched_setattr, [parent, 0, 0, 0]),
                (libc::SYS_setpriority, [0, parent, 19, 0]),
                (libc::SYS_ioprio_set, [0, parent, 19, 0]),
                (libc::SYS_setpgid, [0, parent, 19, 0]),
                (libc::SYS_prlimit64, [parent, libc::RLIMIT_NOFILE.into(), 0, 0]),
                // Memory and queues that processes share by a number, and their removal.
                (libc::SYS_shmget, [0, 1, 0, 0]),
                (libc::SYS_semget, [0, 1, 0, 0]),
                (libc::SYS_msgget, [0, 1, 0, 0]),
                (libc::SYS_shmctl, [-1, remove, remove, 0]),
                (libc::SYS_semctl, [-1, remove, remove, 0]),
                (libc::SYS_msgctl, [-1, remove, remove, 0]),
                (libc::SYS_mq_unlink, [0; 4]),
                // BPF_PROG_LOAD and BPF_LINK_CREATE.
                (libc::SYS_bpf, [5, 0, 0, 0]),
                (libc::SYS_bpf, [28, 0, 0, 0]),
                (libc::SYS_memfd_create, [0; 4]),
                (libc::SYS_removexattr, [0; 4]),
                // kexec_file_load.
                (if cfg!(target_arch = "x86_64") { 320 } else { 294 }, [-1, -1, 0, 0]),
            ];
            // Calls that C libraries do not name.
            denied
                .extend([443, 447, 448, 452, 460, 463, 466, 467, 469].map(|call| (call, [-1; 4])));
            // Calls under x32 numbers.
            if cfg!(target_arch = "x86_64") {
                let calls = [libc::SYS_getpid, libc::SYS_socket, libc::SYS_execve, 520, 0];
                denied.extend(calls.map(|number| (number | 0x4000_0000, [0; 4])));
            }
            for (number, arguments) in denied {
                assert_eq!(call(number, arguments), libc::EPERM, "{number} {arguments:?}");
            }
        });
    }

    #[test]
    fn denies_executable_memory() {
        confined(ports(&[]), |sandbox| {
            assert!(sandbox.calls.is_ok(), "{sandbox}");
            let (len, private) = (4096, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let map = |protection| {
                // SAFETY: a fresh anonymous mapping, of which nothing is used.
                let at =
                    unsafe { libc::mmap(std::ptr::null_mut(), len, protection, private, -1, 0) };
                at != libc::MAP_FAILED
            };
            assert!(map(libc::PROT_READ | libc::PROT_WRITE));
            assert!(!map(libc::PROT_READ | libc::PROT_EXEC));
        });
    }
}
