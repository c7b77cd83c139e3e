//! Landlock: restricts the files and TCP ports that a thread can access (landlock(7)).
//!
//! It takes three system calls and three structures of the kernel's stable interface. The crate that
//! wraps them would add six other crates.
//!
//! # Safety
//!
//! The kernel reads the structures only during the calls, and keeps no pointer.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::null;

use super::SandboxPolicy;

/// `struct landlock_ruleset_attr`: the accesses that are denied unless a rule allows them.
#[repr(C)]
struct Ruleset {
    files: u64,
    net: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    folder: i32,
}

/// `struct landlock_net_port_attr`.
#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
}

/// LANDLOCK_CREATE_RULESET_VERSION
const ASK_VERSION: u32 = 1;
/// LANDLOCK_RULE_PATH_BENEATH
const PATH_BENEATH: u32 = 1;
/// LANDLOCK_RULE_NET_PORT
const NET_PORT: u32 = 2;
/// LANDLOCK_ACCESS_FS_READ_FILE and _READ_DIR
const READ: u64 = 1 << 2 | 1 << 3;
/// The rights to create, replace and remove files and to create folders:
/// LANDLOCK_ACCESS_FS_WRITE_FILE, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG and _TRUNCATE
const WRITE: u64 = 1 << 1 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14;
/// LANDLOCK_ACCESS_NET_BIND_TCP
const LISTEN: u64 = 1 << 0;
/// LANDLOCK_ACCESS_NET_CONNECT_TCP
const CONNECT: u64 = 1 << 1;
/// LANDLOCK_SCOPE_SIGNAL
const SIGNALS: u64 = 1 << 1;

/// Restrictions that this kernel's Landlock supports, besides those of files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restrictions {
    pub(super) tcp: bool,
}

/// Restricts this thread, and threads that it starts later, to the files and ports of `allowed`. New TCP
/// listeners and signals to other processes are denied. Skips what the kernel does not support.
pub(super) fn restrict(allowed: &SandboxPolicy) -> io::Result<Restrictions> {
    let version = version()?;
    let ruleset = Ruleset {
        // All file rights of the version: 13, then also refer, truncate, and ioctl on devices.
        files: match version {
            1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        },
        net: if version >= 4 { LISTEN | CONNECT } else { 0 },
        scopes: if version >= 6 { SIGNALS } else { 0 },
    };
    // SAFETY: the kernel reads the structure, which lives until the call returns; fields that it
    // does not know are zero.
    let status = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const ruleset,
            size_of::<Ruleset>(),
            0,
        )
    };
    let rules = owned(status)?;
    for folder in allowed.readable.iter().map(PathBuf::as_path).chain([Path::new("/proc/self")]) {
        allow_beneath(&rules, folder, READ)?;
    }
    for folder in &allowed.writable {
        // A rule may not contain rights that the version does not know.
        allow_beneath(&rules, folder, (READ | WRITE) & ruleset.files)?;
    }
    if ruleset.net != 0 {
        allowed.ports.iter().try_for_each(|port| allow_connecting(&rules, *port))?;
    }
    nix::sys::prctl::set_no_new_privs()?;
    // SAFETY: only numbers are passed.
    let status = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) };
    done(status)?;
    Ok(Restrictions { tcp: ruleset.net != 0 })
}

/// Describes why Landlock is not available.
pub(super) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no Landlock".into(),
        Some(libc::EOPNOTSUPP) => "Landlock is disabled in this kernel".into(),
        _ => error.to_string(),
    }
}

fn version() -> io::Result<i64> {
    // SAFETY: with this flag the kernel reads no structure.
    let status = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, null::<Ruleset>(), 0_usize, ASK_VERSION)
    };
    done(status)
}

fn allow_beneath(rules: &OwnedFd, folder: &Path, allowed: u64) -> io::Result<()> {
    let folder: File = match OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(folder) {
        Ok(folder) => folder,
        // Paths that cannot be accessed anyway need no rule.
        Err(error) if is_out_of_reach(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    let rule = PathBeneath { allowed, folder: folder.as_raw_fd() };
    // SAFETY: both descriptors are open; the kernel reads the structure, which lives until the call
    // returns.
    let status = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    done(status).map(|_| ())
}

fn allow_connecting(rules: &OwnedFd, port: u16) -> io::Result<()> {
    let rule = NetPort { allowed: CONNECT, port: port.into() };
    // SAFETY: the descriptor is open; the kernel reads the structure, which lives until the call
    // returns.
    let status = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), NET_PORT, &raw const rule, 0)
    };
    done(status).map(|_| ())
}

fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

fn done(status: libc::c_long) -> io::Result<i64> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

fn owned(status: libc::c_long) -> io::Result<OwnedFd> {
    let number = i32::try_from(done(status)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
