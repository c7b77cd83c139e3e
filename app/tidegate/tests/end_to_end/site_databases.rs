//! UNIT3D and Gazelle through the binary, with a real database: kills and upgrades at any moment lose and repeat nothing.

use std::net::SocketAddr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use harness::mariadb::{self, MariaDb};

use crate::api::start_in;
use crate::clients::{has, http};
use crate::process::{Directory, Tracker, unused_address};

pub(crate) const UNIT3D: &str = concat!(
    include_str!("../../../../edge/site/tests/site/unit3d.sql"),
    "INSERT INTO `groups` (id, slug, is_immune, is_freeleech, is_double_upload) VALUES (1, 'user', 0, 0, 0);
     INSERT INTO users (id, username, passkey, group_id, can_download) VALUES (1, 'a', REPEAT('a', 32), 1, 1);
     INSERT INTO torrents (id, name, info_hash, status, free, doubleup) VALUES (11, 't', UNHEX(REPEAT('aa', 20)), 1, 0, 0);"
);
const GAZELLE: &str = concat!(
    include_str!("../../../../edge/site/tests/site/gazelle.sql"),
    "INSERT INTO users_main (ID, Enabled, can_leech, torrent_pass) VALUES (1, '1', 1, REPEAT('a', 32));
     INSERT INTO torrents (ID, info_hash) VALUES (11, UNHEX(REPEAT('aa', 20)));"
);
/// The keys of `[site]` with secrets, all in one file.
pub(crate) const UNIT3D_SECRETS: &str = "kind = \"unit3d\"\ntracker_key = \"SECRET\"\n";
const GAZELLE_SECRETS: &str =
    "kind = \"gazelle\"\nsite_password = \"SECRET\"\nreport_password = \"SECRET\"\n";

/// A site's database, and a tracker beside it.
struct Scene {
    server: MariaDb,
    /// The configuration after `[admin]`.
    more: String,
    /// Keeps the files.
    _state: Directory,
    uploaded: u64,
}

impl Scene {
    fn new(schema: &str, secrets: &str) -> Self {
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
        let scene = Self { server, more, _state: state, uploaded: 0 };
        scene.sql(&format!("CREATE DATABASE site CHARACTER SET utf8mb4; USE site; {schema}"));
        scene
    }

    /// Runs statements, and returns what they print.
    fn sql(&self, statements: &str) -> String {
        sql(&self.server, statements)
    }

    fn start(&self) -> Tracker {
        let (tracker, api) = start_in(Directory::new(), &self.more);
        tracker
            .wait_until("users of the site", |_| api.expect(200, "GET /site", None)["users"] == 1);
        tracker
    }

    fn announce(&mut self, address: SocketAddr, more: u64) {
        self.uploaded += more;
        let target = format!(
            "/announce/{}?info_hash={}&peer_id=-XX0001-000000000001&port=1001&compact=1&left=1&downloaded=0&uploaded={}",
            "a".repeat(32),
            "%aa".repeat(20),
            self.uploaded
        );
        let (_, body) = http(address, &target);
        assert!(has(&body, "8:interval") && !has(&body, "failure"), "{}", body.escape_ascii());
    }

    /// Waits until the site has credited all.
    fn wait_credited(&self, tracker: &Tracker, sql: &str) {
        tracker.wait_until("all is credited", |_| self.sql(sql) == self.uploaded.to_string());
    }
}

/// Runs statements as the administrator of a database, and returns what they print.
pub(crate) fn sql(server: &MariaDb, statements: &str) -> String {
    let address = server.address();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--user=root", "--skip-column-names"]);
    client.arg(format!("--host={}", address.ip())).arg(format!("--port={}", address.port()));
    let output = client.arg("--execute").arg(statements).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Announces, kills, upgrades, and kills the database in between; `sql` reads what the user was credited.
fn accounts_are_right(schema: &str, secrets: &str, sql: &str) {
    if let Some(obstacle) = mariadb::obstacle() {
        return eprintln!("skipped {obstacle}");
    }
    let mut scene = Scene::new(schema, secrets);
    let mut tracker = scene.start();
    scene.announce(tracker.http4(), 0);
    for round in 1..=4 {
        scene.announce(tracker.http4(), 1_000 * round);
        // At once: what no batch has is written by the old process of an upgrade.
        tracker.upgrade();
        scene.announce(tracker.http4(), round);
        scene.wait_credited(&tracker, sql);
        if round % 2 == 0 {
            scene.server.kill();
        }
        scene.announce(tracker.http4(), 7);
        // A kill loses nothing that a batch has, whether the database has the batch or not.
        sleep(Duration::from_millis(2_500));
        tracker.kill();
        if round % 2 == 0 {
            scene.server.restart().unwrap();
        }
        tracker = scene.start();
        scene.wait_credited(&tracker, sql);
    }
}

#[test]
fn accounts_of_unit3d_are_right_through_kills_and_upgrades() {
    accounts_are_right(UNIT3D, UNIT3D_SECRETS, "SELECT uploaded FROM site.users WHERE id = 1");
}

#[test]
fn accounts_of_gazelle_are_right_through_kills_and_upgrades() {
    accounts_are_right(
        GAZELLE,
        GAZELLE_SECRETS,
        "SELECT Uploaded FROM site.users_main WHERE ID = 1",
    );
}
