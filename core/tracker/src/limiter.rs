//! Limits: how much clients may ask for, and how many connections they may hold. Both are counted by
//! prefix, because a client with one address of an IPv6 network has all of them.
//!
//! Requests are counted under a verified source address: by a connection id over UDP, by the handshake
//! over TCP. Only UDP connects come before that. Their source may be forged, so they have a table of
//! their own: a forged flood can use up the connects of the addresses that it forges, and nothing else.
//! A client with a connection id is not affected; packets with a bad one are dropped uncounted.
//!
//! New TCP connections and TLS handshakes have rates, too: a handshake takes as long as hundreds of announces.
//!
//! Ticks are whole seconds: a prefix over its limit gets a second's worth at the beginning of each
//! second.

mod buckets;
mod connections;
mod heavy_hitters;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use primitives::IpPrefix;
use primitives::siphash::siphash_ip;
use types::{Tick, limits};

use crate::settings::SharedSettings;
use crate::{Networks, RequestKind};
use connections::{Bound, Bounds, ConnectionLimiter};

pub(crate) use buckets::Buckets;
pub use buckets::Rate;
pub use connections::{ConnectionPermit, ListenerShare, PermitDenied};
pub use heavy_hitters::HeavyHitters;

/// The limits of the clients of one prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// UDP connects.
    pub connects: Rate,
    /// Announces, over all protocols together.
    pub announces: Rate,
    /// Scrapes, over all protocols together.
    pub scrapes: Rate,
    /// New TCP connections.
    pub openings: Rate,
    /// New TCP connections with TLS.
    pub handshakes: Rate,
    /// TLS handshakes in progress; 0 = unlimited.
    pub unfinished_handshakes: u32,
    /// HTTP requests that are neither announces nor scrapes, and those that are refused.
    pub others: Rate,
    /// TCP connections at a time; 0 = unlimited.
    pub connections: u32,
    /// TCP connections at a time of a wider network, an IPv4 /24 or an IPv6 /48; 0 = unlimited.
    pub network_connections: u32,
    /// UDP requests refused by one worker in a second, above which the kernel drops the prefix; 0 =
    /// never.
    pub kernel_block_per_s: u32,
    /// Seconds for which the kernel drops it.
    pub kernel_block_s: u32,
    /// Bits of an IPv6 address that make a prefix.
    pub prefix_v6: u8,
    /// Prefixes remembered for each rate, 8 bytes each; rounded up to a power of two. Cannot be changed
    /// once there is a rate.
    pub buckets: u32,
    /// Networks for which no limit holds.
    pub exempt: Networks,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connects: Rate::default(),
            announces: Rate::default(),
            scrapes: Rate::default(),
            openings: Rate::default(),
            handshakes: Rate::default(),
            unfinished_handshakes: 0,
            others: Rate::default(),
            connections: 0,
            network_connections: 0,
            kernel_block_per_s: 10_000,
            kernel_block_s: 10,
            prefix_v6: 64,
            buckets: 1 << 16,
            exempt: Networks::default(),
        }
    }
}

/// The usage of a rate's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableUsage {
    /// The label in metrics of the kind of requests.
    pub label: &'static str,
    /// Buckets of prefixes with recent requests.
    pub in_use: usize,
    /// All buckets.
    pub buckets: usize,
}

/// The limits in force, and what is counted for them.
pub struct Limiter {
    key: [u8; 16],
    settings: SharedSettings,
    /// In the order of [`RequestKind::ALL`].
    requests: [Table; RequestKind::ALL.len()],
    openings: Table,
    handshakes: Table,
    permits: Arc<ConnectionLimiter>,
}

/// The prefixes that a rate was applied to. Allocated with the first rate.
type Table = OnceLock<Buckets>;

/// The rate of WebTorrent offers.
const OFFERS: Rate = Rate { per_s: limits::OFFERS_PER_S, burst: limits::OFFERS_BURST };

const _: () = assert!(OFFERS.burst <= Buckets::BURST_MAX);

impl Limits {
    /// Returns the prefix under which `ip` is counted: of IPv4, the address.
    #[inline]
    pub fn prefix(&self, ip: IpAddr) -> IpPrefix {
        IpPrefix::of_client(ip, 32, self.prefix_v6)
    }

