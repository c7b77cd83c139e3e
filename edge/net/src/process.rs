//! The process: cores, priorities, privileges, limits and resource usage; inherited sockets, service
//! manager notification, restarting, and the sandbox.

#[cfg(target_os = "linux")]
mod capabilities;
mod inherit;
#[cfg(target_os = "linux")]
mod launch;
mod memory;
mod notify;
#[cfg(target_os = "linux")]
mod priority;
mod sandbox;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub use capabilities::{Capability, drop_capabilities, missing_capabilities};
pub use inherit::{DESCRIPTOR_PREFIXES, InheritedSockets};
#[cfg(target_os = "linux")]
pub use launch::Launcher;
pub use memory::{available_memory_bytes, memory_bytes};
pub use notify::{Notifier, watchdog_interval};
#[cfg(target_os = "linux")]
pub use priority::{lower_priority, raise_priority};
pub use sandbox::{Sandbox, confine};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Launcher, drop_capabilities, lower_priority, raise_priority};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::unistd::{
    Gid, Group, Pid, Uid, User, getegid, setegid, seteuid, setgid, setgroups, setuid,
};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files and ports that a sandboxed process may still access.
#[derive(Clone, Debug, Default)]
pub struct SandboxPolicy {
    /// Files, and folders with everything below them, that can be read.
    pub readable: Vec<PathBuf>,
    /// Folders in which files can also be created, replaced and removed. They must exist.
    pub writable: Vec<PathBuf>,
    /// TCP ports to which connections can be opened, on any host.
    pub ports: Vec<u16>,
    /// True if connections can be opened to all others, too, from a local address that the process chooses.
    pub any_port: bool,
}

/// Exchanges the XDP program of a link: link and program.
pub type ExchangeProgram = fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>;

/// Returns the numbers of the cores that this process may run on.
pub fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return vec![0] };
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    Uid::effective().is_root()
}

/// The ids of a user and a group.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    user: Uid,
    group: Gid,
}

impl Identity {
    /// Looks up `user` and `group`. An empty `group` stands for the user's primary group.
    ///
    /// # Errors
    ///
    /// If there is no such user or group, or the system cannot look them up.
    pub fn find(user: &str, group: &str) -> io::Result<Self> {
        let found = User::from_name(user).map_err(cannot_change)?;
        let unknown = || io::Error::other(format!("no user `{user}` on this system"));
        let found = found.ok_or_else(unknown)?;
        let gid = if group.is_empty() {
            found.gid
        } else {
            let found = Group::from_name(group).map_err(cannot_change)?;
            let unknown = || io::Error::other(format!("no group `{group}` on this system"));
            found.ok_or_else(unknown)?.gid
        };
        Ok(Self { user: found.uid, group: gid })
    }

    /// Returns the user and group that this process runs as.
    pub fn of_process() -> Self {
        Self { user: Uid::effective(), group: getegid() }
    }

    /// Changes the owner of a folder.
    ///
    /// # Errors
    ///
    /// If `path` is no folder, or the kernel refuses. If it is a symbolic link, too: someone who may write beside it
    /// could have put it there, to get any other file.
    pub fn give(self, path: &Path) -> io::Result<()> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let (user, group) = (self.user.as_raw(), self.group.as_raw());
        std::os::unix::fs::fchown(folder, Some(user), Some(group))
    }

    /// Returns the owner of a file or folder.
    ///
    /// # Errors
    ///
    /// If `path` cannot be accessed.
    pub fn owner_of(path: &Path) -> io::Result<Self> {
        let data = path.metadata()?;
        Ok(Self { user: Uid::from_raw(data.uid()), group: Gid::from_raw(data.gid()) })
    }

    /// Runs `work` with the rights of this user and group only, and takes those of root again after it. What
    /// `work` does in a folder of that user can then do no more than the user could, whatever links are there.
    /// The whole process has these rights meanwhile.
    ///
    /// # Errors
    ///
    /// If the process is not root: `work` has not run then. Or if it cannot become root again.
    pub fn run_as<T>(self, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = getegid();
        // Those of root could open more files. Root itself does not need them.
        setgroups(&[])?;
        // The user last, and first after the work: only root may set the others.
        setegid(self.group)?;
        seteuid(self.user)?;
        let result = work();
        seteuid(Uid::from_raw(0))?;
        setegid(own)?;
        Ok(result)
    }

    /// Returns the user's id.
    pub fn user(self) -> u32 {
        self.user.as_raw()
    }

    /// Returns the group's id.
    pub fn group(self) -> u32 {
        self.group.as_raw()
    }
}

