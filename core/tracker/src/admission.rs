//! Admission: which requests are served. One path for UDP, HTTP and WebTorrent.
//!
//! A worker takes a [`View`] of everything the operator decides once for each batch of datagrams, or
//! for each read of a connection, and authorizes every request with it.
//!
//! # Order of checks
//!
//! The first check that fails decides, so that a client without a good key learns only that, and a
//! banned one costs nothing more. A request goes through the steps that apply to it:
//!
//! | step | check | refusals | applies to |
//! |---|---|---|---|
//! | 0 | no web browser sent it | `Browser` | announce over HTTP; decided by the caller |
//! | 1 | the client's network is not banned, and the configuration does not refuse it | `Banned`; `Network` (announces) | all |
//! | 2 | its prefix is within the rate of this kind of request | `TooManyRequests` | all |
//! | 3 | it has a key if the listener is private, and none if not | `KeyUnexpected`, `KeyMissing` | all but connect |
//! | 4 | the key is known, has not expired, and is within its rate | `KeyUnknown`, `KeyExpired`, `KeyRate` (announces) | all with a key |
//! | 5 | the request is well-formed | the protocol's own | all; decided by the caller |
//! | 5 | its service is within its budget, and its torrent is known if that is nearly used up | `OverBudget` | announce |
//! | 5 | its token is valid and for its torrent, if the listener asks for tokens | `TokenMissing`, `TokenInvalid`, `TokenExpired`, `TokenOtherTorrent`, `TokenUnverified` | announce |
//! | 6 | other peers can connect to it | `PortZero`, `AddressNotPublic` | announce over UDP and HTTP |
//! | 7 | its client software is served | `ClientRefused` | announce |
//! | 8 | its torrent is served | `Torrent`, `Denied`, `NotAllowed`, `NotAllowedYet` | announce, scrape |
//! | 9 | its torrent is not frozen | `Frozen` | announce |
//! | 10 | the key is within its quota | `KeyPeers`, `KeyTorrents`, `KeyAddresses`, `KeySeedOnly`, `KeySessions`, `KeyTableFull` | announce with a key |
//! | 11 | its site serves it | `Site` | announce with a key, if there is a [site](crate::Site) |
//! | 12 | it does not announce too soon | `TooSoon` | announce; decided by the store |
//! | 13 | full scrapes are served, and there were not too many | `FullScrape`, `FullScrapeTooSoon`, `FullScrapesBusy` | scrape of all torrents |
//!
//! Steps 1 to 3 need the client only; [`View::authorize_unverified`] does them and prefetches the
//! key's record. Step 4 waits for that record: [`View::announce`] does it after all requests of a
//! batch have had theirs prefetched, [`View::authorize`] at once. UDP decodes packets, and so does
//! step 5, before step 1, since a packet says nothing else about itself; it answers with silence
//! until the connection id is verified.

mod offences;
mod source;

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::Guard;
use types::{
    Announce, ConnectionKey, Event, InfoHash, PeerKey, Refusal, Scope, SwarmCounts, Tick, WebPeer,
};

use crate::bans::BansView;
use crate::passkeys::{KeyHash, LockedKey, PeerIdentity, Report, SessionTag};
use crate::{
    Access, BanReason, Interval, IpPrefix, KeyId, ListenerPolicy, ListenerPolicyId, RequestKind,
    Service, Settings, Tracker,
};

/// Everything the operator decides, as it is at one moment: the settings and the bans.
///
/// Cheap to take, but not free: take one for a batch. Drop it afterwards, since it keeps replaced
/// settings alive.
pub struct View<'a> {
    pub(crate) tracker: &'a Tracker,
    pub(crate) now: Tick,
    pub(crate) settings: Guard<Arc<Settings>>,
    /// The service whose clients are served.
    pub(crate) service: Service,
    pub(crate) interval: Interval,
    has_budget: bool,
    bans: BansView,
    /// Tokens that may still be verified for this batch.
    verifications: Cell<u32>,
    /// True if offences are not counted.
    excuses_offences: Cell<bool>,
}

/// Tokens that are verified for one batch of requests, at some 50 µs each.
const VERIFICATIONS_PER_BATCH: u32 = 16;

/// The credentials in the URL that a client announces to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// The passkey, if there is one.
    pub key: Option<&'a [u8]>,
    /// The token, if there is one. Looked at only if the listener asks for tokens.
    pub token: Option<&'a [u8]>,
}

