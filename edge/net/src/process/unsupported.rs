//! Stand-ins on other systems for what needs Linux: they restrict and change nothing.
#![allow(missing_docs, reason = "stand-ins have the documentation of what they stand for")]

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::SandboxPolicy;

pub type ExchangeProgram = fn(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<()>;

#[derive(Debug)]
pub struct Launcher(Infallible);

impl Launcher {
    pub fn spawn(_: ExchangeProgram) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "needs Linux"))
    }

    pub fn launch(&self, _: &[(String, OwnedFd)]) -> io::Result<()> {
        match self.0 {}
    }

    pub fn exchange_program(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> io::Result<()> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub struct Sandbox(SandboxPolicy);

pub fn confine(policy: SandboxPolicy) -> Sandbox {
    Sandbox(policy)
}

pub fn drop_capabilities() -> io::Result<Vec<String>> {
    Ok(Vec::new())
}

pub fn raise_priority() -> io::Result<()> {
    Ok(())
}

pub fn lower_priority() -> io::Result<()> {
    Ok(())
}

impl Sandbox {
    pub fn can_read(&self, _: &Path) -> bool {
        true
    }

    pub fn can_write(&self, _: &Path) -> bool {
        true
    }

    pub fn can_connect(&self, _: u16) -> bool {
        true
    }

    pub fn folders(&self) -> &[PathBuf] {
        &self.0.readable
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "none: needs Linux")
    }
}