    /// Returns the network of `ip`: many prefixes that one customer of a provider may have.
    pub(crate) fn network(&self, ip: IpAddr) -> IpPrefix {
        let network = IpPrefix::of_client(ip, limits::NETWORK_BITS_V4, limits::NETWORK_BITS_V6);
        let prefix = self.prefix(ip);
        if prefix.bits() < network.bits() { prefix } else { network }
    }

    /// Counts a request that was refused as one too many. Returns whether the kernel should drop its
    /// prefix from now on.
    pub(crate) fn note(&self, heavy_hitters: &mut HeavyHitters, now: Tick, from: IpAddr) -> bool {
        let max = self.kernel_block_per_s;
        max > 0 && heavy_hitters.refused(now, self.prefix(from), max, self.kernel_block_s)
    }

    fn rate(&self, kind: RequestKind) -> Rate {
        match kind {
            RequestKind::Connect => self.connects,
            RequestKind::Announce => self.announces,
            RequestKind::Scrape => self.scrapes,
            RequestKind::Answer => Rate::default(),
            RequestKind::Other => self.others,
        }
    }
}

impl Limiter {
    /// Returns a limiter for the limits in `settings`. `key` keeps clients from knowing which prefixes share a bucket.
    pub(crate) fn new(key: [u8; 16], settings: SharedSettings) -> Self {
        Self {
            key,
            settings,
            requests: Default::default(),
            openings: Table::default(),
            handshakes: Table::default(),
            permits: Arc::new(ConnectionLimiter::new()),
        }
    }

    /// Replaces the limits, for every worker from its next batch on. Keeps what was counted, and the
    /// number of buckets that the first rate had. Connections opened while there was no limit are never
    /// counted.
    pub fn replace(&self, mut limits: Limits) {
        let buckets = limits.buckets.clamp(1, limits::BUCKETS_MAX);
        let rates = [&mut limits.connects, &mut limits.announces, &mut limits.scrapes];
        let others = [&mut limits.openings, &mut limits.handshakes, &mut limits.others];
        for rate in rates.into_iter().chain(others) {
            rate.burst = rate.burst.max(rate.per_s).min(Buckets::BURST_MAX);
        }
        for (table, _, rate) in self.tables(&limits) {
            if rate.per_s > 0 {
                table.get_or_init(|| Buckets::new(buckets));
            }
        }
        self.settings.change(|settings| settings.limits.clone_from(&limits));
    }

    /// Counts a request of `from`. Returns false, and counts nothing, if its prefix is over the limit.
    /// The caller looks up exemptions.
    #[inline]
    pub(crate) fn take(&self, limits: &Limits, now: Tick, from: IpAddr, kind: RequestKind) -> bool {
        let rate = limits.rate(kind);
        rate.per_s == 0
            || self.requests[kind.index()]
                .get()
                .is_none_or(|buckets| buckets.take(self.prefix_hash(limits, from), now, rate))
    }

    /// Counts a new TCP connection of `from`, and returns a permit for it as [`Limiter::permit`] does. Over
    /// TLS, the permit also holds one of the prefix' unfinished handshakes, until
    /// [`ConnectionPermit::end_handshake`].
    ///
    /// # Errors
    ///
    /// Fails if its prefix opens connections too fast, or if its prefix or its network holds as many as it may.
    pub fn open(
        &self,
        now: Tick,
        from: IpAddr,
        over_tls: bool,
        share: Option<&ListenerShare>,
    ) -> Result<ConnectionPermit, PermitDenied> {
        let settings = self.settings.load();
        let limits = &settings.limits;
        let hash = self.prefix_hash(limits, from);
        let is_over = |table: &Table, rate: Rate| {
            rate.per_s > 0
                && table.get().is_some_and(|buckets| !buckets.take(hash, now, rate))
                && !limits.exempt.contains(from)
        };
        if is_over(&self.openings, limits.openings) {
            return Err(PermitDenied::OpeningRate);
        }
        if over_tls && is_over(&self.handshakes, limits.handshakes) {
            return Err(PermitDenied::HandshakeRate);
        }
        let max = limits.unfinished_handshakes;
        let handshake = (over_tls && max > 0 && !limits.exempt.contains(from))
            .then_some(Bound { hash: hash.rotate_left(32), max });
        match (self.connection_bounds(limits, from, share), handshake) {
            (None, None) => Ok(ConnectionPermit::uncounted()),
            (bounds, _) => self.permits.take(Bounds { handshake, ..bounds.unwrap_or_default() }),
        }
    }

