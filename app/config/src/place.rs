//! Where records, counts and swarms are kept if the configuration does not say it.

use std::path::{Path, PathBuf};

use net::process::is_root;

use super::key::Problem;
use super::keys::StateSection;

/// The value of `state.dir` that stands for the place of this file.
pub(super) const AUTO: &str = "auto";
/// The place of a service that root starts and that becomes another user: the home of root is closed to it.
const OF_SERVICES: &str = "/var/lib/tidegate";
const NAME: &str = "tidegate";

/// Returns the directory that a service manager or the conventions of the desktop (XDG Base Directory) name. `user` is
/// `process.user`. Returns `None` if the environment has no home, as in some containers.
pub(super) fn default_dir(environment: &[(String, String)], user: &str) -> Option<PathBuf> {
    let absolute = |name: &str| {
        let (_, value) = environment.iter().find(|(variable, _)| variable == name)?;
        // A service manager may name several, with colons between them.
        let first = value.split(':').next().unwrap_or_default();
        Some(Path::new(first)).filter(|path| path.is_absolute())
    };
    if let Some(of_service) = absolute("STATE_DIRECTORY") {
        return Some(of_service.into());
    }
    if is_root() && !user.is_empty() {
        return Some(OF_SERVICES.into());
    }
    let of_user = absolute("XDG_STATE_HOME").map(Path::to_owned);
    let of_user = of_user.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    of_user.map(|folder| folder.join(NAME))
}

impl StateSection {
    /// Returns the directory, unless nothing is kept.
    pub(super) fn place(&self) -> Option<&Path> {
        let dir = &self.dir.value;
        (!dir.is_empty() && dir != AUTO).then(|| Path::new(dir))
    }

    /// Reports a directory that begins with `~`: the system would create one of that name.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        let dir = &self.dir.value;
        if dir.starts_with('~') {
            problems.push(self.dir.problem(format!(
                "expected a path such as `/var/lib/tidegate`, found `{dir}`: only shells replace ~, so write the whole \
                 path"
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_decides_before_the_home() {
        let place = |variables: &[(&str, &str)]| {
            let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            default_dir(&variables.iter().map(own).collect::<Vec<_>>(), "")
        };
        let home = ("HOME", "/h/a");
        let state_home = ("XDG_STATE_HOME", "/s");
        assert_eq!(place(&[home]), Some("/h/a/.local/state/tidegate".into()));
        assert_eq!(place(&[home, state_home]), Some("/s/tidegate".into()));
        let of_service = ("STATE_DIRECTORY", "/var/lib/t:/var/lib/u");
        assert_eq!(place(&[home, state_home, of_service]), Some("/var/lib/t".into()));
        assert_eq!(place(&[("XDG_STATE_HOME", "s"), home]), place(&[home]));
        assert_eq!(place(&[("HOME", "")]), None);
        assert_eq!(place(&[]), None);
    }
}
