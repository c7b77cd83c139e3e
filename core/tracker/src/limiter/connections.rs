//! Counts of the connections of each prefix and each network: two maps with an entry for each that holds
//! any, so the connections themselves bound them. They are sharded, with a lock for each shard; a
//! connection takes one lock of each map when it opens and when it closes, and another one at a listener
//! that may hold fewer connections than others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards of a map: mostly more than workers.
const SHARDS: usize = 64;

/// Connections of prefixes and of networks.
pub(super) struct ConnectionLimiter {
    prefixes: ConnectionCounts,
    networks: ConnectionCounts,
}

/// Connections by a keyed hash.
struct ConnectionCounts {
    shards: [Mutex<BTreeMap<NonZeroU64, u32>>; SHARDS],
}

/// A keyed hash of a prefix or network, and the most connections that it may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) hash: u64,
    pub(super) max: u32,
}

/// The limits of one client's connections; `None` = unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    pub(super) prefix: Option<Bound>,
    pub(super) network: Option<Bound>,
    /// For the network at one listener.
    pub(super) listener: Option<Bound>,
    /// For the prefix' unfinished TLS handshakes.
    pub(super) handshake: Option<Bound>,
}

/// A listener that may hold fewer connections than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerShare {
    /// Where it listens.
    pub address: SocketAddr,
    /// The most connections that a worker holds there.
    pub connections_max: usize,
    /// The most that a worker holds at all its listeners.
    pub worker_max: usize,
}

impl ListenerShare {
    /// Returns how many connections a network may hold there, if it may hold `network_max` of all; 0 =
    /// unlimited.
    pub(super) fn network_max(&self, network_max: u32) -> u32 {
        let part = u64::from(network_max) * self.connections_max as u64;
        let part = part / (self.worker_max as u64).max(1);
        let least = network_max.min(1);
        u32::try_from(part).unwrap_or(u32::MAX).clamp(least, network_max)
    }
}

/// Why there is no permit for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermitDenied {
    /// The client's prefix holds as many connections as it may.
    Prefix,
    /// The client's network holds as many as it may, of all connections or of those at the listener.
    Network,
    /// The client's prefix opens connections faster than it may.
    OpeningRate,
    /// The client's prefix begins TLS handshakes faster than it may.
    HandshakeRate,
    /// The client's prefix has as many unfinished TLS handshakes as it may.
    UnfinishedHandshakes,
}

/// Permission to hold a connection. Ends when it is dropped.
#[derive(Default)]
pub struct ConnectionPermit {
    /// `None` if the connection is not counted.
    limiter: Option<Arc<ConnectionLimiter>>,
    /// The keys under which it is counted.
    prefix: Option<NonZeroU64>,
    network: Option<NonZeroU64>,
    listener: Option<NonZeroU64>,
    handshake: Option<NonZeroU64>,
}

impl ConnectionLimiter {
    pub(super) fn new() -> Self {
        Self { prefixes: ConnectionCounts::new(), networks: ConnectionCounts::new() }
    }

    /// Returns a permit if the client's prefix and network hold fewer than they may.
    pub(super) fn take(self: &Arc<Self>, bounds: Bounds) -> Result<ConnectionPermit, PermitDenied> {
        // From here on the permit releases what was counted.
        let mut permit = ConnectionPermit::default();
        permit.limiter = Some(Arc::clone(self));
        if let Some(bound) = bounds.prefix {
            permit.prefix = Some(self.prefixes.add(bound).ok_or(PermitDenied::Prefix)?);
        }
        if let Some(bound) = bounds.network {
            permit.network = Some(self.networks.add(bound).ok_or(PermitDenied::Network)?);
        }
        if let Some(bound) = bounds.listener {
            permit.listener = Some(self.networks.add(bound).ok_or(PermitDenied::Network)?);
        }
        if let Some(bound) = bounds.handshake {
            let key = self.prefixes.add(bound);
            permit.handshake = Some(key.ok_or(PermitDenied::UnfinishedHandshakes)?);
        }
        Ok(permit)
    }

    /// Returns the number of prefixes and networks that hold connections.
    #[cfg(test)]
    pub(super) fn holders(&self) -> [usize; 2] {
        [&self.prefixes, &self.networks]
            .map(|counts| counts.shards.iter().map(|shard| shard.lock().unwrap().len()).sum())
    }
}

impl ConnectionCounts {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Counts one more connection, and returns its key. Returns `None` if there are as many as there may be.
    fn add(&self, Bound { hash, max }: Bound) -> Option<NonZeroU64> {
        let key = key(hash);
        let mut shard = self.shard(key);
        let held = shard.get(&key).copied().unwrap_or(0);
        if held >= max {
            return None;
        }
        shard.insert(key, held + 1);
        Some(key)
    }

    fn held(&self, key: NonZeroU64) -> u32 {
        self.shard(key).get(&key).copied().unwrap_or(0)
    }

    fn release(&self, key: NonZeroU64) {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(&key) else {
            debug_assert!(false, "a permit is released that was never counted");
            return;
        };
        *held -= 1;
        if *held == 0 {
            shard.remove(&key);
        }
    }

    fn shard(&self, key: NonZeroU64) -> MutexGuard<'_, BTreeMap<NonZeroU64, u32>> {
        let shard = &self.shards[key.get() as usize % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the key of a hash. No key is 0, so that a permit without one takes no more room.
fn key(hash: u64) -> NonZeroU64 {
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}

impl ConnectionPermit {
    /// Returns a permit that counts for no prefix.
    pub fn uncounted() -> Self {
        Self::default()
    }

    /// Ends the connection's TLS handshake.
    pub fn end_handshake(&mut self) {
        if let (Some(limiter), Some(key)) = (&self.limiter, self.handshake.take()) {
            limiter.prefixes.release(key);
        }
    }

    /// Returns a number that identifies the client's network, if the connection counts for one.
    pub fn network(&self) -> Option<NonZeroU64> {
        self.network
    }

    /// Returns how many connections the client's network holds; 0 if this one counts for none. Takes a lock.
    pub fn network_connections(&self) -> u32 {
        self.held(self.network)
    }

    /// Returns how many it holds at the permit's listener, or in all if the listener has no share of its own.
    pub fn network_connections_at_listener(&self) -> u32 {
        self.held(self.listener.or(self.network))
    }

    fn held(&self, network: Option<NonZeroU64>) -> u32 {
        let (Some(limiter), Some(key)) = (&self.limiter, network) else { return 0 };
        limiter.networks.held(key)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.end_handshake();
        let Some(limiter) = self.limiter.take() else { return };
        self.prefix.into_iter().for_each(|key| limiter.prefixes.release(key));
        let of_network = [self.network, self.listener];
        of_network.into_iter().flatten().for_each(|key| limiter.networks.release(key));
    }
}
