//! What `tidegate config check` looks at, beside the configuration itself.

use std::path::{Path, PathBuf};

use net::process::Identity;

use cluster::nats::{self, Finding, SecretIds};

use super::swarms::file_system;
use super::{listeners, places, state, xdp};
use crate::access::{self, TorrentFolders};
use crate::cluster::secret::Secrets;
use crate::cluster::{Join, nats_options};
use crate::geo::Database;
use crate::{acme, certificates, site};
use config::Config;

/// What [`check`] finds.
#[derive(Default)]
pub(crate) struct Findings {
    /// What keeps the configuration from being served on this machine as it says.
    pub(crate) problems: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// Which ports a running tidegate has: the configuration may be meant for its next start or reload. And what
    /// there is to know about the machine.
    pub(crate) notes: Vec<String>,
}

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
    problems.extend(geo_problems(config));
    problems.extend(acme::check(config));
    problems.extend(site::check(config));
    problems.extend(state::check(config));
    problems.extend(file_system::check(config));
    let listeners::BindProblems { in_use_by_tidegate, others } = listeners::check(config);
    problems.extend(others);
    if !config.user.is_empty()
        && let Err(error) = Identity::find(&config.user, &config.group)
    {
        problems.push(format!("process.user: {error}"));
    }
    let mut warnings: Vec<String> = file_system::warning(config).into_iter().collect();
    warnings.extend(certificates::key_warnings(config));
    let is_running = !in_use_by_tidegate.is_empty();
    let mut findings = Findings { problems, warnings, notes: in_use_by_tidegate };
    xdp::check(config, is_running, &mut findings);
    check_cluster(config, is_running, &mut findings);
    findings
}

/// Returns what is wrong with the files that say where networks belong.
fn geo_problems(config: &Config) -> Vec<String> {
    let files = [("geo.asn", &config.geo.asn), ("geo.country", &config.geo.country)];
    let named = files.into_iter().filter(|(_, path)| !path.as_os_str().is_empty());
    let problem =
        |(key, path): (&str, &PathBuf)| Some(format!("{key}: {}", Database::read(path).err()?));
    named.filter_map(problem).collect()
}

/// Reads the join file, and asks the NATS servers.
fn check_cluster(config: &Config, is_running: bool, findings: &mut Findings) {
    let Some(cluster) = &config.cluster else { return };
    let found = Join::read(&cluster.join).and_then(|join| {
        let ids = SecretIds::from(Secrets::from(join.secret()).ids());
        Ok(nats::check(&nats_options(config, cluster, &join, ids), is_running)?)
    });
    match found {
        Err(error) => findings.problems.push(format!("{error:#}")),
        Ok(found) => {
            for finding in found {
                match finding {
                    Finding::Problem(text) => findings.problems.push(text),
                    Finding::Warning(text) => findings.warnings.push(text),
                    Finding::Note(text) => findings.notes.push(text),
                }
            }
        }
    }
}
