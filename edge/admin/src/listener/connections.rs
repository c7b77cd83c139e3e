//! The open connections of all admin listeners, and which of them to close when there are too many.
//!
//! Every connection is accepted at once, so that health checks and scrapes never wait for others. If there
//! are too many then, of one host or in all, one is closed, in this order:
//!
//! 1. one on which no valid token was sent, unless few such are left: those are reserved for health checks
//!    and scrapes;
//! 2. one that has no authenticated request in progress;
//! 3. one of the network with the most connections, so that one with many hosts closes its own;
//! 4. one of its host with the most;
//! 5. the one that has sent nothing for longest: the latest are left time for their requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracker::IpPrefix;

use super::ConnectionLimits;

/// One in this many connections is reserved for clients without a token.
const RESERVED_PART: usize = 8;

/// Returns the prefix that one client has to itself: an IPv4 address, or a /64.
pub(crate) fn host(client: IpAddr) -> IpPrefix {
    match client.to_canonical() {
        IpAddr::V4(ip) => IpPrefix::v4(ip, 32),
        IpAddr::V6(ip) => IpPrefix::v6(ip, 64),
    }
}

/// Returns the prefix that one operator of hosts has at least: an IPv4 /24, or a /48.
fn network(client: IpAddr) -> IpPrefix {
    match client.to_canonical() {
        IpAddr::V4(ip) => IpPrefix::v4(ip, 24),
        IpAddr::V6(ip) => IpPrefix::v6(ip, 48),
    }
}

/// The open connections.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// By id.
    open: HashMap<u64, Entry>,
    /// Counts connections and what they sent: a clock that orders both.
    clock: u64,
}

struct Entry {
    host: IpPrefix,
    network: IpPrefix,
    /// The clock when the connection was accepted or last sent something.
    active: u64,
    has_token: bool,
    /// Authenticated requests in progress.
    requests: u32,
    /// Dropped to close the connection.
    _close: oneshot::Sender<()>,
}

/// An open connection, for those that serve it.
#[derive(Clone)]
pub(crate) struct ConnectionHandle {
    id: u64,
    all: Arc<Connections>,
}

/// An authenticated request in progress, until it is dropped.
pub(crate) struct RequestInProgress<'a>(&'a ConnectionHandle);

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// Returns whether no connection is open.
    pub(crate) fn are_none(&self) -> bool {
        self.table.lock().open.is_empty()
    }

    /// Adds a connection, and closes another if there are too many. The receiver completes when this one is
    /// to be closed.
    pub(super) fn admit(
        self: &Arc<Self>,
        client: IpAddr,
    ) -> (ConnectionHandle, oneshot::Receiver<()>) {
        let (host, network) = (host(client), network(client));
        let (close, closed) = oneshot::channel();
        let mut table = self.table.lock();
        table.make_room(self.limits.per_host, |entry| entry.host == host);
        table.make_room(self.limits.connections, |_| true);
        let id = table.next();
        let entry =
            Entry { host, network, active: id, has_token: false, requests: 0, _close: close };
        table.open.insert(id, entry);
        (ConnectionHandle { id, all: Arc::clone(self) }, closed)
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Closes one of the connections that `is_counted` selects, if there are `max` of them.
    fn make_room(&mut self, max: usize, is_counted: impl Fn(&Entry) -> bool) {
        let counted = || self.open.iter().filter(|(_, entry)| is_counted(entry));
        if counted().count() < max {
            return;
        }
        let without_token = counted().filter(|(_, entry)| !entry.has_token).count();
        let closes_token = without_token <= max / RESERVED_PART;
        let mut by_prefix: BTreeMap<(bool, IpPrefix), usize> = BTreeMap::new();
        for (_, entry) in counted() {
            for prefix in [entry.network, entry.host] {
                *by_prefix.entry((entry.has_token, prefix)).or_default() += 1;
            }
        }
        let rank = |entry: &Entry| {
            let count = |prefix| by_prefix.get(&(entry.has_token, prefix)).copied().unwrap_or(0);
            let counts = [entry.network, entry.host].map(|prefix| Reverse(count(prefix)));
            let is_spared = entry.has_token != closes_token;
            (is_spared, entry.requests > 0, counts, entry.active)
        };
        let victim = counted().min_by_key(|(_, entry)| rank(entry)).map(|(id, _)| *id);
        victim.and_then(|id| self.open.remove(&id));
    }
}

