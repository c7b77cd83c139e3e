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
mod frozen;
mod full_scrape;
mod inspect;
mod labelled;
mod limiter;
mod listener_policies;
mod networks;
mod passkeys;
mod policy;
mod request_kind;
mod tokens;
mod webtorrent;

use std::net::IpAddr;
use std::slice;
use std::sync::Arc;

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;
use swarm::{Action, Store, StoreAnnounce};
use types::{
    Announce, AnnounceSummary, Event, Families, InfoHash, PackedV4, PackedV6, PeerId, PeerKey,
    PeerSink, Refusal, StoreSink, SwarmCounts, Tick, TooSoon, limits,
};

pub use admission::{Credentials, Grant, UnverifiedGrant, View};
pub use bans::{BanReason, BanRules, BannedRanges, Bans};
pub use clients::{ClientRules, Prefixes};
pub use connection_id::ConnectionIdSlices;
pub use downloads::Downloads;
pub use full_scrape::{FullScrapePermit, ListedTorrent, TorrentPages};
pub use inspect::TorrentDetails;
pub use limiter::{
    ConnectionPermit, HeavyHitters, Limiter, Limits, ListenerShare, PermitDenied, Rate, TableUsage,
};
pub use listener_policies::{
    Access, ExternalAddress, ListenerPolicies, ListenerPolicy, ListenerPolicyId, PrivateAddresses,
};
pub use networks::Networks;
pub use passkeys::{
    BadSessions, ImportedSessions, KeyId, KeyRules, KeyTotals, PasskeyStore, SessionWalk,
};
pub use policy::{Options, Policy};
pub use primitives::{IpPrefix, Random};
pub use request_kind::RequestKind;
pub use swarm::{
    FamilyTotals, Options as StoreOptions, PeerCaps, PeerInfo, RelayTargets, TorrentEvent,
    TorrentStats, Totals,
};
pub use tokens::{TokenFault, TokenRules, TokenStats, TokenVerifier, Tokens, VerifiedToken};
pub use types::{ParseUserKeyError, UserKey};
pub use webtorrent::{OfferNetwork, OfferTag, Offers, WebAnnounceOk, WebAnnounceRequest};

use access::{HashList, LiveLists};
use admission::{Admitted, Endpoint};
use connection_id::ConnectionIds;
use frozen::Frozen;
use full_scrape::FullScrapes;
use passkeys::{ImportTime, SessionTag};

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
    /// Those that other nodes may still issue by, or issue by already, while a cluster's secret changes.
    pub previous: Option<PreviousSecrets>,
}

/// Secrets of what is accepted, but not issued.
#[derive(Clone, Copy)]
pub struct PreviousSecrets {
    /// As in [`Secrets`].
    pub connection_ids: [u8; 16],
    /// As in [`Secrets`].
    pub offers: [u8; 16],
}

/// The properties of announces that differ between protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncePolicy {
    /// Upper bound of the peers in a response of this protocol.
    pub peers_max: u16,
    /// The families of the peers that the response can hold: the client's own, or both.
    pub families: Families,
    /// True if the response holds peer ids (BEP 3 dict model).
    pub with_ids: bool,
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

/// The head of the response to an accepted announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnounceOk {
    /// The torrent's counts, and how many peers follow.
    pub chosen: AnnounceSummary,
    /// When the client should announce again, seconds.
    pub interval_s: u32,
    /// When it may announce again at the earliest, seconds.
    pub interval_min_s: u32,
}

/// Receives the answers to a batch of announces: for each request one call of `accept` or `refuse`,
/// and peers after `accept`. `slot` is the request's index in the batch.
pub trait AnnounceSink: PeerSink {
    /// The request is served.
    fn accept(&mut self, slot: u8, accepted: &AnnounceOk);
    /// The request is refused.
    fn refuse(&mut self, slot: u8, refusal: Refusal);
}

/// The tracker. Shared by all workers.
pub struct Tracker {
    store: Store,
    listener_policies: ListenerPolicies,
    frozen: Frozen,
    connection_ids: ConnectionIds,
    limiter: Limiter,
    passkeys: PasskeyStore,
    tokens: Tokens,
    bans: Bans,
    live: LiveLists,
    downloads: Downloads,
    full_scrapes: FullScrapes,
    offer_key: [u8; 16],
    previous_offer_key: Option<[u8; 16]>,
    policy: ArcSwap<Policy>,
}

