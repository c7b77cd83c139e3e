//! Two nodes of a cluster on one database: its tables are compared with the plain model of one tracker.

use std::time::{Duration, Instant};

use harness::PATIENCE;
use tidegate_site::{SiteConfig, SiteKind};
use types::Event;

use crate::day::{Model, RandomClients, compare};
use crate::fixture::{Client, Database, GAZELLE, Site, UNIT3D, now_s, text};

/// Nodes that are tracked by one epoch.
struct Nodes {
    database: Database,
    configs: [SiteConfig; 2],
    nodes: [Site; 2],
    epoch_s: u32,
}

impl Nodes {
    fn start(schema: &str, kind: SiteKind) -> Self {
        let database = Database::start(schema);
        let configs = [1, 2].map(|number| SiteConfig {
            node: format!("tidegate-{number}"),
            is_node: true,
            ..database.config(kind)
        });
        let first = Site::start(configs[0].clone());
        let epoch_s = first.epoch_s;
        let second = Site::start_in(configs[1].clone(), Site::folder(), epoch_s);
        first.wait_ready();
        second.wait_ready();
        let nodes = Self { database, configs, nodes: [first, second], epoch_s };
        nodes.settle();
        nodes
    }

    /// Passes on what the nodes tell each other. Returns false if that is nothing.
    fn exchange(&self) -> bool {
        let mut has_any = false;
        for (from, to) in [(0, 1), (1, 0)] {
            while let Some(body) = self.nodes[from].subsystem.take_shared() {
                assert!(self.nodes[to].subsystem.learn(&body));
                has_any = true;
            }
        }
        has_any
    }

    /// Waits until the nodes have told each other everything, and the database has it.
    fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_done = |node: &Site| {
                let status = node.subsystem.status();
                status.pending == 0 && status.spool_batches == 0 && status.error.is_none()
            };
            if !self.exchange() && self.nodes.iter().all(is_done) && !self.exchange() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{:?}",
                self.nodes.each_ref().map(|it| it.subsystem.status())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Restarts a node. It receives nothing while it is away, and what the other one sends meanwhile is lost.
    fn restart(mut self, number: usize, while_away: impl FnOnce(&Site)) -> Self {
        let [first, second] = self.nodes;
        let (mut stays, mut goes) = (first, second);
        if number == 0 {
            std::mem::swap(&mut stays, &mut goes);
        }
        let folder = goes.stop();
        while_away(&stays);
        stays.wait_written();
        while stays.subsystem.take_shared().is_some() {}
        let config = self.configs[number].clone();
        let back = Site::start_in(config, folder, self.epoch_s);
        back.wait_ready();
        self.nodes = if number == 0 { [back, stays] } else { [stays, back] };
        self.settle();
        self
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(|node| drop(node.stop()));
    }
}

#[test]
fn a_scripted_day_at_two_nodes_leaves_the_rows_of_one() {
    let mut all = Nodes::start(UNIT3D, SiteKind::Unit3d);
    let mut model = Model::default();
    let at = |all: &Nodes, model: &mut Model, node: usize, client: Client, expected: &str| {
        assert_eq!(text(&all.nodes[node].announce(&client)).0, expected, "{client:?}");
        model.announce(&client, true);
    };
    // A download that moves to the other node, completes there, and ends at the first one.
    let start = Client { event: Event::Started, ..Client::new(1, 1, 1) };
    at(&all, &mut model, 0, start, "");
    all.settle();
    let half = Client { event: Event::None, downloaded: 6_000, left: 40, at_s: 600, ..start };
    at(&all, &mut model, 1, half, "");
    let shown = all.nodes[0].show("torrents/11");
    assert_eq!(shown["leechers"], 1, "{shown}");
    all.settle();
    let done = Client { event: Event::Completed, downloaded: 9_000, left: 0, at_s: 900, ..half };
    at(&all, &mut model, 1, done, "");
    all.settle();
    let shown = all.nodes[0].show("torrents/11");
    assert_eq!((&shown["seeders"], &shown["times_completed"]), (&1.into(), &1.into()), "{shown}");
    let seeds = Client { event: Event::None, uploaded: 500, at_s: 1_200, ..done };
    at(&all, &mut model, 0, seeds, "");
    assert_eq!(all.nodes[1].show("users/1")["num_seeding"], 1);
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    let stop = Client { event: Event::Stopped, uploaded: 700, at_s: 1_300, ..seeds };
    at(&all, &mut model, 1, stop, "");
    // A client that stops at a node which has not heard of it.
    let short = Client { event: Event::Started, at_s: 1_400, ..Client::new(2, 1, 2) };
    at(&all, &mut model, 0, short, "");
    let stop = Client { event: Event::Stopped, downloaded: 70, at_s: 1_405, ..short };
    at(&all, &mut model, 1, stop, "Stopped peer doesn't exist.");
    // Both addresses of a client announce at once, each to another node.
    let twice = Client { event: Event::Started, left: 0, at_s: 1_500, ..Client::new(2, 3, 3) };
    at(&all, &mut model, 0, twice, "");
    at(&all, &mut model, 1, twice, "");
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    // The later announce stays, although the earlier one is written after it.
    let [early, late] = [1_600, 1_650].map(|at_s| Client { at_s, ..Client::new(2, 2, 4) });
    assert_eq!(all.nodes[1].text(&Client { event: Event::Started, ..late }), "");
    all.nodes[1].wait_written();
    at(&all, &mut model, 0, Client { event: Event::Started, ..early }, "");
    model.announce(&late, true);
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    // A node that was away continues with what the database knows.
    let there = Client { uploaded: 5_000, at_s: 1_700, ..late };
    all = all.restart(0, |other| assert_eq!(other.text(&there), ""));
    model.announce(&there, true);
    at(&all, &mut model, 0, Client { uploaded: 5_100, at_s: 1_800, ..late }, "");
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    all.stop();
}

