//! The memory that the process may use, and the part that is free: the machine's, or less in a container.

use std::path::{Path, PathBuf};

/// Returns the bytes of memory that the process may use: the machine's, or what its cgroup or one of
/// the groups above may, if that is less. Returns `None` if the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    memory_from(&|path| std::fs::read_to_string(path).ok())
}

/// Returns the bytes of memory that this process could take now: what the machine has available, or what the
/// limits of its cgroups leave, if that is less. Returns `None` if the system does not tell, as in the
/// sandbox.
pub fn available_memory_bytes() -> Option<u64> {
    available_from(&|path| std::fs::read_to_string(path).ok())
}

fn available_from(read: Read<'_>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let left = groups.lines().flat_map(|line| group_rooms(read, line));
    left.chain(meminfo(read, "MemAvailable:")).min()
}

/// Returns the contents of a file.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn memory_from(read: Read<'_>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| group_limits(read, line));
    limits.chain(meminfo(read, "MemTotal:")).min()
}

/// Returns a value of the machine.
fn meminfo(read: Read<'_>, name: &str) -> Option<u64> {
    let info = read(Path::new("/proc/meminfo"))?;
    let line = info.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The files of a memory cgroup.
struct Files {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of memory.stat with cached files that are not in use: the kernel drops them first.
    cached: &'static str,
}

const VERSION_1: Files = Files {
    mount: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};
const VERSION_2: Files = Files {
    mount: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file ",
};

/// Returns the limits of a group and of those above it. `line` is of /proc/self/cgroup: number,
/// controllers (none for version 2) and path.
fn group_limits(read: Read<'_>, line: &str) -> Vec<u64> {
    let Some((files, groups)) = groups(line) else { return Vec::new() };
    groups.iter().filter_map(|group| number(read, &group.join(files.limit))).collect()
}

/// Returns what the limits of a group and of those above it leave.
fn group_rooms(read: Read<'_>, line: &str) -> Vec<u64> {
    let Some((files, groups)) = groups(line) else { return Vec::new() };
    let room = |group: &PathBuf| {
        let limit = number(read, &group.join(files.limit))?;
        let used = number(read, &group.join(files.used))?;
        let stat = read(&group.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(files.cached)?.parse().ok());
        Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    };
    groups.iter().filter_map(room).collect()
}

/// Returns the memory group of a line, and those above it.
fn groups(line: &str) -> Option<(Files, Vec<PathBuf>)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let files = match controllers {
        "" => VERSION_2,
        _ if controllers.split(',').any(|name| name == "memory") => VERSION_1,
        _ => return None,
    };
    let mount = Path::new(files.mount);
    // In a container the path may be the host's: the groups that exist here are those above.
    let group = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    Some((files, groups.map(Path::to_owned).collect()))
}

/// Returns the number in a file. Without a limit, the text is "max", or a number above any machine's memory.
fn number(read: Read<'_>, path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns a system that has only these files.
    fn system(files: &[(&str, &str)]) -> impl Fn(&Path) -> Option<String> {
        move |path| {
            let file = files.iter().find(|(name, _)| Path::new("/").join(name) == path)?;
            Some(file.1.into())
        }
    }

    fn found(files: &[(&str, &str)]) -> Option<u64> {
        memory_from(&system(files))
    }

    const INFO: (&str, &str) = ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");

    #[test]
    fn the_lowest_limit_of_machine_and_groups_holds() {
        let group = ("proc/self/cgroup", "0::/system.slice/tracker.service\n");
        let limit = "sys/fs/cgroup/system.slice/tracker.service/memory.max";
        let above = "sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[INFO]), Some(8192 * MIB));
        assert_eq!(found(&[INFO, group, (limit, "max\n")]), Some(8192 * MIB));
        assert_eq!(found(&[INFO, group, (limit, "536870912\n")]), Some(512 * MIB));
        let both = [INFO, group, (limit, "536870912\n"), (above, "268435456\n")];
        assert_eq!(found(&both), Some(256 * MIB));
        // A container sees its own group as the root.
        let root = ("sys/fs/cgroup/memory.max", "1073741824\n");
        assert_eq!(found(&[INFO, ("proc/self/cgroup", "0::/\n"), root]), Some(1024 * MIB));
        assert_eq!(found(&[INFO, group, root]), Some(1024 * MIB));
    }

    #[test]
    fn the_first_version_of_groups_counts() {
        let group = ("proc/self/cgroup", "3:cpu,cpuacct:/a\n2:memory:/a/b\n0::/c\n");
        let limit = "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes";
        assert_eq!(found(&[INFO, group, (limit, "9223372036854771712\n")]), Some(8192 * MIB));
        assert_eq!(found(&[INFO, group, (limit, "1048576\n")]), Some(MIB));
    }

    #[test]
    fn what_machine_and_groups_leave_is_available() {
        let available = |files: &[(&str, &str)]| available_from(&system(files));
        let info = ("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable:    1048576 kB\n");
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[info]), Some(1024 * MIB));
        let group = ("proc/self/cgroup", "0::/a\n");
        let limit = ("sys/fs/cgroup/a/memory.max", "536870912\n");
        let used = ("sys/fs/cgroup/a/memory.current", "268435456\n");
        assert_eq!(available(&[info, group, limit]), Some(1024 * MIB));
        assert_eq!(available(&[info, group, limit, used]), Some(256 * MIB));
        let stat = ("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 67108864\nfile 9\n");
        assert_eq!(available(&[info, group, limit, used, stat]), Some(320 * MIB));
        let over = ("sys/fs/cgroup/a/memory.current", "1073741824\n");
        assert_eq!(available(&[info, group, limit, over]), Some(0));
    }
}
