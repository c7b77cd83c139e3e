//! The configuration of a session.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::random;
use crate::tls::{self, Trust};

/// The settings with which a [`Session`](crate::Session) talks to a tracker.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Timeout of each response and of each connection attempt.
    pub timeout: Duration,
    /// TLS configuration, for `https` and `wss`.
    pub tls: Arc<ClientConfig>,
    /// The announces' `key`, by which a tracker can recognize a client whose address has changed.
    pub key: u32,
}

impl SessionConfig {
    /// Creates a configuration with a random key.
    pub fn new(timeout: Duration, tls: Arc<ClientConfig>) -> Self {
        Self { timeout, tls, key: u32::from_ne_bytes(random()) }
    }

    /// Creates a configuration that trusts the root CAs that browsers trust, with a random key.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`tls::config`].
    pub fn with_web_roots(timeout: Duration) -> Result<Self, rustls::Error> {
        let roots = Trust::Roots(Arc::new(tls::web_roots()));
        Ok(Self::new(timeout, Arc::new(tls::config(&roots)?)))
    }
}
