//! Sessions between nodes that serve side by side.

use super::*;

/// A node of a cluster, and when it started, seconds.
struct TestNode {
    store: PasskeyStore,
    started_s: u64,
}

/// Two nodes, and the time.
struct Pair {
    nodes: [TestNode; 2],
    ms: u64,
}

/// A body of changed sessions, and when they were taken.
struct Message {
    ms: u64,
    body: Vec<u8>,
}

const LIFETIME_S: u32 = 2700;

impl TestNode {
    fn new(started_s: u64, rules: KeyRules) -> Self {
        let store = store();
        store.put(KeyId(1), key(1), rules);
        store.keep_session_changes();
        Self { store, started_s }
    }

    fn now(&self, ms: u64) -> Tick {
        Tick((ms / 1000 - self.started_s) as u32)
    }

    fn announce(&self, ms: u64, report: &TestReport) -> Option<Refusal> {
        announce(&self.store, self.now(ms), &key(1), report).err()
    }

    /// Takes everything that has changed.
    fn take(&self, ms: u64) -> Vec<Message> {
        let bodies = bodies(&self.store, self.now(ms), SessionWalk::of_changes());
        bodies.into_iter().map(|body| Message { ms, body }).collect()
    }
}

impl Pair {
    fn new(rules: KeyRules) -> Self {
        let nodes = [1000, 2345].map(|started_s| TestNode::new(started_s, rules));
        Self { nodes, ms: 10_000_000 }
    }

    fn by(&self, node: usize, report: &TestReport) -> Option<Refusal> {
        self.nodes[node].announce(self.ms, report)
    }

    /// Delivers the changes of both nodes to each of them, its own ones included, as a stream does. Returns them.
    fn exchange(&mut self) -> Vec<Message> {
        let [one, two] = &self.nodes;
        let messages = [one, two].map(|node| node.take(self.ms)).into_iter().flatten().collect();
        self.ms += 100;
        self.deliver(&messages);
        messages
    }

    fn deliver<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) {
        for Message { ms, body } in messages {
            let cut_ago_s = (self.ms / 1000 - ms / 1000) as u32;
            for TestNode { store, started_s } in &self.nodes {
                let now = Tick((self.ms / 1000 - started_s) as u32);
                let time = ImportTime { now, cut_ago_s, lifetime_s: LIFETIME_S };
                store.import_sessions(time, SessionOrigin::OtherNode, body).unwrap();
            }
        }
    }

    fn sessions(&self) -> [usize; 2] {
        [0, 1].map(|node| self.nodes[node].store.sessions())
    }

    /// Returns what both nodes have counted together.
    fn total(&self) -> KeyTotals {
        let of = |node: usize| {
            totals(&self.nodes[node].store).get(&KeyId(1)).copied().unwrap_or_default()
        };
        of(0).plus(&of(1))
    }
}

fn report(peer: u8, bytes: (u64, u64)) -> TestReport {
    TestReport { bytes, ..TestReport::new(1, peer, peer) }
}

/// Clients announce at any node, and are counted and refused as if there were one.
#[test]
fn clients_that_change_nodes_are_counted_exactly() {
    let mut random = Random::new(11);
    for round in 0..40 {
        let bounds =
            KeyRules { torrents: 2, peers_per_torrent: 3, addresses: 5, ..KeyRules::default() };
        let rules = if round % 2 == 0 { KeyRules::default() } else { bounds };
        let mut pair = Pair::new(rules);
        let one = TestNode::new(0, rules);
        let mut bytes = [(0, 0); 8];
        for _ in 0..200 {
            let (peer, node) = (1 + random.below(7), random.below(2) as usize);
            let bytes = &mut bytes[peer as usize];
            bytes.0 += u64::from(random.below(100_000));
            bytes.1 += u64::from(random.below(100_000));
            let event = match random.below(10) {
                0 => Event::Started,
                1 => Event::Stopped,
                2 => Event::Completed,
                _ => Event::None,
            };
            if event == Event::Started {
                *bytes = (0, 0);
            }
            // Some clients have several addresses, and some peers come back with another peer id.
            let peer_id = PeerId([(peer - random.below(2)) as u8; 20]);
            let torrent = InfoHash([random.below(3) as u8; 20]);
            let report = TestReport { event, torrent, peer: peer_id, ..report(peer as u8, *bytes) };
            assert_eq!(pair.by(node, &report), one.announce(pair.ms, &report));
            pair.exchange();
            pair.ms += 900 + u64::from(random.below(1000));
        }
        let (sum, expected) = (pair.total(), totals(&one.store)[&KeyId(1)]);
        assert_eq!(
            (sum.uploaded, sum.downloaded, sum.announces),
            (expected.uploaded, expected.downloaded, expected.announces)
        );
        let sessions = one.store.sessions();
        assert_eq!(pair.sessions(), [sessions; 2]);
        assert!(sessions > 0);
    }
}

