//! Banned networks: banned by an operator, automatically for offences, or by the configuration.
//!
//! Plain form: a list of networks with expiry times, scanned for each request. Departures:
//! 1. Requests read an image of the list, which is built aside and replaced as a whole: no
//!    request waits for a change.
//! 2. While nothing is banned a request reads one word.
//! 3. Automatic bans are added to the list at once, and to the image by the sweep, a few times a second:
//!    a flood of offences does not build an image for each ban.
//! 4. Networks of the configuration ([`Bans::set_networks`]) are a table of their own beside the image: there may be a
//!    million of them, and no ban has to build it anew. A request asks for both by one word while there are none.

mod offences;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use primitives::IpPrefix;
use types::{Tick, limits};

use crate::steps::{Span, Steps};
use crate::{NetworkAction, NetworkTable};
use offences::OffenceCounters;

pub use offences::{BanReason, BanRules};

/// The banned networks.
pub struct Bans {
    /// True if the image contains any network.
    is_any: AtomicBool,
    image: ArcSwap<Image>,
    /// Held while the image is built, so that an older one never replaces a newer one.
    builder: Mutex<()>,
    list: Mutex<List>,
    /// The networks of the configuration.
    networks: Mutex<Arc<NetworkTable>>,
    offences: OffenceCounters,
}

#[derive(Default)]
struct List {
    networks: BTreeMap<IpPrefix, Ban>,
    /// Number of automatic bans.
    automatic: usize,
    /// Automatic bans that were not taken yet.
    fresh: Vec<(IpPrefix, Option<Tick>, BanReason)>,
    /// True if the image is out of date.
    is_changed: bool,
    /// When the first ban ends, if one does.
    next_end: Option<Tick>,
}

#[derive(Clone, Copy)]
struct Ban {
    until: Option<Tick>,
    is_automatic: bool,
}

/// Ranges of banned addresses, each by its first and last one. They do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BannedRanges {
    /// The version of the bans. Each state of the bans has its own.
    pub version: u64,
    /// IPv4.
    pub v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// IPv6.
    pub v6: Vec<(Ipv6Addr, Ipv6Addr)>,
}

#[derive(Default)]
pub(crate) struct Image {
    /// Counts the images.
    version: u64,
    /// Until when the addresses from each one on are banned.
    v4: Steps<u32, Tick>,
    v6: Steps<u128, Tick>,
    /// The networks of the configuration.
    networks: Arc<NetworkTable>,
}

/// The bans in force at one moment; `None` if there are none.
pub(crate) struct BansView(Option<Guard<Arc<Image>>>);

/// Sorts ranges, and joins those that overlap. Ranges that touch stay apart: edge/xdp makes one prefix of an IPv6 range,
/// which would be far wider than both.
fn joined<A: Ord + Copy>(mut ranges: Vec<(A, A)>) -> Vec<(A, A)> {
    ranges.sort_unstable();
    ranges.dedup_by(|(first, last), (_, last_before)| {
        let overlaps = *first <= *last_before;
        if overlaps {
            *last_before = (*last_before).max(*last);
        }
        overlaps
    });
    ranges
}

/// The end times of bans without an end, and of addresses without a ban.
const NEVER_BANNED: Tick = Tick(0);
const FOREVER: Tick = Tick(u32::MAX);
/// Automatic bans kept until they are taken. Those over the limit hold, but are not reported.
const FRESH_MAX: usize = 4096;

