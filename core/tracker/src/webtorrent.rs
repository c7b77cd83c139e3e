//! WebTorrent announces: a peer gives its offers to the tracker, which chooses the peers that get them; an answer
//! finds its way back by the offer that it answers.

mod budget;
mod offers;

use std::net::IpAddr;

use primitives::Random;
use primitives::siphash::{siphash, siphash_ip};
use swarm::{Action, RelayTargets, StoreWebAnnounce, WebAnnounceSummary};
use types::{
    Announce, ConnectionKey, Event, InfoHash, Notice, OfferId, PeerId, Refusal, SwarmCounts, Tick,
    WebPeer, limits,
};

use crate::admission::Endpoint;
use crate::passkeys::PeerIdentity;
use crate::policy::too_soon;
use crate::site::Caller;
use crate::{Interval, OwnPeers, SiteProtocol, Tracker, UnverifiedGrant, View};

pub use budget::OfferBudget;
pub use offers::Offers;

/// A WebTorrent announce.
#[derive(Clone, Copy, Debug)]
pub struct WebAnnounceRequest {
    /// The client's permission to announce.
    pub grant: UnverifiedGrant,
    /// The connection of the peer that announces.
    pub connection: ConnectionKey,
    /// The announce that the client sent. Its port means nothing.
    pub announce: Announce,
    /// The number of its offers, which bounds the number of its peers.
    pub offers: u16,
    /// The interval that keeps the connection within its [`OfferBudget`], seconds. Ignored if it is shorter than
    /// the usual one, and for exempt clients.
    pub interval_s: u32,
}

/// The response to an accepted WebTorrent announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebAnnounceOk {
    /// The torrent's counts.
    pub counts: SwarmCounts,
    /// When the client should announce again, seconds.
    pub interval_s: u32,
    /// A warning that the client shows its user.
    pub warning: Option<Notice>,
}

/// Identifies an outstanding offer: a keyed hash of the torrent, the offer's id, its sender and its
/// receiver. A client that does not know all of them cannot answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferTag(pub u64);

/// Identifies the network that an offer comes from: a keyed hash of an IPv4 /24 or an IPv6 /48, the same at
/// all nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferNetwork(pub u32);

impl View<'_> {
    /// Serves a WebTorrent announce. Replaces the contents of `chosen` with the peers to which its
    /// offers should go, each once, in random order.
    ///
    /// Does what [`View::authorize_unverified`] left of the [order of checks](crate::admission).
    ///
    /// # Errors
    ///
    /// Returns the refusal of the first of the steps 4 and 6 to 12 that fails.
    pub fn announce_web(
        &self,
        random: &mut Random,
        request: &WebAnnounceRequest,
        chosen: &mut RelayTargets,
    ) -> Result<WebAnnounceOk, Refusal> {
        let (tracker, policy) = (self.tracker, &self.settings.policy);
        let WebAnnounceRequest { grant, connection, announce, .. } = request;
        let endpoint = Endpoint::WebRtc(*connection);
        let session = self.prefetch_torrent(grant, announce, endpoint);
        // A connection stops its own peers only, whether its key has them or not.
        let admitted = self.admit_torrent(grant, session, announce, endpoint)?;
        let (hidden, own) = match self.tracker.site() {
            None => (None, OwnPeers::new()),
            Some(site) => {
                let caller = Caller { site, agent: b"", protocol: SiteProtocol::WebTorrent };
                self.ask(caller, grant, announce, admitted.key)?
            }
        };
        let info_hash = announce.info_hash;
        let mut announce = self.store_announce(request);
        if hidden.is_some() {
            (announce.action, announce.want) = (Action::Stop, 0);
        }
        let done = tracker.store.announce_web(self.now, random, &announce, chosen);
        let refusal = |soon| too_soon(policy.websocket_interval_min_s(), soon);
        let WebAnnounceSummary { mut counts, downloaded } = done.map_err(refusal)?;
        chosen.retain(|peer| !own.iter().any(|own| own.peer_id == peer.peer_id));
        if tracker.downloads.is_on() {
            if downloaded {
                self.count_download(grant, &info_hash);
            }
            tracker.downloads.raise(&info_hash, &mut counts.downloads);
        }
        let Interval { interval_s, jitter_s, .. } = self.interval;
        let usual_s = interval_s + random.below(jitter_s + 1);
        let interval_s = usual_s.max(announce.extra_s.saturating_add(policy.websocket_interval_s));
        Ok(WebAnnounceOk {
            counts,
            interval_s: hidden.and_then(|hidden| hidden.interval_s).unwrap_or(interval_s),
            warning: hidden.map(|hidden| hidden.notice),
        })
    }

    /// Returns how many of a client's offers may be relayed: those within the rate of its prefix. Call it
    /// with the number of peers chosen for them.
    pub fn admit_offers(&self, from: IpAddr, offers: usize) -> usize {
        let Self { tracker, settings, now, .. } = self;
        let admitted = tracker.limiter.take_offers(&settings.limits, *now, from, offers as u32);
        let admitted = admitted as usize;
        if admitted < offers && self.is_exempt(from) { offers } else { admitted }
    }

    fn store_announce(&self, request: &WebAnnounceRequest) -> StoreWebAnnounce {
        let policy = &self.settings.policy;
        let announce = &request.announce;
        let (action, want) = match announce.event {
            //= webtorrent#stopped
            Event::Stopped => (Action::Stop, 0),
            event => (
                Action::Update { completed: event == Event::Completed },
                //= webtorrent#relay
                policy.peers(announce.want).min(request.offers).min(limits::WEB_OFFERS_MAX as u16),
            ),
        };
        let extra_s = request.interval_s.saturating_sub(policy.websocket_interval_s);
        let min_s = policy.websocket_interval_min_s();
        StoreWebAnnounce {
            info_hash: announce.info_hash,
            peer: WebPeer { connection: request.connection, peer_id: announce.peer_id },
            address: request.grant.client_ip(),
            role: announce.role(),
            action,
            min_interval_s: policy.min_interval_s(announce.event, min_s),
            caps: policy.peer_caps,
            want,
            extra_s: if extra_s > 0 && self.is_exempt(request.grant.client_ip()) {
                0
            } else {
                extra_s
            },
        }
    }
}

