//! The tracker: the one entry through which every protocol's requests reach the store.
//!
//! It decides which requests are served ([`admission`]), how many peers they get, and when to announce
//! again. It issues and verifies connection ids, and defines the counters. It knows no protocol's bytes:
//! differences between protocols are [`AnnouncePolicy`] values. Time and randomness are arguments.
#![forbid(unsafe_code)]
// Tests may start threads and read the clock.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod access;
pub mod admission;
mod bans;
mod clients;
mod connection_id;
pub mod counters;
mod downloads;
mod frequent;
mod full_scrape;
mod inspect;
mod limiter;
mod lines;
mod listener_policies;
mod load;
mod near;
mod networks;
mod passkeys;
mod policy;
mod quiet;
mod request_kind;
mod settings;
mod site;
mod steps;
mod tokens;
mod webtorrent;

use std::net::IpAddr;
use std::slice;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use arrayvec::ArrayVec;
use swarm::{Action, Store, StoreAnnounce};
use types::{
    Announce, Event, Families, InfoHash, Notice, PeerKey, Refusal, SwarmCounts, Tick, limits,
};

pub use admission::{Credentials, Grant, UnverifiedGrant, View};
pub use bans::{BanReason, BanRules, BannedRanges, Bans};
pub use clients::{ClientRules, Prefixes};
pub use connection_id::ConnectionIdSlices;
pub use downloads::{Downloads, DownloadsChange};
pub use full_scrape::{FullScrapePermit, TorrentPages};
pub use limiter::{
    ConnectionPermit, HeavyHitters, Limiter, Limits, ListenerShare, PermitDenied, Rate, TableUsage,
};
pub use listener_policies::{
    Access, ExternalAddress, ListenerPolicy, ListenerPolicyId, PrivateAddresses,
};
pub use load::{
    Budget, BytesLeft, BytesOfDay, Controller, Interval, LoadMeasured, LoadRules, LoadTime, Pacing,
    PeerLifetimes, SERVICES, Service, ServiceGate, ServiceLoad, Stretch,
};
pub use near::{Near, ZoneNetwork, Zones};
pub use networks::{NetworkAction, NetworkTable, Networks};
pub use passkeys::{
    BadSessions, KeyId, KeyRules, KeyTotals, PasskeyStore, SessionOrigin, SessionWalk,
};
pub use policy::{Options, Policy};
pub use primitives::{IpPrefix, Random};
pub use quiet::QuietRefusals;
pub use request_kind::RequestKind;
pub use settings::Settings;
pub use site::{
    OwnPeer, OwnPeers, Site, SiteAnnounce, SiteKeyRule, SiteOutcome, SiteProtocol, SiteVerdict,
};
pub use swarm::{
    Answer, FamilyTotals, Options as StoreOptions, PeerCaps, PeerInfo, RelayTargets,
    TorrentDetails, TorrentEvent, TorrentStats, Totals,
};
pub use tokens::{TokenFault, TokenStats, TokenVerifier, Tokens, VerifiedToken};
pub use types::{ParseUserKeyError, UserKey};
pub use webtorrent::{
    OfferBudget, OfferNetwork, OfferTag, Offers, WebAnnounceOk, WebAnnounceRequest,
};

use access::{FirstRefusals, HashList, LiveLists, TorrentReasons};
use admission::{Effect, Endpoint};
use connection_id::{ConnectionIds, Keys};
use full_scrape::FullScrapes;
use load::Gates;
use passkeys::{ImportTime, SessionTag};
use settings::SharedSettings;
use site::Caller;

/// Secrets, drawn by the application at random, or derived from the secret of a cluster.
#[derive(Clone, Copy)]
pub struct Secrets {
    /// Key of the connection ids. Nodes that share it accept each other's ids.
    pub connection_ids: [u8; 16],
    /// Key of the tags of WebTorrent offers. Nodes that share it accept answers to each other's offers.
    pub offers: [u8; 16],
    /// Key of the tables of requests, connections, offences, downloads and entries of live lists.
    pub limits: [u8; 16],
    /// Key of the tables of users' keys and their sessions. Processes that share it can import each other's
    /// sessions.
    pub sessions: [u8; 16],
    /// The secrets by which other nodes still issue, or issue already, while a cluster's secret changes.
    pub previous: Option<SharedSecrets>,
}

impl Secrets {
    /// Secrets that are public, for tests and benches.
    #[doc(hidden)]
    pub const PUBLIC: Self = Self {
        connection_ids: [5; 16],
        offers: [6; 16],
        limits: [7; 16],
        sessions: [8; 16],
        previous: None,
    };
}

/// Secrets that the nodes of a cluster share, and that change while they serve.
#[derive(Clone, Copy)]
pub struct SharedSecrets {
    /// See [`Secrets::connection_ids`].
    pub connection_ids: [u8; 16],
    /// See [`Secrets::offers`].
    pub offers: [u8; 16],
}

