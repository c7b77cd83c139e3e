//! The sandbox: after startup, the process gives up what serving does not need. Landlock restricts files
//! and new TCP connections, seccomp restricts system calls. Linux.
//!
//! Restrictions that the kernel does not support are skipped and reported.
#![allow(unsafe_code)]

mod landlock;
mod seccomp;

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::SandboxPolicy;

/// The restrictions in force.
#[derive(Debug)]
pub struct Sandbox {
    policy: SandboxPolicy,
    files: io::Result<landlock::Restrictions>,
    calls: Result<usize, String>,
    /// Keeps the kernel's inode of /proc/self alive. If the kernel dropped it and created it again, the
    /// rule about it would not apply any more.
    _proc_self: Option<File>,
}

/// Restricts the calling thread, and all threads that it starts later, for good. Only files of `policy`
/// and of /proc/self can be accessed, new TCP sockets can connect only to ports of `policy`, and system
/// calls that a server does not need are denied.
pub fn confine(policy: SandboxPolicy) -> Sandbox {
    let proc_self = File::open("/proc/self").ok();
    let files = landlock::restrict(&policy);
    let calls = seccomp::restrict();
    Sandbox { policy, files, calls, _proc_self: proc_self }
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
        let is_restricted = self.files.as_ref().is_ok_and(|restrictions| restrictions.tcp);
        !is_restricted || self.policy.ports.contains(&port)
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
            Ok(restrictions) => {
                let SandboxPolicy { readable, writable, ports } = &self.policy;
                write!(f, "files: ")?;
                if readable.is_empty() && writable.is_empty() {
                    write!(f, "none")?;
                }
                list(f, "readable: ", readable.iter().map(|folder| folder.display()))?;
                let before = if readable.is_empty() { "writable: " } else { "; writable: " };
                list(f, before, writable.iter().map(|folder| folder.display()))?;
                write!(f, "; new TCP sockets: ")?;
                match (restrictions.tcp, ports.is_empty()) {
                    (true, true) => write!(f, "none")?,
                    (true, false) => list(f, "only to port ", ports.iter())?,
                    (false, _) => write!(f, "not restricted (needs Linux 6.7)")?,
                }
            }
            Err(error) => write!(f, "files: not restricted ({})", landlock::reason(error))?,
        }
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
mod tests {
    use super::*;
    use harness::Directory;
    use std::io::ErrorKind::PermissionDenied;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::{fs, thread};

    /// Runs `test` in its own thread, since restrictions cannot be lifted.
    fn confined<T: Send + 'static>(
        readable: Vec<PathBuf>,
        test: impl FnOnce(&Sandbox) -> T + Send + 'static,
    ) -> T {
        confined_to(SandboxPolicy { readable, ..SandboxPolicy::default() }, test)
    }

    fn confined_to<T: Send + 'static>(
        policy: SandboxPolicy,
        test: impl FnOnce(&Sandbox) -> T + Send + 'static,
    ) -> T {
        thread::spawn(move || test(&confine(policy))).join().unwrap()
    }

    fn folder() -> Directory {
        let directory = Directory::new().unwrap();
        fs::create_dir(directory.path("inner")).unwrap();
        directory.write("inner/file", "x").unwrap();
        directory
    }

    #[test]
    fn files_elsewhere_cannot_be_opened() {
        let (open, closed) = (folder(), folder());
        let (inside, outside) = (open.path("inner/file"), closed.path("inner/file"));
        let fresh = open.path("fresh");
        confined(vec![open.root().into()], move |sandbox| {
            assert_eq!(fs::read_to_string(&inside).unwrap(), "x");
            assert!(sandbox.can_read(&inside));
            if let Err(error) = &sandbox.files {
                // Nothing to see on a kernel without Landlock, but that it says so.
                assert!(sandbox.to_string().contains("not restricted"), "{error}");
                return;
            }
            assert!(!sandbox.can_read(&outside));
            assert_eq!(fs::read_to_string(&outside).unwrap_err().kind(), PermissionDenied);
            assert_eq!(fs::write(&inside, "y").unwrap_err().kind(), PermissionDenied);
            assert_eq!(fs::write(fresh, "y").unwrap_err().kind(), PermissionDenied);
            assert!(fs::read_to_string("/proc/self/statm").is_ok());
            assert!(fs::read_dir("/proc/self/fd").unwrap().count() > 0);
            assert!(fs::read_to_string("/proc/1/statm").is_err());
        });
    }

    #[test]
    fn denies_programs_but_not_threads() {
        let before = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = before.local_addr().unwrap();
        confined(Vec::new(), move |sandbox| {
            assert!(Command::new("/bin/true").spawn().is_err());
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            udp.send_to(b"x", udp.local_addr().unwrap()).unwrap();
            assert_eq!(udp.recv(&mut [0; 9]).unwrap(), 1);
            assert!(socket2::Socket::new(17.into(), socket2::Type::RAW, None).is_err());
            if sandbox.files.as_ref().is_ok_and(|restrictions| restrictions.tcp) {
                assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), PermissionDenied);
                assert_eq!(TcpStream::connect(address).unwrap_err().kind(), PermissionDenied);
            }
        });
        // Other threads are not restricted.
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn allows_writing_and_connecting_by_policy() {
        let (open, closed) = (folder(), folder());
        let [inside, outside] = [&open, &closed].map(|one| one.root().to_owned());
        let [wanted, other] = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [wanted_at, other_at] = [&wanted, &other].map(|one| one.local_addr().unwrap());
        let policy = SandboxPolicy {
            readable: Vec::new(),
            writable: vec![inside.clone()],
            ports: vec![wanted_at.port()],
        };
        confined_to(policy, move |sandbox| {
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
            assert_eq!(make(&inside).unwrap(), "o");
            assert!(sandbox.can_read(&inside) && sandbox.can_write(&inside));
            TcpStream::connect(wanted_at).unwrap();
            let Ok(restrictions) = &sandbox.files else { return };
            assert!(!sandbox.can_write(&outside) && !sandbox.can_read(&outside));
            assert_eq!(make(&outside).unwrap_err().kind(), PermissionDenied);
            if restrictions.tcp {
                assert!(sandbox.can_connect(wanted_at.port()));
                assert!(!sandbox.can_connect(other_at.port()));
                assert_eq!(TcpStream::connect(other_at).unwrap_err().kind(), PermissionDenied);
                let told =
                    format!("writable: {}; new TCP sockets: only to port ", inside.display());
                assert!(sandbox.to_string().contains(&told), "{sandbox}");
            }
        });
    }

    #[test]
    fn denies_executable_memory() {
        confined(Vec::new(), |sandbox| {
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
