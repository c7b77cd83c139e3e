//! Measures how long a million users and 500,000 torrents take to load and what memory they need, and how far the
//! database falls behind 20,000 announces per second of distinct (user, torrent):
//! `cargo bench -p tidegate-site --bench site`.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::fs;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::Directory;
use harness::mariadb::MariaDb;
use mysql::Conn;
use mysql::prelude::Queryable;
use tidegate_site::{SiteConfig, SiteKind, SiteSubsystem};
use tracker::{
    KeyId, Options, Policy, Secrets, Site, SiteAnnounce, SiteOutcome, SiteProtocol, Tracker,
};
use types::{Announce, Event, InfoHash, PeerId, Tick};

const USERS: u32 = 1_000_000;
const TORRENTS: u32 = 500_000;
/// 20,000 announces a second.
const PER_TICK: u32 = 200;
const TICK: Duration = Duration::from_millis(10);
/// Rounds end at other moments between two batches.
const TICKS: u32 = 430;
const ROUNDS: u32 = 5;

fn main() {
    let server = MariaDb::start_with(&[
        "--innodb-buffer-pool-size=2G",
        "--innodb-log-file-size=512M",
        "--innodb-flush-log-at-trx-commit=1",
    ]);
    let server = server.expect("MariaDB is installed");
    fill(&server);
    let folder = Directory::new().expect("a folder for the spool");
    let before_kib = resident_kib();
    let tracker = Arc::new(tracker());
    let subsystem = SiteSubsystem::with_listener(config(&server), &folder.path("site"), None);
    let subsystem = subsystem.expect("the configuration is valid");
    let started = Instant::now();
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs();
    subsystem.start(tracker, epoch as u32).expect("threads can be started");
    while !subsystem.status().counting {
        sleep(Duration::from_millis(10));
    }
    let status = subsystem.status();
    println!(
        "load: {} users and {} torrents in {:.1} s, {} MiB",
        status.users,
        status.torrents,
        started.elapsed().as_secs_f64(),
        (resident_kib() - before_kib) / 1_024
    );
    announce(&subsystem);
    subsystem.stop();
}

/// Announces for some seconds at a time, and prints how far the database is behind.
fn announce(subsystem: &SiteSubsystem) {
    let site = subsystem.site();
    let (mut batches, mut busy, mut written_s) = (0, Duration::ZERO, Vec::new());
    for round in 0..ROUNDS {
        let began = Instant::now();
        for tick in 0..TICKS {
            let first = (round * TICKS + tick) * PER_TICK;
            let at = Instant::now();
            (first..first + PER_TICK).for_each(|number| announce_one(&*site, number));
            busy += at.elapsed();
            sleep((TICK * (tick + 1)).saturating_sub(began.elapsed()));
            batches = batches.max(subsystem.status().spool_batches);
        }
        let ended = Instant::now();
        while subsystem.status().pending > 0 || subsystem.status().spool_batches > 0 {
            sleep(Duration::from_millis(10));
        }
        written_s.push(format!("{:.1}", ended.elapsed().as_secs_f64()));
    }
    let status = subsystem.status();
    println!(
        "flush: {} announces/s, {} ns each; at most {batches} batches waited; rounds of {:?} were written {} s after their \
         last announces; {} rows in all; spool {} KiB after confirmation",
        PER_TICK * 1_000 / TICK.as_millis() as u32,
        busy.as_nanos() / u128::from(ROUNDS * TICKS * PER_TICK),
        TICK * TICKS,
        written_s.join(", "),
        status.rows,
        status.spool_bytes / 1_024
    );
    println!("CPU seconds by thread: {}", cpu_by_thread());
}

/// Announces a client of its own user and torrent.
fn announce_one(site: &dyn Site, number: u32) {
    let mut peer_id = *b"-qB4650-000000000000";
    peer_id[12..16].copy_from_slice(&number.to_le_bytes());
    let announce = Announce {
        event: Event::Started,
        left: Some(u64::from(number % 2) * 1_000),
        uploaded: 1 << 30,
        downloaded: 1 << 20,
        ..Announce::new(hash(number % TORRENTS + 1), PeerId(peer_id), 6881)
    };
    let announce = SiteAnnounce {
        key: KeyId(KeyId::SITE_FIRST + number * 7 % USERS + 1),
        announce: &announce,
        from: number.to_be_bytes().into(),
        client_ip: number.to_be_bytes().into(),
        agent: b"qBittorrent/4.6.5",
        protocol: SiteProtocol::Http,
    };
    assert_eq!(site.announce(Tick(number / 20_000), &announce).outcome, SiteOutcome::Serve);
}

/// Returns the names of this process' threads with the seconds that each has run.
fn cpu_by_thread() -> String {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        // In hundredths of a second; the name before them can have spaces.
        let stat = read("stat");
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        let hundredths: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
        found.push(format!("{} {:.2}", read("comm").trim(), f64::from(hundredths) / 100.0));
    }
    found.join(", ")
}

fn fill(server: &MariaDb) {
    let url = format!("mysql://root@{}/?prefer_socket=false", server.address());
    let mut conn = Conn::new(url.as_str()).expect("the server accepts connections");
    let tables = include_str!("../tests/site/unit3d.sql");
    let users = format!(
        "INSERT INTO users (id, username, passkey, group_id) SELECT seq, seq, LPAD(seq, 32, 'k'), 1 \
         FROM seq_1_to_{USERS}"
    );
    let torrents = format!(
        "INSERT INTO torrents (id, name, info_hash, status) SELECT seq, seq, UNHEX(LPAD(HEX(seq), 40, 0)), 1 \
         FROM seq_1_to_{TORRENTS}"
    );
    let statements = ["CREATE DATABASE site", "USE site"].into_iter().chain(tables.split(";\n"));
    let group = "INSERT INTO `groups` (id, slug) VALUES (1, 'user')";
    let rest = [group, &users, &torrents];
    for statement in statements.chain(rest).filter(|statement| !statement.trim().is_empty()) {
        conn.query_drop(statement).expect("the tables can be filled");
    }
}

/// Returns the torrent with a number.
fn hash(number: u32) -> InfoHash {
    let mut hash = [0; 20];
    hash[16..].copy_from_slice(&number.to_be_bytes());
    InfoHash(hash)
}

fn config(server: &MariaDb) -> SiteConfig {
    SiteConfig {
        kind: SiteKind::Unit3d,
        database: Some(format!("mysql://root@{}/site", server.address())),
        tracker_key: Some("k".repeat(32)),
        ..SiteConfig::default()
    }
}

/// Returns the resident memory of this process.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn tracker() -> Tracker {
    Tracker::new(&Options::predictable(Policy::default()), &Secrets::PUBLIC)
}
