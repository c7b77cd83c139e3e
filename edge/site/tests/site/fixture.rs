//! A database, a site beside it, and clients.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::mariadb::MariaDb;
use harness::{Directory, PATIENCE};
use mysql::Conn;
use mysql::prelude::Queryable;
use tidegate_site::{SiteConfig, SiteKind, SiteStatus, SiteSubsystem};
use tracker::{
    KeyId, Options, Policy, Secrets, SiteAnnounce, SiteOutcome, SiteProtocol, SiteVerdict, Tracker,
};
use types::{Announce, Event, InfoHash, PeerId, Tick};

pub(crate) const KEY: &str = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk";
pub(crate) const REPORTS: &str = "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr";
const PASSWORD: &str = "secret";

/// A database with a schema.
pub(crate) struct Database {
    pub(crate) server: MariaDb,
}

impl Database {
    pub(crate) fn start(schema: &str) -> Self {
        Self::start_with(schema, &[])
    }

    /// The same with additional arguments of the server.
    pub(crate) fn start_with(schema: &str, arguments: &[&str]) -> Self {
        let server = MariaDb::start_with(arguments).unwrap();
        let mut conn = Self::connect(&server, "");
        conn.query_drop("CREATE DATABASE site CHARACTER SET utf8mb4").unwrap();
        conn.query_drop("USE site").unwrap();
        for statement in schema.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            conn.query_drop(statement).unwrap();
        }
        let user = format!("CREATE USER tidegate@'%' IDENTIFIED BY '{PASSWORD}'");
        conn.query_drop(user).unwrap();
        let rights = "GRANT SELECT, INSERT, UPDATE, CREATE ON site.* TO tidegate@'%'";
        conn.query_drop(rights).unwrap();
        Self { server }
    }

    fn connect(server: &MariaDb, name: &str) -> Conn {
        let url = format!("mysql://root@{}/{name}?prefer_socket=false", server.address());
        let mut conn = Conn::new(url.as_str()).unwrap();
        conn.query_drop("SET time_zone = '+00:00'").unwrap();
        conn
    }

    /// Returns a connection of an administrator.
    pub(crate) fn root(&self) -> Conn {
        Self::connect(&self.server, "site")
    }

    /// Returns a row a line, with all columns as text.
    pub(crate) fn rows(&self, sql: &str) -> Vec<String> {
        let rows: Vec<mysql::Row> = self.root().query(sql).unwrap();
        let text = |value: &mysql::Value| match value {
            mysql::Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            mysql::Value::NULL => "-".to_owned(),
            other => other.as_sql(true),
        };
        let line = |row: mysql::Row| row.unwrap().iter().map(text).collect::<Vec<_>>().join(" ");
        rows.into_iter().map(line).collect()
    }

    pub(crate) fn run(&self, sql: &str) {
        self.root().query_drop(sql).unwrap();
    }

    pub(crate) fn config(&self, kind: SiteKind) -> SiteConfig {
        let address = self.server.address();
        SiteConfig {
            kind,
            database: Some(format!("mysql://tidegate@{address}/site")),
            database_password: Some(PASSWORD.to_owned()),
            tracker_key: Some(KEY.to_owned()),
            site_password: Some(KEY.to_owned()),
            report_password: Some(REPORTS.to_owned()),
            flush_s: 1,
            ..SiteConfig::default()
        }
    }
}

/// A running site.
pub(crate) struct Site {
    pub(crate) subsystem: SiteSubsystem,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) calls: SocketAddr,
    pub(crate) folder: Arc<Directory>,
    pub(crate) epoch_s: u32,
}

/// A client of a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) user: u32,
    pub(crate) hash: u8,
    pub(crate) peer: u8,
    pub(crate) ip: IpAddr,
    pub(crate) event: Event,
    pub(crate) uploaded: u64,
    pub(crate) downloaded: u64,
    pub(crate) left: u64,
    /// Seconds since the start.
    pub(crate) at_s: u32,
}

impl Client {
    pub(crate) fn new(user: u32, hash: u8, peer: u8) -> Self {
        Self {
            user,
            hash,
            peer,
            ip: [10, 0, 0, peer].into(),
            event: Event::None,
            uploaded: 0,
            downloaded: 0,
            left: 100,
            at_s: 0,
        }
    }
}

pub(crate) fn peer_id(peer: u8) -> PeerId {
    let mut id = *b"-TG1000-            ";
    id[19] = peer;
    PeerId(id)
}

impl Site {
    pub(crate) fn start(config: SiteConfig) -> Self {
        Self::start_in(config, Self::folder(), now_s())
    }

    /// Returns a new folder for a site's files.
    pub(crate) fn folder() -> Arc<Directory> {
        Arc::new(Directory::new().unwrap())
    }

    pub(crate) fn start_in(config: SiteConfig, folder: Arc<Directory>, epoch_s: u32) -> Self {
        Self::start_with(config, folder, TcpListener::bind("127.0.0.1:0").unwrap(), epoch_s)
    }

    /// Starts a process that can share its listener with another one.
    pub(crate) fn start_with(
        config: SiteConfig,
        folder: Arc<Directory>,
        listener: TcpListener,
        epoch_s: u32,
    ) -> Self {
        let calls = listener.local_addr().unwrap();
        // A feed has no calls.
        let listener = Some(listener).filter(|_| config.kind != SiteKind::Feed);
        let path = folder.path("site");
        let subsystem = SiteSubsystem::with_listener(config, &path, listener).unwrap();
        let tracker = Arc::new(tracker());
        subsystem.start(Arc::clone(&tracker), epoch_s).unwrap();
        Self { subsystem, tracker, calls, folder, epoch_s }
    }

