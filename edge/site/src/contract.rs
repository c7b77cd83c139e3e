//! The tracker's trait, until it lands.
use arrayvec::ArrayVec;
use std::net::IpAddr;
use tracker::KeyId;
use types::{Announce, PeerId, PeerKey, Tick};
pub trait Site: Send + Sync {
    fn announce(&self, now: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict;
}
#[derive(Clone, Copy, Debug)]
pub struct SiteAnnounce<'a> {
    pub key: KeyId,
    pub announce: &'a Announce,
    pub from: IpAddr,
    pub agent: &'a [u8],
    pub protocol: SiteProtocol,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteProtocol {
    Udp,
    Http,
    WebTorrent,
}
#[derive(Clone, Debug)]
pub struct SiteVerdict {
    pub outcome: SiteOutcome,
    pub own: OwnPeers,
}
pub type OwnPeers = ArrayVec<OwnPeer, 8>;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPeer {
    pub peer: PeerKey,
    pub peer_id: PeerId,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteOutcome {
    Serve,
    Hide(Notice),
    Quiet { notice: Notice, interval_s: u16 },
    Refuse { notice: Notice, interval_s: u16 },
}
impl SiteVerdict {
    pub fn new(outcome: SiteOutcome) -> Self {
        Self { outcome, own: OwnPeers::new() }
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Notice(&'static str);
impl Notice {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned().leak())
    }
    pub fn text(self) -> &'static str {
        self.0
    }
}
pub const SITE_FIRST: u32 = 1 << 30;
