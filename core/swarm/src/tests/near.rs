//! Near peers in the place of others.

use super::*;

const TORRENT: u8 = 1;
/// The first byte of addresses that are near.
const NEAR: u8 = 20;

/// Returns a peer with a public v4 address: `host` of a /24 of its own for each `network`.
fn public_v4(first: u8, network: u16, host: u8) -> PeerKey {
    let [a, b] = network.to_be_bytes();
    PeerKey::new(Ipv4Addr::new(first, a, b, host).into(), 6881)
}

fn public_v6(first: u16, network: u16) -> PeerKey {
    PeerKey::new(Ipv6Addr::new(first, network, 0, 0, 0, 0, 0, 1).into(), 6881)
}

fn is_near(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] == NEAR,
        IpAddr::V6(ip) => ip.segments()[0] == 0x2400,
    }
}

fn join_all(store: &Store, peers: impl IntoIterator<Item = PeerKey>) {
    let mut random = Random::new(3);
    for (number, peer) in peers.into_iter().enumerate() {
        let role = ROLES[number % 2];
        let request = StoreAnnounce { want: 0, ..update(TORRENT, peer, role) };
        answers(store, 1, &mut random, &[request]);
    }
}

/// An answer without near peers, with them, and how many took the place of others.
struct Both {
    plain: Answered,
    changed: Answered,
    taken: usize,
}

fn ask(store: &Store, random: &mut Random, percent: u8, asking: StoreAnnounce) -> Both {
    let mut both = None;
    store.announce(Tick(2), random, &[asking], &mut |_, answer| {
        let answer = answer.unwrap();
        let changes = answer.near(percent, is_near);
        let taken = changes.near_len();
        let changed = Answered::new(Ok(answer.with(&changes)));
        both = Some(Both { plain: Answered::new(Ok(answer)), changed, taken });
    });
    both.unwrap()
}

fn near_count(answered: &Answered) -> usize {
    answered.peers.iter().filter(|peer| is_near(peer.socket_addr().ip())).count()
}

#[test]
fn near_peers_take_the_place_of_others() {
    for (far, near, want) in
        [(0, 3, 50), (40, 30, 50), (60, 8, 50), (300, 40, 50), (4000, 400, 80), (5000, 0, 30)]
    {
        let store = store(1);
        let far_peers = (0..far).map(|number| match number % 4 {
            0 => public_v6(0x2a00, number),
            _ => public_v4(30, number, 1),
        });
        let near_peers = (0..near).map(|number| match number % 4 {
            0 => public_v6(0x2400, number),
            _ => public_v4(NEAR, number, 1),
        });
        join_all(&store, far_peers.chain(near_peers));
        let mut random = Random::new(5);
        let (mut wanted, mut plain_near, mut changed_near) = (0, 0, 0);
        for _ in 0..100 {
            let families = Families::Both;
            let asking = update(TORRENT, public_v4(NEAR, 60_000, 1), Role::Leecher);
            let both = ask(&store, &mut random, 20, StoreAnnounce { want, families, ..asking });
            let peers: BTreeSet<_> = both.changed.peers.iter().collect();
            assert_eq!(peers.len(), both.changed.peers.len(), "a peer twice");
            assert!(!peers.contains(&asking.peer));
            assert!(both.taken <= usize::from(want) / 5);
            let (plain, changed) = (both.plain.peers.len(), both.changed.peers.len());
            assert_eq!(changed, plain);
            wanted += plain;
            plain_near += near_count(&both.plain);
            changed_near += near_count(&both.changed);
        }
        match (far, near) {
            (_, 0) => assert_eq!(changed_near, 0),
            (_, 3) => assert_eq!(changed_near, plain_near, "all are given anyway"),
            // Of one tenth a fifth more.
            (4000, _) => {
                assert!(changed_near > plain_near + wanted / 8, "{plain_near} {changed_near}")
            }
            _ => assert!(changed_near > plain_near, "{far}: {plain_near} {changed_near}"),
        }
    }
}

/// An attacker with a thousand peers in the asker's own system gets no more of an answer than the share of near peers, and
/// what it gets without them.
#[test]
fn an_attacker_nearby_gets_its_share_and_no_more() {
    let store = store(1);
    let honest = (0..3000).map(|number| public_v4(30, number, 1));
    let attacker = (0..1000).map(|number| public_v4(NEAR, number / 25, (number % 25) as u8));
    let (want, percent) = (50, 20);
    let most = usize::from(want) * usize::from(percent) / 100;
    join_all(&store, honest.chain(attacker));
    let mut random = Random::new(6);
    let (mut plain, mut changed, mut taken) = (0, 0, 0);
    for _ in 0..500 {
        let asking = update(TORRENT, public_v4(NEAR, 60_000, 1), Role::Leecher);
        let both = ask(&store, &mut random, percent, StoreAnnounce { want, ..asking });
        assert!(both.taken <= most, "{}", both.taken);
        assert_eq!(both.changed.peers.len(), usize::from(want));
        plain += near_count(&both.plain);
        changed += near_count(&both.changed);
        taken += both.taken;
    }
    // Of the others it gets no more than before, give or take one of four answers.
    assert!(changed > plain && changed <= plain + taken + 125, "{plain} {changed} {taken}");
}
