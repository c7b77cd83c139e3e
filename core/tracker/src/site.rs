//! A site that judges the announces of its users, and accounts them.
//!
//! The tracker asks it once for each announce of a key that it has admitted: step 11 of the
//! [order of checks](crate::admission). It knows nothing of users, ratios or databases. Without a site an announce pays
//! one branch.

use std::net::IpAddr;
use std::slice;

use arrayvec::ArrayVec;
use primitives::Random;
use types::{Announce, Notice, PeerId, PeerKey, Refusal, SwarmCounts, Tick, limits};

use crate::admission::Effect;
use crate::{AnnounceOk, AnnounceRequest, KeyId, View, policy, store_announce};
use swarm::{Action, Answer, StoreAnnounce};

/// A site that judges the announces of its users, and accounts them.
pub trait Site: Send + Sync {
    /// Judges an announce of a known key, and counts it. Called once for each admitted announce, by the worker that
    /// serves it: must not block, and may hold a lock for a few microseconds only. A stop is counted even if the key
    /// has no such peer.
    fn announce(&self, now: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict;

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
struct Caller<'a> {
    site: &'a dyn Site,
    agent: &'a [u8],
    protocol: SiteProtocol,
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
                self.answer_by_site(caller, random, (0, request), answer);
            }
        }
    }

    /// Serves announces over UDP one by one, each as the site judges it.
    // Not inline: without a site there are none.
    #[inline(never)]
    pub(crate) fn announce_by_site(
        &self,
        site: &dyn Site,
        random: &mut Random,
        requests: &[AnnounceRequest],
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        let caller = Caller { site, agent: b"", protocol: SiteProtocol::Udp };
        for numbered in (0..).zip(requests) {
            self.answer_by_site(caller, random, numbered, answer);
        }
    }

    // Not inline: without a site there are none.
    #[inline(never)]
    fn answer_by_site(
        &self,
        caller: Caller<'_>,
        random: &mut Random,
        (slot, request): (u8, &AnnounceRequest),
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) {
        if let Err(refusal) = self.judge(caller, random, (slot, request), answer) {
            answer(slot, Err(refusal));
        }
    }

    /// Has the site judge an announce, and answers it unless it is refused.
    fn judge(
        &self,
        caller: Caller<'_>,
        random: &mut Random,
        (slot, request): (u8, &AnnounceRequest),
        answer: &mut impl FnMut(u8, Result<AnnounceOk<'_>, Refusal>),
    ) -> Result<(), Refusal> {
        let AnnounceRequest { grant, announce, .. } = request;
        let ip = self.peer_ip(grant.listener_policy(), grant.client_ip());
        let session = self.prefetch_torrent(grant, announce, request.endpoint());
        let admitted = self.admit_torrent(grant, session, announce, request.endpoint())?;
        let jitter_seed = random.next();
        let verdict = match admitted.key {
            None => SiteVerdict::new(SiteOutcome::Serve),
            Some(key) => {
                let Caller { site, agent, protocol } = caller;
                let announce = SiteAnnounce { key, announce, from: ip, agent, protocol };
                site.announce(self.now, &announce)
            }
        };
        let hidden = verdict.outcome.hidden()?;
        if admitted.effect == Effect::OthersStop {
            let mut counts = SwarmCounts::default();
            self.tracker.store.scrape(&[announce.info_hash], slice::from_mut(&mut counts));
            let accepted = self.accept(request, jitter_seed, slot, Answer::without_peers(counts));
            answer(slot, Ok(accepted.warned(hidden)));
            return Ok(());
        }
        let own: ArrayVec<PeerKey, { limits::SITE_OWN_PEERS_MAX }> =
            verdict.own.iter().map(|own| own.peer).collect();
        let policy = &self.settings.policy;
        let stored = match hidden {
            None => store_announce(slot, request, ip, policy),
            Some(_) => hide(store_announce(slot, request, ip, policy)),
        };
        self.tracker.store.announce(self.now, random, &[stored], &mut |_, answered| {
            let answered = match answered {
                Ok(answered) => answered,
                Err(soon) => {
                    return answer(slot, Err(policy::too_soon(policy.interval_min_s, soon)));
                }
            };
            let left_out = answered.find(&own);
            let accepted = self.accept(request, jitter_seed, slot, answered.without(&left_out));
            answer(slot, Ok(accepted.warned(hidden)));
        });
        Ok(())
    }
}

/// Turns an announce into one that removes its peer, if there is one.
fn hide(announce: StoreAnnounce) -> StoreAnnounce {
    StoreAnnounce { action: Action::Stop, want: 0, ..announce }
}

impl AnnounceOk<'_> {
    /// Adds the warning of a hidden peer.
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
