//! The last report of a peer of a key, so that the next announce shows its progress since.
//!
//! A session belongs to its peer, which is distinguished as in the store: by address and port, or by its
//! connection. Sessions with the same peer id have the same `client`, so that a client that announces
//! from several addresses is recognized as one.

use primitives::siphash::siphash;
use types::{InfoHash, PeerId, PeerKey, Role, Tick, WebPeer};

use super::shard::SHARD_BITS;
use super::{KeyHash, KeyTotals, Report};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionTag {
    /// A keyed hash of the key, the torrent and the peer id. Its shard bits are those of the key.
    pub(super) client: u64,
    /// A keyed hash of the peer's identity, of [`ENDPOINT_BITS`] bits.
    pub(super) endpoint: u64,
}

/// The identity that distinguishes a peer from all others in its torrent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerIdentity {
    /// Its address and port.
    Socket(PeerKey),
    /// Its connection. One connection may have several peers, by their peer ids.
    Web(WebPeer),
}

/// A peer of a key in a torrent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) tag: SessionTag,
    pub(super) last: Reported,
}

/// The last report of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) uploaded: u64,
    pub(super) downloaded: u64,
    pub(super) at: Tick,
    pub(super) is_seeder: bool,
    pub(super) is_web: bool,
}

/// The reports of the other sessions of a client.
#[derive(Clone, Copy, Default)]
pub(super) struct Siblings {
    uploaded: u64,
    downloaded: u64,
    /// When one of them last reported as a seeder.
    seeder_at: Tick,
}

/// The exported form of a session has room for six bytes. With the secret unknown, a second address and port with
/// the same bits would take 2^48 announces to find.
pub(super) const ENDPOINT_BITS: u32 = 48;

// The figure for a session in limits.rs assumes it.
const _: () = assert!(size_of::<Session>() == 40);

impl SessionTag {
    /// Returns the tag of a peer of a key in a torrent. `secret` keeps clients from choosing peers with
    /// equal tags.
    #[inline]
    pub(super) fn new(
        secret: &[u8; 16],
        key: KeyHash,
        hash: &InfoHash,
        id: &PeerId,
        identity: &PeerIdentity,
    ) -> Self {
        let mut message = [0; 48];
        message[..8].copy_from_slice(&key.short().to_le_bytes());
        message[8..28].copy_from_slice(&hash.0);
        message[28..].copy_from_slice(&id.0);
        let client = siphash::<1, 3>(secret, &message);
        Self {
            client: client & !SHARD_BITS | key.short() & SHARD_BITS,
            endpoint: identity.hash(secret) >> (64 - ENDPOINT_BITS),
        }
    }
}

impl PeerIdentity {
    /// Returns a keyed hash. Kinds and families differ in length, so none is hashed as another.
    #[inline]
    fn hash(&self, secret: &[u8; 16]) -> u64 {
        match self {
            Self::Socket(PeerKey::V4(key)) => siphash::<1, 3>(secret, key),
            Self::Socket(PeerKey::V6(key)) => siphash::<1, 3>(secret, key),
            Self::Web(WebPeer { connection, peer_id }) => {
                let mut message = [0; 28];
                message[..8].copy_from_slice(&connection.0.to_le_bytes());
                message[8..].copy_from_slice(&peer_id.0);
                siphash::<1, 3>(secret, &message)
            }
        }
    }
}

impl Reported {
    pub(super) fn new(now: Tick, report: &Report<'_>) -> Self {
        Self {
            uploaded: report.uploaded,
            downloaded: report.downloaded,
            at: now,
            is_seeder: report.role == Role::Seeder,
            is_web: report.is_web,
        }
    }

    /// Returns the report with counts that no later one exceeds, so that the peer's next report counts nothing: it
    /// may have made one since this one, which was counted.
    pub(super) fn without_counts(self) -> Self {
        Self { uploaded: u64::MAX, downloaded: u64::MAX, is_seeder: false, ..self }
    }

    /// Returns the peer's progress to its next report, without what its siblings have reported already: a
    /// client reports the same counts from all of its addresses.
    pub(super) fn progress_to(&self, next: &Self, siblings: &Siblings) -> KeyTotals {
        let uploaded = self.uploaded.max(siblings.uploaded);
        let downloaded = self.downloaded.max(siblings.downloaded);
        KeyTotals {
            uploaded: next.uploaded.saturating_sub(uploaded),
            downloaded: next.downloaded.saturating_sub(downloaded),
            seeding_s: self.seeding_s(next.at, siblings),
            announces: 0,
        }
    }

    /// Returns the seconds as a seeder since the last announce of the client.
    pub(super) fn seeding_s(&self, now: Tick, siblings: &Siblings) -> u64 {
        if self.is_seeder { now.since(self.at.max(siblings.seeder_at)).into() } else { 0 }
    }

    /// Returns whether this was reported after `other`, by the same peer. In the same second, more bytes are
    /// later.
    pub(super) fn is_later_than(&self, other: &Self) -> bool {
        let has_more = self.uploaded > other.uploaded || self.downloaded > other.downloaded;
        self.at > other.at || self.at == other.at && has_more
    }
}

impl Siblings {
    /// Returns what these sessions have reported together.
    #[inline]
    pub(super) fn of(sessions: impl Iterator<Item = Reported>) -> Self {
        let mut all = Self::default();
        for other in sessions {
            all.uploaded = all.uploaded.max(other.uploaded);
            all.downloaded = all.downloaded.max(other.downloaded);
            if other.is_seeder {
                all.seeder_at = all.seeder_at.max(other.at);
            }
        }
        all
    }
}
