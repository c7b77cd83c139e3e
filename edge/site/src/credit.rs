//! Credit of a site for bytes that were moved. Pure functions.

use serde::{Deserialize, Serialize};

/// Percent of bytes that are credited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factors {
    /// Of bytes sent.
    pub upload: u16,
    /// Of bytes received.
    pub download: u16,
}

/// Bytes that were moved, or that a site credits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes sent.
    pub uploaded: u64,
    /// Bytes received.
    pub downloaded: u64,
}

/// Everything that frees a user from paying for bytes received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gifts {
    /// The user has a freeleech token for the torrent.
    pub token: bool,
    /// The user pays for no torrent.
    pub personal: bool,
    /// The torrent is featured.
    pub featured: bool,
}

impl Factors {
    /// Everything is credited as it is.
    pub const PLAIN: Self = Self { upload: 100, download: 100 };

    /// Returns the better of two, for the user.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { upload: self.upload.max(other.upload), download: self.download.min(other.download) }
    }

    /// Applies gifts.
    #[must_use]
    pub fn with(self, gifts: Gifts) -> Self {
        let is_free = gifts.token || gifts.personal || gifts.featured;
        Self {
            upload: if gifts.featured { 200 } else { self.upload },
            download: if is_free { 0 } else { self.download },
        }
    }

    /// Returns the bytes that are credited, rounded down.
    pub fn credit(self, moved: Bytes) -> Bytes {
        let percent = |bytes: u64, factor: u16| {
            let credited = u128::from(bytes) * u128::from(factor) / 100;
            u64::try_from(credited).unwrap_or(u64::MAX)
        };
        Bytes {
            uploaded: percent(moved.uploaded, self.upload),
            downloaded: percent(moved.downloaded, self.download),
        }
    }
}
