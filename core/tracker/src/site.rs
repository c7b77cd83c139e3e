//! A site that judges the announces of its users, and accounts them.
//!
//! The tracker asks it once for each announce of a key that it has admitted: step 11 of the
//! [order of checks](crate::admission). It knows nothing of users, ratios or databases. Without a site an announce pays
//! one branch.

use std::net::IpAddr;
use std::slice;

use arrayvec::ArrayVec;
use primitives::Random;
use types::{Announce, Notice, PeerId, PeerKey, Refusal, Role, SwarmCounts, Tick, limits};

use crate::admission::Effect;
use crate::passkeys::SessionTag;
use crate::{AnnounceOk, AnnounceRequest, KeyId, UnverifiedGrant, View, policy, store_announce};
use swarm::{Action, Answer, StoreAnnounce};

/// A site that judges the announces of its users, and accounts them.
pub trait Site: Send + Sync {
    /// Judges an announce of a known key, and counts it. Called once for each admitted announce, by the worker that
    /// serves it: must not block, and may hold a lock for a few microseconds only. A stop is counted even if the key
    /// has no such peer.
    fn announce(&self, now: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict;

    /// Counts a list of peers that the answer to an announce of a known key has. `role` is that of the client: a
    /// seeder gets leechers only. Returns a warning if the user has had too many, and gets none. Called under
    /// the lock of the torrent: must not block.
    fn count_list(&self, _now: Tick, _key: KeyId, _role: Role) -> Option<Notice> {
        None
    }

    /// Replaces what the user of a recorded key may do. Called when the key is restored, created or changed.
    fn set_key_rule(&self, key: KeyId, rule: SiteKeyRule);
}

/// The permissions of the user of a recorded key, by which the site judges announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteKeyRule {
    /// Torrents that it may download at a time; 0 = unlimited. In further ones it is hidden.
    pub download_slots: u32,
}

/// An announce that a site judges.
#[derive(Clone, Copy, Debug)]
pub struct SiteAnnounce<'a> {
    /// The number of the user's key.
    pub key: KeyId,
    /// The announce that the client sent.
    pub announce: &'a Announce,
    /// The peer's address as others get it.
    pub from: IpAddr,
    /// The address that the announce came from.
    pub client_ip: IpAddr,
    /// The `User-Agent` of an HTTP request. Empty if there is none: then the peer id names the client.
    pub agent: &'a [u8],
    /// The protocol of the announce.
    pub protocol: SiteProtocol,
}

/// The protocol by which a user announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteProtocol {
    /// UDP (BEP 15).
    Udp,
    /// HTTP or HTTPS.
    Http,
    /// WebTorrent: the peer's port means nothing, and others reach it by its connection.
    WebTorrent,
}

/// The judgement of a site.
#[derive(Clone, Debug)]
pub struct SiteVerdict {
    /// The answer to the announce.
    pub outcome: SiteOutcome,
    /// Other peers of the same user, which he does not get.
    pub own: OwnPeers,
}

/// Other peers of the user that announces.
pub type OwnPeers = ArrayVec<OwnPeer, { limits::SITE_OWN_PEERS_MAX }>;

/// A peer of the user that announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnPeer {
    /// Its address as others get it.
    pub peer: PeerKey,
    /// Its id, by which WebTorrent peers are recognized.
    pub peer_id: PeerId,
}

/// The answer that a site wants for an announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteOutcome {
    /// The announce is served as any other.
    Serve,
    /// It succeeds with a warning, and without peers. Others do not get the peer.
    Hide(Notice),
    /// The same, with an interval of its own, seconds.
    Quiet {
        /// The warning.
        notice: Notice,
        /// When the client should announce again.
        interval_s: u16,
    },
    /// It fails.
    Refuse {
        /// The reason.
        notice: Notice,
        /// When the client may announce again.
        interval_s: u16,
    },
}

