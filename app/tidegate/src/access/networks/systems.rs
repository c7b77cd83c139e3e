//! The networks of autonomous systems, from the file that `geo.asn` names.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use geo::Database;
use tracker::{IpPrefix, Networks};

use config::{Config, NetworkList};

/// The systems of all networks, if a list names systems.
pub(super) struct Systems<'a> {
    file: &'a Path,
    database: Option<Database>,
}

impl<'a> Systems<'a> {
    /// Reads the file if the configuration needs it.
    pub(super) fn read(config: &'a Config) -> Result<Self> {
        let file = config.geo.asn.as_path();
        let database = config.networks.need_systems().then(|| Database::read(file)).transpose();
        let database = database.map_err(|error| anyhow!("geo.asn: {error}"))?;
        Ok(Self { file, database })
    }

    /// Returns the networks of the list of `key`, with those of its systems.
    pub(super) fn expand(&self, list: &NetworkList, key: &str) -> Result<Networks> {
        let Some(database) = self.database.as_ref().filter(|_| !list.systems.is_empty()) else {
            return Ok(list.networks.clone());
        };
        let file = self.file.display();
        let found = database.networks_of(&list.systems);
        let found = found.map_err(|error| anyhow!("geo.asn: {file}: {error}"))?;
        if let Some(missing) =
            list.systems.iter().find(|system| !has_system(database, &found, **system))
        {
            bail!("{key}: AS{missing} has no networks in {file}");
        }
        Ok(list.networks.union(&found.into_iter().collect()))
    }
}

/// Returns whether one of these networks belongs to a system.
fn has_system(database: &Database, networks: &[IpPrefix], system: u32) -> bool {
    let of = |network: &IpPrefix| database.system(network.address());
    networks.iter().filter_map(of).any(|found| found.number == system)
}