/// The properties of announces that differ between protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncePolicy {
    /// Upper bound of the peers in a response of this protocol.
    pub peers_max: u16,
    /// The families of the peers that the response can hold: the client's own, or both.
    pub families: Families,
    /// True if the response holds the torrent's number of downloads.
    pub with_downloads: bool,
}

/// An announce and its origin.
#[derive(Clone, Copy, Debug)]
pub struct AnnounceRequest {
    /// The client's permission to announce, with its address.
    pub grant: UnverifiedGrant,
    /// True if the client reached the tracker at an address that is not public. Ignored for clients
    /// with a public address.
    pub via_local_address: bool,
    /// The announce that the client sent.
    pub announce: Announce,
    /// The properties of its protocol.
    pub policy: AnnouncePolicy,
}

/// The answer to an accepted announce.
#[derive(Clone, Copy)]
pub struct AnnounceOk<'a> {
    /// The torrent's counts and peers.
    pub answer: Answer<'a>,
    /// When the client should announce again, seconds.
    pub interval_s: u32,
    /// When it may announce again at the earliest, seconds.
    pub interval_min_s: u32,
    /// A warning that the client shows its user, if its protocol has one.
    pub warning: Option<Notice>,
}

/// The tracker. Shared by all workers.
pub struct Tracker {
    store: Store,
    settings: SharedSettings,
    /// Torrents whose announces are refused. Beside the store: an announce pays one branch while there are none.
    frozen: HashList,
    connection_ids: ConnectionIds,
    limiter: Limiter,
    gates: Gates,
    passkeys: PasskeyStore,
    tokens: Tokens,
    bans: Bans,
    live: LiveLists,
    first_refusals: FirstRefusals,
    downloads: Downloads,
    full_scrapes: FullScrapes,
    /// Keys of the tags of WebTorrent offers.
    offer_keys: ArcSwap<Keys>,
    site: OnceLock<Arc<dyn Site>>,
}

impl Tracker {
    /// Returns an empty tracker that serves every torrent, without limits.
    pub fn new(options: &Options, keys: &Secrets) -> Self {
        let settings = SharedSettings::new(options.policy);
        let store = Store::new(&options.store);
        store.set_merge_caps(options.policy.peer_caps);
        store.set_exempt(settings.cap_exemption());
        let passkeys = PasskeyStore::new(keys.sessions);
        passkeys.set_rate(options.policy.key_mbit_per_s);
        Self {
            store,
            frozen: HashList::new(keys.limits),
            connection_ids: ConnectionIds::new(
                keys.connection_ids,
                keys.previous.map(|previous| previous.connection_ids),
            ),
            limiter: Limiter::new(keys.limits, settings.clone()),
            settings,
            gates: Gates::default(),
            passkeys,
            tokens: Tokens::new(keys.limits),
            bans: Bans::new(keys.limits),
            live: LiveLists::new(keys.limits),
            first_refusals: FirstRefusals::new(keys.limits),
            downloads: Downloads::new(keys.limits),
            full_scrapes: FullScrapes::default(),
            offer_keys: ArcSwap::from_pointee(Keys {
                current: keys.offers,
                previous: keys.previous.map(|previous| previous.offers),
            }),
            site: OnceLock::new(),
        }
    }

    /// Has a site judge and account the announces with keys, from the next batch on. Returns false, and does nothing,
    /// if there is a site already: it has the sessions of its users.
    pub fn set_site(&self, site: Arc<dyn Site>) -> bool {
        self.site.set(site).is_ok()
    }

    /// Returns the site, if there is one.
    pub fn site(&self) -> Option<&dyn Site> {
        self.site.get().map(|site| &**site)
    }

    /// Replaces the secrets that nodes of a cluster share, but for that of sessions: issues by `current` from now on,
    /// and accepts what `previous` has issued.
    pub fn replace_secrets(&self, current: SharedSecrets, previous: Option<SharedSecrets>) {
        let ids = previous.map(|previous| previous.connection_ids);
        self.connection_ids.replace_keys(current.connection_ids, ids);
        let previous = previous.map(|previous| previous.offers);
        self.offer_keys.store(Arc::new(Keys { current: current.offers, previous }));
    }

    /// Replaces the policy, for every worker from its next batch on.
    pub fn reconfigure(&self, policy: &Policy) {
        self.store.set_merge_caps(policy.peer_caps);
        self.passkeys.set_rate(policy.key_mbit_per_s);
        self.settings.change(|settings| settings.set_policy(*policy));
        let PeerLifetimes { peer_s, web_s } = self.settings.load().lifetimes();
        self.store.set_lifetimes(peer_s, web_s);
    }