/// Permission to scrape or to open a WebSocket, given by [`View::authorize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant(UnverifiedGrant);

/// A permission that holds if the client's key is good. Given by [`View::authorize_unverified`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnverifiedGrant {
    listener_policy: ListenerPolicyId,
    from: IpAddr,
    kind: RequestKind,
    /// Present exactly on private listeners.
    pub(crate) key: Option<KeyHash>,
}

/// An announce that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) effect: Effect,
    /// The number of its key, if it has one.
    pub(crate) key: Option<KeyId>,
}

/// The effect of an announce that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It changes its peer.
    Announce,
    /// The same, and others may get another address than its own: see [`View::peer_ip`].
    AnnounceReplaced,
    /// It stops a peer that its key does not have, perhaps another user's at the same address: it changes nothing.
    OthersStop,
}

/// The way in which other peers reach a peer that announces.
#[derive(Clone, Copy)]
pub(crate) enum Endpoint {
    /// At its address and the port of its announce.
    Socket { via_local_address: bool },
    /// By WebRTC, through offers that the tracker relays over this connection.
    WebRtc(ConnectionKey),
}

impl Tracker {
    /// Returns the operator's settings as they are now, for a batch of requests at `now` of clients of `service`.
    #[inline]
    pub fn view_of(&self, service: Service, now: Tick) -> View<'_> {
        let settings = self.settings.load();
        View {
            tracker: self,
            now,
            service,
            interval: *settings.interval(service),
            has_budget: settings.has_budget(service),
            settings,
            bans: self.bans.view(),
            verifications: Cell::new(VERIFICATIONS_PER_BATCH),
            excuses_offences: Cell::new(false),
        }
    }

    /// Returns the same where the service does not matter, because nothing is announced.
    #[inline]
    pub fn view(&self, now: Tick) -> View<'_> {
        self.view_of(Service::Udp4, now)
    }
}

