//! `tidegate config`, and messages about bad configurations.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

use serde_json::json;

use crate::api::{Caller, TOKEN};
use crate::clients::http_announce;
use crate::process::{
    Directory, Tracker, config, run, stderr, stdout, tidegate, tidegate_of_users,
};

#[test]
fn starts_with_keys_that_are_no_longer_settings() {
    let directory = Directory::new();
    let more = "[tracker]\npeer_lifetime_s = 7200\n[trace]\nsample_per_million = 5\n";
    let file = directory.write("old.toml", &config(0, 0, more));
    let mut check = tidegate_of_users(&["config", "check", "--config", file.to_str().unwrap()]);
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let warnings = [
        "tracker.peer_lifetime_s is no longer a setting: remove it; one and a half times tracker.interval_s is used",
        "trace.sample_per_million is no longer a setting: remove it; 100000 is used",
    ];
    let found = stderr(&output);
    assert!(found.starts_with(&format!("tidegate: warning: {}:", file.display())), "{found}");
    for warning in warnings {
        assert!(found.contains(warning), "{found}");
    }
    let remedy = format!(
        "Some keys are no longer settings: `tidegate-import config {}` removes them\n",
        file.display()
    );
    assert!(stdout(&output).ends_with(&remedy), "{}", stdout(&output));
    let mut serve = tidegate_of_users(&["serve"]);
    serve.env("TIDEGATE_UNSTABLE_KEYS", "0").env("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN);
    let tracker = Tracker::start_by(serve, directory, more);
    for warning in warnings {
        assert!(tracker.log().contains(warning), "{}", tracker.log());
    }
    // The API refuses such a key, too, and announces have the intervals that everyone gets.
    let api = Caller::of(&tracker);
    let refusal = api.expect(409, "PATCH /config", Some(&json!({ "tracker.numwant_default": 7 })));
    assert!(refusal.to_string().contains("tracker.numwant_default is no longer a setting"));
    let interval = |torrent| -> u32 {
        let body = http_announce(tracker.http4(), torrent, 1);
        let body = String::from_utf8_lossy(&body);
        let (_, rest) = body.split_once("8:intervali").unwrap();
        rest.split_once('e').unwrap().0.parse().unwrap()
    };
    let intervals: BTreeSet<u32> = (1..40).map(interval).collect();
    assert!(intervals.iter().all(|it| (1800..=1890).contains(it)), "{intervals:?}");
    assert!(intervals.len() > 5, "{intervals:?}");
}

#[test]
fn init_replaces_a_file_only_with_force() {
    let directory = Directory::new();
    let file = directory.write("mine.toml", "# mine\n");
    let path = file.to_str().unwrap();
    let refused = run(&["config", "init", path]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--force overwrites it"), "{}", stderr(&refused));
    assert_eq!(fs::read_to_string(&file).unwrap(), "# mine\n");
    assert!(run(&["config", "init", path, "--force"]).status.success());
    assert!(fs::read_to_string(&file).unwrap().contains("[tracker]"));
}

#[test]
fn names_the_port_that_is_taken() {
    let directory = Directory::new();
    let check = |port: u16, admin: u16, transport: &str, taken: u16| {
        let file = directory.write("taken.toml", &config(port, admin, ""));
        for text in refusals(&file) {
            assert!(text.contains(transport), "{text}");
            assert!(text.contains(&format!("127.0.0.1:{taken}")), "{text}");
            assert!(text.contains("in use") || text.contains("taken"), "{text}");
        }
    };
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = udp.local_addr().unwrap().port();
    check(taken, 0, "UDP", taken);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = tcp.local_addr().unwrap().port();
    check(0, taken, "TCP", taken);
}

#[test]
fn does_not_call_the_ports_of_a_running_tracker_taken() {
    let tracker = Tracker::start(Directory::new(), "");
    // UDP and HTTP have different ports, so the configuration of another start names only two of them.
    for (port, transport) in [(tracker.udp4().port(), "UDP"), (tracker.http4().port(), "TCP")] {
        let admin = tracker.admin_address().port();
        let listen = format!("listen = [\"127.0.0.1:{port}\"]\n");
        let [udp, http] = if transport == "UDP" {
            [&*listen, "listen = []\n"]
        } else {
            ["listen = []\n", &*listen]
        };
        let text = format!("[udp]\n{udp}[http]\n{http}[admin]\nlisten = [\"127.0.0.1:{admin}\"]\n");
        let file = tracker.directory.write("same.toml", &text);
        let check =
            |command: &[&str]| tidegate(command).arg("--config").arg(&file).output().unwrap();
        let output = check(&["config", "check"]);
        let note = |transport: &str, port: u16| {
            format!(
                "tidegate: note: {transport} port 127.0.0.1:{port} is in use by the running tidegate, \
                 pid {}\n",
                tracker.pid()
            )
        };
        assert_eq!(stderr(&output), note(transport, port) + &note("TCP", admin));
        let read = format!("Read {}\nThe configuration is valid\n", file.display());
        assert_eq!(stdout(&output), read);
        assert!(output.status.success());
        let start = check(&["serve"]);
        let message = format!(
            "tidegate: cannot listen on 127.0.0.1:{port}: {transport} port {port} is in use by the \
             running tidegate, pid {}: stop it, or use another port\n",
            tracker.pid()
        );
        assert!(
            stderr(&start).ends_with(&message) && !start.status.success(),
            "{}",
            stderr(&start)
        );
    }
}

#[test]
fn checks_the_directory_of_the_journal() {
    let directory = Directory::new();
    let check = |dir: &Path, more: &str| {
        let more = format!("[state]\ndir = {dir:?}\n{more}");
        let file = directory.write("state.toml", &config(0, 0, &more));
        run(&["config", "check", "--config", file.to_str().unwrap()])
    };
    let good = check(&directory.path("new"), "");
    assert!(good.status.success(), "{}", stderr(&good));
    assert!(!directory.path("new").exists(), "looking leaves nothing behind");
    let memory = Path::new("/dev/shm");
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.contains(" /dev/shm tmpfs ")) {
        let doubtful = check(&memory.join("tidegate-is-not-there"), "");
        assert!(doubtful.status.success(), "{}", stderr(&doubtful));
        let warning = "tidegate: warning: state.dir: the journal of swarms in /dev/shm/";
        assert!(stderr(&doubtful).contains(warning), "{}", stderr(&doubtful));
        let off = check(&memory.join("tidegate-is-not-there"), "swarms = false\n");
        assert!(!stderr(&off).contains("tmpfs"), "{}", stderr(&off));
    }
}

#[test]
fn does_not_start_without_its_lists() {
    let directory = Directory::new();
    let absent = directory.path("allow.txt");
    let more = format!("[access]\nmode = \"allow\"\nallow = \"{}\"\n", absent.display());
    let file = directory.write("tidegate.toml", &config(0, 0, &more));
    for text in refusals(&file) {
        assert!(text.contains(&format!("cannot read {}", absent.display())), "{text}");
    }
}

#[test]
fn checks_the_files_of_acme() {
    let directory = Directory::new();
    let check = |cache: &str, more: &str| {
        let acme = format!(
            "[state]\ndir = {:?}\n[tls]\nlisten = [\"127.0.0.1:0\"]\n[tls.acme]\ndomains = [\"t.example\"]\n{more}",
            directory.path(cache)
        );
        let file = directory.write("acme.toml", &config(0, 0, &acme));
        run(&["config", "check", "--config", file.to_str().unwrap()])
    };
    let good = check("new/cache", "");
    assert!(good.status.success(), "{}", stderr(&good));
    assert!(!directory.path("new").exists(), "looking leaves nothing behind");
    directory.write("file", "no folder, and no certificate");
    let missing = directory.path("missing.pem");
    let bad = stderr(&check("file", &format!("ca = {missing:?}\n")));
    for message in [
        format!("state.dir: {}: not a directory", directory.path("file").display()),
        format!("tls.acme.ca: {}: cannot read the file", missing.display()),
    ] {
        assert!(bad.contains(&message), "{message}\n{bad}");
    }
    let empty = directory.path("file");
    let bad = stderr(&check("cache", &format!("ca = {empty:?}\n")));
    assert!(bad.contains("found none"), "{bad}");
}

#[test]
fn says_which_file_was_checked() {
    let tracker = Tracker::start(Directory::new(), "");
    let running = tracker.directory.path("tidegate.toml");
    let output = tidegate(&["config", "check"]).output().unwrap();
    let text = stdout(&output) + &stderr(&output);
    // Trackers of other tests may run beside it.
    let only = format!(
        "Read {}, the file of the running tidegate, pid {}\n",
        running.display(),
        tracker.pid()
    );
    let others = "several trackers run here, with the configuration files ";
    let is_among = text.contains(others) && text.contains(&running.display().to_string());
    assert!(text.contains(&only) || is_among, "{text}");
    let directory = Directory::new();
    let file = directory.write("tidegate.toml", "nonsense = 1\n");
    let output = tidegate(&["config", "check", "--config"]).arg(&file).output().unwrap();
    let text = stderr(&output);
    assert!(text.contains(&format!("note: Read {}\n", file.display())), "{text}");
    assert!(text.contains("nonsense") && !output.status.success(), "{text}");
}

#[test]
fn wrong_arguments_point_to_the_right_ones() {
    let addresses = "tip: addresses and ports are settings: listen in [udp] and [http]";
    let state = "tip: 'tidegate serve --state DIR' names the directory of the state";
    let file = "tip: '--config FILE' names the configuration file";
    for (arguments, tip) in [
        (["--port", "80"].as_slice(), addresses),
        (&["serve", "--listen=0.0.0.0:80"], addresses),
        (&["serve", "--state-dir", "/x"], state),
        (&["--memory"], state),
        (&["serve", "my.toml"], file),
        (&["my.toml"], file),
        (&["config", "check", "my.toml"], file),
        (&["-c", "my.toml"], file),
    ] {
        let output = run(arguments);
        let text = stderr(&output);
        assert!(output.status.code() == Some(2) && text.contains(tip), "{arguments:?}: {text}");
        assert_eq!(text.matches("tip:").count(), 1, "{text}");
    }
    // Other commands are clients.
    for arguments in [["scrape", "--port"], ["admin", "my.toml"]] {
        let text = stderr(&run(&arguments));
        assert!(text.contains("error: ") && !text.contains(addresses), "{text}");
        assert!(!text.contains(file), "{text}");
    }
}

/// Runs `config check` and `serve`, which fail. Returns what each of them says.
pub(crate) fn refusals(file: &Path) -> [String; 2] {
    [["config", "check"].as_slice(), &["serve"]].map(|command| {
        let output = tidegate(command).arg("--config").arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {}", stderr(&output));
        stderr(&output)
    })
}

#[test]
fn does_not_start_from_a_folder_that_it_can_write() {
    let directory = Directory::new();
    let state = directory.path("state");
    let more = format!("[state]\ndir = {state:?}\n");
    fs::create_dir(&state).unwrap();
    let inside = directory.write("state/tidegate.toml", &config(0, 0, &more));
    let link = directory.path("link.toml");
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    for file in [inside, link] {
        for text in refusals(&file) {
            assert!(text.contains("the configuration file must not be in "), "{text}");
            assert!(text.contains("(state.dir): move it, or name another directory"), "{text}");
        }
    }
    // Nor the program.
    let outside = directory.write("tidegate.toml", &config(0, 0, &more));
    let program = state.join("tidegate");
    crate::process::link_binary(&program);
    for command in [["config", "check"].as_slice(), &["serve"]] {
        let mut own = std::process::Command::new(&program);
        let output = own.args(command).arg("--config").arg(&outside).env_clear().output().unwrap();
        let text = stderr(&output);
        assert!(
            !output.status.success() && text.contains(": the program must not be in "),
            "{text}"
        );
    }
}

#[test]
fn does_not_start_with_a_state_directory_of_others() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let directory = Directory::new();
    let state = directory.path("state");
    fs::create_dir(&state).unwrap();
    let more = format!("[state]\ndir = {state:?}\n");
    let file = directory.write("tidegate.toml", &config(0, 0, &more));
    fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    for text in refusals(&file) {
        assert!(
            text.contains("state.dir: ") && text.contains("(mode 777): chmod 700 it"),
            "{text}"
        );
    }
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    // Only root may give it to another user.
    if chown(&state, Some(1234), None).is_ok() {
        let serve = tidegate(&["serve"]).arg("--config").arg(&file).output().unwrap();
        let text = stderr(&serve);
        assert!(text.contains("belongs to user 1234, not to the tracker's, 0, "), "{text}");
        // A service manager may start the tracker as that user.
        let check = tidegate(&["config", "check"]).arg("--config").arg(&file).output().unwrap();
        assert!(check.status.success(), "{}", stderr(&check));
    }
}

#[test]
fn names_the_chown_for_a_state_directory_that_root_has_made() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    // Where other users may go, too. Only root can become one of them.
    let directory = harness::Directory::new().unwrap();
    if fs::metadata(directory.root()).unwrap().uid() != 0 {
        return;
    }
    fs::set_permissions(directory.root(), PermissionsExt::from_mode(0o755)).unwrap();
    let state = directory.path("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    let records = directory.write("state/tidegate.db", "").unwrap();
    let more = format!("[state]\ndir = {state:?}\n[process]\nuser = \"nobody\"\n");
    let file = directory.write("tidegate.toml", config(0, 0, &more)).unwrap();
    let expect_chown = |path: &Path| {
        let problem = format!("state.dir: {}: process.user has no permission to", path.display());
        for text in refusals(&file) {
            assert!(text.contains(&problem) && text.contains(": chown -R "), "{text}");
            assert!(text.contains(&format!(" {}\n", state.display())), "{text}");
        }
    };
    expect_chown(&state);
    // The directory alone is not enough.
    chown(&state, Some(65534), None).unwrap();
    expect_chown(&records);
}