    /// Counts offers of `from`. Returns how many of them are within the limit of its prefix, and counts only
    /// those. The caller looks up exemptions.
    ///
    /// There is a limit while there is one of announces. A prefix has a bucket for its offers in the same
    /// table, so that they take no announces from others behind its address.
    pub(crate) fn take_offers(&self, limits: &Limits, now: Tick, from: IpAddr, offers: u32) -> u32 {
        let announces = self.requests[RequestKind::Announce.index()].get();
        match announces {
            Some(buckets) if limits.announces.per_s > 0 => {
                let hash = self.prefix_hash(limits, from).rotate_left(u64::BITS / 2);
                buckets.take_some(hash, now, OFFERS, offers)
            }
            _ => offers,
        }
    }

    /// Returns a permit for one more TCP connection of `from`, whatever the protocol and the worker. `share`
    /// is its listener, if that may hold fewer connections than others.
    ///
    /// # Errors
    ///
    /// Returns `Prefix` or `Network` if the one or the other holds as many connections as it may.
    pub fn permit(
        &self,
        from: IpAddr,
        share: Option<&ListenerShare>,
    ) -> Result<ConnectionPermit, PermitDenied> {
        match self.connection_bounds(&self.settings.load().limits, from, share) {
            Some(bounds) => self.permits.take(bounds),
            None => Ok(ConnectionPermit::uncounted()),
        }
    }

    /// Returns how full the table of each rate in force is. Visits every bucket: call it once in some
    /// seconds.
    pub fn table_usages(&self, now: Tick) -> Vec<TableUsage> {
        let settings = self.settings.load();
        let usage = |(table, label, rate): (&Table, &'static str, Rate)| {
            let buckets = table.get().filter(|_| rate.per_s > 0)?;
            let in_use = buckets.in_use(now, rate.per_s);
            Some(TableUsage { label, in_use, buckets: buckets.len() })
        };
        self.tables(&settings.limits).filter_map(usage).collect()
    }

    /// Iterates over the tables, with their labels in metrics and their rates.
    fn tables(&self, limits: &Limits) -> impl Iterator<Item = (&Table, &'static str, Rate)> {
        let kinds = RequestKind::ALL.map(|kind| (kind.label(), limits.rate(kind)));
        let of_requests = self.requests.iter().zip(kinds);
        let of_tcp = [
            (&self.openings, "connection", limits.openings),
            (&self.handshakes, "handshake", limits.handshakes),
        ];
        of_requests.map(|(table, (label, rate))| (table, label, rate)).chain(of_tcp)
    }

    /// Returns how many connections the prefix and the network of `from` may hold, if that is limited.
    fn connection_bounds(
        &self,
        limits: &Limits,
        from: IpAddr,
        share: Option<&ListenerShare>,
    ) -> Option<Bounds> {
        let max = limits.connections;
        let network_max = limits.network_connections;
        if max == 0 && network_max == 0 || limits.exempt.contains(from) {
            return None;
        }
        let bound = |max, hash| (max > 0).then_some(Bound { hash, max });
        let network = self.hash(limits.network(from).address());
        let at_listener = |share: &ListenerShare| {
            let (ip, port) = (share.address.ip(), u64::from(share.address.port()));
            let hash = network ^ self.hash(ip).rotate_left(1).wrapping_add(port);
            bound(share.network_max(network_max), hash)
        };
        Some(Bounds {
            prefix: bound(max, self.prefix_hash(limits, from)),
            network: bound(network_max, network),
            listener: share.and_then(at_listener),
            handshake: None,
        })
    }

    /// Returns a keyed hash of the prefix of `ip`.
    #[inline]
    fn prefix_hash(&self, limits: &Limits, ip: IpAddr) -> u64 {
        self.hash(limits.prefix(ip).address())
    }

    #[inline]
    fn hash(&self, address: IpAddr) -> u64 {
        siphash_ip::<1, 3>(&self.key, address)
    }
}