impl Tracker {
    /// Returns an empty tracker that serves every torrent, without limits.
    pub fn new(options: &Options, keys: &Secrets) -> Self {
        let (listener_policies, limiter) = (ListenerPolicies::default(), Limiter::new(keys.limits));
        let store = Store::new(&options.store);
        store.set_merge_caps(options.policy.peer_caps);
        // Peers beside the tracker are exempt by the addresses that they announce from.
        let is_exempt = limiter.exemption();
        let policies = listener_policies.clone();
        store.set_exempt(move |ip| is_exempt(ip) || policies.is_external(ip));
        let passkeys = PasskeyStore::new(keys.sessions);
        passkeys.set_rate(options.policy.key_mbit_per_s);
        Self {
            store,
            listener_policies,
            frozen: Frozen::default(),
            connection_ids: ConnectionIds::new(
                keys.connection_ids,
                keys.previous.map(|previous| previous.connection_ids),
            ),
            limiter,
            passkeys,
            tokens: Tokens::new(keys.limits),
            bans: Bans::new(keys.limits),
            live: LiveLists::new(keys.limits),
            downloads: Downloads::new(keys.limits),
            full_scrapes: FullScrapes::default(),
            offer_key: keys.offers,
            previous_offer_key: keys.previous.map(|previous| previous.offers),
            policy: ArcSwap::from_pointee(options.policy),
        }
    }

    /// Replaces the policy, for every worker from its next batch on.
    pub fn reconfigure(&self, policy: &Policy) {
        self.store.set_lifetimes(policy.peer_lifetime_s, policy.web_lifetime_s());
        self.store.set_merge_caps(policy.peer_caps);
        self.passkeys.set_rate(policy.key_mbit_per_s);
        self.policy.store(Arc::new(*policy));
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
        let policy = self.policy.load();
        self.passkeys.sweep(now, parts, policy.peer_lifetime_s, policy.web_lifetime_s());
        self.bans.settle(now);
    }

    /// Returns the policy in force.
    pub fn policy(&self) -> Policy {
        **self.policy.load()
    }

    /// Returns the seconds without an announce after which a peer of any protocol may be removed.
    pub fn peer_lifetime_min_s(&self) -> u32 {
        let policy = self.policy.load();
        policy.peer_lifetime_s.min(policy.web_lifetime_s())
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

    /// Returns the listeners' policies.
    pub fn listener_policies(&self) -> &ListenerPolicies {
        &self.listener_policies
    }

    /// Returns the keys of private listeners' users.
    pub fn passkeys(&self) -> &PasskeyStore {
        &self.passkeys
    }

    /// Imports sessions that [`PasskeyStore::export_sessions`] of another process has exported. `cut_ago_s`
    /// are the seconds that count as passed since. `is_exact` says that nothing that the process did later
    /// is missing; otherwise, the next report of each peer counts nothing. Skips sessions whose lifetime has passed or whose key
    /// does not exist any more, and all if the process had another secret.
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
        is_exact: bool,
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let lifetime_s = self.policy.load().peer_lifetime_s;
        let time = ImportTime { now, cut_ago_s, lifetime_s };
        self.passkeys.import_sessions(time, is_exact, body)
    }

