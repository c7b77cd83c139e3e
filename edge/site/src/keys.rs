//! The keys of the site's users, in the tracker.

use std::sync::{Arc, OnceLock};

use tracker::{KeyId, KeyRules, Tracker};
use types::UserKey;

/// The tracker's keys, once it is known.
#[derive(Default)]
pub(crate) struct Keys(OnceLock<Arc<Tracker>>);

impl Keys {
    pub(crate) fn set(&self, tracker: Arc<Tracker>) {
        let _ = self.0.set(tracker);
    }

    /// Adds or replaces the key of a user, in force when this returns. Returns false if there is no room for it.
    pub(crate) fn put(&self, user: u32, key: UserKey) -> bool {
        let Some(tracker) = self.0.get() else { return true };
        let id = id_of(user);
        id.is_some_and(|id| tracker.passkeys().put(id, key, KeyRules::default()))
    }

    pub(crate) fn remove(&self, user: u32) {
        if let (Some(tracker), Some(id)) = (self.0.get(), id_of(user)) {
            tracker.passkeys().remove(id);
        }
    }
}

/// Returns the number of a user's key. Numbers above it belong to others.
pub(crate) fn id_of(user: u32) -> Option<KeyId> {
    (user < KeyId::FILE_FIRST - KeyId::SITE_FIRST).then(|| KeyId(KeyId::SITE_FIRST + user))
}
