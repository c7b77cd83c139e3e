//! The order of checks, by one table for all protocols: for every pair of checks that fail at the same
//! time, the earlier one decides.

use std::net::IpAddr;
use std::sync::Arc;

use types::{ConnectionKey, Families, Notice, UserKey};

use super::*;
use crate::access::{AccessLists, HashList, Mode};
use crate::tests::{POLICY, announce_by, leecher, tracker};
use crate::{
    AnnounceRequest, BanRules, ClientRules, IpPrefix, KeyId, KeyRules, Limits, Networks, Policy,
    PrivateAddresses, Random, Rate, RelayTargets, WebAnnounceRequest,
};
use Request::{
    AnnounceHttp, AnnounceUdp, AnnounceWeb, Connect, MalformedAnnounce, Scrape, Upgrade,
};

/// The requests that go through admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Connect,
    AnnounceUdp,
    AnnounceHttp,
    AnnounceWeb,
    /// Over HTTP: authorized, and then found to be malformed.
    MalformedAnnounce,
    Scrape,
    Upgrade,
}

/// A check, its step in the order, and the requests to which it applies.
struct Check {
    refusal: Refusal,
    step: u8,
    applies_to: &'static [Request],
}

const ANY: &[Request] =
    &[Connect, AnnounceUdp, AnnounceHttp, AnnounceWeb, MalformedAnnounce, Scrape, Upgrade];
const WITH_KEY: &[Request] =
    &[AnnounceUdp, AnnounceHttp, AnnounceWeb, MalformedAnnounce, Scrape, Upgrade];
const ANNOUNCES: &[Request] = &[AnnounceUdp, AnnounceHttp, AnnounceWeb];
const ANNOUNCES_MALFORMED_TOO: &[Request] =
    &[AnnounceUdp, AnnounceHttp, AnnounceWeb, MalformedAnnounce];
const ANNOUNCES_BY_IP: &[Request] = &[AnnounceUdp, AnnounceHttp];
const OF_TORRENTS: &[Request] = &[AnnounceUdp, AnnounceHttp, AnnounceWeb, Scrape];

/// Stands for a torrent that is refused with any reason.
const OWN_REASON: Refusal = Refusal::Torrent { reason: Notice::UNSPECIFIED };

/// The order of checks, as the module's head has it.
const ORDER: [Check; 19] = [
    check(1, Refusal::Banned, ANY),
    check(2, Refusal::TooManyRequests, ANY),
    check(3, Refusal::KeyUnexpected, WITH_KEY),
    check(3, Refusal::KeyMissing, WITH_KEY),
    check(4, Refusal::KeyUnknown, WITH_KEY),
    check(4, Refusal::KeyExpired, WITH_KEY),
    check(4, Refusal::KeyRate, ANNOUNCES_MALFORMED_TOO),
    check(5, Refusal::PortMalformed, &[MalformedAnnounce]),
    check(6, Refusal::PortZero, ANNOUNCES_BY_IP),
    check(6, Refusal::AddressNotPublic, ANNOUNCES_BY_IP),
    check(7, Refusal::ClientRefused, ANNOUNCES),
    check(8, OWN_REASON, OF_TORRENTS),
    check(8, Refusal::Denied, OF_TORRENTS),
    check(8, Refusal::NotAllowed, OF_TORRENTS),
    check(9, Refusal::Frozen, ANNOUNCES),
    check(10, Refusal::KeyPeers, ANNOUNCES),
    check(10, Refusal::KeyTorrents, ANNOUNCES),
    check(10, Refusal::KeyAddresses, ANNOUNCES),
    check(11, Refusal::TooSoon { wait_min: 15 }, ANNOUNCES),
];

const fn check(step: u8, refusal: Refusal, applies_to: &'static [Request]) -> Check {
    Check { refusal, step, applies_to }
}

const NOW: Tick = Tick(600);
/// The listener under test, and one without any restriction that prepares the tracker's state.
const TESTED: ListenerPolicyId = ListenerPolicyId(0);
const FREE: ListenerPolicyId = ListenerPolicyId(1);
const PRIVATE_FREE: ListenerPolicyId = ListenerPolicyId(2);
const TORRENT: InfoHash = InfoHash([1; 20]);
const OTHER_TORRENT: InfoHash = InfoHash([2; 20]);
const PEER: u8 = 3;
const OTHER_PEER: u8 = 4;
const KEY: &str = "0123456789abcdef";
const UNKNOWN_KEY: &str = "0123456789abcdeg";