impl Tracker {
    /// Removes a WebTorrent peer whose connection has ended. `key` is the passkey of its URL.
    pub fn leave_web(&self, now: Tick, key: Option<&[u8]>, info_hash: &InfoHash, peer: WebPeer) {
        self.store.leave_web(info_hash, peer);
        if let Some(key) = key {
            let key = self.passkeys.hash_and_prefetch(key);
            let identity = PeerIdentity::Web(peer);
            let tag = self.passkeys.prefetch_session(key, info_hash, &peer.peer_id, &identity);
            self.passkeys.leave(now, key, tag);
        }
    }

    /// Returns the network of a client that makes offers.
    pub fn offer_network(&self, from: IpAddr) -> OfferNetwork {
        let network = self.settings.load().limits.network(from).address();
        OfferNetwork(siphash_ip::<1, 3>(&self.offer_keys.load().current, network) as u32)
    }

    /// Returns the tag of the offer `id` of `from` to `to`.
    pub fn offer_tag(
        &self,
        info_hash: &InfoHash,
        id: &OfferId,
        from: &PeerId,
        to: &PeerId,
    ) -> OfferTag {
        tag(&self.offer_keys.load().current, [&info_hash.0, &id.0, &from.0, &to.0])
    }

    /// Returns the tag of the same offer if it came from a node that issues by [`Secrets::previous`], if there
    /// are any.
    ///
    /// [`Secrets::previous`]: crate::Secrets::previous
    pub fn previous_offer_tag(
        &self,
        info_hash: &InfoHash,
        id: &OfferId,
        from: &PeerId,
        to: &PeerId,
    ) -> Option<OfferTag> {
        let key = self.offer_keys.load().previous?;
        Some(tag(&key, [&info_hash.0, &id.0, &from.0, &to.0]))
    }
}

