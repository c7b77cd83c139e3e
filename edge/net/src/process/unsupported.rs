//! Stand-ins on other systems for what needs Linux: they restrict and change nothing.
#![allow(missing_docs, reason = "stand-ins have the documentation of what they stand for")]

use std::convert::Infallible;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::ExchangeProgram;

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

pub fn drop_capabilities() -> io::Result<Vec<String>> {
    Ok(Vec::new())
}

pub fn raise_priority() -> io::Result<()> {
    Ok(())
}

pub fn lower_priority() -> io::Result<()> {
    Ok(())
}
