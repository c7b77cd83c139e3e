//! tidegate-import as its users meet it: what it writes is a valid configuration, and what it takes from other trackers
//! is served afterwards. Databases have the schemas that their programs document; those in the folder `written` were
//! written by the programs themselves.
#![expect(clippy::unwrap_used, reason = "a failure anywhere in here is a test's failure")]

mod configurations;
mod manual;
mod removed;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use harness::{Directory, Tracker};
use rusqlite::Connection;

const KEY: &str = "0123456789abcdef0123456789ABCDEF";
/// The folder of those databases.
const WRITTEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/written");
const EXPIRED: &str = "expired-0123456789abcdef01234567";
/// That of a user who may only seed.
const SEEDS_ONLY: &str = "seeds-0123456789abcdef0123456789";
const UNKNOWN: &str = "unknown key in the announce URL";

/// Returns the tracker's program, which another package builds.
fn tidegate() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_tidegate-import")).with_file_name("tidegate");
    assert!(program.is_file(), "no {}: cargo build --package tidegate", program.display());
    program
}

/// Runs a program to its end, which must come soon.
fn run_program(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs tidegate-import to its end.
fn run(arguments: &[&str]) -> Output {
    run_program(Path::new(env!("CARGO_BIN_EXE_tidegate-import")), arguments)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Serves on loopback addresses, with `more` behind the listeners in the configuration.
fn start(directory: &Directory, more: &str) -> Tracker {
    let listen = "listen = [\"127.0.0.1:0\"]\n";
    let config = format!("[udp]\n{listen}[http]\n{listen}[admin]\n{listen}{more}");
    Tracker::start(Command::new(tidegate()), directory.root(), &config).unwrap()
}

fn http(tracker: &Tracker) -> SocketAddr {
    tracker.address("http", Ipv4Addr::LOCALHOST.into()).unwrap()
}

/// Runs the command with files of `directory`, with its folder `state` for records.
fn import(directory: &Directory, tracker: &str, files: &[&str], more: &[&str]) -> (bool, String) {
    let paths: Vec<String> =
        files.iter().map(|file| directory.path(file).display().to_string()).collect();
    let state = directory.path("state").display().to_string();
    let mut arguments = vec![tracker, "--state", &state];
    arguments.extend(paths.iter().map(String::as_str));
    arguments.extend(more);
    let output = run(&arguments);
    (output.status.success(), stderr(&output))
}

/// Serves the records that were imported, and announces torrents with and without keys.
fn check_served(directory: &Directory, downloads: u32) {
    check_served_with(directory, &[KEY], EXPIRED, downloads);
}

/// The same with these valid keys and this expired one.
fn check_served_with(directory: &Directory, keys: &[&str], expired: &str, downloads: u32) {
    let state = directory.path("state").display().to_string();
    let more = format!("[access]\nprivate = true\nmode = \"allow\"\n[state]\ndir = \"{state}\"\n");
    let tracker = start(directory, &more);
    let get = |target: &str| harness::http::get(http(&tracker), target).unwrap();
    let announce = |key: &str, torrent: &str| {
        let hash = format!("%{torrent}").repeat(20);
        get(&format!(
            "/announce/{key}?info_hash={hash}&peer_id=-XX0001-000000000000&port=1001&left=1&compact=1"
        ))
    };
    for key in keys {
        let response = announce(key, "aa");
        assert!(response.has("10:incompletei"), "{key}: {}", response.text());
    }
    for (key, torrent, reason) in [
        (KEY, "bb", "14:failure reason"),
        (&KEY.to_uppercase(), "aa", UNKNOWN),
        (expired, "aa", "expired"),
    ] {
        let response = announce(key, torrent);
        assert!(response.has(reason), "{reason}: {}", response.text());
    }
    let scrape = format!("/scrape/{KEY}?info_hash={}", "%aa".repeat(20));
    let response = get(&scrape);
    assert!(response.has(format!("10:downloadedi{downloads}e")), "{}", response.text());
}

/// Root works in the folder of another user with that user's rights: links there lead nowhere new.
#[cfg(target_os = "linux")]
#[test]
fn root_follows_no_links_of_the_owner_of_the_state_directory() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    /// A user of every system.
    const USER: u32 = 65534;
    // Where that user may go, too.
    let directory = Directory::new().unwrap();
    fs::set_permissions(directory.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let [state, victim] = ["state", "victim"].map(|name| directory.path(name));
    let list = directory.write("list.txt", format!("{}\n", "aa".repeat(20))).unwrap();
    fs::create_dir(&state).unwrap();
    fs::create_dir(&victim).unwrap();
    // Only root may give something away.
    let gave = chown(&state, Some(USER), Some(USER)).is_ok();
    let [list, folder] = [&list, &state].map(|path| path.to_str().unwrap());
    let import_list = || {
        let output = run(&["opentracker", list, "--list", "allow", "--state", folder]);
        (output.status.success(), stderr(&output))
    };
    let database = state.join("tidegate.db");
    let target = victim.join("file");
    symlink(&target, &database).unwrap();
    let (is_done, text) = import_list();
    assert!(
        !is_done && text.contains("tidegate.db cannot be opened: it is a symbolic link"),
        "{text}"
    );
    assert!(!target.exists());
    // Nor to a file that is there, whether it is the database or beside it.
    fs::write(&target, "").unwrap();
    assert!(!import_list().0);
    fs::remove_file(&database).unwrap();
    for beside in ["tidegate.db-wal", "tidegate.db-shm", "tidegate.db-journal"] {
        let link = state.join(beside);
        symlink(&target, &link).unwrap();
        import_list();
        let _ = fs::remove_file(link);
        let data = target.metadata().unwrap();
        assert_eq!((data.len(), data.uid()), (0, fs::metadata(&victim).unwrap().uid()), "{beside}");
    }
    // Nor to one by a second name, which only the owner of the file could open.
    let _ = fs::remove_file(&database);
    if gave {
        fs::hard_link(&target, &database).unwrap();
        let (is_done, text) = import_list();
        assert!(!is_done && text.contains("Permission denied"), "{text}");
        assert_eq!(target.metadata().unwrap().uid(), 0);
        fs::remove_file(&database).unwrap();
    }
    let (is_done, text) = import_list();
    assert!(is_done && text.contains("1 new entries of lists"), "{text}");
    let owner = fs::metadata(&state).unwrap().uid();
    for entry in fs::read_dir(&state).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().uid(), owner);
    }
    assert_eq!(fs::metadata(&database).unwrap().mode() & 0o777, 0o600);
}

