//! Stands for the accounts of a site in a build without the feature `site`. The configuration has no site then.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use admin::MetricSources;
use anyhow::Result;
use config::Config;
use tracker::Tracker;

/// A site that does not exist.
pub(crate) struct OpenSite(Infallible);

impl OpenSite {
    pub(crate) fn open(
        _: &Config,
        _: Option<&TcpListener>,
        _: Option<u8>,
        _: &Tracker,
    ) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn start(&self, _: &Arc<Tracker>, _: u64, _: &MetricSources) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn accounts(&self) -> SharedAccounts {
        match self.0 {}
    }

    pub(crate) fn reload(&self) {
        match self.0 {}
    }

    pub(crate) fn stop(&self) {
        match self.0 {}
    }
}

/// Sessions of a site that does not exist.
pub(crate) struct SharedAccounts(Infallible);

impl SharedAccounts {
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        match self.0 {}
    }

    pub(crate) fn learn(&self, _: &[u8]) {
        match self.0 {}
    }
}

pub(crate) fn check(_: &Config) -> Option<String> {
    None
}