/// Changes that arrived at once come again from the log, after later changes.
#[test]
fn a_log_that_lags_behind_does_no_harm() {
    let mut pair = Pair::new(bounded(9, 9));
    let mut log = Vec::new();
    let mut total = 0;
    for step in 0..60_u64 {
        let (event, sum) = match step % 10 {
            0 => (Event::Started, 0),
            9 => (Event::Stopped, 1000 * step),
            _ => (Event::None, 1000 * step),
        };
        let report = TestReport { event, ..report(1, (sum % 10_000, 0)) };
        assert_eq!(pair.by((step / 3) as usize % 2, &report), None);
        total += if event == Event::Started { 0 } else { 1000 };
        log.extend(pair.exchange());
        pair.ms += 1000;
        // The log lags behind by two changes.
        pair.deliver(log.iter().rev().nth(2));
    }
    assert_eq!(pair.total().uploaded, total);
    pair.deliver(log.iter().skip(log.len() - 2));
    assert_eq!(pair.sessions(), [0, 0]);
}

/// Within the second, each node admits what its own quota allows. Afterwards the peer that is one too many is
/// refused where it did not announce, and keeps its place where it did.
#[test]
fn two_nodes_may_admit_a_peer_too_many_within_a_second() {
    let mut pair = Pair::new(bounded(1, 0));
    let at = |torrent| TestReport::new(torrent, 1, 1);
    assert_eq!([pair.by(0, &at(1)), pair.by(1, &at(2))], [None; 2]);
    pair.exchange();
    assert_eq!([pair.by(0, &at(1)), pair.by(1, &at(2))], [None; 2]);
    assert_eq!([pair.by(0, &at(2)), pair.by(1, &at(1))], [Some(Refusal::KeyTorrents); 2]);
    pair.ms += 1000;
    let stop = TestReport { event: Event::Stopped, ..at(1) };
    assert_eq!(pair.by(0, &stop), None);
    pair.exchange();
    assert_eq!([pair.by(0, &at(2)), pair.by(1, &at(2))], [None; 2]);
    assert_eq!([pair.by(0, &at(3)), pair.by(1, &at(3))], [Some(Refusal::KeyTorrents); 2]);
}

#[test]
fn a_session_is_sent_once_until_it_is_taken() {
    let node = TestNode::new(0, bounded(900, 900));
    let lens = |ms| node.take(ms).iter().map(|it| it.body.len()).collect::<Vec<_>>();
    (0..1000).for_each(|ms| assert_eq!(node.announce(ms, &report(1, (ms, ms))), None));
    assert_eq!([lens(1000), lens(1000)], [vec![12 + 60], vec![]]);
    // Its end takes the place of what it reported before.
    node.announce(3000, &report(1, (1000, 1000)));
    node.announce(3000, &TestReport { event: Event::Stopped, ..report(1, (1000, 1000)) });
    assert_eq!(lens(3000), [12 + 60]);
    // Many come in several bodies.
    (0..20).for_each(|torrent| _ = node.announce(4000, &TestReport::new(torrent, 1, 1)));
    assert_eq!(lens(4000).len(), 20_usize.div_ceil(3));
}

#[test]
fn the_number_of_changes_is_bounded() {
    let store = store_with(SessionLimits { changes_max: 3, ..SessionLimits::default() });
    store.put(KeyId(1), key(1), KeyRules::default());
    store.keep_session_changes();
    for _ in 0..2 {
        for torrent in 0..9 {
            announce(&store, Tick(0), &key(1), &TestReport::new(torrent, 1, 1)).unwrap();
        }
        let taken = bodies(&store, Tick(0), SessionWalk::of_changes());
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), [12 + 3 * 36]);
    }
}

/// Reports to a node that reads its journal are combined with the changes of other nodes.
#[test]
fn changes_arrive_during_an_import() {
    let mut pair = Pair::new(KeyRules::default());
    assert_eq!(pair.by(0, &report(1, (1000, 0))), None);
    pair.exchange();
    pair.ms += 1000;
    pair.nodes[1].store.begin_import();
    assert_eq!(pair.by(1, &report(1, (1500, 0))), None);
    pair.exchange();
    pair.ms += 1000;
    assert_eq!(pair.by(0, &report(1, (1700, 0))), None);
    pair.exchange();
    pair.ms += 1000;
    assert_eq!(pair.by(1, &report(1, (1800, 0))), None);
    pair.nodes[1].store.finish_import();
    assert_eq!(pair.total().uploaded, 800);
}