impl View<'_> {
    /// Returns the time at which the view was taken.
    #[inline]
    pub fn now(&self) -> Tick {
        self.now
    }

    /// Returns whether clients of a listener need a key.
    #[inline]
    pub fn is_private(&self, listener_policy: ListenerPolicyId) -> bool {
        self.listener(listener_policy).is_private()
    }

    /// Returns the address under which others get a peer that announces from `ip`: its own, or that of
    /// [`ListenerPolicy::external`].
    #[inline]
    pub fn peer_ip(&self, listener_policy: ListenerPolicyId, ip: IpAddr) -> IpAddr {
        self.listener(listener_policy).peer_ip(ip)
    }

    /// Returns a connection id for a client at `ip` (BEP 15): a keyed hash of time slice and address,
    /// so that nothing is stored. Goes over the wire big-endian.
    #[inline]
    pub fn issue_connection_id(&self, ip: IpAddr) -> u64 {
        let lifetime_s = self.settings.policy.connection_id_lifetime_s;
        self.tracker.connection_ids.issue(self.now, lifetime_s, ip)
    }

    /// Returns whether `id` was issued to `ip`. Ids are good for at least one lifetime and at most two.
    #[inline]
    pub fn verify_connection_id(&self, ip: IpAddr, id: u64) -> bool {
        let lifetime_s = self.settings.policy.connection_id_lifetime_s;
        self.tracker.connection_ids.verify(self.now, lifetime_s, ip, id)
    }

    /// Checks whether a client that claims to be at `from` may have a connection id: steps 1 and 2 of
    /// the [order of checks](self). Answer refused clients with silence: `from` may be forged.
    ///
    /// # Errors
    ///
    /// `Banned` if its network is banned, `TooManyRequests` if its prefix is over the rate of connects.
    #[inline]
    pub fn authorize_connect(&self, from: IpAddr) -> Result<(), Refusal> {
        if let Some(image) = self.bans.image() {
            self.check_network(image, from, RequestKind::Connect)?;
        }
        self.check_rate(from, RequestKind::Connect)
    }

    /// Checks whether a client at `from`, with the `key` of its URL, may make a request of this kind at
    /// a listener: steps 1 to 4 of the [order of checks](self). `from` must be verified.
    ///
    /// # Errors
    ///
    /// Returns the refusal of the first of these steps that fails.
    #[inline]
    pub fn authorize(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        kind: RequestKind,
        key: Option<&[u8]>,
    ) -> Result<Grant, Refusal> {
        self.verify(self.authorize_unverified(listener_policy, from, kind, key)?)
    }

    /// Checks whether the WebSocket of a client, which [`View::authorize`] permitted, may stay open: the client
    /// is not banned, and its key is still good. A token is known to have expired only if it is remembered.
    ///
    /// Counts no request and no offence: with a revoked key, all of a user's connections would be offences of
    /// the same second.
    ///
    /// # Errors
    ///
    /// Returns the refusal that a request of the client would get.
    pub fn authorize_open(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        credentials: Credentials<'_>,
    ) -> Result<(), Refusal> {
        let Credentials { key, token } = credentials;
        if self.bans.contains(self.now, from) {
            return Err(Refusal::Banned);
        }
        let listener = self.listener(listener_policy);
        if listener.is_private() {
            let passkeys = &self.tracker.passkeys;
            let hash = passkeys.hash_and_prefetch(key.ok_or(Refusal::KeyMissing)?);
            passkeys.admit(self.now, hash, RequestKind::Other)?;
        }
        if listener.access == Access::Tokens
            && let Some(known) = token.and_then(|token| self.tracker.tokens.remembered(token))
            && self.now > known.until
        {
            return Err(Refusal::TokenExpired);
        }
        Ok(())
    }

    /// Does steps 1 to 3 of the [order of checks](self), and prefetches the key's record for step 4.
    /// `from` must be verified.
    ///
    /// For announces: [`View::announce`] and [`View::announce_web`] do the other steps.
    ///
    /// # Errors
    ///
    /// Returns the refusal of the first of these steps that fails: `Banned`, `TooManyRequests`,
    /// `KeyUnexpected` or `KeyMissing`.
    #[inline]
    pub fn authorize_unverified(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        kind: RequestKind,
        key: Option<&[u8]>,
    ) -> Result<UnverifiedGrant, Refusal> {
        // Step 1.
        if let Some(image) = self.bans.image() {
            self.check_network(image, from, kind)?;
        }
        self.authorize_from_network(listener_policy, from, kind, key)
    }

    /// Does steps 2 and 3 of the [order of checks](self).
    #[inline]
    fn authorize_from_network(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        kind: RequestKind,
        key: Option<&[u8]>,
    ) -> Result<UnverifiedGrant, Refusal> {
        // Step 2.
        self.check_rate(from, kind)?;
        // Step 3. A client that brings a key to an open listener expects a private tracker: refusing
        // it is better than serving it in public.
        let key = match (self.is_private(listener_policy), key) {
            (false, None) => None,
            (false, Some(_)) => return Err(Refusal::KeyUnexpected),
            (true, None) => return Err(Refusal::KeyMissing),
            (true, Some(key)) => Some(self.tracker.passkeys.hash_and_prefetch(key)),
        };
        Ok(UnverifiedGrant { listener_policy, from, kind, key })
    }

    /// Authorizes an announce of a client at `from` with the credentials of its URL: steps 1 to 3 and 5 of the
    /// [order of checks](self). `parse` reads the announce, after the client is known to be served. `from` must
    /// be verified.
    ///
    /// # Errors
    ///
    /// Returns the refusal of the first check that fails. Of a malformed announce that is the one of `parse`,
    /// unless the key is bad (step 4): a missing or invalid key is reported, and counted, before any other error.
    #[inline]
    pub fn authorize_announce(
        &self,
        listener_policy: ListenerPolicyId,
        from: IpAddr,
        credentials: Credentials<'_>,
        parse: impl FnOnce() -> Result<Announce, Refusal>,
    ) -> Result<(UnverifiedGrant, Announce), Refusal> {
        let kind = RequestKind::Announce;
        // Step 1.
        let peers_max = match self.bans.image() {
            None => None,
            Some(image) => self.check_network(image, from, kind)?,
        };
        let grant = self.authorize_from_network(listener_policy, from, kind, credentials.key)?;
        let mut announce = match parse() {
            Ok(announce) => announce,
            Err(refusal) => return self.verify(grant).and(Err(refusal)),
        };
        if self.has_budget {
            self.check_budget(&announce)?;
        }
        if self.needs_token(listener_policy) {
            let Announce { info_hash, event, .. } = &announce;
            self.authorize_token(&grant, credentials.token, info_hash, *event)?;
        }
        if let Some(peers_max) = peers_max {
            announce.want = self.at_most(peers_max, announce.want);
        }
        Ok((grant, announce))
    }

    /// Returns whether announces at a listener need a token.
    #[inline]
    pub fn needs_token(&self, listener_policy: ListenerPolicyId) -> bool {
        self.listener(listener_policy).access == Access::Tokens
    }

    /// Checks the token of an announce. One that was verified before it expired is still good for a stop, so that
    /// its peer can leave.
    pub(crate) fn authorize_token(
        &self,
        grant: &UnverifiedGrant,
        token: Option<&[u8]>,
        info_hash: &InfoHash,
        event: Event,
    ) -> Result<(), Refusal> {
        let token = token.ok_or(Refusal::TokenMissing)?;
        let tokens = &self.tracker.tokens;
        let prefix = (!self.is_exempt(grant.from)).then(|| self.prefix(grant.from).address());
        let mut left = self.verifications.get();
        let admitted = tokens.admit(self.now, token, info_hash, prefix, &mut left);
        self.verifications.set(left);
        match admitted {
            Err(Refusal::TokenInvalid) => self.report_offence(grant.from, BanReason::WrongKeys),
            Err(Refusal::TokenExpired)
                if event == Event::Stopped
                    && tokens.remembered(token).is_some_and(|it| it.info_hash == *info_hash) =>
            {
                return Ok(());
            }
            _ => {}
        }
        admitted
    }

    /// Does step 4 of the [order of checks](self). Announces do not need it, except those that fail
    /// step 5: they must be refused for a bad key first.
    ///
    /// # Errors
    ///
    /// `KeyUnknown`, `KeyExpired` or, for announces, `KeyRate`. Never at a listener without keys.
    #[inline]
    pub fn verify(&self, grant: UnverifiedGrant) -> Result<Grant, Refusal> {
        self.lock_key(&grant)?;
        Ok(Grant(grant))
    }

    /// Writes the counts of `info_hashes` to `counts`, in order. Torrents that are unknown, or that
    /// lists refuse (step 8 of the [order of checks](self)), count as empty.
    ///
    /// # Errors
    ///
    /// `Torrent`, `Denied` or `NotAllowed` if every torrent is refused.
    pub fn scrape(
        &self,
        grant: Grant,
        info_hashes: &[InfoHash],
        counts: &mut [SwarmCounts],
    ) -> Result<(), Refusal> {
        let tracker = self.tracker;
        let lists = &self.listener(grant.0.listener_policy).lists;
        if lists.serve_all(&tracker.live) {
            tracker.count(info_hashes, counts);
            return Ok(());
        }
        let mut refused = None;
        let mut admitted = 0;
        for (hash, count) in info_hashes.iter().zip(counts.iter_mut()) {
            match lists.admit(&tracker.live, hash) {
                Ok(()) => {
                    admitted += 1;
                    tracker.count(std::slice::from_ref(hash), std::slice::from_mut(count));
                }
                Err(refusal) => {
                    refused = Some(refusal);
                    *count = SwarmCounts::default();
                }
            }
        }
        match refused {
            Some(refusal) if admitted == 0 => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Prefetches what [`View::admit_torrent`] reads. Returns the tag of the peer's session.
    #[inline]
    pub(crate) fn prefetch_torrent(
        &self,
        grant: &UnverifiedGrant,
        announce: &Announce,
        endpoint: Endpoint,
    ) -> SessionTag {
        let Announce { info_hash, peer_id, port, .. } = announce;
        let Some(key) = grant.key else { return SessionTag::default() };
        let identity = match endpoint {
            Endpoint::Socket { .. } => PeerIdentity::Socket(PeerKey::new(grant.from, *port)),
            Endpoint::WebRtc(connection) => {
                PeerIdentity::Web(WebPeer { connection, peer_id: *peer_id })
            }
        };
        self.tracker.passkeys.prefetch_session(key, info_hash, peer_id, &identity)
    }

    /// Does the steps of the [order of checks](self) from 4 to 10, except for 5, and counts the
    /// announce for its key. The same for peers with an address and for browsers.
    #[inline]
    pub(crate) fn admit_torrent(
        &self,
        grant: &UnverifiedGrant,
        session: SessionTag,
        announce: &Announce,
        endpoint: Endpoint,
    ) -> Result<Admitted, Refusal> {
        let listener = self.listener(grant.listener_policy);
        // Step 4: the key. It stays locked until its quota is checked.
        let key = self.lock_key(grant)?;
        // Step 6: the endpoint. Other peers would only waste attempts to connect to it.
        let effect = match endpoint {
            Endpoint::Socket { .. } if announce.port == 0 => return Err(Refusal::PortZero),
            Endpoint::Socket { via_local_address }
                if listener.admit_address(grant.from, via_local_address)? =>
            {
                Effect::AnnounceReplaced
            }
            Endpoint::Socket { .. } => Effect::Announce,
            // Others do not get its address, but caps count it.
            Endpoint::WebRtc(_) if Scope::of(grant.from) == Scope::Nowhere => {
                return Err(Refusal::AddressNotPublic);
            }
            Endpoint::WebRtc(_) => Effect::Announce,
        };
        // Step 7: the client software.
        listener.clients.admit(&announce.peer_id)?;
        // Steps 8 and 9: the torrent.
        let listed = listener.lists.admit(&self.tracker.live, &announce.info_hash);
        listed.map_err(|refusal| self.first_refusal(refusal, &announce.info_hash))?;
        if self.tracker.frozen.contains(&announce.info_hash) {
            return Err(Refusal::Frozen);
        }
        // Step 10: the key's quota. Last, because it counts the announce.
        let Some(key) = key else { return Ok(Admitted { effect, key: None }) };
        let report = Report {
            info_hash: &announce.info_hash,
            prefix: self.prefix(grant.from).address(),
            event: announce.event,
            role: announce.role(),
            uploaded: announce.uploaded,
            downloaded: announce.downloaded,
            is_web: matches!(endpoint, Endpoint::WebRtc(_)),
        };
        let id = key.id();
        let is_own = key.account(self.now, session, &report)?;
        let effect = if is_own { effect } else { Effect::OthersStop };
        Ok(Admitted { effect, key: Some(id) })
    }

    /// Returns the refusal by lists of a torrent that is announced: new torrents may be allowed soon.
    #[cold]
    fn first_refusal(&self, refusal: Refusal, hash: &InfoHash) -> Refusal {
        match refusal {
            Refusal::NotAllowed if self.tracker.first_refusals.is_new(self.now, hash) => {
                Refusal::NotAllowedYet
            }
            other => other,
        }
    }

    /// Counts a download by the client of an admitted announce, as far as its count is durable.
    pub(crate) fn count_download(&self, grant: &UnverifiedGrant, info_hash: &InfoHash) {
        let Tracker { live, downloads, .. } = self.tracker;
        let is_listed = self.listener(grant.listener_policy).lists.is_listed(live, info_hash);
        downloads.count(info_hash, grant.from, is_listed);
    }

    /// Step 4 of the [order of checks](self). Unknown keys may be guesses: they are reported.
    #[inline]
    fn lock_key(&self, grant: &UnverifiedGrant) -> Result<Option<LockedKey<'_>>, Refusal> {
        let Some(key) = grant.key else { return Ok(None) };
        let locked = self.tracker.passkeys.admit(self.now, key, grant.kind);
        locked.map(Some).inspect_err(|refusal| {
            if *refusal == Refusal::KeyUnknown {
                self.report_offence(grant.from, BanReason::WrongKeys);
            }
        })
    }

    /// Returns true if no limits apply to a client.
    #[inline]
    pub fn is_exempt(&self, from: IpAddr) -> bool {
        self.settings.limits.exempt.contains(from)
    }

    /// Returns the prefix under which `ip` is counted.
    pub(crate) fn prefix(&self, ip: IpAddr) -> IpPrefix {
        self.settings.limits.prefix(ip)
    }

    #[inline]
    pub(crate) fn listener(&self, id: ListenerPolicyId) -> &ListenerPolicy {
        id.of(&self.settings.listeners)
    }
}

impl UnverifiedGrant {
    /// A permission to announce at a listener without keys, for tests that start behind step 3.
    #[cfg(test)]
    pub(crate) fn unchecked(listener_policy: ListenerPolicyId, from: IpAddr) -> Self {
        Self { listener_policy, from, kind: RequestKind::Announce, key: None }
    }

    #[inline]
    pub(crate) fn listener_policy(&self) -> ListenerPolicyId {
        self.listener_policy
    }

    /// Returns the client's address, which was verified.
    #[inline]
    pub fn client_ip(&self) -> IpAddr {
        self.from
    }
}

#[cfg(test)]
mod tests;
