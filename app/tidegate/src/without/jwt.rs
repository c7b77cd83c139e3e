//! Stands for the crate `jwt` in a build without the feature `jwt`: no key set is usable.

use std::convert::Infallible;

use anyhow::{Result, bail};
use tracker::{TokenFault, TokenVerifier, VerifiedToken};

/// A key set that does not exist.
pub(crate) struct KeySet(Infallible);

impl KeySet {
    pub(crate) fn parse(_: &[u8]) -> Result<Self> {
        bail!("this build has no `jwt`")
    }

    pub(crate) fn len(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn skipped(&self) -> usize {
        match self.0 {}
    }

    pub(crate) fn verifier(&self, _: Option<&str>, _: Option<&str>) -> Verifier {
        match self.0 {}
    }
}

/// A verifier that does not exist.
pub(crate) struct Verifier(Infallible);

impl TokenVerifier for Verifier {
    fn verify(&self, _: &[u8]) -> Result<VerifiedToken, TokenFault> {
        match self.0 {}
    }
}
