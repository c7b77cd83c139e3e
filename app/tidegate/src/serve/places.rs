//! Refuses to start from files that the confined process could replace. The next start reads them, with rights that
//! the process has given up: code that broke into it could so leave the sandbox.

use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use super::program;
use config::Config;

/// Links on the way to one file. The kernel follows as many.
const LINKS_MAX: usize = 40;

/// Fails if the configuration `file`, the program or a file that `config` names is in a folder that the process may
/// write while it serves, or is reached through a link there.
pub(super) fn check(config: &Config, file: Option<&Path>) -> Result<()> {
    let program = program::path();
    let own = [("the configuration file", file), ("the program", Some(program.as_path()))];
    let own = own.into_iter().filter_map(|(kind, path)| Some((kind, path?)));
    let of_cluster = config.cluster.as_ref().map(|cluster| cluster.join.as_path());
    let authorities = config.acme.as_ref().and_then(|acme| acme.ca.as_deref());
    let named = config.files().chain(config.folders()).chain(of_cluster).chain(authorities);
    let named = named.map(|path| ("a file that the configuration names", path));
    let writable: Vec<_> =
        writable(config).map(|(key, folder)| (key, folder, end(folder))).collect();
    for (kind, path) in own.chain(named) {
        let places = places(path);
        for (key, folder, end) in &writable {
            if places.iter().any(|place| place.starts_with(end)) {
                bail!(
                    "{}: {kind} must not be in {}, which the tracker can write while it serves ({key}): move it, \
                     or name another directory in {key}",
                    path.display(),
                    folder.display()
                );
            }
        }
    }
    Ok(())
}

/// Returns the folders that the process may write while it serves, with the keys that name them.
pub(super) fn writable(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let cache = config.acme.as_ref().map(|acme| acme.cache.as_path());
    let folders = config.state_dir.as_deref().into_iter().chain(cache);
    folders.map(|folder| ("state.dir", folder))
}

/// Returns where a path ends when all links are followed. It need not exist.
fn end(path: &Path) -> PathBuf {
    places(path).pop().unwrap_or_default()
}

/// Returns the links on the way to `path`, and where it ends, each as a path without links in its folders.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut here = PathBuf::from("/");
    let mut left = Vec::new();
    push_parts(&mut left, &std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    while let Some(part) = left.pop() {
        if part == Path::new("..") {
            here.pop();
            continue;
        }
        let next = here.join(part);
        match next.read_link() {
            Ok(target) if found.len() < LINKS_MAX => {
                found.push(next);
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                push_parts(&mut left, &target);
            }
            _ => here = next,
        }
    }
    found.push(here);
    found
}

fn push_parts(left: &mut Vec<PathBuf>, path: &Path) {
    let parts = path.components().rev();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    left.extend(parts.map(|part| PathBuf::from(part.as_os_str())));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with `state`, `other` and `config`.
    fn folder() -> harness::Directory {
        let directory = harness::Directory::new().unwrap();
        for name in ["state/inner", "other", "config"] {
            fs::create_dir_all(directory.path(name)).unwrap();
        }
        directory
    }

    fn refusal(directory: &harness::Directory, file: &str, more: &str) -> Option<String> {
        let text = format!("{more}[state]\ndir = {:?}\n", directory.path("state"));
        let settings = config::parse(Path::new("t.toml"), &text).unwrap();
        let config = Config::from_settings(&settings).unwrap();
        let result = check(&config, Some(&directory.path(file)));
        result.err().map(|error| error.to_string())
    }

    #[test]
    fn links_on_the_way_are_followed() {
        let directory = folder();
        let at = |file| refusal(&directory, file, "").is_some();
        let link = |target: &Path, name: &str| symlink(target, directory.path(name)).unwrap();
        // A link to a file in the folder; a link there to a file elsewhere; a folder by way of it; a relative link.
        link(&directory.path("state/t.toml"), "config/to-inside.toml");
        link(&directory.path("config/t.toml"), "state/to-outside.toml");
        link(&directory.path("config"), "state/inner/folder");
        link(&directory.path("state/inner/folder"), "other/through");
        link(Path::new("../state"), "other/relative");
        link(Path::new("loop"), "other/loop");
        link(&directory.path("config"), "other/fine");
        let names = [
            "config/to-inside.toml",
            "state/to-outside.toml",
            "other/through/t.toml",
            "other/relative/t.toml",
            "other/fine/t.toml",
            "other/loop/t.toml",
        ];
        assert_eq!(names.map(at), [true, true, true, true, false, false]);
        // The folder may be a link itself.
        fs::rename(directory.path("state"), directory.path("real")).unwrap();
        link(&directory.path("real"), "state");
        assert_eq!(["real/t.toml", "state/t.toml", "config/t.toml"].map(at), [true, true, false]);
    }
}
