//! Announces as a site judges them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;
use primitives::Random;
use swarm::RelayTargets;
use types::{ConnectionKey, Event, InfoHash, Tick};

use super::*;
use crate::tests::{Accepted, Seen, announce_by, leecher, request, tracker};
use crate::{
    Access, KeyRules, ListenerPolicy, ListenerPolicyId, Policy, RequestKind, Tracker, UserKey,
    WebAnnounceRequest,
};

/// A site that answers each torrent in its own way, and leaves all peers of host 2 out.
#[derive(Default)]
struct TestSite {
    seen: Mutex<Vec<(KeyId, Event, String, SiteProtocol)>>,
    announces: AtomicU16,
    /// The roles of clients that got peers, or too many.
    lists: Mutex<Vec<Role>>,
    lists_max: usize,
}

const SERVED: u8 = 1;
const HIDDEN: u8 = 2;
const QUIET: u8 = 3;
const REFUSED: u8 = 4;

impl Site for TestSite {
    fn announce(&self, _: Tick, announce: &SiteAnnounce<'_>) -> SiteVerdict {
        self.announces.fetch_add(1, Ordering::Relaxed);
        let agent = String::from_utf8_lossy(announce.agent).into_owned();
        let SiteAnnounce { key, protocol, .. } = *announce;
        self.seen.lock().push((key, announce.announce.event, agent, protocol));
        let notice = Notice::new("pending moderation");
        let outcome = match announce.announce.info_hash.0[0] {
            HIDDEN => SiteOutcome::Hide(notice),
            QUIET => SiteOutcome::Quiet { notice, interval_s: 30 },
            REFUSED => SiteOutcome::Refuse { notice, interval_s: 5400 },
            _ => SiteOutcome::Serve,
        };
        let own =
            OwnPeer { peer: PeerKey::new([10, 0, 0, 2].into(), 6881), peer_id: PeerId([2; 20]) };
        SiteVerdict { outcome, own: OwnPeers::from_iter([own]) }
    }

    fn count_list(&self, _: Tick, _: KeyId, role: Role) -> Option<Notice> {
        let mut lists = self.lists.lock();
        lists.push(role);
        (lists.len() > self.lists_max).then(|| Notice::new("too many lists"))
    }

    fn set_key_rule(&self, _: KeyId, _: SiteKeyRule) {}
}

fn key() -> UserKey {
    UserKey::parse("0123456789abcdef").unwrap()
}

/// Returns a tracker with one user, and its site.
fn site() -> (Tracker, Arc<TestSite>) {
    let tracker = tracker(Policy::default());
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[private]);
    tracker.passkeys().put(KeyId(KeyId::SITE_FIRST + 7), key(), KeyRules::default());
    let site = Arc::new(TestSite { lists_max: 5, ..TestSite::default() });
    assert!(tracker.set_site(site.clone()) && !tracker.set_site(site.clone()));
    (tracker, site)
}

/// Returns the user's announce of a peer at host `host` in torrent `hash`.
fn authorized(view: &View<'_>, host: u8, hash: u8, event: Event) -> AnnounceRequest {
    let (from, kind) = ([10, 0, 0, host].into(), RequestKind::Announce);
    let key = key();
    let grant = view.authorize_unverified(ListenerPolicyId(0), from, kind, Some(key.as_bytes()));
    let mut request = AnnounceRequest { grant: grant.unwrap(), ..request(host, hash) };
    request.announce.event = event;
    request
}

/// Announces it: that of host 9 over HTTP, others over UDP.
fn announce(tracker: &Tracker, host: u8, hash: u8, event: Event) -> Seen {
    let view = tracker.view(Tick(1));
    let request = authorized(&view, host, hash, event);
    let mut random = Random::new(1);
    if host != 9 {
        return announce_by(&view, &mut random, &[request]);
    }
    let mut seen = Seen::default();
    let agent = || b"qBittorrent/5.1.0".as_slice();
    view.announce_http(&mut random, &request, agent, &mut |slot, answer| seen.push(slot, answer));
    seen
}

#[test]
fn site_is_asked_once_for_each_admitted_announce() {
    let (tracker, site) = site();
    announce(&tracker, 9, SERVED, Event::Started);
    announce(&tracker, 1, SERVED, Event::None);
    // Also of a stop that changes nothing here: the site may remember the peer for longer.
    let stopped = announce(&tracker, 8, SERVED, Event::Stopped);
    assert!(stopped.answers[0].1.is_ok());
    let id = KeyId(KeyId::SITE_FIRST + 7);
    let expected = [
        (id, Event::Started, "qBittorrent/5.1.0".to_owned(), SiteProtocol::Http),
        (id, Event::None, String::new(), SiteProtocol::Udp),
        (id, Event::Stopped, String::new(), SiteProtocol::Udp),
    ];
    assert_eq!(*site.seen.lock(), expected);
    // Unknown keys are none of its business.
    tracker.passkeys().remove(id);
    let unknown = announce(&tracker, 1, SERVED, Event::None);
    assert_eq!(unknown.refusals(), [Some(Refusal::KeyUnknown)]);
    assert_eq!(site.announces.load(Ordering::Relaxed), 3);
}

#[test]
fn users_do_not_get_their_own_peers() {
    let (tracker, _) = site();
    (1..=4).for_each(|host| _ = announce(&tracker, host, SERVED, Event::Started));
    let mut peers = announce(&tracker, 9, SERVED, Event::Started).peers;
    peers.sort_unstable_by_key(|peer| peer.socket_addr());
    let expected = [1, 3, 4].map(|host| PeerKey::new([10, 0, 0, host].into(), 6881));
    assert_eq!(peers, expected);
}

