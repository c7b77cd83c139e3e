//! Webhooks.

use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

/// A row.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookRow {
    pub(crate) id: i64,
    pub(crate) url: String,
    /// Labels of kinds separated by spaces.
    pub(crate) events: String,
    /// The key of signatures, which must be stored in clear.
    pub(crate) secret: String,
    pub(crate) created: i64,
    /// The digest of the token that it ends with: that which created it, but the first token and that of the
    /// environment. A digest, because nodes that meet may give a token another id.
    #[serde(default)]
    pub(crate) token: Option<[u8; 32]>,
}

table_with_ids!(WebhookRow, "webhooks": id, url, events, secret, created, token);
