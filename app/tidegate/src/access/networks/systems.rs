//! The networks of autonomous systems and countries, from the files that `geo.asn` and `geo.country` name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use geo::{Country, Database, GeoError};
use tracker::Networks;
use types::limits;

use config::{Config, NetworkRule, NetworkSet};

pub(super) struct Systems {
    asn: Option<File>,
    country: Option<File>,
}

/// A file that says where networks belong.
struct File {
    key: &'static str,
    path: PathBuf,
    database: Database,
}

impl Systems {
    pub(super) fn read(config: &Config) -> Result<Self> {
        let needs = |is_one: fn(&NetworkSet) -> bool| {
            config.networks.all().any(|rule: &NetworkRule| is_one(&rule.set))
        };
        let needs_asn = needs(|set| matches!(set, NetworkSet::System(_)));
        let needs_country = needs(|set| matches!(set, NetworkSet::Country(_)));
        let asn = needs_asn.then(|| File::read("geo.asn", &config.geo.asn));
        let country = needs_country.then(|| File::read("geo.country", &config.geo.country));
        Ok(Self { asn: asn.transpose()?, country: country.transpose()? })
    }

    /// Returns the networks of systems and countries, which the list of `key` names.
    pub(super) fn expand(
        &self,
        systems: &[u32],
        countries: &[&str],
        key: &str,
    ) -> Result<Networks> {
        let (mut all, most) = (Vec::new(), limits::GEO_NETWORKS_MAX);
        if let Some(file) = self.asn.as_ref().filter(|_| !systems.is_empty()) {
            let mut found = BTreeSet::new();
            file.check(file.database.each_system(most, |network, number| {
                if systems.contains(&number) {
                    found.insert(number);
                    all.push(network);
                }
            }))?;
            if let Some(missing) = systems.iter().find(|number| !found.contains(number)) {
                bail!("{key}: AS{missing} has no networks in {}", file.path.display());
            }
        }
        if let Some(file) = self.country.as_ref().filter(|_| !countries.is_empty()) {
            let codes: Vec<Country> =
                countries.iter().filter_map(|code| Country::parse(code)).collect();
            let mut found = BTreeSet::new();
            file.check(file.database.each_country(most, |network, country| {
                if codes.contains(&country) {
                    found.insert(country);
                    all.push(network);
                }
            }))?;
            if let Some(missing) = codes.iter().find(|code| !found.contains(code)) {
                bail!("{key}: country {missing} has no networks in {}", file.path.display());
            }
        }
        Ok(all.into_iter().collect())
    }
}

impl File {
    fn read(key: &'static str, path: &Path) -> Result<Self> {
        let database = Database::read(path).map_err(|error| anyhow!("{key}: {error}"))?;
        Ok(Self { key, path: path.to_owned(), database })
    }

    fn check(&self, read: Result<(), GeoError>) -> Result<()> {
        read.map_err(|error| anyhow!("{}: {}: {error}", self.key, self.path.display()))
    }
}