#[test]
fn lists_of_peers_are_counted_and_withheld_if_there_are_too_many() {
    let (tracker, site) = site();
    // The first one gets no peers, and the others' own peer at host 2 is left out.
    announce(&tracker, 2, SERVED, Event::Started);
    announce(&tracker, 1, SERVED, Event::Started);
    announce(&tracker, 1, HIDDEN, Event::None);
    announce(&tracker, 1, SERVED, Event::Stopped);
    assert_eq!(*site.lists.lock(), []);
    for host in [3, 4, 5, 6, 7, 8] {
        let seen = announce(&tracker, host, SERVED, Event::None);
        assert_eq!(seen.peers.len(), usize::from(host - 3), "{host}");
    }
    assert_eq!(*site.lists.lock(), [Role::Leecher; 5]);
    let seen = announce(&tracker, 9, SERVED, Event::None);
    let Accepted { warning, .. } = seen.answers[0].1.as_ref().unwrap();
    assert_eq!(warning.unwrap().text(), "too many lists");
    assert!(seen.peers.is_empty());
    // It is handed out nevertheless.
    site.lists.lock().clear();
    assert_eq!(announce(&tracker, 10, SERVED, Event::None).peers.len(), 7);
}

#[test]
fn hidden_peers_succeed_with_a_warning_and_are_not_handed_out() {
    let (tracker, _) = site();
    // It was served before the site changed its mind about the torrent.
    let stored = [request(3, HIDDEN).announce, request(3, QUIET).announce].map(|announce| {
        store_announce(
            0,
            &AnnounceRequest { announce, ..request(3, 0) },
            [10, 0, 0, 3].into(),
            &Policy::default(),
        )
    });
    tracker.store().announce(Tick(0), &mut Random::new(1), &stored, &mut |_, _| {});
    for (hash, interval_s) in [(HIDDEN, None), (QUIET, Some(30))] {
        let seen = announce(&tracker, 3, hash, Event::Started);
        let accepted = seen.answers[0].1.unwrap();
        assert_eq!(accepted.warning.map(Notice::text), Some("pending moderation"));
        assert_eq!((seen.peers.len(), accepted.counts.leechers()), (0, 0));
        let usual = Policy::default().interval_s;
        let is_right = match interval_s {
            None => accepted.interval_s >= usual / 2,
            Some(interval_s) => {
                accepted.interval_s == interval_s && accepted.interval_min_s <= interval_s
            }
        };
        assert!(is_right, "{hash}: {}", accepted.interval_s);
    }
    let refused = announce(&tracker, 3, REFUSED, Event::Started).refusals();
    let notice = Notice::new("pending moderation");
    assert_eq!(refused, [Some(Refusal::Site { notice, interval_s: 5400 })]);
}

#[test]
fn each_announce_of_a_batch_is_answered_as_it_is_judged() {
    let (tracker, site) = site();
    let view = tracker.view(Tick(1));
    let batch = [
        (1, REFUSED, Event::Started),
        (1, SERVED, Event::Started),
        (2, HIDDEN, Event::Started),
        (3, SERVED, Event::Stopped),
        (4, QUIET, Event::Started),
        (5, SERVED, Event::Started),
    ];
    let requests = batch.map(|(host, hash, event)| authorized(&view, host, hash, event));
    let mut seen = announce_by(&view, &mut Random::new(1), &requests);
    seen.answers.sort_by_key(|(slot, _)| *slot);
    let texts = seen.answers.iter().map(|(_, answer)| match answer {
        Err(Refusal::Site { .. }) => "refused",
        Err(_) => "another refusal",
        Ok(Accepted { warning: Some(_), interval_s: 30, .. }) => "quiet",
        Ok(Accepted { warning: Some(_), .. }) => "hidden",
        Ok(_) => "served",
    });
    let expected = ["refused", "served", "hidden", "served", "quiet", "served"];
    assert_eq!(texts.collect::<Vec<_>>(), expected);
    let slots = seen.answers.iter().map(|(slot, _)| *slot);
    assert!(slots.eq(0..6), "each is answered once");
    assert_eq!(site.announces.load(Ordering::Relaxed), 6);
    assert_eq!(tracker.totals().v4.leechers, 2, "only those of the served torrent are stored");
}

#[test]
fn browsers_are_judged_likewise() {
    let (tracker, site) = site();
    let key = key();
    let announce = |peer: u8, hash: u8| {
        let view = tracker.view(Tick(1));
        let kind = RequestKind::Announce;
        let from = [10, 0, 0, peer].into();
        let grant =
            view.authorize_unverified(ListenerPolicyId(0), from, kind, Some(key.as_bytes()));
        let request = WebAnnounceRequest {
            grant: grant.unwrap(),
            connection: ConnectionKey(peer.into()),
            announce: leecher(InfoHash([hash; 20]), peer),
            offers: 5,
        };
        let mut chosen = RelayTargets::new();
        let answer = view.announce_web(&mut Random::new(1), &request, &mut chosen);
        answer.map(|accepted| (accepted, chosen.len()))
    };
    assert!((1..=3).all(|peer| announce(peer, SERVED).is_ok()));
    let (accepted, chosen) = announce(4, SERVED).unwrap();
    assert_eq!((chosen, accepted.warning), (2, None), "all but peer 2 and itself");
    let (accepted, chosen) = announce(4, QUIET).unwrap();
    assert_eq!((chosen, accepted.interval_s, accepted.counts.leechers()), (0, 30, 0));
    assert_eq!(accepted.warning.map(Notice::text), Some("pending moderation"));
    assert!(matches!(announce(4, REFUSED), Err(Refusal::Site { interval_s: 5400, .. })));
    assert!(site.seen.lock().iter().all(|(.., protocol)| *protocol == SiteProtocol::WebTorrent));
}