impl SiteVerdict {
    /// Returns a verdict without other peers of the user.
    pub fn new(outcome: SiteOutcome) -> Self {
        Self { outcome, own: OwnPeers::new() }
    }
}

/// The site, and what it wants to know of a request besides its announce.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) site: &'a dyn Site,
    pub(crate) agent: &'a [u8],
    pub(crate) protocol: SiteProtocol,
}

/// An announce that a site has judged, and that is answered.
struct Judged<'a> {
    slot: u8,
    request: &'a AnnounceRequest,
    effect: Effect,
    key: Option<KeyId>,
    /// The peer's address as others get it.
    from: IpAddr,
    /// Present if others do not get the peer.
    hidden: Option<Hidden>,
    /// Other peers of the user.
    own: ArrayVec<PeerKey, { limits::SITE_OWN_PEERS_MAX }>,
}

/// The warning of a hidden peer's answer, and when it should announce again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hidden {
    pub(crate) notice: Notice,
    /// `None` = as any other peer.
    pub(crate) interval_s: Option<u32>,
}

impl SiteOutcome {
    /// Returns the form in which the answer hides the peer, or `None` if it is served as any other.
    ///
    /// # Errors
    ///
    /// [`Refusal::Site`] if the site refuses the announce.
    pub(crate) fn hidden(self) -> Result<Option<Hidden>, Refusal> {
        match self {
            Self::Serve => Ok(None),
            Self::Hide(notice) => Ok(Some(Hidden { notice, interval_s: None })),
            Self::Quiet { notice, interval_s } => {
                Ok(Some(Hidden { notice, interval_s: Some(interval_s.into()) }))
            }
            Self::Refuse { notice, interval_s } => Err(Refusal::Site { notice, interval_s }),
        }
    }
}

