//! The list of the subsystems.

use super::module::Module;
use super::{approval, lists, load, xdp};

pub(super) type Modules = Vec<Box<dyn Module>>;

/// Returns the subsystems of this build, in the order of each phase of their lives. They stop in reverse.
///
/// - The XDP program may refuse to hand over, so it comes before the cluster, which tells the other nodes.
/// - The cluster comes before the journal, so that at the end the journal is closed first, and the cluster publishes
///   then what workers changed last. The site comes before both: it frees its spool last.
/// - Load comes first: lifetimes of peers must be right before swarms are restored.
pub(super) fn modules() -> Modules {
    Vec::from([
        new::<load::LoadModule>(),
        #[cfg(feature = "site")]
        new::<crate::site::SiteModule>(),
        new::<xdp::XdpModule>(),
        #[cfg(feature = "cluster")]
        new::<super::cluster::ClusterModule>(),
        #[cfg(feature = "journal")]
        new::<super::swarms::JournalModule>(),
        #[cfg(feature = "acme")]
        new::<crate::acme::AcmeModule>(),
        new::<approval::ApprovalModule>(),
        new::<lists::ListsModule>(),
        #[cfg(feature = "jwt")]
        new::<super::jwt::JwtModule>(),
        #[cfg(feature = "geo")]
        new::<super::geo::GeoModule>(),
    ])
}

fn new<M: Module + Default + 'static>() -> Box<dyn Module> {
    Box::new(M::default())
}