/// Databases that torrust-tracker has written to SQLite and MySQL, and its configuration.
#[test]
fn serves_what_torrust_itself_has_written() {
    for database in ["torrust.db", "torrust.sql"] {
        let directory = Directory::new().unwrap();
        for file in ["torrust.toml", database] {
            fs::copy(Path::new(WRITTEN).join(file), directory.path(file)).unwrap();
        }
        let (is_done, text) = import(&directory, "torrust", &["torrust.toml", database], &[]);
        let new = "recorded in {}: 4 new keys, 1 new entries of lists, 1 higher download counts";
        let new = new.replace("{}", &directory.path("state").display().to_string());
        assert!(is_done && text.contains(&new) && !text.contains("skipped"), "{database}: {text}");
        let keys = [KEY, "Expires01234567890abcdefABCDEF01"];
        check_served_with(&directory, &keys, "Expired01234567890abcdefABCDEF01", 3);
    }
}

#[test]
fn names_rows_that_are_skipped() {
    let directory = Directory::new().unwrap();
    let database = directory.path("sqlite3.db");
    fs::copy(Path::new(WRITTEN).join("torrust.db"), &database).unwrap();
    let database = Connection::open(database).unwrap();
    database.execute("INSERT INTO keys (key) VALUES ('short')", []).unwrap();
    database.close().unwrap();
    let (_, text) = import(&directory, "torrust", &["sqlite3.db"], &[]);
    let reason = "skipped: 1 (keys: key: expected a key of 16 to 64 characters";
    assert!(text.contains(reason) && text.contains("sqlite3.db, table keys:5"), "{text}");
}

#[test]
fn serves_users_and_torrents_of_unit3d() {
    let directory = Directory::new().unwrap();
    let dump = format!(
        "-- MySQL dump 10.13\nCREATE TABLE `groups` (\n  `id` int NOT NULL,\n  `slug` varchar(255),\n  PRIMARY KEY (`id`)\n);\n\
         INSERT INTO `groups` VALUES (1,'user'),(2,'banned');\n\
         CREATE TABLE `torrents` (\n  `id` int,\n  `info_hash` binary(20),\n  `times_completed` int,\n  `status` smallint,\n  `deleted_at` timestamp NULL\n);\n\
         INSERT INTO `torrents` VALUES (1,0x{},5,1,NULL),(2,0x{},9,0,NULL);\n\
         CREATE TABLE `users` (\n  `id` int,\n  `username` varchar(255),\n  `passkey` varchar(255),\n  `group_id` int,\n  `uploaded` bigint,\n  `downloaded` bigint,\n  `can_download` tinyint(1),\n  `deleted_at` timestamp NULL\n);\n\
         INSERT INTO `users` VALUES (1,'O\\'Brien','{KEY}',1,1000,500,1,NULL),(2,'b','{EXPIRED}',2,0,0,1,NULL),(3,'c','{}',1,0,0,1,'2026-01-01 00:00:00');\n\
         -- Dump completed on 2026-11-22\n",
        "aa".repeat(20),
        "bb".repeat(20),
        "d".repeat(32)
    );
    directory.write("unit3d.sql", &dump).unwrap();
    let (is_done, text) = import(&directory, "unit3d", &["unit3d.sql"], &["--dry-run"]);
    assert!(is_done && text.contains("nothing was written"), "{text}");
    assert!(!directory.path("state").exists());
    // The second time changes nothing.
    for new in [
        "2 new keys, 1 new entries of lists, 1 higher",
        "0 new keys, 0 new entries of lists, 0 higher",
    ] {
        let (is_done, text) = import(&directory, "unit3d", &["unit3d.sql"], &[]);
        assert!(is_done && text.contains(new), "{text}");
        assert!(!text.contains(KEY), "{text}");
    }
    check_served(&directory, 5);
}