    /// Replaces the listeners' policies, for every worker from its next batch on. Keeps those past the end of
    /// `listeners`, so that no listener loses its own.
    pub fn replace_listeners(&self, listeners: &[ListenerPolicy]) {
        self.settings.change(|settings| {
            let replaced = listeners.len().min(settings.listeners.len());
            settings.listeners.splice(..replaced, listeners.iter().cloned());
        });
    }

    /// Replaces the refusals that are quiet, for every worker from its next batch on.
    pub fn set_quiet(&self, quiet: QuietRefusals) {
        self.settings.change(|settings| settings.quiet = quiet);
    }

    /// Replaces what answers do about near peers, for every worker from its next batch on.
    pub fn set_near(&self, near: Option<Arc<Near>>) {
        self.settings.change(|settings| settings.near.clone_from(&near));
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Guard<Arc<Settings>> {
        self.settings.load()
    }

    fn count(&self, info_hashes: &[InfoHash], counts: &mut [SwarmCounts]) {
        self.store.scrape(info_hashes, counts);
        if self.downloads.is_on() {
            for (hash, counts) in info_hashes.iter().zip(counts) {
                self.downloads.raise(hash, &mut counts.downloads);
            }
        }
    }

    /// Does one of `parts` equal parts of a pass that removes peers and sessions whose lifetime has passed.
    /// Puts automatic bans in force, and ends bans. Call it several times a second; it never holds a lock
    /// for long.
    pub fn sweep(&self, now: Tick, parts: u32) {
        self.store.sweep(now, parts);
        let PeerLifetimes { peer_s, web_s } = self.settings.load().lifetimes();
        self.passkeys.sweep(now, parts, peer_s, web_s);
        self.bans.settle(now);
    }

    /// Returns the seconds without an announce after which a peer of any protocol may be removed.
    pub fn peer_lifetime_min_s(&self) -> u32 {
        let PeerLifetimes { peer_s, web_s } = self.settings.load().lifetimes();
        peer_s.min(web_s)
    }

    /// Returns the store, for its journal.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns what the store holds now.
    pub fn totals(&self) -> Totals {
        self.store.totals()
    }

    /// Returns the limits of requests and connections.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns the keys of private listeners' users.
    pub fn passkeys(&self) -> &PasskeyStore {
        &self.passkeys
    }

    /// Imports sessions that [`PasskeyStore::export_sessions`] of another process has exported, and returns how many
    /// were news. Skips sessions whose lifetime has passed or whose key does not exist any more, and all if the
    /// process had another secret.
    ///
    /// `cut_ago_s` are the seconds that count as passed since. Those of another node are whole seconds of unix time
    /// now less whole seconds then: of two reports of a peer the later one holds, wherever it was made, if ticks
    /// begin with the seconds of unix time.
    ///
    /// Quotas hold for imported peers, too: call it when the keys are there. Peers that are here already
    /// come first.
    ///
    /// # Errors
    ///
    /// If the body does not add up. Nothing is imported then.
    pub fn import_sessions(
        &self,
        now: Tick,
        cut_ago_s: u32,
        origin: SessionOrigin,
        body: &[u8],
    ) -> Result<u64, BadSessions> {
        let lifetime_s = self.settings.load().lifetimes().peer_s;
        self.passkeys.import_sessions(ImportTime { now, cut_ago_s, lifetime_s }, origin, body)
    }

    /// Returns the tokens of listeners that ask for them.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Returns the banned networks.
    pub fn bans(&self) -> &Bans {
        &self.bans
    }

    /// Sets the unix time at tick 0, seconds, so that connection ids are good at other nodes with the same
    /// secret. With 0, the default, their time counts from the start. Call it every few seconds: clocks drift, and
    /// are set.
    pub fn set_unix_offset(&self, seconds: u64) {
        self.connection_ids.set_unix_offset(seconds);
    }

    /// Returns which connection ids are issued and valid at `now`.
    pub fn connection_id_slices(&self, now: Tick) -> ConnectionIdSlices {
        self.connection_ids.slices(now, self.settings.load().policy.connection_id_lifetime_s)
    }

    /// Returns the live allow list. It adds to the allow list of every listener, and holds in the same
    /// modes.
    pub fn allowed(&self) -> &HashList {
        &self.live.allow
    }

    /// Returns the live deny list. It adds to the deny list of every listener.
    pub fn denied(&self) -> &HashList {
        &self.live.deny
    }

    /// Returns the torrents that are refused with reasons of their own, at every listener.
    pub fn torrent_reasons(&self) -> &TorrentReasons {
        &self.live.reasons
    }

    /// Returns the durable download counts.
    pub fn downloads(&self) -> &Downloads {
        &self.downloads
    }
}

impl View<'_> {
    /// Serves a batch of announces in one pass through the store, and calls `answer` once for each, with its index
    /// in `requests`. Answers come in any order, and borrow locked parts of the store. Requests above
    /// [`limits::BATCH_MAX`] are not answered: callers never send more.
    ///
    /// Does what [`View::authorize_unverified`] left of the [order of checks](admission) for each.
    pub fn announce(
        &self,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        debug_assert!(requests.len() <= limits::BATCH_MAX, "{} requests", requests.len());
        if let Some(site) = self.tracker.site.get() {
            let caller = Caller { site: &**site, agent: b"", protocol: SiteProtocol::Udp };
            return self.announce_by_site(caller, random, requests, answer);
        }
        match &self.settings.near {
            None => self.announce_plainly(random, requests, answer),
            Some(near) => self.announce_near(near, random, requests, answer),
        }
    }

