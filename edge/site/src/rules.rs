//! Rules of keys that the API sets, for sites that read the feed.

use hashbrown::HashMap;
use tracker::KeyId;

/// The rights of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyRule {
    /// Torrents that it may download at a time, if limited. Over them it is served without peers.
    pub(crate) download_slots: Option<u32>,
}

/// Rules that differ from the default.
#[derive(Default)]
pub(crate) struct Rules {
    keys: HashMap<u32, KeyRule>,
}

impl Rules {
    pub(crate) fn key(&self, key: u32) -> KeyRule {
        self.keys.get(&key).copied().unwrap_or_default()
    }

    pub(crate) fn set_key(&mut self, key: KeyId, rule: KeyRule) {
        if rule == KeyRule::default() {
            self.keys.remove(&key.0);
        } else {
            self.keys.insert(key.0, rule);
        }
    }
}