#[test]
fn serves_users_and_torrents_of_ocelot() {
    let directory = Directory::new().unwrap();
    let dump = format!(
        "INSERT INTO torrents (ID, info_hash, Snatched) VALUES (1, 0x{}, 7);\n\
         INSERT INTO users_main (ID, Username, torrent_pass, Enabled, can_leech, Uploaded, Downloaded) VALUES\n\
         (1, 'a', '{KEY}', '1', 1, 18446744073709551615, 3), (2, 'b', '{EXPIRED}', '2', 1, 0, 0),\n\
         (3, 'c', '{SEEDS_ONLY}', '1', 0, 0, 0);\n\
         INSERT INTO xbt_client_whitelist (id, peer_id) VALUES (1, '-TR');\n",
        "aa".repeat(20)
    );
    directory.write("gazelle.sql", &dump).unwrap();
    let (is_done, text) = import(&directory, "ocelot", &["gazelle.sql"], &[]);
    assert!(is_done && text.contains("3 new keys, 1 new entries of lists, 1 higher"), "{text}");
    check_served(&directory, 7);
    let state = directory.path("state").display().to_string();
    let tracker =
        start(&directory, &format!("[access]\nprivate = true\n[state]\ndir = \"{state}\"\n"));
    let announce = |left: u8| {
        let hash = "%aa".repeat(20);
        let peer = format!("peer_id=-XX0001-000000000000&port=1001&left={left}&compact=1");
        let target = format!("/announce/{SEEDS_ONLY}?info_hash={hash}&{peer}");
        harness::http::get(http(&tracker), &target).unwrap()
    };
    assert!(announce(1).has("your key may only seed"), "{}", announce(1).text());
    assert!(announce(0).has("8:completei1e"), "{}", announce(0).text());
}

#[test]
fn a_damaged_dump_changes_nothing() {
    let directory = Directory::new().unwrap();
    let row = format!("INSERT INTO users (passkey, username) VALUES ('{KEY}', 'a')");
    directory.write("cut.sql", format!("{row},\n('{EXPIRED}', 'b")).unwrap();
    let (is_done, text) = import(&directory, "unit3d", &["cut.sql"], &[]);
    assert!(!is_done && text.contains("cut.sql:2: expected the rest of a statement"), "{text}");
    directory.write("whole.sql", format!("{row};")).unwrap();
    let (is_done, text) = import(&directory, "unit3d", &["whole.sql"], &[]);
    assert!(is_done && text.contains("1 new keys"), "{text}");
}

#[test]
fn refuses_records_that_a_tracker_uses() {
    let directory = Directory::new().unwrap();
    let state = directory.path("state").display().to_string();
    let list = directory.write("list.txt", "ab".repeat(20)).unwrap().display().to_string();
    let tracker = start(&directory, &format!("[state]\ndir = \"{state}\"\n"));
    let output = run(&["aquatic", &list, "--list", "deny", "--state", &state]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("is locked by another process"), "{text}");
    assert!(http(&tracker).port() > 0);
}

/// The file that is written is a valid configuration, and is not overwritten by mistake.
#[test]
fn writes_a_configuration_that_is_valid() {
    let directory = Directory::new().unwrap();
    let list = directory.write("white.txt", format!("{}\n", "aa".repeat(20))).unwrap();
    let conf = format!("listen.tcp_udp 127.0.0.1:0\naccess.whitelist {}\n", list.display());
    let conf = directory.write("opentracker.conf", &conf).unwrap().display().to_string();
    let dump = directory.write("counts.txt", format!("{}:29388:17\n", "aa".repeat(20))).unwrap();
    let (out, state) = (directory.path("tidegate.toml"), directory.path("state"));
    let [out, state, dump] = [&out, &state, &dump].map(|path: &PathBuf| path.display().to_string());
    let arguments = ["opentracker", &conf, &dump, "--out", &out, "--state", &state];
    let output = run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(Path::new(&out)).unwrap();
    assert!(
        text.contains("# From access.whitelist (") && text.contains("mode = \"allow\""),
        "{text}"
    );
    let check = run_program(&tidegate(), &["config", "check", "--config", &out]);
    assert!(stdout(&check).contains("The configuration is valid"), "{}", stderr(&check));
    let again = run(&arguments);
    assert!(stderr(&again).contains("exists already; --force overwrites it"), "{}", stderr(&again));
}