fn tag(key: &[u8; 16], parts: [&[u8; 20]; 4]) -> OfferTag {
    OfferTag(siphash::<1, 3>(key, parts.map(|part| *part).as_flattened()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{leecher, tracker};
    use crate::{Limits, ListenerPolicyId, Networks, Policy, Rate, RequestKind, Service};
    use types::NumWant;

    const HASH: InfoHash = InfoHash([1; 20]);

    fn request(peer: u8, event: Event, offers: u16) -> WebAnnounceRequest {
        WebAnnounceRequest {
            grant: UnverifiedGrant::unchecked(ListenerPolicyId(0), [127, 0, 0, 1].into()),
            connection: ConnectionKey(peer.into()),
            announce: Announce { event, ..leecher(HASH, peer) },
            offers,
            interval_s: 0,
        }
    }

    fn announce(
        tracker: &Tracker,
        request: &WebAnnounceRequest,
    ) -> (Result<WebAnnounceOk, Refusal>, RelayTargets) {
        let mut chosen = RelayTargets::new();
        let view = tracker.view_of(Service::Ws4, Tick(0));
        let answer = view.announce_web(&mut Random::new(1), request, &mut chosen);
        (answer, chosen)
    }

    //= webtorrent#relay
    //= type=test
    #[test]
    fn peers_are_bounded_by_offers_numwant_and_policy() {
        let tracker = tracker(Policy { numwant_max: 3, ..Policy::default() });
        for peer in 1..=9 {
            announce(&tracker, &request(peer, Event::Started, 0)).0.unwrap();
        }
        let chosen = |request| announce(&tracker, &request).1.len();
        assert_eq!(chosen(request(9, Event::None, 2)), 2);
        assert_eq!(chosen(request(9, Event::None, 9)), 3);
        let wanting = |want| {
            let mut request = request(9, Event::None, 9);
            request.announce.want = want;
            request
        };
        assert_eq!(chosen(wanting(NumWant::Peers(1))), 1);
        assert_eq!(chosen(wanting(NumWant::Peers(0))), 0);
        assert_eq!(chosen(request(9, Event::Stopped, 9)), 0);
        let (accepted, _) = announce(&tracker, &request(8, Event::None, 0));
        let accepted = accepted.unwrap();
        assert_eq!((accepted.counts.leechers(), accepted.interval_s), (8, 120));
    }

    #[test]
    fn a_connection_with_many_torrents_gets_a_longer_interval_unless_it_is_exempt() {
        let tracker = tracker(Policy::default());
        let interval_s = |interval_s| {
            let request = WebAnnounceRequest { interval_s, ..request(1, Event::Started, 0) };
            announce(&tracker, &request).0.unwrap().interval_s
        };
        assert_eq!([0, 119, 121, 700].map(interval_s), [120, 120, 121, 700]);
        let exempt = Networks::parse(["127.0.0.0/8"]).unwrap();
        tracker.limiter().replace(Limits { exempt, ..Limits::default() });
        assert_eq!(interval_s(700), 120);
    }

    #[test]
    fn browsers_at_addresses_of_tunnels_are_refused() {
        let tracker = tracker(Policy::default());
        let from = |ip: &str| {
            let grant = UnverifiedGrant::unchecked(ListenerPolicyId(0), ip.parse().unwrap());
            let request = WebAnnounceRequest { grant, ..request(1, Event::Started, 0) };
            announce(&tracker, &request).0.map(drop)
        };
        for tunnel in ["2002:909:909::1", "2001::1"] {
            assert_eq!(from(tunnel), Err(Refusal::AddressNotPublic), "{tunnel}");
        }
        for other in ["2606:4700::1111", "10.0.0.1"] {
            assert_eq!(from(other), Ok(()), "{other}");
        }
    }

    #[test]
    fn tags_of_offers_depend_on_torrent_offer_and_both_peers() {
        let tracker = tracker(Policy::default());
        let [one, two] = [1, 2].map(|number| PeerId([number; 20]));
        let tag = tracker.offer_tag(&HASH, &OfferId([3; 20]), &one, &two);
        for other in [
            tracker.offer_tag(&InfoHash([9; 20]), &OfferId([3; 20]), &one, &two),
            tracker.offer_tag(&HASH, &OfferId([9; 20]), &one, &two),
            tracker.offer_tag(&HASH, &OfferId([3; 20]), &two, &one),
        ] {
            assert_ne!(tag, other);
        }
    }

    #[test]
    fn networks_of_senders_are_told_apart() {
        let tracker = tracker(Policy::default());
        let network = |ip: &str| tracker.offer_network(ip.parse().unwrap());
        assert_eq!(network("192.0.2.1"), network("192.0.2.255"));
        assert_eq!(network("::ffff:192.0.2.9"), network("192.0.2.255"));
        assert_eq!(network("2001:db8:1::1"), network("2001:db8:1:ffff::2"));
        assert_ne!(network("192.0.2.1"), network("192.0.3.1"));
        assert_ne!(network("2001:db8:1::1"), network("2001:db8:2::1"));
    }

    #[test]
    fn offers_have_a_rate_of_their_own_while_announces_have_one() {
        let tracker = tracker(Policy::default());
        let from: IpAddr = [192, 0, 2, 1].into();
        let burst = limits::OFFERS_BURST as usize;
        assert_eq!(tracker.view(Tick(1)).admit_offers(from, 2 * burst), 2 * burst);
        let announces = Rate { per_s: 1, burst: 2 };
        tracker.limiter().replace(Limits { announces, ..Limits::default() });
        let admit = |now, from, offers| tracker.view(Tick(now)).admit_offers(from, offers);
        assert_eq!(admit(1, from, burst - 3), burst - 3);
        assert_eq!([10, 10].map(|offers| admit(1, from, offers)), [3, 0]);
        // Announces are not charged for them, nor other prefixes.
        let policy = ListenerPolicyId(0);
        let announce = || {
            let kind = RequestKind::Announce;
            tracker.view(Tick(1)).authorize(policy, from, kind, None).is_ok()
        };
        assert_eq!([announce(), announce(), announce()], [true, true, false]);
        assert_eq!(admit(1, [192, 0, 2, 2].into(), 10), 10);
        let per_s = limits::OFFERS_PER_S as usize;
        assert_eq!(admit(2, from, 2 * per_s), per_s);
        let exempt = Networks::parse(["192.0.2.0/24"]).unwrap();
        tracker.limiter().replace(Limits { announces, exempt, ..Limits::default() });
        assert_eq!(admit(2, from, 10), 10);
    }
}
