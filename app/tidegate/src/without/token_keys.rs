//! Stands for the keys of tokens in a build without the feature `jwt`. The configuration has none then.

use anyhow::Result;
use tracker::Tracker;

use config::{Config, TokenConfig};

#[derive(Clone, Default)]
pub(crate) struct TokenKeys;

pub(super) fn read(_: &Config) -> Result<Option<Vec<u8>>> {
    Ok(None)
}

impl TokenKeys {
    pub(crate) fn configure(&self, _: &Tracker, _: Option<&TokenConfig>, _: Option<Vec<u8>>) {}
}
