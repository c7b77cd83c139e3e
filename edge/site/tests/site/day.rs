//! A day of users, whose tables are compared with a plain model row by row.

use std::collections::BTreeMap;
use std::net::IpAddr;

use primitives::Random;
use tidegate_site::SiteKind;
use types::Event;

use crate::fixture::{Client, Database, Site, UNIT3D, text};

/// A row of `history`, with the users' and torrents' sums beside it.
#[derive(Clone, Debug, Default, PartialEq)]
struct History {
    uploaded: u64,
    actual_uploaded: u64,
    client_uploaded: u64,
    downloaded: u64,
    actual_downloaded: u64,
    client_downloaded: u64,
    seeder: bool,
    active: bool,
    seedtime: u32,
    immune: bool,
    created_s: u32,
    updated_s: u32,
    completed_s: Option<u32>,
}

/// A row of `peers`.
#[derive(Clone, Debug, PartialEq)]
struct Peer {
    ip: IpAddr,
    uploaded: u64,
    downloaded: u64,
    left: u64,
    active: bool,
    seeder: bool,
    visible: bool,
    created_s: u32,
    updated_s: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Torrent {
    seeders: i64,
    leechers: i64,
    completed: i64,
    balance: i64,
}

/// The site as a table of rows: what the day must leave.
#[derive(Default)]
pub(crate) struct Model {
    history: BTreeMap<(u32, u32), History>,
    peers: BTreeMap<(u32, u32, u8), Peer>,
    torrents: BTreeMap<u32, Torrent>,
    users: BTreeMap<u32, (u64, u64)>,
}

/// Percent of bytes sent and received that count, as the tables of the fixture say.
fn factors(user: u32, torrent: u32) -> (u64, u64) {
    let (group_up, group_down) = if user == 2 { (200, 0) } else { (100, 100) };
    let (torrent_up, torrent_down) = if torrent == 12 { (200, 50) } else { (100, 100) };
    match (user, torrent) {
        (_, 13) => (200, 0),
        (1, 12) => (200, 0),
        _ => (group_up.max(torrent_up), group_down.min(torrent_down)),
    }
}

impl Model {
    pub(crate) fn announce(&mut self, client: &Client, visible: bool) {
        let torrent_id = u32::from(client.hash) + 10;
        let key = (client.user, torrent_id, client.peer);
        let stops = client.event == Event::Stopped;
        let old = self.peers.get(&key).cloned();
        if stops && old.is_none() {
            return;
        }
        let seeder = client.left == 0 || client.event == Event::Completed;
        let was_active = self.is_active(client.user, torrent_id);
        let new = Peer {
            ip: client.ip,
            uploaded: client.uploaded,
            downloaded: client.downloaded,
            left: client.left,
            active: !stops,
            seeder,
            visible: visible && !stops,
            created_s: old.as_ref().map_or(client.at_s, |old| old.created_s),
            updated_s: client.at_s,
        };
        let moved = match &old {
            Some(old) if client.uploaded >= old.uploaded && client.downloaded >= old.downloaded => {
                (client.uploaded - old.uploaded, client.downloaded - old.downloaded)
            }
            _ => (0, 0),
        };
        let (up, down) = factors(client.user, torrent_id);
        let credited = (moved.0 * up / 100, moved.1 * down / 100);
        self.peers.insert(key, new.clone());
        let active = self.is_active(client.user, torrent_id);
        let torrent = self.torrents.entry(torrent_id).or_default();
        let counts = |peer: &Peer| i64::from(peer.active && peer.visible);
        let old_role = old.as_ref().map_or((0, 0), |old| role(old, counts(old)));
        let new_role = role(&new, counts(&new));
        torrent.seeders += new_role.0 - old_role.0;
        torrent.leechers += new_role.1 - old_role.1;
        torrent.completed += i64::from(!stops && seeder && old.is_some_and(|old| !old.seeder));
        torrent.balance += moved.0 as i64 - moved.1 as i64;
        let sums = self.users.entry(client.user).or_default();
        sums.0 += credited.0;
        sums.1 += credited.1;
        let first = History { immune: true, created_s: client.at_s, ..History::default() };
        let row = self.history.entry((client.user, torrent_id)).or_insert(first);
        if row.seeder && was_active && seeder && client.at_s - row.updated_s < 9_000 {
            row.seedtime += client.at_s - row.updated_s;
        }
        row.uploaded += credited.0;
        row.actual_uploaded += moved.0;
        row.client_uploaded = client.uploaded;
        row.downloaded += credited.1;
        row.actual_downloaded += moved.1;
        row.client_downloaded = client.downloaded;
        row.seeder = seeder;
        row.active = active;
        row.immune = client.user == 2;
        row.updated_s = client.at_s;
        if client.event == Event::Completed && row.completed_s.is_none() {
            row.completed_s = Some(client.at_s);
        }
    }

