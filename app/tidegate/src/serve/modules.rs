//! The list of the subsystems.

use super::approval::ApprovalModule;
#[cfg(feature = "cluster")]
use super::cluster::ClusterModule;
#[cfg(feature = "geo")]
use super::geo::GeoModule;
#[cfg(feature = "jwt")]
use super::jwt::JwtModule;
use super::module::Module;
#[cfg(feature = "journal")]
use super::swarms::JournalModule;
use super::xdp::XdpModule;
#[cfg(feature = "acme")]
use crate::acme::AcmeModule;
#[cfg(feature = "site")]
use crate::site::SiteModule;

/// The subsystems of a process.
pub(super) type Modules = Vec<Box<dyn Module>>;

/// Returns the subsystems of this build, in the order of each phase of their lives. They stop in reverse.
///
/// - The XDP program may refuse to hand over, so it comes before the cluster, which tells the other nodes.
/// - The cluster comes before the journal, so that at the end the journal is closed first, and what workers changed last is
///   published then. The site comes before both: it frees its spool last.
pub(super) fn modules() -> Modules {
    Vec::from([
        #[cfg(feature = "site")]
        new::<SiteModule>(),
        new::<XdpModule>(),
        #[cfg(feature = "cluster")]
        new::<ClusterModule>(),
        #[cfg(feature = "journal")]
        new::<JournalModule>(),
        #[cfg(feature = "acme")]
        new::<AcmeModule>(),
        new::<ApprovalModule>(),
        #[cfg(feature = "jwt")]
        new::<JwtModule>(),
        #[cfg(feature = "geo")]
        new::<GeoModule>(),
    ])
}

fn new<M: Module + Default + 'static>() -> Box<dyn Module> {
    Box::new(M::default())
}