    /// Imports sessions that [`PasskeyStore::take_changed_sessions`] of another node has taken. `cut_ago_s`
    /// are the seconds since: whole seconds of unix time now less whole seconds then. Of two reports of a peer
    /// the later one holds, wherever it was made, if ticks begin with the seconds of unix time. Skips sessions
    /// as [`Self::import_sessions`] does.
    ///
    /// # Errors
    ///
    /// If the body does not add up. Nothing is imported then.
    pub fn import_changed_sessions(
        &self,
        now: Tick,
        cut_ago_s: u32,
        body: &[u8],
    ) -> Result<ImportedSessions, BadSessions> {
        let lifetime_s = self.policy.load().peer_lifetime_s;
        let time = ImportTime { now, cut_ago_s, lifetime_s };
        self.passkeys.import_changed_sessions(time, body)
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
    /// secret. 0, as at first: their time counts from the start. Call it every few seconds: clocks drift, and
    /// are set.
    pub fn set_unix_offset(&self, seconds: u64) {
        self.connection_ids.set_unix_offset(seconds);
    }

    /// Returns which connection ids are issued and valid at `now`.
    pub fn connection_id_slices(&self, now: Tick) -> ConnectionIdSlices {
        self.connection_ids.slices(now, self.policy.load().connection_id_lifetime_s)
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

    /// Counts a download that all nodes of a cluster count alike, by a peer at `from`, as far as its count is
    /// durable. Torrents on the list of any listener count as those on the list of the listener that the peer
    /// used. See [`Downloads::replicate`].
    pub fn count_replicated_download(&self, info_hash: &InfoHash, from: IpAddr) {
        if !self.downloads.is_on() {
            return;
        }
        let listeners = self.listener_policies.load();
        let is_listed =
            listeners.iter().any(|listener| listener.lists.is_listed(&self.live, info_hash));
        self.downloads.count(info_hash, from, is_listed);
    }

    /// Returns the durable download counts.
    pub fn downloads(&self) -> &Downloads {
        &self.downloads
    }
}

impl View<'_> {
    /// Serves a batch of announces in one pass through the store. Requests above [`limits::BATCH_MAX`] are
    /// not answered: callers never send more.
    ///
    /// Does what [`View::authorize_unverified`] left of the [order of checks](admission) for each.
    pub fn announce(
        &self,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answers: &mut impl AnnounceSink,
    ) {
        debug_assert!(requests.len() <= limits::BATCH_MAX, "{} requests", requests.len());
        let (tracker, policy) = (self.tracker, &**self.policy);
        let counts_durably = tracker.downloads.is_on();
        let jitter_seed = random.next();
        let mut sink = Forward { answers, requests, view: self, jitter_seed, counts_durably };
        let mut admitted: ArrayVec<StoreAnnounce, { limits::BATCH_MAX }> = ArrayVec::new();
        // Prefetch for the whole batch before the first check, so that the misses overlap.
        let mut sessions = [SessionTag::default(); limits::BATCH_MAX];
        for (request, session) in requests.iter().zip(&mut sessions) {
            *session = self.prefetch_torrent(&request.grant, &request.announce, request.endpoint());
        }
        for (slot, (request, session)) in (0..).zip(requests.iter().zip(sessions)) {
            let AnnounceRequest { grant, announce, .. } = request;
            match self.admit_torrent(grant, session, announce, request.endpoint()) {
                Err(refusal) => sink.answers.refuse(slot, refusal),
                Ok(Admitted::OthersStop) => {
                    let mut counts = SwarmCounts::default();
                    tracker.store.scrape(&[announce.info_hash], slice::from_mut(&mut counts));
                    sink.accept(slot, &AnnounceSummary { counts, v4: 0, v6: 0 });
                }
                Ok(Admitted::Announce) => {
                    let ip = self.peer_ip(grant.listener_policy(), grant.client_ip());
                    admitted.push(store_announce(slot, request, ip, policy));
                }
            }
        }
        tracker.store.announce(self.now, random, &admitted, &mut sink);
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
        min_interval_s: policy.min_interval_s(announce.event),
        caps: policy.peer_caps,
        want,
        families: request.policy.families,
        with_ids: request.policy.with_ids,
    }
}

/// Forwards the store's answers, and adds what the store does not know: intervals, the refusal of early
/// announces, and durable download counts.
struct Forward<'a, A> {
    answers: &'a mut A,
    requests: &'a [AnnounceRequest],
    view: &'a View<'a>,
    /// From which the interval of each answer is drawn.
    jitter_seed: u64,
    /// True if downloads are counted durably.
    counts_durably: bool,
}

impl<A> Forward<'_, A> {
    /// Returns the request in `slot`.
    #[inline]
    fn request(&self, slot: u8) -> Option<&AnnounceRequest> {
        let request = self.requests.get(usize::from(slot));
        debug_assert!(request.is_some(), "an answer without a request");
        request
    }
}

impl<A: AnnounceSink> StoreSink for Forward<'_, A> {
    #[inline]
    fn accept(&mut self, slot: u8, summary: &AnnounceSummary) {
        let mut accepted = AnnounceOk {
            chosen: *summary,
            interval_s: self.view.policy.jittered_interval_s(self.jitter_seed, slot),
            interval_min_s: self.view.policy.interval_min_s,
        };
        if self.counts_durably
            && let Some(request) = self.request(slot)
            && request.policy.with_downloads
        {
            let downloads = &mut accepted.chosen.counts.downloads;
            self.view.tracker.downloads.raise(&request.announce.info_hash, downloads);
        }
        self.answers.accept(slot, &accepted);
    }

    fn too_soon(&mut self, slot: u8, too_soon: TooSoon) {
        let refusal = policy::too_soon(self.view.policy.interval_min_s, too_soon);
        self.answers.refuse(slot, refusal);
    }

    fn downloaded(&mut self, slot: u8) {
        if self.counts_durably
            && let Some(request) = self.request(slot)
        {
            self.view.count_download(&request.grant, &request.announce.info_hash);
        }
    }
}

impl<A: AnnounceSink> PeerSink for Forward<'_, A> {
    #[inline]
    fn peers_v4(&mut self, slot: u8, peers: &[PackedV4]) {
        self.answers.peers_v4(slot, peers);
    }

    #[inline]
    fn peers_v6(&mut self, slot: u8, peers: &[PackedV6]) {
        self.answers.peers_v6(slot, peers);
    }

    #[inline]
    fn peer_with_id(&mut self, slot: u8, peer: PeerKey, id: PeerId) {
        self.answers.peer_with_id(slot, peer, id);
    }
}

#[cfg(test)]
mod tests;
