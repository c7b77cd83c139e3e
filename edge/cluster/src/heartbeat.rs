//! Heartbeats: what each node tells the others of itself, once a second, as JSON.
//!
//! Versions differ, so unknown fields are skipped and missing ones are zero. What comes in is bounded.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::Position;
use crate::seam::Figures;
use crate::snapshot::{OutboundState, Warmth};

/// The longest heartbeat, bytes. One takes about 600.
pub(crate) const HEARTBEAT_MAX: usize = 4096;
/// Kinds of rows whose digests are kept: room for those of later versions.
const KINDS_MAX: usize = 64;
/// Characters of a version or zone that are kept.
const WORD_MAX: usize = 64;

/// A heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Heartbeat {
    pub(crate) node: u8,
    pub(crate) boot: u64,
    /// When it was sent, by the stream's clock, unix ms.
    pub(crate) at_ms: u64,
    /// By how much the sender's wall clock is ahead of the stream's.
    pub(crate) clock_ahead_ms: i64,
    pub(crate) version: String,
    pub(crate) zone: String,
    pub(crate) policy: u64,
    /// Whether the sender says good-bye.
    pub(crate) is_leaving: bool,
    #[serde(deserialize_with = "known_or_default")]
    pub(crate) warmth: Warmth,
    #[serde(deserialize_with = "known_or_default")]
    pub(crate) outbound: OutboundState,
    /// IPv4, IPv6 and WebTorrent peers.
    pub(crate) peers: [u64; 3],
    pub(crate) torrents: u64,
    pub(crate) announces_per_s: u64,
    pub(crate) queue_bytes: u64,
    /// The age of the oldest change that is not stored.
    pub(crate) unstored_ms: u64,
    /// Where the last message is stored.
    pub(crate) stored: Position,
    /// Up to where the log is applied.
    pub(crate) applied: Position,
    /// The largest lag that the sender sees.
    pub(crate) lag_ms: u64,
    /// The node that is to tell all of its peers again, because the sender lacks some; 0 = none.
    pub(crate) asks: u8,
    /// Digests of the sender's rows, by kind.
    pub(crate) rows: Vec<u64>,
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

    /// Returns its bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns what the sender holds and does.
    pub(crate) fn with_figures(self, figures: &Figures) -> Self {
        let Figures { peers, torrents, announces_per_s } = *figures;
        Self { peers, torrents, announces_per_s, ..self }
    }
}
