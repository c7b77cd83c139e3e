//! Bad days of the database: each is a sentence with a remedy, and nothing is lost.

use std::sync::Arc;

use harness::Directory;
use mysql::prelude::Queryable;
use tidegate_site::{SiteConfig, SiteKind, SiteStatus};
use types::Event;

use crate::fixture::{Client, Database, KEY, Site, UNIT3D, now_s, pause, text};

/// Waits for a problem of the database, and returns it.
fn problem(site: &Site, part: &str) -> (String, String) {
    let has = |status: &SiteStatus| {
        status.database.as_ref().is_some_and(|problem| problem.error.contains(part))
    };
    let status = site.wait(part, has);
    let problem = status.database.unwrap();
    assert!(status.error.unwrap().contains(part));
    (problem.error, problem.remedy)
}

fn uploaded(database: &Database) -> String {
    database.rows("SELECT uploaded FROM users WHERE id = 1").remove(0)
}

/// Sends `total` bytes in all.
fn send(site: &Site, total: u64) {
    assert_eq!(text(&site.announce(&Client { uploaded: total, ..Client::new(1, 1, 1) })).0, "");
}

#[test]
fn a_wrong_password_a_wrong_name_and_a_wrong_schema_are_told_apart() {
    let database = Database::start(UNIT3D);
    let good = database.config(SiteKind::Unit3d);
    let wrong = SiteConfig { database_password: Some("wrong".to_owned()), ..good.clone() };
    let site = Site::start(wrong);
    let (error, remedy) = problem(&site, "1045");
    assert!(error.contains("Access denied for user 'tidegate'"), "{error}");
    assert!(remedy.contains("check user and password in site.database"), "{remedy}");
    assert!(!error.contains("wrong") && !site.subsystem.status().ready);
    site.stop();
    let url = good.database.clone().unwrap().replace("/site", "/other");
    let site = Site::start(SiteConfig { database: Some(url), ..good.clone() });
    let (_, remedy) = problem(&site, "other");
    assert!(remedy.contains("name of the database"), "{remedy}");
    site.stop();
    database.run("ALTER TABLE peers DROP COLUMN visible, MODIFY ip VARCHAR(45) NOT NULL");
    let site = Site::start(good);
    let (error, remedy) = problem(&site, "table peers");
    let expected = "table peers, column ip: expected binary or varbinary, found varchar; table peers, column visible: \
                    expected tinyint or smallint or int or bit, found no such column";
    assert_eq!(error, expected);
    assert!(remedy.contains("run its migrations"), "{remedy}");
    database.run("ALTER TABLE peers ADD COLUMN visible TINYINT(1) NOT NULL, MODIFY ip VARBINARY(16) NOT NULL");
    site.wait_ready();
    site.stop();
}

#[test]
fn a_database_that_is_read_only_hangs_or_dies_loses_nothing() {
    let mut database = Database::start(UNIT3D);
    let config = SiteConfig { flush_s: 1, ..database.config(SiteKind::Unit3d) };
    let site = Site::start(config.clone());
    site.wait_ready();
    send(&site, 0);
    send(&site, 10);
    site.wait_written();
    assert_eq!(uploaded(&database), "10");
    database.run("SET GLOBAL read_only = 1");
    send(&site, 30);
    let (error, remedy) = problem(&site, "read-only");
    assert!(remedy.contains("batches wait in the spool"), "{error}: {remedy}");
    send(&site, 40);
    database.run("SET GLOBAL read_only = 0");
    site.wait_written();
    assert_eq!(uploaded(&database), "40");
    site.wait("no problem", |status| status.database.is_none());
    // It hangs: announces are answered, and batches wait.
    database.server.suspend(true).unwrap();
    send(&site, 50);
    pause();
    send(&site, 60);
    let status = site.wait("two batches", |status| status.spool_batches >= 1);
    assert!(status.lag_s < 60.0, "{status:?}");
    database.server.suspend(false).unwrap();
    site.wait_written();
    assert_eq!(uploaded(&database), "60");
    // It is killed, and the site is restarted without it: users are known from the last run.
    database.server.kill();
    send(&site, 70);
    let folder = site.stop();
    let site = Site::start_in(config, folder, now_s());
    let status = site.wait("users of the last run", |status| status.ready && status.counting);
    assert_eq!((status.users, status.torrents), (5, 8));
    let (error, remedy) = problem(&site, "cannot be reached");
    assert!(remedy.starts_with("start the database"), "{error}: {remedy}");
    send(&site, 90);
    database.server.restart().unwrap();
    site.wait_written();
    assert_eq!(uploaded(&database), "90");
    site.stop();
}

