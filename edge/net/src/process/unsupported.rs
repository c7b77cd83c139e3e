//! What needs Linux, on other systems: absent, and said to be.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::SandboxPolicy;

/// The way to the launcher, which is not there.
#[derive(Debug)]
pub struct Launcher(Infallible);

impl Launcher {
    /// Fails: it needs Linux.
    pub fn spawn() -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "needs Linux"))
    }

    /// Cannot happen.
    pub fn launch(&self, _: &[(&str, OwnedFd)]) -> io::Result<()> {
        match self.0 {}
    }
}

/// A sandbox that holds nothing.
#[derive(Debug)]
pub struct Sandbox(SandboxPolicy);

/// Confines nothing.
pub fn confine(policy: SandboxPolicy) -> Sandbox {
    Sandbox(policy)
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
    pub fn can_read(&self, _: &Path) -> bool {
        true
    }

    /// Files can be made anywhere.
    pub fn can_write(&self, _: &Path) -> bool {
        true
    }

    /// Connections can be made to any port.
    pub fn can_connect(&self, _: u16) -> bool {
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