/// A tracker at which some checks fail for one client, and the request of that client.
struct Scene {
    tracker: Tracker,
    from: IpAddr,
    port: u16,
    key: Option<&'static str>,
}

/// Returns true if two checks cannot fail at the same time: a request has one key, which is good for
/// as many steps as it passes; a torrent is new to a key or not; no peer with port 0 is in the store.
fn is_impossible(one: Refusal, other: Refusal) -> bool {
    use Refusal::*;
    let of_good_keys = [KeyExpired, KeyRate, KeyPeers, KeyTorrents, KeyAddresses];
    let pair = |a: &[Refusal], b: &[Refusal]| {
        (a.contains(&one) && b.contains(&other)) || (b.contains(&one) && a.contains(&other))
    };
    let keys = [KeyUnexpected, KeyMissing, KeyUnknown];
    (keys.contains(&one) && keys.contains(&other))
        || pair(&keys, &of_good_keys)
        || pair(&[KeyPeers], &[KeyTorrents])
        || pair(&[PortZero], &[TooSoon { wait_min: 15 }])
}

impl Scene {
    /// A tracker with `failing` checks, of which a check of the key needs a private listener.
    fn new(failing: &[Refusal]) -> Self {
        let fails = |refusal| failing.contains(&refusal);
        let from: IpAddr =
            if fails(Refusal::AddressNotPublic) { [10, 0, 0, 1] } else { [8, 8, 8, 8] }.into();
        let port = if fails(Refusal::PortZero) { 0 } else { 6881 };
        let key = match () {
            () if fails(Refusal::KeyUnexpected) => Some(KEY),
            () if fails(Refusal::KeyMissing) => None,
            () if fails(Refusal::KeyUnknown) => Some(UNKNOWN_KEY),
            () => failing.iter().any(|one| one.label().starts_with("key_")).then_some(KEY),
        };
        let scene = Self { tracker: tracker(Policy::default()), from, port, key };
        scene.prepare(failing);
        scene
    }

    /// Returns the access of the listener under test.
    fn access(&self, failing: &[Refusal]) -> Access {
        let is_open = failing.contains(&Refusal::KeyUnexpected);
        let needs_key = self.key.is_some() || failing.contains(&Refusal::KeyMissing);
        if needs_key && !is_open { Access::Private } else { Access::Open }
    }

    fn prepare(&self, failing: &[Refusal]) {
        let Self { tracker, from, .. } = self;
        let fails = |refusal| failing.contains(&refusal);
        let policy = |access| ListenerPolicy {
            access,
            private_addresses: PrivateAddresses::Allow,
            ..ListenerPolicy::default()
        };
        let replace = |tested| {
            tracker.replace_listeners(&[tested, policy(Access::Open), policy(Access::Private)]);
        };
        replace(policy(Access::Open));
        // The peer is in the swarm already, by a listener without keys.
        if fails(Refusal::TooSoon { wait_min: 15 }) {
            self.announce_all(FREE, None, (TORRENT, PEER, *from));
        }
        // The key has another peer: in the same torrent or another one, at the same address or not.
        let loose =
            KeyRules { peers_per_torrent: 9, torrents: 9, addresses: 9, ..KeyRules::default() };
        self.put_key(loose);
        let torrent = if fails(Refusal::KeyTorrents) { OTHER_TORRENT } else { TORRENT };
        let host = if fails(Refusal::KeyAddresses) { [8, 8, 4, 4].into() } else { *from };
        self.announce_all(PRIVATE_FREE, Some(KEY), (torrent, OTHER_PEER, host));
        let tight = KeyRules {
            peers_per_torrent: fails(Refusal::KeyPeers).into(),
            torrents: fails(Refusal::KeyTorrents).into(),
            addresses: fails(Refusal::KeyAddresses).into(),
            announces_per_minute: fails(Refusal::KeyRate).into(),
            ..KeyRules::default()
        };
        self.put_key(tight);
        // One announce uses up the key's minute.
        if fails(Refusal::KeyRate) {
            let (view, key) = (tracker.view(NOW), Some(KEY.as_bytes()));
            view.authorize(PRIVATE_FREE, *from, RequestKind::Announce, key).unwrap();
        }
        self.put_key(KeyRules { expires: fails(Refusal::KeyExpired).then_some(NOW), ..tight });
        tracker.freeze(&TORRENT, fails(Refusal::Frozen));
        if fails(OWN_REASON) {
            tracker.torrent_reasons().put(TORRENT, "Dupe");
        }
        tracker.reconfigure(&Policy {
            enforce_interval_min: fails(Refusal::TooSoon { wait_min: 15 }),
            ..Policy::default()
        });
        replace(self.tested_policy(failing));
        if fails(Refusal::TooManyRequests) {
            self.use_up_rates();
        }
        if fails(Refusal::Banned) {
            tracker.bans().put(&[(IpPrefix::from(*from), None)]);
        }
    }