/// A table that is full is no fault of a row: its batch waits until there is room. The table is in memory here, with the
/// smallest size that the server permits.
#[test]
fn a_database_without_room_loses_nothing() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    send(&site, 0);
    send(&site, 10);
    site.wait_written();
    let mut conn = database.root();
    conn.query_drop("SET SESSION max_heap_table_size = 16384").unwrap();
    conn.query_drop(
        "ALTER TABLE peers DROP FOREIGN KEY peers_torrent, DROP FOREIGN KEY peers_user",
    )
    .unwrap();
    conn.query_drop("ALTER TABLE peers ENGINE = MEMORY").unwrap();
    // Until one row is one too many.
    while conn.query_drop(FILLER).is_ok() {}
    for peer in 10..12 {
        site.announce(&Client { left: 0, ..Client::new(2, 2, peer) });
    }
    send(&site, 30);
    let (error, remedy) = problem(&site, "1114");
    assert!(remedy.starts_with("make room on the disk of the database"), "{error}: {remedy}");
    send(&site, 70);
    database.run("ALTER TABLE peers ENGINE = InnoDB");
    site.wait_written();
    assert_eq!(uploaded(&database), "70");
    let rows =
        database.rows("SELECT actual_uploaded FROM history WHERE user_id = 1 AND torrent_id = 11");
    assert_eq!(rows, ["70"]);
    site.wait("no problem", |status| status.database.is_none());
    site.stop();
}

/// Adds a row to the table of peers.
const FILLER: &str = "INSERT INTO peers (peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder, torrent_id, user_id,
    active, visible) VALUES (LEFT(REPLACE(UUID(), '-', ''), 20), 'x', 1, 'filler', 0, 0, 0, 0, 99, 99, 0, 0)";

#[test]
fn rows_that_are_deleted_under_the_tracker_cost_only_themselves() {
    let database = Database::start(UNIT3D);
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    database.run("DELETE FROM users WHERE id = 3");
    database.run("UPDATE users SET uploaded = 18446744073709551615 WHERE id = 2");
    for user in 1..=3 {
        let client = Client::new(user, 1, 1);
        site.announce(&client);
        site.announce(&Client { uploaded: 7, ..client });
    }
    let status = site.wait_written();
    assert_eq!(status.rows_skipped, 2, "of the user who is gone, and of the sum that does not fit");
    assert_eq!(database.rows("SELECT user_id, uploaded FROM history"), ["1 7"]);
    assert_eq!(uploaded(&database), "7");
    assert_eq!(status.database, None);
    site.stop();
}

#[test]
fn without_the_right_to_create_the_table_the_remedy_has_the_statement() {
    let database = Database::start(UNIT3D);
    database.run("REVOKE CREATE ON site.* FROM tidegate@'%'");
    let site = Site::start(database.config(SiteKind::Unit3d));
    let (_, remedy) = problem(&site, "tidegate_batches");
    let statement = remedy.split_once(": ").unwrap().1.to_owned();
    assert!(statement.starts_with("CREATE TABLE IF NOT EXISTS tidegate_batches"), "{remedy}");
    database.run(&statement);
    site.wait_ready();
    site.stop();
}

