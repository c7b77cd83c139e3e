//! The list of the subsystems.

use super::approval::ApprovalModule;
use super::cluster::ClusterModule;
use super::geo::GeoModule;
use super::module::Module;
use super::swarms::JournalModule;
use super::xdp::XdpModule;
use crate::acme::AcmeModule;
use crate::site::SiteModule;

/// The subsystems of a process.
pub(super) type Modules = Vec<Box<dyn Module>>;

/// Returns the subsystems of this build, in the order of each phase of their lives. They stop in reverse.
///
/// - The XDP program may refuse to hand over, so it comes before the cluster, which tells the other nodes.
/// - The cluster comes before the journal: it reserves the changes that restoring makes. At the end, it publishes what
///   workers changed last when that is in the journal.
/// - The site comes before both, because it frees its spool for the next process last.
pub(super) fn modules() -> Modules {
    Vec::from([
        new::<SiteModule>(),
        new::<XdpModule>(),
        new::<ClusterModule>(),
        new::<JournalModule>(),
        new::<AcmeModule>(),
        new::<ApprovalModule>(),
        new::<GeoModule>(),
    ])
}

fn new<M: Module + Default + 'static>() -> Box<dyn Module> {
    Box::new(M::default())
}
