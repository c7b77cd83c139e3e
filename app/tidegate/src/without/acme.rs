//! Stands for certificates of an authority in a build without the feature `acme`. The configuration has none then.

use std::sync::Arc;

use admin::MetricSources;
use anyhow::Result;
use config::{AcmeConfig, Config};
use net::tls::Certificates;
use pages::Challenges;
use tokio::sync::watch;

/// Certificates, and responses to challenges, that are not needed.
pub(crate) struct CertStore {
    #[expect(dead_code, reason = "only an authority reads it")]
    pub(crate) certificates: Arc<Certificates>,
    #[expect(dead_code, reason = "only an authority reads it")]
    pub(crate) challenges: Arc<Challenges>,
}

pub(crate) fn check(_: &Config) -> Vec<String> {
    Vec::new()
}

pub(crate) fn prepare(_: &Config) -> Result<()> {
    Ok(())
}

pub(crate) fn load(_: &Config, _: &Certificates) -> Result<()> {
    Ok(())
}

/// Waits until `stop` becomes true.
pub(crate) fn serve(
    _: &CertStore,
    _: &MetricSources,
    _: watch::Receiver<Option<AcmeConfig>>,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    // An error says that the sender is gone, with the process.
    let _ = runtime.block_on(stop.wait_for(|stop| *stop));
    Ok(())
}