impl View<'_> {
    /// Serves an announce over HTTP as [`View::announce`] does. `agent` returns the `User-Agent` of the request, empty
    /// if it has none; it is called only if there is a site, which wants to know it.
    #[inline]
    pub fn announce_http<'b>(
        &self,
        random: &mut Random,
        request: &AnnounceRequest,
        agent: impl FnOnce() -> &'b [u8],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        match self.tracker.site.get() {
            None => self.announce(random, slice::from_ref(request), answer),
            Some(site) => {
                let caller = Caller { site: &**site, agent: agent(), protocol: SiteProtocol::Http };
                self.announce_by_site(caller, random, slice::from_ref(request), answer);
            }
        }
    }

    /// Does what [`View::announce`] does, with each announce as the site judges it.
    // Not inline: without a site there are none.
    #[inline(never)]
    pub(crate) fn announce_by_site(
        &self,
        caller: Caller<'_>,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        let jitter_seed = random.next();
        // Prefetch for the whole batch before the first check, so that the misses overlap.
        let prefetch = |request: &AnnounceRequest| {
            self.prefetch_torrent(&request.grant, &request.announce, request.endpoint())
        };
        let requests = requests.get(..limits::BATCH_MAX).unwrap_or(requests);
        let sessions: ArrayVec<_, { limits::BATCH_MAX }> = requests.iter().map(prefetch).collect();
        let mut served: ArrayVec<Judged<'_>, { limits::BATCH_MAX }> = ArrayVec::new();
        let mut stored: ArrayVec<StoreAnnounce, { limits::BATCH_MAX }> = ArrayVec::new();
        for (slot, (request, session)) in (0..).zip(requests.iter().zip(sessions)) {
            match self.judge(caller, (slot, request), session) {
                Err(refusal) => answer(slot, Err(refusal)),
                Ok(judged) if judged.effect == Effect::OthersStop => {
                    let hash = request.announce.info_hash;
                    let mut counts = SwarmCounts::default();
                    self.tracker.store.scrape(&[hash], slice::from_mut(&mut counts));
                    let answered = Answer::without_peers(counts);
                    let accepted = self.accept(request, jitter_seed, slot, answered);
                    answer(slot, Ok(accepted.warned(judged.hidden)));
                }
                Ok(judged) => {
                    stored.push(self.store_judged(served.len() as u8, &judged));
                    served.push(judged);
                }
            }
        }
        self.tracker.store.announce(self.now, random, &stored, &mut |position, answered| {
            let Some(judged) = served.get(usize::from(position)) else { return };
            let Judged { slot, request, hidden, own, .. } = judged;
            match answered {
                Ok(answered) => {
                    let changes = answered.leaving_out(own);
                    let answered = answered.with(&changes);
                    let too_many = self.count_list(caller.site, judged, &answered);
                    let answered = if too_many.is_some() { answered.emptied() } else { answered };
                    let accepted = self.accept(request, jitter_seed, *slot, answered);
                    answer(*slot, Ok(accepted.warned(hidden.or(too_many))));
                }
                Err(soon) => {
                    let interval_min_s = self.settings.policy.interval_min_s;
                    answer(*slot, Err(policy::too_soon(interval_min_s, soon)));
                }
            }
        });
    }

    fn judge<'r>(
        &self,
        caller: Caller<'_>,
        (slot, request): (u8, &'r AnnounceRequest),
        session: SessionTag,
    ) -> Result<Judged<'r>, Refusal> {
        let AnnounceRequest { grant, announce, .. } = request;
        let admitted = self.admit_torrent(grant, session, announce, request.endpoint())?;
        let from = self.peer_ip(grant.listener_policy(), grant.client_ip());
        let (hidden, own) = self.ask(caller, grant, announce, admitted.key)?;
        let own = own.iter().map(|own| own.peer).collect();
        Ok(Judged { slot, request, effect: admitted.effect, key: admitted.key, from, hidden, own })
    }

    /// Has the site judge an announce that was admitted. Returns how its peer is hidden, if it is, and the other peers
    /// of its user.
    pub(crate) fn ask(
        &self,
        Caller { site, agent, protocol }: Caller<'_>,
        grant: &UnverifiedGrant,
        announce: &Announce,
        key: Option<KeyId>,
    ) -> Result<(Option<Hidden>, OwnPeers), Refusal> {
        let Some(key) = key else { return Ok((None, OwnPeers::new())) };
        let client_ip = grant.client_ip();
        let from = self.peer_ip(grant.listener_policy(), client_ip);
        let announce = SiteAnnounce { key, announce, from, client_ip, agent, protocol };
        let verdict = site.announce(self.now, &announce);
        Ok((verdict.outcome.hidden()?, verdict.own))
    }

    /// Has the site count the peers that an answer has, if there are any. Returns a warning if the user gets none.
    fn count_list(
        &self,
        site: &dyn Site,
        judged: &Judged<'_>,
        answered: &Answer<'_>,
    ) -> Option<Hidden> {
        let has_peers = answered.v4_len() > 0 || answered.v6_len() > 0;
        let key = judged.key.filter(|_| has_peers)?;
        let notice = site.count_list(self.now, key, judged.request.announce.role())?;
        Some(Hidden { notice, interval_s: None })
    }

    /// Returns what the store does for a judged announce, under `position`.
    fn store_judged(&self, position: u8, judged: &Judged<'_>) -> StoreAnnounce {
        let Judged { request, from, hidden, .. } = judged;
        let announce = store_announce(position, request, *from, &self.settings.policy);
        if hidden.is_some() { hide(announce) } else { announce }
    }
}

/// Turns an announce into one that removes its peer, if there is one.
fn hide(announce: StoreAnnounce) -> StoreAnnounce {
    StoreAnnounce { action: Action::Stop, want: 0, ..announce }
}

impl AnnounceOk<'_> {
    fn warned(self, hidden: Option<Hidden>) -> Self {
        let Some(Hidden { notice, interval_s }) = hidden else { return self };
        Self {
            warning: Some(notice),
            interval_s: interval_s.unwrap_or(self.interval_s),
            interval_min_s: interval_s.unwrap_or(self.interval_min_s).min(self.interval_min_s),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