impl ConnectionHandle {
    pub(super) fn sent(&self) {
        let mut table = self.all.table.lock();
        let now = table.next();
        if let Some(entry) = table.open.get_mut(&self.id) {
            entry.active = now;
        }
    }

    /// Notes that a request with a valid token has begun.
    pub(crate) fn begin_authenticated(&self) -> RequestInProgress<'_> {
        if let Some(entry) = self.all.table.lock().open.get_mut(&self.id) {
            entry.has_token = true;
            entry.requests += 1;
        }
        RequestInProgress(self)
    }

    /// Removes the connection, which is closed.
    pub(super) fn remove(&self) {
        self.all.table.lock().open.remove(&self.id);
    }
}

impl Drop for RequestInProgress<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.0.all.table.lock().open.get_mut(&self.0.id) {
            entry.requests = entry.requests.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn connections(connections: usize, per_host: usize) -> Arc<Connections> {
        let idle_timeout = Duration::from_secs(1);
        Connections::new(ConnectionLimits { connections, per_host, idle_timeout })
    }

    fn is_open(handle: &ConnectionHandle) -> bool {
        handle.all.table.lock().open.contains_key(&handle.id)
    }

    const GREEDY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn closes_the_connection_of_the_greediest_host_that_was_idle_longest() {
        let all = connections(10, 10);
        let greedy = [(); 6].map(|()| all.admit(GREEDY));
        let others = [(); 4].map(|()| all.admit(OTHER));
        greedy[0].0.sent();
        let mut last = all.admit(OTHER);
        let open = |all: &[(ConnectionHandle, _)]| -> Vec<bool> {
            all.iter().map(|(handle, _)| is_open(handle)).collect()
        };
        assert_eq!(open(&greedy), [true, false, true, true, true, true]);
        assert_eq!(open(&others), [true; 4]);
        let (_, mut closed) = greedy.into_iter().nth(1).unwrap();
        assert!(closed.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        assert!(last.1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        last.0.remove();
        assert_eq!(all.table.lock().open.len(), 9);
    }

    #[test]
    fn a_host_closes_its_own_connections_above_its_share() {
        let all = connections(10, 4);
        let other = all.admit(OTHER);
        let mut last = all.admit(GREEDY);
        for _ in 0..100 {
            last = all.admit(GREEDY);
        }
        assert!(is_open(&other.0) && is_open(&last.0));
        assert_eq!(all.table.lock().open.len(), 5);
        // The addresses of a /64 are one host, and the hosts of a /48 one network.
        for number in 0..100 {
            all.admit([0x2001, 0xdb8, 0, 0, 0, 0, 0, number].into());
        }
        assert_eq!(all.table.lock().open.len(), 9);
        let networks = [1, 2].map(|subnet| network([0x2001, 0xdb8, 1, subnet, 0, 0, 0, 7].into()));
        assert_eq!(networks.map(|it| it.to_string()), ["2001:db8:1::/48"; 2]);
    }

    #[test]
    fn closes_a_connection_of_the_network_with_the_most() {
        let all = connections(4, 4);
        let other = all.admit(OTHER);
        let hosts = [1, 2, 3].map(|number| all.admit([198, 51, 100, number].into()));
        let last = all.admit([203, 0, 113, 1].into());
        assert!(is_open(&other.0) && is_open(&last.0) && !is_open(&hosts[0].0));
    }

    #[test]
    fn spares_clients_with_tokens_but_for_a_reserve() {
        let all = connections(16, 16);
        let (importing, _kept) = all.admit(GREEDY);
        let request = importing.begin_authenticated();
        let signed_in = [(); 12].map(|()| all.admit(GREEDY));
        signed_in.iter().for_each(|(handle, _)| drop(handle.begin_authenticated()));
        // Many addresses without a token close each other's connections.
        for number in 0..100 {
            all.admit([198, 51, 100, number].into());
        }
        assert!(signed_in.iter().all(|(handle, _)| is_open(handle)));
        // Few connections are left for those without a token: now one with a token is closed.
        let more = all.admit(GREEDY);
        drop(more.0.begin_authenticated());
        let probe = all.admit(OTHER);
        let another = all.admit([198, 51, 100, 1].into());
        assert!(is_open(&probe.0) && is_open(&another.0));
        assert!(!is_open(&signed_in[0].0) && is_open(&importing));
        drop(request);
    }
}
