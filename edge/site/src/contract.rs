//! The tracker's trait of sites, under the names of this crate.

pub use tracker::{
    OwnPeer, OwnPeers, Site, SiteAnnounce, SiteKeyRule, SiteOutcome, SiteProtocol, SiteVerdict,
};
pub use types::Notice;

/// The number of the key of user 0.
pub const SITE_FIRST: u32 = tracker::KeyId::SITE_FIRST;
