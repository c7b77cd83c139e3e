//! Stands for the networks of systems in a build without the feature `geo`. No list names systems then.

use anyhow::Result;
use tracker::Networks;

use config::{Config, NetworkList};

/// The systems of no network.
pub(super) struct Systems;

impl Systems {
    pub(super) fn read(_: &Config) -> Result<Self> {
        Ok(Self)
    }

    pub(super) fn expand(&self, list: &NetworkList, _: &str) -> Result<Networks> {
        Ok(list.networks.clone())
    }
}
