//! Networks that are not served: banned by a person, or by what came from them.
//!
//! Plain form: a list of networks, each until some time, that is looked through for each request.
//! Departures:
//! 1. What requests look into is an image of the list ([`ranges`]), built aside and put in force as a
//!    whole: nobody waits for a change.
//! 2. While nothing is banned a request costs one look at one word.
//! 3. Bans that come from traffic are entered in the list at once and in the image by the sweep, a few
//!    times a second: a flood of them builds no image each.

mod offences;
mod ranges;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use primitives::IpPrefix;
use types::{Tick, limits};

use offences::OffenceCounters;
use ranges::Ranges;

pub use offences::{BanReason, BanRules};

/// The networks that are not served.
pub struct Bans {
    /// Whether the image holds anything.
    is_any: AtomicBool,
    image: ArcSwap<Image>,
    /// Held while the image is built, so that an older one never takes the place of a newer.
    builder: Mutex<()>,
    list: Mutex<List>,
    offences: OffenceCounters,
}

#[derive(Default)]
struct List {
    networks: BTreeMap<IpPrefix, Ban>,
    /// How many of them are automatic.
    automatic: usize,
    /// Automatic ones that nobody has taken.
    fresh: Vec<(IpPrefix, Option<Tick>, BanReason)>,
    /// Whether the image is behind.
    is_changed: bool,
    /// The earliest end of a ban, if one ends.
    next_end: Option<Tick>,
}

#[derive(Clone, Copy)]
struct Ban {
    until: Option<Tick>,
    is_automatic: bool,
}

#[derive(Default)]
pub(crate) struct Image {
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

/// The bans in force at one moment; `None` if there are none.
pub(crate) struct BansView(Option<Guard<Arc<Image>>>);

/// Automatic bans that wait for who takes them; of more, nobody is told.
const FRESH_MAX: usize = 4096;

impl Bans {
    /// None. `key` keeps others from aiming at the tables of offenders.
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self {
            is_any: AtomicBool::default(),
            image: ArcSwap::default(),
            builder: Mutex::default(),
            list: Mutex::default(),
            offences: OffenceCounters::new(key),
        }
    }

    /// Bans networks until some time, or for good (`None`), in place of what was decided about the
    /// same networks before. In force for every worker when this returns. Above [`limits::BANS_MAX`]
    /// the rest is left out; gives how many were taken.
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

    /// Ends the bans of just these networks; those that hold them, or are held by them, stay. In force
    /// for every worker when this returns. Gives how many there were.
    pub fn remove(&self, networks: &[IpPrefix]) -> usize {
        let mut list = self.list.lock();
        let removed = networks.iter().filter(|network| list.remove(network)).count();
        drop(list);
        self.build();
        removed
    }

    /// Whether `ip` is in a network that is banned. A v4-mapped v6 address is its v4 address.
    #[inline]
    pub fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        self.view().contains(now, ip)
    }

    /// Returns the bans in force, for a batch of requests.
    #[inline]
    pub(crate) fn view(&self) -> BansView {
        BansView(self.is_any.load(Ordering::Relaxed).then(|| self.image.load()))
    }

    /// How many networks are banned; one whose time has passed counts for up to a second more.
    pub fn len(&self) -> usize {
        self.list.lock().networks.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says for what networks are banned automatically, from now on.
    pub fn set_rules(&self, rules: BanRules) {
        self.offences.set_rules(rules);
    }

    /// Adds the automatic bans to `into` that were made since they were taken last.
    pub fn take_automatic(&self, into: &mut Vec<(IpPrefix, Option<Tick>, BanReason)>) {
        into.append(&mut self.list.lock().fresh);
    }

    /// Whether something of that kind is looked for.
    #[inline]
    pub(crate) fn is_enabled(&self, reason: BanReason) -> bool {
        self.offences.is_enabled(reason)
    }

    /// Notes something bad that came from a network, which may be banned for it. Never waits: what
    /// comes while the list is being read is as if it had not come.
    pub(crate) fn note(&self, now: Tick, network: IpPrefix, reason: BanReason) {
        let Some(time_s) = self.offences.note(now, network, reason) else { return };
        if let Some(mut list) = self.list.try_lock() {
            list.add(network, now.after(time_s), reason);
        }
    }

    /// Puts in force what has come in, and forgets what is over. For a few times a second.
    pub(crate) fn settle(&self, now: Tick) {
        let mut list = self.list.lock();
        list.expire(now);
        let is_changed = list.is_changed;
        drop(list);
        if is_changed {
            self.build();
        }
    }

    /// Makes the image anew.
    fn build(&self) {
        let _builder = self.builder.lock();
        let mut list = self.list.lock();
        list.is_changed = false;
        let [mut v4, mut v6] = [Vec::new(), Vec::new()];
        for (network, ban) in &list.networks {
            let of_family = if network.address().is_ipv4() { &mut v4 } else { &mut v6 };
            let (first, last) = network.bounds();
            of_family.push((first, last, ban.until.unwrap_or(Tick(u32::MAX))));
        }
        // Workers that note something must not find it locked for long.
        drop(list);
        let image = Image { v4: Ranges::new(v4), v6: Ranges::new(v6) };
        let is_any = !(image.v4.is_empty() && image.v6.is_empty());
        self.image.store(Arc::new(image));
        self.is_any.store(is_any, Ordering::Relaxed);
    }
}

impl BansView {
    /// Returns whether `ip` is in a banned network. A v4-mapped v6 address counts as its v4 address.
    #[inline]
    pub(crate) fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        self.0.as_ref().is_some_and(|image| image.contains(now, ip))
    }
}

impl Image {
    #[inline]
    fn contains(&self, now: Tick, ip: IpAddr) -> bool {
        let until = match ip.to_canonical() {
            IpAddr::V4(ip) => self.v4.until(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.until(ip.to_bits()),
        };
        until.is_some_and(|until| now < until)
    }
}

impl List {
    /// Gives whether there was room.
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
        self.automatic -= usize::from(removed.is_some_and(|ban| ban.is_automatic));
        self.is_changed |= removed.is_some();
        removed.is_some()
    }

    /// An automatic ban, unless the network has one of whatever kind.
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
