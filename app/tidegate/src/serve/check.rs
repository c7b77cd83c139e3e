//! Checks of `tidegate config check` besides those of the configuration itself.

use std::path::Path;

use net::process::Identity;

use super::module::Findings;
use super::modules::modules;
use super::{listeners, places, state};
use crate::access::{self, TorrentFolders};
use crate::certificates;
use config::Config;

/// Returns what there is to say about serving `config`, which was read from `file`, on this machine.
pub(crate) fn check(config: &Config, file: Option<&Path>) -> Findings {
    let mut problems = Vec::new();
    problems.extend(places::check(config, file).err().map(|error| format!("{error:#}")));
    if let Err(error) = access::read(config, &TorrentFolders::default()) {
        problems.push(format!("{error:#}"));
    }
    match certificates::read(config) {
        Ok(read) => problems.extend(certificates::warnings(config, &read)),
        Err(error) => problems.push(format!("{error:#}")),
    }
    problems.extend(state::check(config));
    let listeners::BindProblems { in_use_by_tidegate, others } = listeners::check(config);
    problems.extend(others);
    if !config.user.is_empty()
        && let Err(error) = Identity::find(&config.user, &config.group)
    {
        problems.push(format!("process.user: {error}"));
    }
    let is_running = !in_use_by_tidegate.is_empty();
    let warnings = certificates::key_warnings(config);
    let mut findings = Findings { problems, warnings, notes: in_use_by_tidegate };
    for module in modules() {
        module.check(config, is_running, &mut findings);
    }
    findings
}
