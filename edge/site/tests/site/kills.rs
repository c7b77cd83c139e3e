//! A process that is killed at any moment, and its database, too: the accounts are right to the last byte.

use std::env;
use std::io::{Write, stdout};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use harness::{Directory, PATIENCE, Process};
use tidegate_site::{SiteConfig, SiteKind};

use crate::fixture::{Client, Database, Site, UNIT3D, now_s};

/// The test below, as a program calls it.
const NAME: &str = "kills::kills_of_both_processes_leave_the_accounts_right_to_the_last_byte";
/// Names the folder, the database and the first counter of the process that is killed.
const VARIABLES: [&str; 3] =
    ["TIDEGATE_TEST_FOLDER", "TIDEGATE_TEST_DATABASE", "TIDEGATE_TEST_COUNTER"];

fn announce(site: &Site, counter: u64, epoch_s: u32) {
    for hash in 1..=3 {
        let at_s = now_s() - epoch_s;
        site.announce(&Client { uploaded: counter, at_s, ..Client::new(1, hash, hash) });
    }
}

#[test]
fn kills_of_both_processes_leave_the_accounts_right_to_the_last_byte() {
    if announce_if_child() {
        return;
    }
    let mut database = Database::start(UNIT3D);
    let config = database.config(SiteKind::Unit3d);
    let site = Site::start(config.clone());
    site.wait_ready();
    announce(&site, 0, site.epoch_s);
    let folder = site.stop();
    let mut counter = 0;
    for round in 0..6_u64 {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([NAME, "--exact", "--nocapture"]);
        let values = [
            folder.root().display().to_string(),
            config.database.clone().unwrap(),
            counter.to_string(),
        ];
        command.envs(VARIABLES.into_iter().zip(values));
        let mut process = Process::start(command, folder.root(), &format!("round{round}")).unwrap();
        let counts = |process: &Process| process.stdout().contains("counter ");
        process.wait_until("counting", PATIENCE, counts).unwrap();
        sleep(Duration::from_millis(700 + round * 377 % 1_000));
        if round % 3 == 1 {
            database.server.kill();
        }
        process.kill();
        if round % 3 == 1 {
            database.server.restart().unwrap();
        }
        let stdout = process.stdout();
        let last = stdout.lines().rev().find_map(|line| line.strip_prefix("counter "));
        // The last line can be incomplete, and the announce after it can have been counted.
        counter = last.unwrap().parse::<u64>().unwrap_or_default().max(counter) + 100_000;
    }
    let site = Site::start_in(config, folder, now_s());
    site.wait_ready();
    announce(&site, counter, site.epoch_s);
    site.wait_written();
    let expected = format!("{counter} {counter}");
    let rows = database.rows("SELECT actual_uploaded, client_uploaded FROM history");
    assert_eq!(rows, [&expected[..]; 3]);
    site.stop();
}

/// Announces until it is killed, as a process of the test below. Returns false if this is another process.
fn announce_if_child() -> bool {
    let [Ok(folder), Ok(database), Ok(counter)] = VARIABLES.map(env::var) else { return false };
    let config = SiteConfig {
        kind: SiteKind::Unit3d,
        database: Some(database),
        database_password: Some("secret".to_owned()),
        tracker_key: Some("k".repeat(32)),
        flush_s: 1,
        ..SiteConfig::default()
    };
    // The files are those of the parent, and outlive this process.
    let own = Directory::new().unwrap();
    symlink(Path::new(&folder).join("site"), own.path("site")).unwrap();
    let site = Site::start_in(config, Arc::new(own), now_s());
    site.wait("counting", |status| status.counting && status.ready);
    let mut out = stdout();
    // The parent kills this process long before.
    for counter in (counter.parse::<u64>().unwrap()..).step_by(7).take(60_000) {
        writeln!(out, "counter {counter}").unwrap();
        announce(&site, counter, site.epoch_s);
        sleep(Duration::from_millis(1));
    }
    true
}
