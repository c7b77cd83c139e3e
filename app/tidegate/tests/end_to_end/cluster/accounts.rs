//! A site's accounts at several nodes: each announce is counted once, by the node that it reaches.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use harness::nats::{Client as NatsClient, Message};
use serde_json::{Value, json};

use super::{Cluster, wait_until_joined};
use crate::accounting::{Ledger, MORE, add_records, client};
use crate::api::{Caller, start_in};
use crate::process::{Directory, Tracker};

/// Time in which a node surely has told the others of a batch, and they have it on their disks.
const EXCHANGE: Duration = Duration::from_secs(4);

fn start(cluster: &Cluster, number: u8) -> Tracker {
    let join = cluster.invite(number);
    let state = cluster.state(number);
    let more =
        format!("{MORE}[cluster]\njoin = {join:?}\nflush_ms = 10\n[state]\ndir = {state:?}\n");
    start_in(Directory::new(), &more).0
}

/// A site's own reader of the feed over NATS, with the rights that the operator's command gives it.
struct NatsReader {
    client: NatsClient,
    ledger: Ledger,
    /// The last part of each feed.
    last: BTreeMap<String, (u64, u64)>,
}

impl NatsReader {
    fn connect(cluster: &Cluster) -> Self {
        let user = cluster.operator.reader("ledger").unwrap();
        let mut client = NatsClient::connect(cluster.nats.address(0), &user).unwrap();
        client.subscribe("tg.test.f.*").unwrap();
        Self { client, ledger: Ledger::new(), last: BTreeMap::new() }
    }

    /// Adds a part of a batch, unless it is there already.
    fn add(&mut self, batch: &Value) {
        let number = |name: &str| batch[name].as_u64().unwrap();
        let at = (number("sequence"), number("part"));
        assert!((1..=number("parts")).contains(&at.1), "{batch}");
        let last = self.last.entry(batch["feed"].as_str().unwrap().into()).or_default();
        if at <= *last {
            return;
        }
        *last = at;
        add_records(&mut self.ledger, batch);
    }

    fn next(&mut self) -> (Message, Value) {
        let message = self.client.next_message().unwrap();
        let batch = serde_json::from_slice(&message.payload).unwrap();
        (message, batch)
    }

    fn answer(&mut self, message: &Message, text: &str) {
        let reply = message.reply.clone().expect("it is to be answered");
        self.client.publish(&reply, "", text.as_bytes()).unwrap();
        self.client.flush().unwrap();
    }

    /// Adds and confirms batches until the ledger is as expected.
    fn expect(&mut self, expected: &Ledger) {
        while self.ledger != *expected {
            let (message, batch) = self.next();
            self.add(&batch);
            self.answer(&message, batch["cursor"].as_str().unwrap());
        }
    }
}

#[test]
fn a_reader_over_nats_gets_each_batch_until_it_confirms_it() {
    let cluster = Cluster::start(1);
    let mut reader = NatsReader::connect(&cluster);
    let (a, b) = (start(&cluster, 1), start(&cluster, 2));
    wait_until_joined(&[&a, &b]);
    let api = Caller::of(&a);
    let mut one = client(&api, 0xaa, 1001);
    let key = format!("GET /keys/{}", one.user);
    b.wait_until("the key", |it| Caller::of(it).ask(&key, None).0 == 200);
    one.announce(a.http4(), [0, 0], "&event=started&left=1");
    one.announce(a.http4(), [100, 10], "&left=1");
    // An answer that is not the cursor confirms nothing: the batch comes again.
    let (message, first) = reader.next();
    assert_eq!(message.subject, "tg.test.f.1");
    reader.answer(&message, "what?");
    reader.add(&first);
    let (message, again) = reader.next();
    assert_eq!(again, first);
    reader.add(&again);
    reader.answer(&message, first["cursor"].as_str().unwrap());
    let ledger = |sums| Ledger::from([((one.user, one.torrent()), sums)]);
    let (once, twice) = (ledger([100, 10]), ledger([350, 35]));
    reader.expect(&once);
    a.wait_until("all confirmed", |_| api.expect(200, "GET /site", None)["spool_batches"] == 0);
    // Those of the other node come, too, and those that were made while the reader was away.
    let NatsReader { client, ledger, last } = reader;
    drop(client);
    sleep(EXCHANGE);
    one.announce(b.http4(), [250, 25], "&left=1");
    reader = NatsReader { ledger, last, ..NatsReader::connect(&cluster) };
    reader.expect(&twice);
    // The reader may do nothing else.
    for subject in ["tg.test.d.1", "tg.test.f.1", "tg.test.i.1.x", "$JS.API.STREAM.INFO.TG_test_D"]
    {
        let mut other = NatsReader::connect(&cluster).client;
        other.publish(subject, "", b"x").unwrap();
        let refused = other.flush().unwrap_err().to_string();
        assert!(refused.contains("Permissions Violation"), "{subject}: {refused}");
    }
    let mut other = NatsReader::connect(&cluster).client;
    let refused = other.subscribe("tg.test.h.*").unwrap_err().to_string();
    assert!(refused.contains("Permissions Violation"), "{refused}");
    // Removed, it is refused.
    let user = cluster.operator.reader("ledger").unwrap();
    let said = cluster.operator.run("reader ledger --remove").unwrap();
    assert!(said.contains("removed the reader ledger"), "{said}");
    a.wait_until("the refusal", |_| NatsClient::connect(cluster.nats.address(0), &user).is_err());
    assert!(cluster.operator.run("reader ledger --remove").is_err());
    assert_eq!(api.expect(200, "GET /site", None)["error"], json!(null));
}