impl Bans {
    /// Returns an empty list. `key` keeps clients from aiming at buckets of offence counters.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            is_any: AtomicBool::default(),
            image: ArcSwap::default(),
            builder: Mutex::default(),
            list: Mutex::default(),
            networks: Mutex::default(),
            offences: OffenceCounters::new(key),
        }
    }

    /// Bans networks until a time, or forever (`None`), and replaces earlier bans of the same networks. In
    /// force for every worker when this returns. Stops at [`limits::BANS_MAX`] bans, and returns how many
    /// of the networks are banned.
    pub fn put(&self, networks: &[(IpPrefix, Option<Tick>)]) -> usize {
        let mut list = self.list.lock();
        let taken = networks
            .iter()
            .take_while(|(network, until)| {
                list.put(*network, Ban { until: *until, is_automatic: false })
            })
            .count();
        drop(list);
        self.build();
        taken
    }

    /// Removes the bans of exactly these networks, not of networks that contain them or are contained in
    /// them. In force for every worker when this returns. Returns how many there were.
    pub fn remove(&self, networks: &[IpPrefix]) -> usize {
        let mut list = self.list.lock();
        let removed = networks.iter().filter(|network| list.remove(network)).count();
        drop(list);
        self.build();
        removed
    }

    /// Does with the clients of networks what `networks` says, instead of the table of the last call. They are not
    /// among the bans that are counted. In force for every worker when this returns.
    pub fn set_networks(&self, networks: NetworkTable) {
        let mut known = self.networks.lock();
        if **known == networks {
            return;
        }
        *known = Arc::new(networks);
        drop(known);
        self.build();
    }

    /// Returns the number of ranges of addresses about whose clients the configuration says something.
    pub fn network_ranges(&self) -> usize {
        self.networks.lock().ranges()
    }

    /// Returns whether `ip` is in a banned network. A v4-mapped v6 address counts as its v4 address.
    #[inline]
    pub fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        self.view().contains(now, ip)
    }

    /// Returns the banned ranges, as far as the last [`Tracker::sweep`](crate::Tracker::sweep) knows. Returns
    /// `None` if they are still those of `version`. The first version is 0: no bans.
    pub fn ranges(&self, version: u64) -> Option<BannedRanges> {
        let image = self.image.load();
        if image.version == version {
            return None;
        }
        let denied = image.networks.denied();
        let (mut v4, mut v6) = (denied.v4, denied.v6);
        for network in self.list.lock().networks.keys() {
            match (network.address(), network.bounds()) {
                (IpAddr::V4(_), (first, last)) => v4.push((first as u32, last as u32)),
                (IpAddr::V6(_), bounds) => v6.push(bounds),
            }
        }
        let (v4, v6) = (joined(v4).into_iter(), joined(v6).into_iter());
        Some(BannedRanges {
            version: image.version,
            v4: v4.map(|(first, last)| (first.into(), last.into())).collect(),
            v6: v6.map(|(first, last)| (first.into(), last.into())).collect(),
        })
    }

    /// Returns the bans in force, for a batch of requests.
    #[inline]
    pub(crate) fn view(&self) -> BansView {
        BansView(self.is_any.load(Ordering::Relaxed).then(|| self.image.load()))
    }

    /// Returns the number of bans. A ban that has ended counts for up to a second more.
    pub fn len(&self) -> usize {
        self.list.lock().networks.len()
    }

    /// Returns whether there are no bans.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets for which offences networks are banned automatically from now on.
    pub fn set_rules(&self, rules: BanRules) {
        self.offences.set_rules(rules);
    }

    /// Appends the automatic bans since the last call to `into`.
    pub fn take_automatic(&self, into: &mut Vec<(IpPrefix, Option<Tick>, BanReason)>) {
        into.append(&mut self.list.lock().fresh);
    }

    /// Returns whether there is a rule for `reason`.
    #[inline]
    pub(crate) fn is_enabled(&self, reason: BanReason) -> bool {
        self.offences.is_enabled(reason)
    }

    /// Counts an offence of a network, and bans it if it is one too many. Never waits: if the list is
    /// locked, the next offence bans.
    pub(crate) fn note(&self, now: Tick, network: IpPrefix, reason: BanReason) {
        let Some(time_s) = self.offences.note(now, network, reason) else { return };
        if let Some(mut list) = self.list.try_lock() {
            list.add(network, now.after(time_s), reason);
        }
    }

    /// Puts new automatic bans in force, and removes bans that have ended. Call it a few times a second.
    pub(crate) fn settle(&self, now: Tick) {
        let mut list = self.list.lock();
        list.expire(now);
        let is_changed = list.is_changed;
        drop(list);
        if is_changed {
            self.build();
        }
    }

    /// Builds the image from the list.
    fn build(&self) {
        let _builder = self.builder.lock();
        let mut list = self.list.lock();
        list.is_changed = false;
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, ban) in &list.networks {
            // Where bans overlap, the last to end counts.
            let rank = ban.until.unwrap_or(FOREVER);
            match (network.address(), network.bounds()) {
                (IpAddr::V4(_), (first, last)) => {
                    v4.push(Span { first: first as u32, last: last as u32, rank });
                }
                (IpAddr::V6(_), (first, last)) => v6.push(Span { first, last, rank }),
            }
        }
        // Building takes long: do it without the lock that workers need.
        drop(list);
        let networks = Arc::clone(&self.networks.lock());
        let version = self.image.load().version + 1;
        let v4 = Steps::new(v4, NEVER_BANNED, |until| until);
        let v6 = Steps::new(v6, NEVER_BANNED, |until| until);
        let image = Image { version, v4, v6, networks };
        let is_any = !(image.v4.is_empty() && image.v6.is_empty() && image.networks.is_empty());
        self.image.store(Arc::new(image));
        self.is_any.store(is_any, Ordering::Relaxed);
    }
}

