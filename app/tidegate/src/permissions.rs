//! Owners and modes of files and directories that other users of the machine must not read or change.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use net::process::{self, Identity};

use config::Config;

pub(crate) const STATE_DIRECTORY: &str = "state.dir";
/// Permissions that a secret's file must not give: writing by its group, and anything by others.
const FORBIDDEN_MODE: u32 = 0o027;

/// Fails if other users may read or change a file.
pub(crate) fn check_secret(path: &Path) -> Result<()> {
    let name = path.display();
    let mode = mode(path)?;
    ensure!(
        mode & FORBIDDEN_MODE == 0,
        "{name}: other users can read or change it (mode {mode:03o}): chmod 600 it"
    );
    Ok(())
}

/// Writes a file that only its owner can read, in place of an old one: after a power failure it is either of them.
pub(crate) fn write_secret(path: &Path, bytes: &[u8], owner: Option<Identity>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    // An interrupted attempt may have left this file, which others may be able to read.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A new file follows no link: another user may own the directory.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    owner.map_or(Ok(()), |owner| fchown(&file, Some(owner.user()), Some(owner.group())))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

pub(crate) fn is_readable_by_all(path: &Path) -> bool {
    mode(path).is_ok_and(|mode| mode & 0o004 != 0)
}

/// Fails if others than root and the tracker's user, `owner` or that of this process, may change a directory.
///
/// The tracker's own group may write: volumes of containers are given to it.
pub(crate) fn check_directory(directory: &Path, owner: Option<Identity>) -> Result<()> {
    let name = directory.display();
    let data = fs::metadata(directory).with_context(|| format!("cannot read {name}"))?;
    let user = owner.unwrap_or_else(Identity::of_process);
    let (uid, gid, mode) = (data.uid(), data.gid(), data.mode() & 0o777);
    ensure!(
        uid == 0 || uid == user.user(),
        "{name}: belongs to user {uid}, not to the tracker's, {}, nor to root: chown it, or run the tracker as \
         its owner (process.user)",
        user.user()
    );
    let others = if gid == user.group() { 0o002 } else { 0o022 };
    ensure!(
        mode & others == 0,
        "{name}: other users can change what is in it (mode {mode:03o}): chmod 700 it"
    );
    Ok(())
}

fn mode(path: &Path) -> Result<u32> {
    let data = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(data.mode() & 0o777)
}

/// Returns the user that will write to the directories of the state, if it is not the one that starts the process.
pub(crate) fn future_owner(config: &Config) -> Option<Identity> {
    let becomes_another = process::is_root() && !config.user.is_empty();
    // A user that does not exist is reported elsewhere.
    becomes_another.then(|| Identity::find(&config.user, "").ok()).flatten()
}

/// Creates the state directory while the process is still root. Fails if other users may write to it.
pub(crate) fn create_state_directory(config: &Config) -> Result<()> {
    let Some(dir) = config.state_dir.as_deref() else { return Ok(()) };
    let owner = future_owner(config);
    create_directory(STATE_DIRECTORY, dir, owner)?;
    check_directory(dir, owner).context(STATE_DIRECTORY)
}

pub(crate) fn create_directory(
    name: &str,
    directory: &Path,
    owner: Option<Identity>,
) -> Result<()> {
    let make = || -> io::Result<()> {
        if directory.is_dir() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        owner.map_or(Ok(()), |owner| owner.give(directory))
    };
    make().with_context(|| format!("{name}: cannot create {}", directory.display()))
}

/// Checks whether files, or the directory itself, can be created. `name` begins error messages.
pub(crate) fn check_writable(name: &str, directory: &Path, owner: Option<Identity>) -> Result<()> {
    let there = directory.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("."));
    let name = format!("{name}: {}", there.display());
    ensure!(there.is_dir(), "{name}: not a directory");
    let path = there.join(format!(".tidegate-probe-{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    made.with_context(|| format!("{name}: not writable"))?;
    // The name contains this process's id, so that no other process uses it.
    let _ = fs::remove_file(&path);
    if let Some(owner) = owner.filter(|_| there == directory) {
        ensure!(
            may_write(there, owner)?,
            "{name}: process.user has no permission to write to it: {}",
            chown(there, owner)
        );
    }
    Ok(())
}

pub(crate) fn may_write(path: &Path, user: Identity) -> Result<bool> {
    let data = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (uid, gid, mode) = (data.uid(), data.gid(), data.mode());
    let by_group = mode & 0o020 != 0 && user.group() == gid;
    Ok(mode & 0o002 != 0 || user.user() == uid || by_group)
}

/// Returns the command that gives a directory and everything in it to a user.
pub(crate) fn chown(directory: &Path, user: Identity) -> String {
    format!("chown -R {}:{} {}", user.user(), user.group(), directory.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn directories_of_other_users_are_refused() {
        let directory = harness::Directory::new().unwrap();
        let own = Identity::of_process();
        let check = |mode: u32, user: u32, group: u32| {
            fs::set_permissions(directory.root(), fs::Permissions::from_mode(mode)).unwrap();
            // Only root may give something to another user.
            chown(directory.root(), Some(user), Some(group)).ok()?;
            Some(check_directory(directory.root(), None).map_err(|error| error.to_string()))
        };
        for (mode, group, why) in [
            (0o700, own.group(), ""),
            (0o755, own.group(), ""),
            (0o2770, own.group(), ""),
            (0o777, own.group(), "(mode 777): chmod 700 it"),
            (0o702, own.group(), "(mode 702)"),
            (0o750, 1234, ""),
            (0o770, 1234, "(mode 770)"),
        ] {
            match check(mode, own.user(), group) {
                Some(Err(error)) => assert!(!why.is_empty() && error.contains(why), "{error}"),
                Some(Ok(())) => assert_eq!(why, "", "{mode:o} {group}"),
                None => assert_ne!(own.user(), 0),
            }
        }
        if let Some(found) = check(0o700, 1234, own.group()) {
            let error = found.unwrap_err();
            assert!(error.contains("belongs to user 1234, not to the tracker's, "), "{error}");
        }
        // Before it becomes another user, root finds directories of both.
        let found = Identity::find("nobody", "").map(|nobody| {
            check(0o700, nobody.user(), nobody.group());
            let both = [None, Some(nobody)].map(|it| check_directory(directory.root(), it).is_ok());
            (both, own.user() == 0)
        });
        assert!(!matches!(found, Ok((both, true)) if both != [false, true]), "{found:?}");
    }
}
