//! A site through the binary, with a real database. Kills, and what they may cost, are tested in edge/site, upgrades
//! with the feed.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use harness::mariadb::{self, MariaDb};
use harness::network;

use crate::api::start_in;
use crate::clients::{has, http, own_query};
use crate::process::{Directory, unused_address};
use crate::site::in_network;

const UNIT3D: &str = concat!(
    include_str!("../../../../edge/site/tests/site/unit3d.sql"),
    "INSERT INTO `groups` (id, slug, is_immune, is_freeleech, is_double_upload) VALUES (1, 'user', 0, 0, 0);
     INSERT INTO users (id, username, passkey, group_id, can_download) VALUES (1, 'a', REPEAT('a', 32), 1, 1);
     INSERT INTO torrents (id, name, info_hash, status, free, doubleup) VALUES (11, 't', UNHEX(REPEAT('aa', 20)), 1, 0, 0);"
);
/// The keys of `[site]` with secrets, all in one file.
const UNIT3D_SECRETS: &str = "kind = \"unit3d\"\ntracker_key = \"SECRET\"\n";

/// A site's database, and a tracker beside it.
struct Scene {
    server: MariaDb,
    /// The configuration after `[admin]`.
    more: String,
    /// Keeps the files.
    _state: Directory,
}

impl Scene {
    fn new(secrets: &str) -> Self {
        let server = MariaDb::start().unwrap();
        let state = Directory::new();
        let secret = state.write("secret", &"k".repeat(32));
        let database = format!("mysql://root@{}/site", server.address());
        let more = format!(
            "requests_per_s = 0\n[access]\nprivate = true\n[state]\ndir = {:?}\n[site]\nflush_s = 1\n\
             database = \"{database}\"\nlisten = \"{}\"\n{}",
            state.path("state"),
            unused_address(),
            secrets.replace("SECRET", &secret.display().to_string())
        );
        let scene = Self { server, more, _state: state };
        scene.sql(&format!("CREATE DATABASE site CHARACTER SET utf8mb4; USE site; {UNIT3D}"));
        scene
    }

    /// Runs statements as the administrator of the database, and returns what they print.
    fn sql(&self, statements: &str) -> String {
        let address = self.server.address();
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--user=root", "--skip-column-names"]);
        client.arg(format!("--host={}", address.ip())).arg(format!("--port={}", address.port()));
        client.arg("--execute").arg(statements);
        harness::output(client).unwrap().trim().to_owned()
    }
}

/// Announces a leecher of the user, and returns the response.
fn announce(address: SocketAddr, port: u16) -> Vec<u8> {
    let query = own_query(0xaa, port, "left=1&downloaded=0&uploaded=0");
    http(address, &format!("/announce/{}?{query}", "a".repeat(32))).1
}

/// An address that the tracker may probe: a public one, of a network that exists for the test only.
const PUBLIC: &str = "9.9.9.9";

/// Probes tell clients that accept connections from others, inside the sandbox, and only where that is permitted.
#[test]
fn clients_are_probed_from_the_address_that_the_operator_names() {
    if let Some(obstacle) = mariadb::obstacle() {
        return eprintln!("skipped {obstacle}");
    }
    in_network(|site| {
        let network = &site.network;
        network.clients.ip(&format!("address add {PUBLIC}/32 dev eth0\n")).unwrap();
        network.router.ip(&format!("route add {PUBLIC}/32 dev clients\n")).unwrap();
        let route = format!("route replace default via 198.18.0.1 src {PUBLIC}\n");
        network.clients.ip(&route).unwrap();
        let from = network::tracker(1);
        let secrets = format!(
            "{UNIT3D_SECRETS}connectable_from = [\"{from}\"]\nconnectable_required = true\n"
        );
        let scene = network.tracker.run(|| Scene::new(&secrets));
        let sql = |statements: &str| network.tracker.run(|| scene.sql(statements));
        let (tracker, api) = start_in(Directory::new(), &scene.more);
        let status = || api.expect(200, "GET /site", None);
        tracker.wait_until("users of the site", |_| status()["users"] == 1);
        tracker.wait_until("the sandbox", |it| {
            // A kernel without Landlock restricts no ports.
            it.log().contains("TCP to any port")
        });
        let open = TcpListener::bind((PUBLIC, 0)).unwrap();
        let open_port = open.local_addr().unwrap().port();
        let closed = TcpListener::bind((PUBLIC, 0)).unwrap();
        let closed_port = closed.local_addr().unwrap().port();
        drop(closed);
        // Ports of services are not probed.
        for port in [open_port, closed_port, 1023] {
            let body = announce(tracker.http4(), port);
            assert!(has(&body, "8:interval") && !has(&body, "warning"), "{}", body.escape_ascii());
        }
        let counts = |open: u32, closed: u32| serde_json::json!({ "open": open, "closed": closed, "skipped": 0 });
        tracker.wait_until("two results", |_| status()["probes"] == counts(1, 1));
        assert_eq!(open.accept().unwrap().1.ip(), from);
        // The rows get the results with the next announces, and those of clients that were not probed stay.
        tracker.wait_until("three rows", |_| sql("SELECT COUNT(*) FROM site.peers") == "3");
        sql(&format!("UPDATE site.peers SET connectable = port <> {open_port}"));
        let warning = "Connectivity issue detected. Enable port-forwarding to resolve.";
        for port in [open_port, closed_port, 1023] {
            let body = announce(tracker.http4(), port);
            assert_eq!(has(&body, warning), port == closed_port, "{}", body.escape_ascii());
        }
        let connectable =
            |port: u16| format!("SELECT connectable FROM site.peers WHERE port = {port}");
        tracker.wait_until("the column", |_| {
            let found = [open_port, closed_port, 1023].map(|port| sql(&connectable(port)));
            found == ["1", "0", "1"]
        });
        tracker.wait_until("others get two of them", |_| {
            sql("SELECT leechers FROM site.torrents") == "2"
        });
        assert_eq!(status()["probes"], counts(1, 1), "each is probed once in half an hour");
    });
}