    fn tested_policy(&self, failing: &[Refusal]) -> ListenerPolicy {
        let fails = |refusal| failing.contains(&refusal);
        let only = |torrent: InfoHash| Arc::new([torrent].into_iter().collect::<HashList>());
        let mode = if fails(Refusal::NotAllowed) { Mode::Allow } else { Mode::Open };
        let denied = if fails(Refusal::Denied) { TORRENT } else { OTHER_TORRENT };
        let refused: &[&[u8]] = if fails(Refusal::ClientRefused) { &[&[PEER; 20]] } else { &[] };
        ListenerPolicy {
            lists: AccessLists {
                mode,
                allow: only(OTHER_TORRENT),
                deny: only(denied),
                ..AccessLists::default()
            },
            private_addresses: PrivateAddresses::Deny,
            access: self.access(failing),
            clients: ClientRules { deny: refused.iter().collect(), ..ClientRules::default() },
            ..ListenerPolicy::default()
        }
    }

    /// Limits every kind to one request a second, and makes it.
    fn use_up_rates(&self) {
        let one = Rate { per_s: 1, burst: 1 };
        self.tracker.limiter().replace(Limits {
            connects: one,
            announces: one,
            scrapes: one,
            others: one,
            buckets: 64,
            ..Limits::default()
        });
        for kind in RequestKind::ALL {
            let limits = &self.tracker.settings().limits;
            assert!(self.tracker.limiter.take(limits, NOW, self.from, kind));
        }
    }

    fn put_key(&self, rules: KeyRules) {
        assert!(self.tracker.passkeys().put(KeyId(1), UserKey::parse(KEY).unwrap(), rules));
    }

    /// Announces a peer over UDP and WebTorrent by a listener without restrictions, successfully.
    fn announce_all(
        &self,
        listener: ListenerPolicyId,
        key: Option<&str>,
        (torrent, peer, from): (InfoHash, u8, IpAddr),
    ) {
        let view = self.tracker.view(NOW);
        let key = key.map(str::as_bytes);
        let grant = view.authorize_unverified(listener, from, RequestKind::Announce, key).unwrap();
        // Port 0 would be refused already, and only the preparation of `TooSoon` depends on it.
        let request = by_ip(grant, torrent, peer, self.port.max(1));
        assert_eq!(announce(&view, &request), Ok(()));
        let mut targets = RelayTargets::new();
        let request = by_web(grant, torrent, peer);
        view.announce_web(&mut Random::new(1), &request, &mut targets).unwrap();
    }

    fn request(&self, request: Request) -> Result<(), Refusal> {
        let view = self.tracker.view(NOW);
        let key = self.key.map(str::as_bytes);
        let unverified =
            || view.authorize_unverified(TESTED, self.from, RequestKind::Announce, key);
        match request {
            Connect => view.authorize_connect(self.from),
            AnnounceUdp => announce(&view, &by_ip(unverified()?, TORRENT, PEER, self.port)),
            AnnounceHttp => {
                let mut announced = by_ip(unverified()?, TORRENT, PEER, self.port);
                let policy = &mut announced.policy;
                policy.families = Families::Both;
                announce(&view, &announced)
            }
            AnnounceWeb => {
                let (request, mut targets) =
                    (by_web(unverified()?, TORRENT, PEER), RelayTargets::new());
                view.announce_web(&mut Random::new(1), &request, &mut targets).map(drop)
            }
            MalformedAnnounce => view.verify(unverified()?).and(Err(Refusal::PortMalformed)),
            Scrape => {
                let grant = view.authorize(TESTED, self.from, RequestKind::Scrape, key)?;
                view.scrape(grant, &[TORRENT], &mut [SwarmCounts::default()])
            }
            Upgrade => view.authorize(TESTED, self.from, RequestKind::Other, key).map(drop),
        }
    }
}

