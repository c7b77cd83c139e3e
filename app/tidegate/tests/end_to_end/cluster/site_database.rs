//! Two nodes on one database of UNIT3D: a client that moves, a node that is killed, and calls that reach one node.

use std::net::SocketAddr;

use harness::mariadb::{self, MariaDb};
use serde_json::{Value, json};

use super::{Cluster, wait_until_joined};
use crate::api::{Caller, TOKEN};
use crate::clients::{has, http};
use crate::process::{Directory, Signal, Tracker, unused_address};
use crate::site_databases::{UNIT3D, UNIT3D_SECRETS, sql};

/// TRACKER_KEY of the site.
const KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";

/// A database, NATS, and nodes on both.
struct Scene {
    server: MariaDb,
    cluster: Cluster,
    files: Directory,
}

/// A node, and where the site calls it.
struct Node {
    tracker: Tracker,
    calls: SocketAddr,
}

impl Scene {
    fn new() -> Self {
        let server = MariaDb::start().unwrap();
        sql(&server, &format!("CREATE DATABASE site CHARACTER SET utf8mb4; USE site; {UNIT3D}"));
        let banned =
            "INSERT INTO site.groups (id, slug, is_immune, is_freeleech, is_double_upload) VALUES
            (4, 'banned', 0, 0, 0)";
        sql(&server, banned);
        Self { server, cluster: Cluster::start(1), files: Directory::new() }
    }

    fn start(&self, number: u8) -> Node {
        let secret = self.files.write("secret", KEY).display().to_string();
        let calls = unused_address();
        let more = format!(
            "requests_per_s = 0\n[access]\nprivate = true\n[site]\nflush_s = 1\n\
             database = \"mysql://root@{}/site\"\nlisten = \"{calls}\"\n{}[cluster]\njoin = {:?}\nflush_ms = 10\n\
             [state]\ndir = {:?}\n",
            self.server.address(),
            UNIT3D_SECRETS.replace("SECRET", &secret),
            self.cluster.invite(number),
            self.cluster.state(number),
        );
        let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)];
        let tracker = Tracker::start_with(Directory::new(), &more, &variables);
        let api = Caller::of(&tracker);
        tracker
            .wait_until("users of the site", |_| api.expect(200, "GET /site", None)["users"] == 1);
        Node { tracker, calls }
    }

    /// Waits until the tables have this row.
    fn wait_row(&self, node: &Node, statement: &str, expected: &str) {
        node.tracker.wait_until(&format!("{statement}: {expected}"), |_| {
            sql(&self.server, &format!("USE site; {statement}")).replace('\t', " ") == expected
        });
    }
}

impl Node {
    /// Announces with these counters of bytes sent and received. Returns the response.
    fn announce(&self, [uploaded, downloaded]: [u64; 2], rest: &str) -> Vec<u8> {
        let target = format!(
            "/announce/{}?info_hash={}&peer_id=-XX0001-000000000001&port=1001&compact=1&downloaded={downloaded}\
             &uploaded={uploaded}{rest}",
            "a".repeat(32),
            "%aa".repeat(20),
        );
        http(self.tracker.http4(), &target).1
    }

    fn serve(&self, counters: [u64; 2], rest: &str) {
        let body = self.announce(counters, rest);
        assert!(has(&body, "8:interval") && !has(&body, "failure"), "{}", body.escape_ascii());
    }

    /// Calls as the site does.
    fn put(&self, path: &str, body: &Value) {
        let request = format!("PUT /announce/{KEY}/{path}");
        let headers = "Content-Type: application/json\r\n";
        let answer =
            harness::http::request(self.calls, &request, headers, body.to_string().as_bytes());
        assert_eq!(answer.unwrap().status, 200, "{path}");
    }

    fn show(&self, path: &str) -> Value {
        let (_, body) = http(self.calls, &format!("/announce/{KEY}/{path}"));
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// Waits until the node knows that the client has received so much, from itself or another node.
    fn wait_known(&self, downloaded: u64) {
        self.tracker.wait_until("the client's counters", |_| {
            let torrent = self.show("torrents/11");
            let peers = torrent["peers"].as_object().cloned().unwrap_or_default();
            peers.values().any(|peer| peer["downloaded"] == downloaded)
        });
    }
}

#[test]
fn a_day_at_two_nodes_on_one_database_leaves_the_rows_of_one_tracker() {
    if let Some(obstacle) = mariadb::obstacle() {
        return eprintln!("skipped {obstacle}");
    }
    let scene = Scene::new();
    let (mut a, b) = (scene.start(1), scene.start(2));
    wait_until_joined(&[&a.tracker, &b.tracker]);
    let users = "SELECT uploaded, downloaded FROM users WHERE id = 1";
    // A download that begins at one node and continues at the other.
    a.serve([0, 0], "&event=started&left=1000");
    b.wait_known(0);
    b.serve([100, 600], "&left=400");
    scene.wait_row(&b, users, "100 600");
    a.wait_known(600);
    scene.wait_row(&b, "SELECT seeders, leechers FROM torrents", "0 1");
    // It completes while the first node is dead, which continues with what the database knows.
    a.tracker.signal(Signal::SIGKILL);
    a.tracker.wait_for_end();
    b.serve([200, 1_000], "&event=completed&left=0");
    scene.wait_row(&b, users, "200 1000");
    a = scene.start(1);
    wait_until_joined(&[&a.tracker, &b.tracker]);
    a.serve([300, 1_000], "&left=0");
    scene.wait_row(&a, users, "300 1000");
    // A call that reaches one node takes effect at the other, in order with those before it.
    a.put("freeleech-tokens", &json!({ "user_id": 1, "torrent_id": 11 }));
    let user = |group: u32, is_donor: bool| {
        json!({ "id": 1, "group_id": group, "passkey": "a".repeat(32), "can_download": true, "is_donor": is_donor,
            "is_lifetime": false, "num_seeding": 0, "num_leeching": 0 })
    };
    a.put("users", &user(1, true));
    b.tracker.wait_until("the calls", |_| b.show("users/1")["is_donor"] == true);
    b.serve([300, 1_500], "&left=0");
    scene.wait_row(&b, "SELECT downloaded, actual_downloaded FROM history", "1000 1500");
    a.wait_known(1_500);
    a.serve([300, 1_500], "&event=stopped&left=0");
    scene.wait_row(&a, "SELECT seeders, leechers FROM torrents", "0 0");
    a.put("users", &user(4, false));
    b.tracker
        .wait_until("the ban", |_| has(&b.announce([300, 1_500], "&left=0"), "Current: banned"));
    let rows = [
        (users, "300 1000"),
        (
            "SELECT uploaded, actual_uploaded, client_uploaded, downloaded, actual_downloaded, client_downloaded, seeder,
             active, completed_at IS NOT NULL FROM history",
            "300 300 300 1000 1500 1500 1 0 1",
        ),
        (
            "SELECT uploaded, downloaded, `left`, active, seeder, visible FROM peers",
            "300 1500 0 0 1 0",
        ),
        ("SELECT seeders, leechers, times_completed, balance FROM torrents", "0 0 1 -1200"),
    ];
    for (statement, expected) in rows {
        scene.wait_row(&a, statement, expected);
    }
}