#[test]
fn a_clock_that_is_an_hour_off_is_named() {
    let database = Database::start(UNIT3D);
    // The default of the server's time, for all connections.
    database.run("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + 3600'");
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    let clock = site.subsystem.status().clock.unwrap();
    assert!(clock.error.contains(" s behind that of the database"), "{clock:?}");
    assert!(clock.remedy.contains("NTP"), "{clock:?}");
    send(&site, 0);
    send(&site, 10);
    site.wait_written();
    assert_eq!(uploaded(&database), "10");
    site.stop();
}

#[test]
fn peers_of_the_tracker_before_are_taken_over() {
    let database = Database::start(UNIT3D);
    let now_s = now_s();
    database.run(&format!(
        "INSERT INTO peers (peer_id, ip, port, agent, uploaded, downloaded, `left`, seeder, created_at, updated_at,
         torrent_id, user_id, active, visible) VALUES (CONCAT('-TG1000-            '), INET6_ATON('10.0.0.1'), 6881,
         'old', 1000, 50, 50, 0, NOW(), FROM_UNIXTIME({now_s}), 11, 1, 1, 1)"
    ));
    database.run("UPDATE peers SET peer_id = CONCAT('-TG1000-', REPEAT(' ', 11), CHAR(1))");
    database.run("UPDATE torrents SET leechers = 1 WHERE id = 11");
    let site = Site::start(database.config(SiteKind::Unit3d));
    site.wait_ready();
    assert_eq!(site.subsystem.status().sessions, 1);
    let client = Client { uploaded: 1_500, downloaded: 50, at_s: 60, ..Client::new(1, 1, 1) };
    site.announce(&client);
    site.wait_written();
    assert_eq!(uploaded(&database), "500");
    assert_eq!(
        database.rows("SELECT leechers FROM torrents WHERE id = 11"),
        ["1"],
        "it is not counted twice"
    );
    site.announce(&Client { event: Event::Stopped, uploaded: 1_500, downloaded: 50, ..client });
    site.wait_written();
    assert_eq!(database.rows("SELECT leechers FROM torrents WHERE id = 11"), ["0"]);
    site.stop();
}

#[test]
fn announces_wait_in_memory_until_the_process_before_has_closed_the_spool() {
    let database = Database::start(UNIT3D);
    let config = database.config(SiteKind::Unit3d);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    let folder = Arc::new(Directory::new().unwrap());
    let old = Site::start_with(config.clone(), Arc::clone(&folder), copy, now_s());
    old.wait_ready();
    send(&old, 0);
    send(&old, 10);
    let new = Site::start_with(config, folder, listener, old.epoch_s);
    let status = new.wait("the lock", |status| status.spool.is_some() && status.ready);
    assert!(status.spool.unwrap().error.contains("another process has the spool"));
    assert!(!status.counting);
    send(&new, 25);
    database.run("UPDATE torrents SET status = 1 WHERE id = 14");
    old.stop();
    new.wait_ready();
    let approved = || text(&new.announce(&Client::new(1, 4, 1))).0.is_empty();
    harness::wait_until("changes of which the old process was told", approved);
    assert_eq!(new.call("GET", &format!("{KEY}/stats"), "").0, 200, "calls come to the new one");
    new.wait_written();
    assert_eq!(uploaded(&database), "25");
    assert_eq!(new.subsystem.status().spool, None);
    new.stop();
}

#[test]
fn a_full_spool_counts_on_in_memory() {
    let mut database = Database::start(UNIT3D);
    let config = SiteConfig { spool_mib: 0, ..database.config(SiteKind::Unit3d) };
    let site = Site::start(config);
    let full = |status: &SiteStatus| status.spool.is_some();
    let problem = site.wait("a full spool", full).spool.unwrap();
    assert!(problem.error.contains("limit of 0 MiB; counting continues in memory"));
    assert!(problem.remedy.contains("site.spool_mib"), "{problem:?}");
    site.wait_ready();
    send(&site, 0);
    send(&site, 10);
    pause();
    assert_eq!(site.subsystem.status().pending, 1);
    database.server.kill();
    site.stop();
}
