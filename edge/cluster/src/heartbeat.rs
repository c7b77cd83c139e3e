//! Heartbeats: what each node tells the others of itself, once a second, as JSON.
//!
//! Versions differ, so unknown fields are skipped and missing ones are zero. What comes in is bounded.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::Position;
use crate::snapshot::Warmth;
use crate::status::LogState;

/// The longest heartbeat, bytes. One takes about 600.
pub(crate) const HEARTBEAT_MAX: usize = 4096;
/// Kinds of rows whose digests are kept: room for those of later versions.
const KINDS_MAX: usize = 64;
/// Characters of a version or zone that are kept.
const WORD_MAX: usize = 64;

/// The message that a node sends the others each second, about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Its number.
    pub node: u8,
    /// The start of its process: unix ms × 2⁸ + 8 random bits.
    pub boot: u64,
    /// When it was sent, by the stream's clock, unix ms.
    pub at_ms: u64,
    /// By how much the sender's wall clock is ahead of the stream's.
    pub clock_ahead_ms: i64,
    /// The version of tidegate.
    pub version: String,
    /// Its zone. May be empty.
    pub zone: String,
    /// A digest of its policy.
    pub policy: u64,
    /// True if the sender says goodbye.
    pub is_leaving: bool,
    /// Its progress in learning what the others know.
    #[serde(deserialize_with = "known_or_default")]
    pub warmth: Warmth,
    /// The state of its blocks on their way to the log.
    #[serde(deserialize_with = "known_or_default")]
    pub outbound: LogState,
    /// IPv4, IPv6 and WebTorrent peers.
    pub peers: [u64; 3],
    /// Torrents.
    pub torrents: u64,
    /// Announces per second.
    pub announces_per_s: u64,
    /// Bytes of its blocks that are not stored.
    pub queue_bytes: u64,
    /// The age of the oldest change that is not stored.
    pub unstored_ms: u64,
    /// Where the last message is stored.
    pub stored: Position,
    /// Up to where the log is applied.
    pub applied: Position,
    /// The largest lag that the sender sees.
    pub lag_ms: u64,
    /// The node that is to tell all of its peers again, because the sender lacks some; 0 = none.
    pub asks: u8,
    /// Digests of the sender's rows, by kind.
    pub rows: Vec<u64>,
}

/// Reads a state; one that only a later version knows is read as the default.
fn known_or_default<'de, D: Deserializer<'de>, T: Default + DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Heartbeat {
    /// Reads a heartbeat. Returns `None` if it is too long, or none.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        if body.len() > HEARTBEAT_MAX {
            return None;
        }
        let mut heartbeat: Self = serde_json::from_slice(body).ok()?;
        heartbeat.rows.truncate(KINDS_MAX);
        for word in [&mut heartbeat.version, &mut heartbeat.zone] {
            *word = word.chars().filter(|char| !char.is_control()).take(WORD_MAX).collect();
        }
        Some(heartbeat)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}
