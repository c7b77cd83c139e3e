//! What needs Linux, on other systems: absent, and said to be.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::Allowed;

/// The way to the launcher, which is not there.
#[derive(Debug)]
pub struct Launcher(Infallible);

impl Launcher {
    /// Fails: it needs Linux.
    pub fn split_off() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "needs Linux"))
    }

    /// Cannot happen.
    pub fn launch(&self, _: &[(&str, OwnedFd)]) -> io::Result<()> {
        match self.0 {}
    }
}

/// A sandbox that holds nothing.
#[derive(Debug)]
pub struct Sandbox(Allowed);

/// Confines nothing.
pub fn confine(allowed: Allowed) -> Sandbox {
    Sandbox(allowed)
}

/// Changes nothing.
pub fn raise_priority() -> io::Result<()> {
    Ok(())
}

/// Changes nothing.
pub fn lower_priority() -> io::Result<()> {
    Ok(())
}

impl Sandbox {
    /// Any file can be read.
    pub fn covers(&self, _: &Path) -> bool {
        true
    }

    /// Files can be made anywhere.
    pub fn covers_writing(&self, _: &Path) -> bool {
        true
    }

    /// Connections can be made to any port.
    pub fn covers_connecting(&self, _: u16) -> bool {
        true
    }

    /// The folders that it was asked for.
    pub fn folders(&self) -> &[PathBuf] {
        &self.0.readable
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "none: it needs Linux")
    }
}
