//! How much memory the process may use: the machine's, or less in a container.

use std::path::{Path, PathBuf};

/// Returns the bytes of memory that the process may use: the machine's, or what its cgroup or one of
/// the groups above may, if that is less. Returns `None` if the system does not tell.
pub fn memory_bytes() -> Option<u64> {
    memory_from(&|path| std::fs::read_to_string(path).ok())
}

/// Returns the contents of a file.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

fn memory_from(read: Read<'_>) -> Option<u64> {
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| group_limits(read, line));
    limits.chain(total(read)).min()
}

/// Returns the machine's memory.
fn total(read: Read<'_>) -> Option<u64> {
    let info = read(Path::new("/proc/meminfo"))?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the limits of a group and of those above it. `line` is of /proc/self/cgroup: number,
/// controllers (none for version 2) and path.
fn group_limits(read: Read<'_>, line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let (mount, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let mount = Path::new(mount);
    // In a container the path may be the host's: the groups that exist here are those above.
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    // Without a limit, the text is "max", or a number above any machine's memory.
    let limit = |group: &Path| read(&group.join(file))?.trim().parse().ok();
    groups.filter_map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns what is found where these files exist.
    fn found(files: &[(&str, &str)]) -> Option<u64> {
        memory_from(&|path| {
            let file = files.iter().find(|(name, _)| Path::new("/").join(name) == path)?;
            Some(file.1.into())
        })
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
    fn this_machine_has_memory() {
        assert!(memory_bytes().is_none_or(|bytes| bytes > 16 * MIB));
    }
}