    fn is_active(&self, user: u32, torrent: u32) -> bool {
        let own = self.peers.range((user, torrent, 0)..=(user, torrent, u8::MAX));
        own.into_iter().any(|(_, peer)| peer.active)
    }

    /// Returns the rows of all tables, as [`rows`] reads them.
    fn rows(&self, epoch_s: u32) -> Vec<String> {
        let time = |at_s: u32| at_s + epoch_s;
        let mut rows = Vec::new();
        for ((user, torrent), it) in &self.history {
            rows.push(format!(
                "history {user} {torrent} tester/1.0 {} {} {} {} {} {} {} {} {} {} {} {} {}",
                it.uploaded,
                it.actual_uploaded,
                it.client_uploaded,
                it.downloaded,
                it.actual_downloaded,
                it.client_downloaded,
                u8::from(it.seeder),
                u8::from(it.active),
                it.seedtime,
                u8::from(it.immune),
                time(it.created_s),
                time(it.updated_s),
                it.completed_s.map_or_else(|| "-".to_owned(), |at_s| time(at_s).to_string()),
            ));
        }
        for ((user, torrent, peer), it) in &self.peers {
            rows.push(format!(
                "peer {user} {torrent} {peer} {} 6881 {} {} {} {} {} {} {} {}",
                it.ip,
                it.uploaded,
                it.downloaded,
                it.left,
                u8::from(it.active),
                u8::from(it.seeder),
                u8::from(it.visible),
                time(it.created_s),
                time(it.updated_s),
            ));
        }
        for (id, it) in &self.torrents {
            let Torrent { seeders, leechers, completed, balance } = it;
            rows.push(format!("torrent {id} {seeders} {leechers} {completed} {balance}"));
        }
        for (id, (uploaded, downloaded)) in &self.users {
            rows.push(format!("user {id} {uploaded} {downloaded}"));
        }
        rows
    }
}

fn role(peer: &Peer, counts: i64) -> (i64, i64) {
    if peer.seeder { (counts, 0) } else { (0, counts) }
}

/// Reads the tables.
fn rows(database: &Database) -> Vec<String> {
    let queries = [
        "SELECT 'history', user_id, torrent_id, agent, uploaded, actual_uploaded, client_uploaded, downloaded,
         actual_downloaded, client_downloaded, seeder, active, seedtime, immune, UNIX_TIMESTAMP(created_at),
         UNIX_TIMESTAMP(updated_at), CAST(UNIX_TIMESTAMP(completed_at) AS SIGNED) FROM history ORDER BY user_id, torrent_id",
        "SELECT 'peer', user_id, torrent_id, ASCII(SUBSTRING(peer_id, 20)), INET6_NTOA(ip), port, uploaded, downloaded,
         `left`, active, seeder, visible, UNIX_TIMESTAMP(created_at), UNIX_TIMESTAMP(updated_at) FROM peers
         ORDER BY user_id, torrent_id, peer_id",
        "SELECT 'torrent', id, seeders, leechers, times_completed, balance FROM torrents
         WHERE id IN (SELECT torrent_id FROM history) ORDER BY id",
        "SELECT 'user', id, uploaded, downloaded FROM users WHERE id IN (SELECT user_id FROM history) ORDER BY id",
    ];
    queries.iter().flat_map(|sql| database.rows(sql)).collect()
}

pub(crate) fn compare(database: &Database, model: &Model, epoch_s: u32) {
    let (found, expected) = (rows(database), model.rows(epoch_s));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

/// Returns announces that change nothing, and the answers to them.
fn refused() -> [(Client, &'static str); 9] {
    let stop = Client { event: Event::Stopped, ..Client::new(2, 3, 77) };
    let fourth = Client { at_s: 3_062, left: 0, ..Client::new(2, 1, 42) };
    [
        (fourth, "You already have 3 peers on this torrent. Ignoring."),
        (Client::new(1, 4, 1), "Torrent is pending moderation."),
        (Client::new(1, 5, 1), "Torrent has been rejected."),
        (Client::new(1, 6, 1), "Torrent has been postponed."),
        (Client::new(1, 7, 1), "Torrent has been deleted."),
        (Client::new(1, 99, 1), "InfoHash not found."),
        (Client::new(4, 1, 1), "Your account is not enabled. (Current: banned)."),
        (Client::new(5, 1, 1), "Your downloading privileges have been disabled."),
        (stop, "Stopped peer doesn't exist."),
    ]
}

#[test]
fn a_scripted_day_leaves_the_rows_of_a_plain_model() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    let status = site.wait_ready();
    assert_eq!((status.users, status.torrents, status.bad_passkeys), (5, 8, 1));
    assert_eq!(status.duplicate_hashes, 1);
    let mut model = Model::default();
    let mut at = |client: Client, expected: &str| {
        let verdict = site.announce(&client);
        assert_eq!(text(&verdict).0, expected, "{client:?}");
        let slots = "Download slot limit reached";
        if expected.is_empty() || expected == slots {
            model.announce(&client, expected != slots);
        }
        verdict
    };
    let download = Client::new(1, 1, 1);
    let mega = 1_000_000;
    // A download with a pause, a change of the address, and a second client of the user.
    at(Client { event: Event::Started, ..download }, "");
    at(Client { downloaded: 60 * mega, uploaded: mega + 1, left: 40, at_s: 600, ..download }, "");
    let paused = Client { downloaded: 60 * mega, uploaded: 2 * mega, at_s: 700, ..download };
    at(Client { event: Event::Stopped, ..paused }, "");
    let moved =
        Client { ip: "2001:db8::7".parse().unwrap(), downloaded: 70 * mega, at_s: 900, ..download };
    at(Client { event: Event::Started, uploaded: 2 * mega, left: 30, ..moved }, "");
    let second = Client { left: 0, at_s: 950, ..Client::new(1, 1, 2) };
    assert_eq!(at(second, "").own.len(), 1);
    let done = Client { downloaded: 100 * mega, uploaded: 3 * mega, left: 0, ..moved };
    at(Client { event: Event::Completed, at_s: 1_200, ..done }, "");
    at(Client { at_s: 3_000, uploaded: 50 * mega, ..done }, "");
    // Just silent for too long: no time as a seeder. The client began anew with the same id.
    at(Client { at_s: 12_000, uploaded: 5, downloaded: 0, ..done }, "");
    at(Client { at_s: 15_000, uploaded: 205, downloaded: 0, ..done }, "");
    at(Client { event: Event::Stopped, at_s: 16_000, uploaded: 305, downloaded: 0, ..done }, "");
    // Freeleech by token, group and torrent; double upload.
    for (user, hash) in [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)] {
        let client = Client::new(user, hash, 10 + hash);
        at(Client { at_s: 100, ..client }, "");
        let later = Client { at_s: 2_000, uploaded: 333, downloaded: 777, left: 0, ..client };
        at(Client { event: Event::Completed, ..later }, "");
    }
    // Slots, clients, moderation, bans.
    at(Client { at_s: 3_020, ..Client::new(3, 1, 30) }, "");
    let hidden = Client { at_s: 3_030, ..Client::new(3, 2, 31) };
    at(hidden, "Download slot limit reached");
    at(Client { event: Event::Stopped, at_s: 3_040, ..Client::new(3, 1, 30) }, "");
    at(Client { at_s: 3_050, downloaded: 10, ..hidden }, "");
    at(Client { at_s: 3_060, left: 0, ..Client::new(2, 1, 40) }, "");
    at(Client { at_s: 3_061, left: 0, ..Client::new(2, 1, 41) }, "");
    at(Client { left: 0, ..Client::new(5, 1, 1) }, "");
    for (client, expected) in refused() {
        at(client, expected);
    }
    site.wait_written();
    compare(&database, &model, site.epoch_s);
    let unregistered = database
        .rows("SELECT user_id, ASCII(info_hash) FROM unregistered_info_hashes ORDER BY 1, 2");
    assert_eq!(unregistered, ["1 7", "1 99"]);
    let untouched =
        database.rows("SELECT COUNT(*) FROM users UNION ALL SELECT COUNT(*) FROM torrents");
    assert_eq!(untouched, ["6", "8"], "no row was made up");
    site.stop();
}

#[test]
fn random_days_with_restarts_and_kills_of_the_database_leave_the_rows_of_the_model() {
    let mut database = Database::start(UNIT3D);
    let config = database.config(SiteKind::Unit3d);
    let mut site = Site::start(config.clone());
    site.wait_ready();
    let epoch_s = site.epoch_s;
    let mut model = Model::default();
    let mut clients = RandomClients::new(7, 2);
    for step in 1..=1_500_u32 {
        let client = clients.next(step);
        site.announce(&client);
        model.announce(&client, true);
        match step {
            300 | 900 => database.server.kill(),
            600 | 1_200 => database.server.restart().unwrap(),
            450 | 1_000 => {
                let folder = site.stop();
                site = Site::start_in(config.clone(), folder, epoch_s);
                site.wait("sessions and users of the last run", |status| {
                    status.ready && status.counting
                });
            }
            _ => {}
        }
        if step % 100 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    }
    site.wait_written();
    compare(&database, &model, epoch_s);
    site.stop();
}

/// Clients that announce at random: in three torrents, as several clients of each of two users.
pub(crate) struct RandomClients {
    pub(crate) random: Random,
    /// The clients of a user in a torrent.
    peers: u32,
    counters: BTreeMap<(u32, u8, u8), (u64, u64)>,
}

impl RandomClients {
    pub(crate) fn new(seed: u64, peers: u32) -> Self {
        Self { random: Random::new(seed), peers, counters: BTreeMap::new() }
    }

    /// Returns the next announce, at this second. Now and then a client begins its counters anew.
    pub(crate) fn next(&mut self, at_s: u32) -> Client {
        let random = &mut self.random;
        let (user, hash) = (random.below(2) + 1, random.below(3) as u8 + 1);
        let peer = random.below(self.peers) as u8;
        let counter = self.counters.entry((user, hash, peer)).or_default();
        let event = match random.below(10) {
            0 => Event::Started,
            1 => Event::Completed,
            2 => Event::Stopped,
            _ => Event::None,
        };
        if random.below(30) == 0 {
            *counter = (0, 0);
        }
        counter.0 += u64::from(random.below(1_000));
        counter.1 += u64::from(random.below(1_000));
        let (uploaded, downloaded) = *counter;
        let left = u64::from(random.below(3) * 50);
        Client { event, uploaded, downloaded, left, at_s, ..Client::new(user, hash, peer) }
    }
}