/// Changes the user and group of all threads to `identity` for good, without supplementary groups.
///
/// # Errors
///
/// If the process is not root, the kernel refuses, or root could be regained.
pub fn drop_privileges(identity: Identity) -> io::Result<()> {
    if !is_root() {
        return Err(io::Error::other("only root can change its user"));
    }
    // The user last: only root may set the others.
    setgroups(&[]).map_err(cannot_change)?;
    setgid(identity.group).map_err(cannot_change)?;
    setuid(identity.user).map_err(cannot_change)?;
    if !identity.user.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(io::Error::other("root privileges could be regained"));
    }
    Ok(())
}

fn cannot_change(error: nix::Error) -> io::Error {
    io::Error::other(format!("cannot change user or group: {error}"))
}

/// Raises the soft limit of open descriptors to the hard limit.
///
/// # Errors
///
/// If the kernel refuses.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

/// Raises the soft limit of locked memory to the hard limit, and both to no limit if that is allowed.
///
/// # Errors
///
/// If the kernel refuses both.
#[cfg(target_os = "linux")]
pub fn raise_locked_memory_limit() -> io::Result<()> {
    use nix::sys::resource::RLIM_INFINITY;
    let resource = Resource::RLIMIT_MEMLOCK;
    setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).or_else(|_| {
        let (_, hard) = getrlimit(resource)?;
        setrlimit(resource, hard, hard)
    })?;
    Ok(())
}

/// Returns the time of the system's monotonic clock, which all processes of this machine share.
pub fn monotonic() -> Duration {
    // Every Linux and BSD has this clock. Without it time would stand still and nothing would expire.
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(Duration::ZERO, Duration::from)
}

/// Returns the addresses by which other machines may reach this one: no loopback and no link-local
/// addresses.
pub fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let addresses = interfaces
        .filter(|it| it.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|it| {
            let address = it.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .filter(|ip| is_routed(*ip));
    addresses.collect()
}

/// Returns true if packets from beyond the link may reach an address of this machine.
pub fn is_routed(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// Resources used by the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Seconds of CPU time in user space.
    pub user_s: f64,
    /// Seconds of CPU time in the kernel.
    pub system_s: f64,
    /// Bytes of resident memory; 0 if the system does not report it.
    pub resident_bytes: u64,
    /// Open descriptors; 0 if the system does not report them.
    pub descriptors: u64,
}

/// Returns the resources that the process has used so far.
pub fn usage() -> Usage {
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1_000_000.0;
    let times = getrusage(UsageWho::RUSAGE_SELF).ok();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    Usage {
        user_s: times.map_or(0.0, |times| seconds(times.user_time())),
        system_s: times.map_or(0.0, |times| seconds(times.system_time())),
        resident_bytes: pages * page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096),
        descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |list| list.count() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_unknown_users_and_groups() {
        let user = Identity::find("no-user-of-this-name", "").unwrap_err();
        assert!(user.to_string().contains("no-user-of-this-name"));
        let group = Identity::find("root", "no-group-of-this-name").unwrap_err();
        assert!(group.to_string().contains("no-group-of-this-name"));
    }

    #[test]
    fn gives_folders_away_but_follows_no_links() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let directory = harness::Directory::new().unwrap();
        let [folder, link] = ["folder", "link"].map(|name| directory.path(name));
        std::fs::create_dir(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        let owner = || std::fs::metadata(&folder).unwrap().uid();
        let before = owner();
        // Only root may give something to another user.
        let user = if is_root() { Uid::from_raw(65534) } else { Uid::effective() };
        let identity = Identity { user, group: Gid::effective() };
        let error = identity.give(&link).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)), "{error}");
        assert_eq!(owner(), before);
        identity.give(&folder).unwrap();
        assert_eq!(owner(), user.as_raw());
    }
}
