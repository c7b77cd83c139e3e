//! The secrets by which a running node issues, and those that it accepts. They change over the records of the cluster.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use admin::SecretStep;
use cluster::nats::SecretIds;
use tracing::{info, warn};
use tracker::Tracker;
use types::from_hex;

use crate::cluster::secret::{Secret, Secrets, Step};
use crate::dates;

/// An old secret is accepted for this much longer than a peer's lifetime, seconds: the log has messages under it for five
/// minutes more, and clocks of nodes differ.
const OLD_SPARE_S: u64 = 360;

pub(in crate::serve) struct LiveSecrets {
    join: Secret,
    secrets: Mutex<Secrets>,
    /// Ids of the accepted secrets. The NATS driver shares them and follows their changes.
    ids: SecretIds,
    tracker: OnceLock<Arc<Tracker>>,
}

impl LiveSecrets {
    pub(super) fn new(join: Secret) -> Self {
        let secrets = Secrets::from(join.clone());
        let ids = SecretIds::from(secrets.ids());
        Self { join, secrets: Mutex::new(secrets), ids, tracker: OnceLock::new() }
    }

    pub(super) fn ids(&self) -> SecretIds {
        self.ids.clone()
    }

    pub(super) fn attach(&self, tracker: &Arc<Tracker>) {
        let _ = self.tracker.set(Arc::clone(tracker));
    }

    /// Returns the secrets after a step of a change, as JSON to be recorded.
    pub(in crate::serve) fn changed(&self, step: &SecretStep) -> Result<String, String> {
        let bytes = from_hex(&step.secret).ok_or("secret: expected 64 hex digits")?;
        let new = Secret::new(step.number, bytes);
        let step = match step.issue {
            false => Step::Accept,
            true => Step::Issue { old_until: dates::now() + self.old_kept_s() },
        };
        let changed = self.lock().changed(&new, step)?;
        serde_json::to_string(&changed).map_err(|error| error.to_string())
    }

    /// Returns how long clients with connection ids of an old secret, and nodes that read the log, need it.
    fn old_kept_s(&self) -> u64 {
        let kept_s = self.tracker.get().map_or(0, |tracker| {
            let settings = tracker.settings();
            settings.lifetimes().peer_s.max(2 * settings.policy.connection_id_lifetime_s)
        });
        u64::from(kept_s) + OLD_SPARE_S
    }

    pub(in crate::serve) fn take_recorded(&self, recorded: &str) {
        let recorded: Secrets = match serde_json::from_str(recorded) {
            Ok(recorded) => recorded,
            Err(error) => {
                return warn!(%error, "the recorded secrets are malformed and were ignored");
            }
        };
        let mut secrets = self.lock();
        let before = secrets.number();
        *secrets = Secrets::of_node(self.join.clone(), Some(recorded));
        secrets.expire(dates::now());
        if secrets.number() != before {
            info!(number = secrets.number(), "the secret of the cluster has changed");
        }
        self.apply(&secrets);
    }

    pub(in crate::serve) fn expire(&self) {
        let mut secrets = self.lock();
        if secrets.expire(dates::now()) {
            info!("the old secret of the cluster is accepted no longer");
            self.apply(&secrets);
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.lock().number()
    }

    fn apply(&self, secrets: &Secrets) {
        self.ids.set(secrets.ids());
        if let Some(tracker) = self.tracker.get() {
            tracker.replace_secrets(secrets.keys(), secrets.previous_keys());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
