//! Checks whether the file system of `state.dir` suits a journal.

use std::path::Path;

use journal::inspect;

use super::KEY_NAME;
use crate::admin::bytes;
use crate::permissions::{check_writable, future_owner};
use config::Config;

/// Maximum bytes that a journal takes for a peer: two rounds and their changes.
const BYTES_PER_PEER: u64 = 40;

/// Returns why the journal could not be written, if anything.
pub(super) fn check(config: &Config) -> Vec<String> {
    let Some(swarms) = &config.swarms else { return Vec::new() };
    let dir = swarms.dir.as_path();
    if dir.is_dir()
        && let Err(error) = check_writable(KEY_NAME, dir, future_owner(config))
    {
        return vec![format!("{error:#}")];
    }
    let Ok(found) = inspect(dir) else { return Vec::new() };
    let peers = found.last_round.map_or(0, |round| round.peers);
    let free = free_bytes(existing(dir));
    let lack = free.and_then(|free| lack_of_room(peers, free, found.bytes()));
    lack.map(|lack| format!("{KEY_NAME}: {}: {lack}", dir.display())).into_iter().collect()
}

#[allow(clippy::useless_conversion, reason = "some systems have smaller types")]
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(path).ok()?;
    Some(u64::from(disk.blocks_available()).saturating_mul(u64::from(disk.fragment_size())))
}

fn lack_of_room(peers: u64, free: u64, held: u64) -> Option<String> {
    let needed = peers.saturating_mul(BYTES_PER_PEER);
    (free.saturating_add(held) < needed).then(|| {
        format!(
            "{} free, but the journal of {peers} peers, as there were last, takes up to {}: make room, or set \
             state.swarms = false",
            bytes(free as f64),
            bytes(needed as f64)
        )
    })
}

/// Returns what speaks against the file system.
#[cfg(target_os = "linux")]
pub(super) fn warning(config: &Config) -> Option<String> {
    use nix::sys::statfs::{NFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
    let dir = config.swarms.as_ref()?.dir.as_path();
    let kind = statfs(existing(dir)).ok()?.filesystem_type();
    let why = match kind {
        NFS_SUPER_MAGIC => "on NFS, which may stall, and whose locks may not hold",
        TMPFS_MAGIC => "in a tmpfs, which does not survive a restart of the machine",
        _ => return None,
    };
    Some(format!("{KEY_NAME}: the journal of swarms in {} is {why}", dir.display()))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn warning(_config: &Config) -> Option<String> {
    None
}

fn existing(dir: &Path) -> &Path {
    let is_there = |path: &&Path| !path.as_os_str().is_empty() && path.exists();
    dir.ancestors().find(is_there).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_needs_forty_bytes_per_peer() {
        assert_eq!(lack_of_room(0, 0, 0), None);
        assert_eq!(lack_of_room(1000, 30_000, 10_000), None);
        let lack = lack_of_room(1 << 20, 10 << 20, 29 << 20).unwrap();
        assert!(lack.starts_with("10.0 MiB free, but the journal of 1048576 peers"), "{lack}");
        assert!(lack.contains("takes up to 40.0 MiB"), "{lack}");
    }
}
