//! A site's accounts at several nodes: each announce is counted once, by the node that it reaches.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::{Cluster, wait_until_joined};
use crate::accounting::{Ledger, MORE, Reader, client};
use crate::api::{Caller, TOKEN};
use crate::process::{Directory, Signal, Tracker};

/// Time in which a node surely has told the others of a batch, and they have it on their disks.
const EXCHANGE: Duration = Duration::from_secs(4);

fn start(cluster: &Cluster, number: u8) -> Tracker {
    let join = cluster.invite(number);
    let state = cluster.state(number);
    let more =
        format!("{MORE}[cluster]\njoin = {join:?}\nflush_ms = 10\n[state]\ndir = {state:?}\n");
    Tracker::start_with(Directory::new(), &more, &[("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)])
}

/// Reads the feeds of all nodes until the ledger is as expected.
fn expect(readers: &mut Readers, nodes: &[&Tracker], expected: &Ledger) {
    nodes[0].wait_until("all is read", |_| {
        for (number, node) in (1..).zip(nodes) {
            readers.reader.cursor = readers.cursors.remove(&number);
            readers.reader.read(&Caller::of(node));
            readers.cursors.extend(readers.reader.cursor.take().map(|cursor| (number, cursor)));
        }
        readers.reader.ledger == *expected
    });
}

/// A site that reads the feed of each node.
#[derive(Default)]
struct Readers {
    reader: Reader,
    /// By node.
    cursors: BTreeMap<u8, String>,
}

#[test]
fn a_client_that_changes_nodes_is_accounted_once() {
    let cluster = Cluster::start(1);
    let a = start(&cluster, 1);
    let mut b = start(&cluster, 2);
    wait_until_joined(&[&a, &b]);
    let api = Caller::of(&a);
    let mut one = client(&api, 0xaa, 1001);
    let mut other = client(&api, 0xbb, 1002);
    let key = format!("GET /keys/{}", other.user);
    b.wait_until("the keys", |it| Caller::of(it).ask(&key, None).0 == 200);
    let names = [(one.user, one.torrent()), (other.user, other.torrent())];
    let ledger =
        |sums: [u64; 2]| Ledger::from([(names[0].clone(), sums), (names[1].clone(), [0, 0])]);
    let mut readers = Readers::default();
    // Torrents have other numbers at the other node.
    other.announce(b.http4(), [0, 0], "&event=started&left=1");
    one.announce(a.http4(), [0, 0], "&event=started&left=1");
    one.announce(a.http4(), [100, 10], "&left=1");
    expect(&mut readers, &[&a, &b], &ledger([100, 10]));
    // A node that is killed has what it learned of others.
    sleep(EXCHANGE);
    b.signal(Signal::SIGKILL);
    b.wait_for_end();
    let b = start(&cluster, 2);
    wait_until_joined(&[&a, &b]);
    one.announce(b.http4(), [250, 25], "&left=1");
    expect(&mut readers, &[&a, &b], &ledger([350, 35]));
    sleep(EXCHANGE);
    one.announce(a.http4(), [650, 65], "&left=1");
    expect(&mut readers, &[&a, &b], &ledger([1000, 100]));
}