impl BansView {
    /// Returns whether `ip` is in a banned network. A v4-mapped v6 address counts as its v4 address.
    #[inline]
    pub(crate) fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        self.image().is_some_and(|image| image.contains(now, ip))
    }

    /// Returns the image if it has any network.
    #[inline]
    pub(crate) fn image(&self) -> Option<&Image> {
        self.0.as_deref().map(|image| &**image)
    }
}

impl Image {
    /// Returns whether `ip` is in a network that is banned, or denied by the configuration.
    fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        self.action(now, ip) == Some(NetworkAction::Deny)
    }

    /// Returns the action for a client at `ip`. A ban denies.
    #[inline]
    pub(crate) fn action(&self, now: Tick, ip: IpAddr) -> Option<NetworkAction> {
        if self.is_banned(now, ip) { Some(NetworkAction::Deny) } else { self.networks.find(ip) }
    }

    #[inline]
    fn is_banned(&self, now: Tick, ip: IpAddr) -> bool {
        let until = match ip.to_canonical() {
            IpAddr::V4(ip) => self.v4.find(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.find(ip.to_bits()),
        };
        until.is_some_and(|until| now < until)
    }
}

impl List {
    /// Returns false if there is no room.
    fn put(&mut self, network: IpPrefix, ban: Ban) -> bool {
        if self.networks.len() >= limits::BANS_MAX && !self.networks.contains_key(&network) {
            return false;
        }
        self.remove(&network);
        self.networks.insert(network, ban);
        self.automatic += usize::from(ban.is_automatic);
        self.next_end = self.next_end.into_iter().chain(ban.until).min();
        self.is_changed = true;
        true
    }

    fn remove(&mut self, network: &IpPrefix) -> bool {
        let removed = self.networks.remove(network);
        let is_automatic = removed.is_some_and(|ban| ban.is_automatic);
        debug_assert!(self.automatic >= usize::from(is_automatic), "automatic bans are miscounted");
        self.automatic -= usize::from(is_automatic);
        self.is_changed |= removed.is_some();
        removed.is_some()
    }

    /// Adds an automatic ban, unless the network is banned already.
    fn add(&mut self, network: IpPrefix, until: Tick, reason: BanReason) {
        if self.automatic >= limits::BANS_AUTOMATIC_MAX || self.networks.contains_key(&network) {
            return;
        }
        let ban = Ban { until: Some(until), is_automatic: true };
        if self.put(network, ban) && self.fresh.len() < FRESH_MAX {
            self.fresh.push((network, ban.until, reason));
        }
    }

    fn expire(&mut self, now: Tick) {
        if self.next_end.is_none_or(|end| now < end) {
            return;
        }
        self.networks.retain(|_, ban| ban.until.is_none_or(|until| now < until));
        self.automatic = self.networks.values().filter(|ban| ban.is_automatic).count();
        self.next_end = self.networks.values().filter_map(|ban| ban.until).min();
        self.is_changed = true;
    }
}