/// A client announces over IPv4 and IPv6, and its two connections reach different nodes.
#[test]
fn a_client_that_announces_to_two_nodes_at_once_is_counted_once() {
    let all = Nodes::start(UNIT3D, SiteKind::Unit3d);
    let mut model = Model::default();
    let [first, second] = &all.nodes;
    let mut client = Client { event: Event::Started, ..Client::new(1, 1, 1) };
    for uploaded in [1_000, 1_500, 2_100, 2_800] {
        client = Client { uploaded, at_s: now_s() - all.epoch_s, ..client };
        if uploaded > 2_000 {
            client = Client { event: Event::Completed, left: 0, downloaded: 100, ..client };
        }
        assert_eq!(second.text(&client), "");
        assert_eq!(first.text(&client), "");
        model.announce(&client, true);
        client.event = Event::None;
        all.settle();
        // The clock of announces has seconds.
        std::thread::sleep(Duration::from_millis(1_100));
    }
    // Longer than the second node waits for the first one.
    let wait = || std::thread::sleep(Duration::from_secs(9));
    wait();
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    // With one of its addresses gone, what it reports to the second node alone counts, too.
    client = Client { uploaded: 3_500, at_s: now_s() - all.epoch_s, ..client };
    assert_eq!(second.text(&client), "");
    model.announce(&client, true);
    wait();
    all.settle();
    compare(&all.database, &model, all.epoch_s);
    all.stop();
}

#[test]
fn a_call_at_one_node_takes_effect_at_all() {
    let all = Nodes::start(UNIT3D, SiteKind::Unit3d);
    let [first, second] = &all.nodes;
    // A new torrent, a token for it, and a ban.
    let client = Client { event: Event::Started, ..Client::new(1, 0x21, 1) };
    assert_eq!(second.text(&client), "InfoHash not found.");
    let hash = "21".repeat(20);
    let torrent = format!(
        r#"{{"id":21,"status":1,"info_hash":"{hash}","is_deleted":false,"seeders":0,"leechers":0,"times_completed":4,
        "download_factor":100,"upload_factor":100}}"#
    );
    let now = "INSERT INTO torrents (id, name, info_hash, status) VALUES (21, 'new', REPEAT(CHAR(33), 20), 1)";
    all.database.run(now);
    assert_eq!(first.put("torrents", &torrent), 200);
    assert_eq!(first.put("freeleech-tokens", r#"{"user_id":1,"torrent_id":21}"#), 200);
    all.settle();
    first.wait("the call", |_| second.text(&client).is_empty());
    second.announce(&Client { event: Event::None, downloaded: 800, at_s: 60, ..client });
    all.settle();
    let credited = "SELECT downloaded, actual_downloaded FROM history WHERE torrent_id = 21";
    assert_eq!(all.database.rows(credited), ["0 800"]);
    let banned = format!(
        r#"{{"id":1,"group_id":4,"passkey":"{}","can_download":true,"is_donor":false,"is_lifetime":false,"num_seeding":0,
        "num_leeching":0}}"#,
        "a".repeat(32)
    );
    assert_eq!(first.put("users", &banned), 200);
    assert!(all.exchange());
    let refusal = "Your account is not enabled. (Current: banned).";
    first.wait("the ban", |_| second.text(&client) == refusal);
    // Reading the tables again, too: at all nodes, since another one may lack a call.
    all.database.run("UPDATE users SET group_id = 1 WHERE id = 1");
    assert_eq!(first.call("POST", &format!("{}/config/reload", crate::fixture::KEY), "").0, 200);
    assert!(all.exchange());
    second.wait("the table", |_| second.text(&client).is_empty());
    // A node that was apart has the others read the tables, too.
    all.database.run("UPDATE users SET group_id = 4 WHERE id = 1");
    first.subsystem.reload_everywhere();
    assert!(all.exchange());
    second.wait("the table", |_| second.text(&client) == refusal);
    all.stop();
}