fn by_ip(grant: UnverifiedGrant, torrent: InfoHash, peer: u8, port: u16) -> AnnounceRequest {
    let announce = Announce { port, event: Event::None, ..leecher(torrent, peer) };
    AnnounceRequest { grant, via_local_address: true, announce, policy: POLICY }
}

fn by_web(grant: UnverifiedGrant, torrent: InfoHash, peer: u8) -> WebAnnounceRequest {
    let announce = Announce { event: Event::None, ..leecher(torrent, peer) };
    WebAnnounceRequest { grant, connection: ConnectionKey(1), announce, offers: 0, interval_s: 0 }
}

/// Announces one peer, in a batch of its own.
fn announce(view: &View<'_>, request: &AnnounceRequest) -> Result<(), Refusal> {
    let seen = announce_by(view, &mut Random::new(1), &[*request]);
    seen.answers[0].1.map(drop)
}

/// `TooSoon` says how long to wait, which differs between protocols.
fn reason(result: Result<(), Refusal>) -> Option<&'static str> {
    result.err().map(Refusal::label)
}

#[test]
fn order_is_by_step_and_complete() {
    assert!(ORDER.is_sorted_by_key(|check| check.step));
    let steps: std::collections::BTreeSet<u8> = ORDER.iter().map(|check| check.step).collect();
    assert_eq!(steps, (1..=11).collect());
}

#[test]
fn requests_pass_if_no_check_fails() {
    for request in ANY {
        let expected = (*request == MalformedAnnounce).then_some("port_malformed");
        assert_eq!(reason(Scene::new(&[]).request(*request)), expected, "{request:?}");
    }
}

#[test]
fn earlier_of_two_failing_checks_decides_for_every_request() {
    let mut pairs = 0;
    for (at, first) in ORDER.iter().enumerate() {
        // With itself: each check alone.
        for second in &ORDER[at..] {
            if is_impossible(first.refusal, second.refusal) {
                continue;
            }
            let failing = [first.refusal, second.refusal];
            for request in ANY {
                let applies = |check: &&Check| check.applies_to.contains(request);
                let malformed = (*request == MalformedAnnounce).then_some(Refusal::PortMalformed);
                let mut expected: Vec<_> =
                    [first, second].into_iter().filter(applies).map(|one| one.refusal).collect();
                expected.extend(malformed);
                let position =
                    |refusal: &Refusal| ORDER.iter().position(|check| check.refusal == *refusal);
                expected.sort_by_key(position);
                let expected = expected.first().map(|refusal| match refusal {
                    // The torrent is announced for the first time.
                    Refusal::NotAllowed if ANNOUNCES.contains(request) => "not_allowed_yet",
                    other => other.label(),
                });
                let found = reason(Scene::new(&failing).request(*request));
                assert_eq!(found, expected, "{request:?} with {failing:?}");
                pairs += 1;
            }
        }
    }
    assert!(pairs > 900, "{pairs}");
}

#[test]
fn exempt_clients_have_no_rate_and_unknown_keys_are_reported() {
    let scene = Scene::new(&[Refusal::KeyUnknown]);
    scene.use_up_rates();
    assert_eq!(reason(scene.request(Scrape)), Some("too_many_requests"));
    let exempt = Networks::parse(["8.8.8.8"]).unwrap();
    let one = Rate { per_s: 1, burst: 1 };
    let limits = Limits { scrapes: one, announces: one, ..Limits::default() };
    let rules = BanRules { wrong_keys_per_min: 1, time_s: 60, ..BanRules::default() };
    scene.tracker.bans().set_rules(rules);
    scene.tracker.limiter().replace(Limits { exempt, ..limits.clone() });
    for _ in 0..5 {
        assert_eq!(reason(scene.request(Scrape)), Some("key_unknown"));
    }
    scene.tracker.sweep(NOW, 1);
    assert_eq!(reason(scene.request(Upgrade)), Some("key_unknown"), "exempt from bans, too");
    scene.tracker.limiter().replace(limits);
    (0..2).for_each(|_| _ = scene.request(Upgrade));
    scene.tracker.sweep(NOW, 1);
    assert_eq!(reason(scene.request(Upgrade)), Some("banned"));
    let is_banned = |ip: [u8; 4]| scene.tracker.bans().contains(NOW, ip.into());
    assert!(is_banned([8, 8, 8, 8]) && !is_banned([8, 8, 8, 9]));
}
