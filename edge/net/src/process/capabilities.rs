//! Capabilities: rights that a process may have without being root.

use std::io;

use caps::CapSet;
pub use caps::Capability;

/// Drops all capabilities of the calling thread, and of threads that it starts later, for good. Returns
/// the names of those that it had. Does nothing to the other threads: call it while there is only one.
///
/// Root would regain them by starting a program, which the sandbox denies.
///
/// # Errors
///
/// If the kernel refuses to read or to clear a set.
pub fn drop_capabilities() -> io::Result<Vec<String>> {
    let had = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let mut names: Vec<String> = had.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return Ok(names);
    }
    names.sort_unstable();
    // The effective set must stay within the permitted one.
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    Ok(names)
}

/// Returns the names of those of `needed` that the calling thread does not have.
pub fn missing_capabilities(needed: &[Capability]) -> Vec<String> {
    let has = |one: &Capability| caps::has_cap(None, CapSet::Effective, *one).unwrap_or(false);
    needed.iter().filter(|one| !has(one)).map(ToString::to_string).collect()
}