    /// Does what [`Self::announce`] does, without a site and without near peers.
    #[inline]
    pub(crate) fn announce_plainly(
        &self,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        let (tracker, policy) = (self.tracker, &self.settings.policy);
        let jitter_seed = random.next();
        let mut admitted: ArrayVec<StoreAnnounce, { limits::BATCH_MAX }> = ArrayVec::new();
        // Prefetch for the whole batch before the first check, so that the misses overlap.
        let mut sessions = [SessionTag::default(); limits::BATCH_MAX];
        for (request, session) in requests.iter().zip(&mut sessions) {
            *session = self.prefetch_torrent(&request.grant, &request.announce, request.endpoint());
        }
        for (slot, (request, session)) in (0..).zip(requests.iter().zip(sessions)) {
            let AnnounceRequest { grant, announce, .. } = request;
            let admission = self.admit_torrent(grant, session, announce, request.endpoint());
            match admission.map(|admitted| admitted.effect) {
                Err(refusal) => answer(slot, Err(refusal)),
                Ok(Effect::OthersStop) => {
                    let mut counts = SwarmCounts::default();
                    tracker.store.scrape(&[announce.info_hash], slice::from_mut(&mut counts));
                    let answered = Answer::without_peers(counts);
                    answer(slot, Ok(self.accept(request, jitter_seed, slot, answered)));
                }
                Ok(Effect::Announce) => {
                    admitted.push(store_announce(slot, request, grant.client_ip(), policy));
                }
                Ok(Effect::AnnounceReplaced) => {
                    let ip = self.peer_ip(grant.listener_policy(), grant.client_ip());
                    admitted.push(store_announce(slot, request, ip, policy));
                }
            }
        }
        tracker.store.announce(self.now, random, &admitted, &mut |slot, answered| {
            let Some(request) = requests.get(usize::from(slot)) else { return };
            answer(
                slot,
                match answered {
                    Ok(answered) => Ok(self.accept(request, jitter_seed, slot, answered)),
                    Err(too_soon) => Err(policy::too_soon(policy.interval_min_s, too_soon)),
                },
            );
        });
    }

    /// Adds to the store's answer what the store does not know: intervals, and the durable count of downloads.
    #[inline]
    fn accept<'a>(
        &self,
        request: &AnnounceRequest,
        jitter_seed: u64,
        slot: u8,
        mut answer: Answer<'a>,
    ) -> AnnounceOk<'a> {
        let (downloads, info_hash) = (&self.tracker.downloads, &request.announce.info_hash);
        if downloads.is_on() {
            if answer.downloaded {
                self.count_download(&request.grant, info_hash);
            }
            if request.policy.with_downloads {
                downloads.raise(info_hash, &mut answer.counts.downloads);
            }
        }
        AnnounceOk {
            answer,
            interval_s: self.interval.jittered_s(jitter_seed, slot),
            interval_min_s: self.interval.min_s,
            warning: None,
        }
    }
}

impl AnnounceRequest {
    #[inline]
    fn endpoint(&self) -> Endpoint {
        Endpoint::Socket { via_local_address: self.via_local_address }
    }
}

/// Returns what the store has to do for an admitted announce of the peer that others get at `ip`.
fn store_announce(
    slot: u8,
    request: &AnnounceRequest,
    ip: IpAddr,
    policy: &Policy,
) -> StoreAnnounce {
    let announce = &request.announce;
    let (action, want) = match announce.event {
        //= bep15#announce-stopped
        //= bep3#announce-stopped
        Event::Stopped => (Action::Stop, 0),
        event => (
            Action::Update { completed: event == Event::Completed },
            policy.peers(announce.want).min(request.policy.peers_max),
        ),
    };
    StoreAnnounce {
        slot,
        info_hash: announce.info_hash,
        //= bep7#source-address
        peer: PeerKey::new(ip, announce.port),
        peer_id: announce.peer_id,
        role: announce.role(),
        action,
        min_interval_s: policy.min_interval_s(announce.event, policy.interval_min_s),
        caps: policy.peer_caps,
        want,
        families: request.policy.families,
    }
}

#[cfg(test)]
mod tests;
