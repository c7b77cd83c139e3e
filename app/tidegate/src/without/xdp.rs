//! Stands for the XDP program where there is none: on other systems than Linux. A build without the feature `xdp` refuses
//! its engines in the configuration.

use anyhow::{Result, ensure};
use config::Config;
use tracing::warn;

use super::module::{Findings, Module, Opening};

#[derive(Default)]
pub(super) struct XdpModule;

impl Module for XdpModule {
    fn check(&self, config: &Config, _is_running: bool, findings: &mut Findings) {
        let Some(text) = missing(config) else { return };
        let list =
            if config.xdp.required { &mut findings.problems } else { &mut findings.warnings };
        list.push(text);
    }

    fn open(&mut self, opening: &mut Opening<'_>) -> Result<()> {
        let Some(text) = missing(opening.config) else { return Ok(()) };
        ensure!(!opening.config.xdp.required, "xdp.required: {text}");
        opening.config.engine = opening.config.engine.of_sockets();
        warn!("{text}: serving with {}", opening.config.engine.label());
        opening.engine.fallback = Some(text);
        Ok(())
    }
}

fn missing(config: &Config) -> Option<String> {
    let engine = config.engine;
    engine
        .has_program()
        .then(|| format!("engine {} is not available: XDP needs Linux", engine.label()))
}
