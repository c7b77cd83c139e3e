//! Rights that a tracker needs for its XDP program, none of which it keeps.

use std::os::unix::fs::chown;
use std::process::Command;

use crate::clients::{Udp, u32_at};
use crate::process::{Directory, Tracker, stderr, tidegate};
use crate::site::{Site, in_network};

/// The capabilities that docs/xdp.md names.
const NEEDED: [&str; 4] = ["bpf", "net_admin", "net_raw", "perfmon"];
/// A user and a group without rights.
const USER: u32 = 65534;
/// Bytes that a user may lock in memory by default.
const LOCKED_MEMORY: u32 = 8 << 20;

/// Has `command` run as a user with these capabilities and no others, as service managers do. It may
/// lock 8 MiB of memory, together with all other processes of the user.
fn unprivileged(command: &Command, capabilities: &[&str]) -> Command {
    let sets: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let mut other = Command::new("prlimit");
    other.arg(format!("--memlock={LOCKED_MEMORY}")).arg("setpriv");
    other.args([format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".into()]);
    for set in ["inh-caps", "ambient-caps", "bounding-set"] {
        other.arg(format!("--{set}=-all{sets}"));
    }
    other.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// Starts a tracker with an engine as a user with these capabilities.
fn start(engine: &str, capabilities: &[&str], more: &str) -> Tracker {
    let directory = Directory::new();
    chown(directory.path(""), Some(USER), Some(USER)).unwrap();
    let mut command = unprivileged(&tidegate(&[]), capabilities);
    command.env("TIDEGATE_UDP__ENGINE", engine);
    Tracker::start_by(command, directory, more)
}

/// Calls `test` in a network, unless the binary is where other users cannot run it.
fn network(test: impl FnOnce(&Site)) {
    in_network(|site| {
        let version = unprivileged(&tidegate(&["--version"]), &[]).output().unwrap();
        if version.status.success() {
            test(site);
        } else {
            eprintln!("skipped: only root can run the binary");
        }
    });
}

fn check(tracker: &Tracker) {
    for to in [tracker.udp4(), tracker.udp6()] {
        assert_eq!(u32_at(&Udp::connect(to).announce(0xaa, 1001), 0), 1);
    }
    // Of all that it had, nothing is left.
    for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(tracker.status(set), "0000000000000000", "{set}");
    }
    let permitted = tracker.status_of_threads("CapPrm");
    assert!(permitted.iter().eq(["0000000000000000"]), "{permitted:?}");
    assert!(tracker.status("Uid").starts_with("65534\t"));
    assert_eq!(tracker.status("Seccomp"), "2");
}

#[test]
fn needs_no_more_than_some_capabilities() {
    // The memory of AF_XDP sockets is above the limit.
    let all = [&NEEDED[..], &["ipc_lock"]].concat();
    network(|_| {
        for (engine, capabilities) in
            [("shield", &["bpf", "net_admin", "perfmon"][..]), ("xdp", &all)]
        {
            let tracker = start(engine, capabilities, "[xdp]\nrequired = true\n");
            tracker.wait_for_log("XDP serves ");
            check(&tracker);
            let connects = [("result", "connect")];
            tracker
                .wait_until("counted", |it| it.sum("tidegate_xdp_frames_total", &connects) == 2.0);
        }
    });
}

#[test]
fn serves_by_sockets_without_one_of_them() {
    network(|site| {
        for missing in NEEDED {
            let others: Vec<&str> = NEEDED.into_iter().filter(|it| *it != missing).collect();
            let tracker = start("xdp", &others, "");
            let why = format!("serving with mmsg: CAP_{} is missing", missing.to_uppercase());
            assert!(tracker.log().contains(&why), "expected `{why}`, found {}", tracker.log());
            check(&tracker);
            // The check of a configuration runs with the same rights.
            let file = tracker.directory.path("tidegate.toml");
            let arguments = ["config", "check", "--config", file.to_str().unwrap()];
            let mut command = unprivileged(&tidegate(&arguments), &others);
            command.env("TIDEGATE_UDP__ENGINE", "xdp");
            let output = site.network.tracker.run(move || command.output().unwrap());
            let why = format!("CAP_{} is missing", missing.to_uppercase());
            assert!(stderr(&output).contains(&why), "expected `{why}`, found {}", stderr(&output));
        }
    });
}

#[test]
fn says_how_much_memory_it_may_not_lock() {
    network(|_| {
        let tracker = start("xdp", &NEEDED, "[xdp]\nframes = 4096\n");
        for part in ["serving with mmsg: ", "16 MiB of locked memory", "CAP_IPC_LOCK"] {
            assert!(tracker.log().contains(part), "expected `{part}`, found {}", tracker.log());
        }
        check(&tracker);
        let all = [&NEEDED[..], &["ipc_lock"]].concat();
        let tracker = start("xdp", &all, "[xdp]\nframes = 4096\nrequired = true\n");
        check(&tracker);
    });
}