#[test]
fn nodes_share_the_tables_and_calls_of_gazelle() {
    let all = Nodes::start(GAZELLE, SiteKind::Gazelle);
    let [first, second] = &all.nodes;
    let start = Client { event: Event::Started, ..Client::new(1, 1, 1) };
    assert_eq!(first.text(&start), "");
    all.settle();
    // The user's token is used up at one node.
    let half = Client { event: Event::None, downloaded: 400, left: 40, at_s: 100, ..start };
    assert_eq!(second.text(&half), "");
    let done = Client { event: Event::Completed, downloaded: 1_000, left: 0, at_s: 200, ..half };
    assert_eq!(second.text(&done), "");
    all.settle();
    let after = Client { event: Event::None, uploaded: 10, downloaded: 1_050, at_s: 300, ..done };
    assert_eq!(first.text(&after), "");
    all.settle();
    let database = &all.database;
    let users = "SELECT Uploaded, Downloaded FROM users_main WHERE ID = 1";
    assert_eq!(database.rows(users), ["10 50"]);
    let torrents = "SELECT Seeders, Leechers, Snatched, balance FROM torrents WHERE ID = 11";
    assert_eq!(database.rows(torrents), ["1 0 6 -1040"]);
    let peers =
        "SELECT active, announced, uploaded, downloaded, remaining, mtime FROM xbt_files_users";
    assert_eq!(database.rows(peers), [format!("1 4 10 1050 0 {}", all.epoch_s + 300)]);
    let tokens = "SELECT Expired, Downloaded FROM users_freeleeches WHERE UserID = 1";
    assert_eq!(database.rows(tokens), ["1 1000"]);
    assert_eq!(second.text(&Client { event: Event::Stopped, at_s: 400, ..after }), "");
    all.settle();
    assert_eq!(database.rows(torrents), ["0 0 6 -1040"]);
    // A user whom the site adds.
    first.success(&format!("action=add_user&id=9&passkey={}&visible=1", "n".repeat(32)));
    assert!(all.exchange());
    let added = Client { left: 0, ..Client::new(9, 2, 9) };
    second.wait("the user", |_| second.text(&added).is_empty());
    all.stop();
}

#[test]
fn random_days_at_two_nodes_leave_the_rows_of_one() {
    let mut all = Nodes::start(UNIT3D, SiteKind::Unit3d);
    let mut model = Model::default();
    let mut clients = RandomClients::new(11, 3);
    for phase in 0..8_u32 {
        // In each phase a client has one node. Clients move when all nodes know of the last phase.
        let turn = clients.random.below(100);
        for step in 1..=60_u32 {
            // With a pause, or a client that moves would seem to announce to both nodes at once.
            let client = clients.next(phase * 100 + step);
            // A user in a torrent is one row of history, whose time as a seeder is that of all its clients.
            let node = (client.user + u32::from(client.hash) + turn) % 2;
            all.nodes[node as usize].announce(&client);
            model.announce(&client, true);
            if step % 20 == 0 {
                all.exchange();
            }
        }
        all.settle();
        compare(&all.database, &model, all.epoch_s);
        if phase % 3 == 2 {
            all = all.restart(phase as usize % 2, |_| ());
        }
    }
    all.stop();
}
