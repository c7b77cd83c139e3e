//! The keys of tokens, from a file or a URL.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use jwt::KeySet;
use tracing::info;
use tracker::{TokenVerifier, Tracker};
use types::limits::TOKEN_KEY_SET_MAX;

use config::{Config, TokenConfig};

#[derive(Clone, Default)]
pub(crate) struct TokenKeys(Arc<Mutex<Option<InUse>>>);

#[derive(PartialEq, Eq)]
struct InUse {
    config: TokenConfig,
    bytes: Vec<u8>,
}

pub(super) fn read(config: &Config) -> Result<Option<Vec<u8>>> {
    let Some(path) = config.tokens.as_ref().and_then(TokenConfig::file) else { return Ok(None) };
    read_file(path).context("access.jwt_keys").map(Some)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let bytes = super::read_up_to(path, TOKEN_KEY_SET_MAX as u64)
        .with_context(|| format!("cannot read {}", path.display()))?;
    KeySet::parse(&bytes).with_context(|| path.display().to_string())?;
    Ok(bytes)
}

impl TokenKeys {
    /// Applies the configuration and the keys of its file. Keys from a URL stay while the URL does.
    pub(crate) fn configure(
        &self,
        tracker: &Tracker,
        config: Option<&TokenConfig>,
        file: Option<Vec<u8>>,
    ) {
        let Some(config) = config else {
            *self.lock() = None;
            return tracker.tokens().set_verifier(None);
        };
        let bytes = file.or_else(|| {
            let in_use = self.lock();
            in_use.as_ref().filter(|it| it.config.keys == config.keys).map(|it| it.bytes.clone())
        });
        match bytes {
            // The file was checked when it was read.
            Some(bytes) => drop(self.replace(tracker, config, bytes)),
            None => {
                *self.lock() = None;
                tracker.tokens().set_verifier(None);
            }
        }
    }

    /// Replaces the keys. Does nothing if they are those in use: tokens that were verified stay verified.
    pub(crate) fn replace(
        &self,
        tracker: &Tracker,
        config: &TokenConfig,
        bytes: Vec<u8>,
    ) -> Result<()> {
        let set = KeySet::parse(&bytes)?;
        let new = InUse { config: config.clone(), bytes };
        let mut in_use = self.lock();
        if in_use.as_ref() == Some(&new) {
            return Ok(());
        }
        info!(keys = set.len(), skipped = set.skipped(), "loaded the keys of tokens");
        let verifier = set.verifier(config.issuer.as_deref(), config.audience.as_deref());
        let verifier: Box<dyn TokenVerifier> = Box::new(verifier);
        tracker.tokens().set_verifier(Some(verifier));
        *in_use = Some(new);
        Ok(())
    }

    pub(crate) fn are_there(&self) -> bool {
        self.lock().is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<InUse>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
