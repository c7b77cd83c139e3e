//! Stands for the crate `geo` in a build without the feature `geo`: no file can be read, so there is no database.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use tracker::IpPrefix;

/// A database that does not exist.
pub(crate) struct Database(Infallible);

/// An autonomous system.
pub(crate) struct System {
    pub(crate) number: u32,
    pub(crate) name: String,
}

/// A country that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Country(Infallible);

impl fmt::Display for Country {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl Database {
    pub(crate) fn read(_: &Path) -> Result<Self, &'static str> {
        Err("this build has no `geo`")
    }

    pub(crate) fn kind(&self) -> String {
        match self.0 {}
    }

    pub(crate) fn built(&self) -> Option<SystemTime> {
        match self.0 {}
    }

    pub(crate) fn system(&self, _: IpAddr) -> Option<System> {
        match self.0 {}
    }

    pub(crate) fn systems(&self) -> Lookup<System> {
        match self.0 {}
    }

    pub(crate) fn countries(&self) -> Lookup<Country> {
        match self.0 {}
    }

    pub(crate) fn networks_of(&self, _: &[u32]) -> Result<Vec<IpPrefix>, &'static str> {
        match self.0 {}
    }
}

/// A lookup in a database that does not exist.
pub(crate) struct Lookup<T>(Infallible, std::marker::PhantomData<T>);

impl<T> Lookup<T> {
    pub(crate) fn find(&mut self, _: IpAddr) -> Option<T> {
        match self.0 {}
    }
}