    /// Waits until the status is as expected.
    pub(crate) fn wait(&self, what: &str, is_so: impl Fn(&SiteStatus) -> bool) -> SiteStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.subsystem.status();
            if is_so(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "waited for {what}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_ready(&self) -> SiteStatus {
        self.wait("users and sessions", |status| {
            status.ready && status.counting && status.database.is_none()
        })
    }

    /// Waits until the database has everything.
    pub(crate) fn wait_written(&self) -> SiteStatus {
        self.wait("empty spool", |status| status.pending == 0 && status.spool_batches == 0)
    }

    pub(crate) fn announce(&self, client: &Client) -> SiteVerdict {
        let announce = Announce {
            event: client.event,
            left: Some(client.left),
            uploaded: client.uploaded,
            downloaded: client.downloaded,
            ..Announce::new(InfoHash([client.hash; 20]), peer_id(client.peer), 6881)
        };
        let announce = SiteAnnounce {
            key: KeyId(KeyId::SITE_FIRST + client.user),
            announce: &announce,
            from: client.ip,
            client_ip: client.ip,
            agent: b"tester/1.0",
            protocol: SiteProtocol::Http,
        };
        self.subsystem.site().announce(Tick(client.at_s), &announce)
    }

    /// Stops it, and returns its folder.
    pub(crate) fn stop(self) -> Arc<Directory> {
        self.subsystem.stop();
        self.folder
    }
}

/// Returns the text and interval of an outcome.
pub(crate) fn text(verdict: &SiteVerdict) -> (&'static str, u16) {
    match verdict.outcome {
        SiteOutcome::Serve => ("", 0),
        SiteOutcome::Hide(notice) => (notice.text(), 0),
        SiteOutcome::Quiet { notice, interval_s } | SiteOutcome::Refuse { notice, interval_s } => {
            (notice.text(), interval_s)
        }
    }
}

fn tracker() -> Tracker {
    Tracker::new(&Options::predictable(Policy::default()), &Secrets::PUBLIC)
}

/// Returns unix seconds.
pub(crate) fn now_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as u32
}

/// Waits for a moment in which something must not happen.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(1_500));
}

/// Tables of UNIT3D: the columns that it has and the tracker uses, and some that must keep their values.
pub(crate) const UNIT3D: &str = concat!(
    include_str!("unit3d.sql"),
    "INSERT INTO `groups` (id, slug, download_slots, is_immune, is_freeleech, is_double_upload) VALUES
    (1, 'user', NULL, 0, 0, 0), (2, 'vip', NULL, 1, 1, 1), (3, 'leech', 1, 0, 0, 0), (4, 'banned', NULL, 0, 0, 0);
INSERT INTO users (id, username, passkey, group_id, can_download) VALUES
    (1, 'a', REPEAT('a', 32), 1, 1), (2, 'b', REPEAT('b', 32), 2, 1), (3, 'c', REPEAT('c', 32), 3, 1),
    (4, 'd', REPEAT('d', 32), 4, 1), (5, 'e', REPEAT('e', 32), 1, 0), (6, 'f', 'short', 1, 1);
INSERT INTO torrents (id, name, info_hash, status, free, doubleup, deleted_at) VALUES
    (11, 'plain', REPEAT(CHAR(1), 20), 1, 0, 0, NULL), (12, 'half', REPEAT(CHAR(2), 20), 1, 50, 1, NULL),
    (13, 'featured', REPEAT(CHAR(3), 20), 1, 0, 0, NULL), (14, 'pending', REPEAT(CHAR(4), 20), 0, 0, 0, NULL),
    (15, 'rejected', REPEAT(CHAR(5), 20), 2, 0, 0, NULL), (16, 'postponed', REPEAT(CHAR(6), 20), 3, 0, 0, NULL),
    (17, 'deleted', REPEAT(CHAR(7), 20), 1, 0, 0, NOW()), (18, 'twin', REPEAT(CHAR(1), 20), 1, 0, 0, NOW());
INSERT INTO featured_torrents (user_id, torrent_id) VALUES (1, 13);
INSERT INTO freeleech_tokens (user_id, torrent_id) VALUES (1, 12);
INSERT INTO blacklist_clients (name, peer_id_prefix) VALUES ('bad', '-BAD')"
);

/// Tables of Gazelle: the columns that it has and the tracker uses.
pub(crate) const GAZELLE: &str = concat!(
    include_str!("gazelle.sql"),
    "INSERT INTO users_main (ID, Enabled, Visible, can_leech, torrent_pass) VALUES
    (1, '1', '1', 1, REPEAT('a', 32)), (2, '1', '0', 1, REPEAT('b', 32)), (3, '1', '1', 0, REPEAT('c', 32)),
    (4, '2', '1', 1, REPEAT('d', 32));
INSERT INTO torrents (ID, info_hash, FreeTorrent, Snatched) VALUES (11, REPEAT(CHAR(1), 20), '0', 5),
    (12, REPEAT(CHAR(2), 20), '1', 0), (13, REPEAT(CHAR(3), 20), '2', 0);
INSERT INTO users_freeleeches (UserID, TorrentID, Time) VALUES (1, 11, NOW());
INSERT INTO xbt_client_whitelist (peer_id) VALUES ('-TG1')"
);
