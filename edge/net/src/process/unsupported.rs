//! Stand-ins on other systems for what needs Linux.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::SandboxPolicy;

/// Exchanges the XDP program of a link.
pub type ExchangeProgram = fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>;

/// A handle to the launcher, which cannot exist here.
#[derive(Debug)]
pub struct Launcher(Infallible);

impl Launcher {
    /// Always fails, because launchers need Linux.
    pub fn spawn(_: ExchangeProgram) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "needs Linux"))
    }

    /// Cannot happen.
    pub fn launch(&self, _: &[(String, OwnedFd)]) -> io::Result<()> {
        match self.0 {}
    }

    /// Cannot happen.
    pub fn exchange_program(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
        match self.0 {}
    }
}

/// A sandbox that restricts nothing.
#[derive(Debug)]
pub struct Sandbox(SandboxPolicy);

/// Restricts nothing.
pub fn confine(policy: SandboxPolicy) -> Sandbox {
    Sandbox(policy)
}

/// Changes nothing: there are no capabilities.
pub fn drop_capabilities() -> io::Result<Vec<String>> {
    Ok(Vec::new())
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
    /// Returns true.
    pub fn can_read(&self, _: &Path) -> bool {
        true
    }

    /// Returns true.
    pub fn can_write(&self, _: &Path) -> bool {
        true
    }

    /// Returns true.
    pub fn can_connect(&self, _: u16) -> bool {
        true
    }

    /// Returns the readable folders of the policy.
    pub fn folders(&self) -> &[PathBuf] {
        &self.0.readable
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "none: needs Linux")
    }
}
