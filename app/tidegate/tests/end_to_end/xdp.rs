//! The XDP program as its operator sees it: counts, fallback, rights, and what changes while it runs.

use std::fs::{Permissions, set_permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use harness::network::{self, NetworkOptions, XdpMode};
use serde_json::json;

use crate::api::{Caller, TOKEN};
use crate::clients::Udp;
use crate::process::{Directory, Tracker, stderr, stdout, tidegate};
use crate::site::{self, Engine, Site, in_network};
use crate::udp::{LEECHER, announce, connect, head};

const PORT: u16 = 6969;
/// All that the engine xdp needs.
const RIGHTS: [&str; 5] = ["bpf", "perfmon", "net_admin", "net_raw", "ipc_lock"];
/// A user with no rights of its own.
const USER: &str = "65534";

fn on_shield(test: impl FnOnce(&Site)) {
    in_network(NetworkOptions::default(), |site| {
        site.engine.set(Engine::Shield);
        test(site);
    });
}

/// Returns the number of datagrams that the program handled with this result.
fn frames(tracker: &Tracker, result: &str) -> f64 {
    tracker.sum("tidegate_xdp_frames_total", &[("result", result)])
}

/// A counter of the UDP listeners.
fn udp(tracker: &Tracker, name: &str, label: (&str, &str)) -> f64 {
    tracker.sum(name, &[("protocol", "udp"), label])
}

#[test]
fn shield_counts_what_it_answers_and_drops() {
    on_shield(|_| {
        let tracker = Tracker::start(Directory::new(), "");
        let output = tracker.output();
        assert!(output.contains("shield: driver on eth0"), "{output}");
        tracker.wait_for_log("XDP serves ");
        for to in [tracker.udp4(), tracker.udp6()] {
            let client = Udp::connect(to);
            for transaction in 1..20 {
                let reply = client.request(&connect(transaction));
                assert_eq!(reply[..8], connect(transaction)[8..]);
            }
            let bad = announce(client.id ^ 1, LEECHER);
            client.socket.send(&bad).unwrap();
            client.socket.send(&[7; 5]).unwrap();
            client.say(LEECHER);
        }
        let is_counted = |it: &Tracker| {
            udp(it, "tidegate_drops_total", ("reason", "too_short")) == 2.0
                && udp(it, "tidegate_requests_total", ("kind", "announce")) == 2.0
        };
        tracker.wait_until("counted", is_counted);
        let connects = ("kind", "connect");
        assert_eq!(udp(&tracker, "tidegate_requests_total", connects), 40.0);
        assert_eq!(udp(&tracker, "tidegate_responses_total", connects), 40.0);
        assert_eq!(udp(&tracker, "tidegate_drops_total", ("reason", "bad_connection_id")), 2.0);
        let announce_len = announce(0, LEECHER).len() as f64;
        let received = tracker.sum("tidegate_received_bytes_total", &[("protocol", "udp")]);
        assert_eq!(received, 40.0 * 16.0 + 2.0 * (2.0 * announce_len + 5.0));
        for (result, count) in
            [("connect", 40.0), ("passed", 2.0), ("bad_connection_id", 2.0), ("too_short", 2.0)]
        {
            assert_eq!(frames(&tracker, result), count, "{result}");
        }
        let info = [("interface", "eth0"), ("mode", "driver"), ("driver", "veth")];
        assert_eq!(tracker.sum("tidegate_xdp_info", &info), 1.0);
        assert_eq!(tracker.sum("tidegate_xdp_interface_up", &[]), 1.0);
    });
}

#[test]
fn api_names_the_engine() {
    on_shield(|_| {
        let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        let api = Caller::of(&tracker);
        let listeners = api.expect(200, "GET /listeners", None);
        let engines = listeners["listeners"].as_array().unwrap().iter().map(|it| &it["engine"]);
        let engines: Vec<_> = engines.collect();
        assert!(engines.contains(&&json!("shield: driver on eth0")), "{engines:?}");
        assert!(engines.contains(&&json!(null)), "{engines:?}");
        let stats = api.expect(200, "GET /stats", None);
        assert_eq!(stats["xdp"]["interfaces"][0]["name"], "eth0");
    });
}

#[test]
fn another_program_is_named_and_sockets_serve() {
    on_shield(|site| {
        let network = &site.network;
        network.attach_pass_program(&network.tracker, "eth0", XdpMode::Driver).unwrap();
        let variables = [("TIDEGATE_XDP__REQUIRED", "false")];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        Udp::connect(tracker.udp4()).say(LEECHER);
        let log = tracker.log();
        let expected = "engine shield is not available, serving with mmsg: eth0 has another XDP program \
                        already, with id ";
        assert!(log.contains(expected), "{log}");
        assert!(!tracker.admin("/metrics").1.contains("tidegate_xdp_"));
        // A tracker that must have it does not start.
        let directory = Directory::new();
        let file = directory.write("tidegate.toml", &site::configuration(0, 0));
        let output = network.tracker.run(|| {
            let arguments = ["--config", file.to_str().unwrap()];
            tidegate(&arguments).output().unwrap()
        });
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert!(
            message.contains("xdp.required: engine shield is not available: eth0"),
            "{message}"
        );
    });
}

/// A command that starts the tracker as a user with nothing but `rights`. The binary in `directory` is one that
/// the user can read.
fn with_rights(directory: &Directory, rights: &[&str]) -> Command {
    set_permissions(directory.path("."), Permissions::from_mode(0o755)).unwrap();
    let binary = directory.path("tidegate");
    if !binary.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).unwrap();
    }
    let rights: String = rights.iter().map(|right| format!(",+{right}")).collect();
    let mut command = tidegate(&[]);
    let variables: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(std::ffi::OsStr::to_owned)))
        .collect();
    // The system of the test may have another limit of locked memory.
    command = Command::new("prlimit");
    command.args(["--memlock=8388608", "setpriv"]);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--inh-caps"]);
    let sets = format!("-all{rights}");
    command.args([&*sets, "--ambient-caps", &*sets, "--bounding-set", &*sets]);
    command.arg(binary);
    command
}

#[test]
fn each_missing_right_is_named() {
    in_network(NetworkOptions::default(), |site| {
        site.engine.set(Engine::XdpDriver);
        let directory = Directory::new();
        for missing in RIGHTS {
            let rights: Vec<_> = RIGHTS.into_iter().filter(|right| *right != missing).collect();
            let mut command = with_rights(&directory, &rights);
            command.args(["config", "check"]);
            let file = directory.write("tidegate.toml", &site::configuration(0, 0));
            command.arg("--config").arg(file);
            let expected = match missing {
                "ipc_lock" => "MiB of locked memory, which is over the limit".into(),
                right => format!("not available: CAP_{} is missing", right.to_uppercase()),
            };
            let output = site.network.tracker.run(move || command.output().unwrap());
            let message = stderr(&output);
            assert!(message.contains(&expected), "{missing}: {message}{}", stdout(&output));
            assert_eq!(output.status.code(), Some(1), "it is required");
        }
    });
}

#[test]
fn rights_are_gone_when_it_serves() {
    in_network(NetworkOptions::default(), |site| {
        for engine in [Engine::Shield, Engine::XdpDriver] {
            site.engine.set(engine);
            let directory = Directory::new();
            let command = with_rights(&directory, &RIGHTS);
            let tracker = Tracker::start_by(command, directory, "");
            Udp::connect(tracker.udp4()).say(LEECHER);
            assert!(
                frames(&tracker, "connect") > 0.0 || frames(&tracker, "steered") > 0.0 || {
                    tracker.wait_until("counted", |it| frames(it, "connect") > 0.0);
                    true
                }
            );
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                assert_eq!(tracker.status(set).trim_start_matches('0'), "", "{set}");
            }
            assert_eq!(tracker.status("Seccomp"), "2");
            let threads = std::fs::read_dir(format!("/proc/{}/task", tracker.pid())).unwrap();
            for thread in threads {
                let path = thread.unwrap().path().join("status");
                let status = std::fs::read_to_string(path).unwrap();
                assert!(status.contains("CapPrm:\t0000000000000000\n"), "{status}");
            }
        }
    });
}

#[test]
fn a_reload_changes_what_it_answers() {
    on_shield(|_| {
        let variables = [("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN)];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        let api = Caller::of(&tracker);
        let client = Udp::connect(tracker.udp4());
        api.expect(200, "PATCH /config", Some(&json!({ "xdp.answer_connects": false })));
        tracker.wait_until("sockets answer", |it| {
            client.request(&connect(1));
            frames(it, "passed") > 0.0
        });
        let refused = api.ask("PATCH /config", Some(&json!({ "xdp.reply_mac": "router" })));
        assert_ne!(refused.0, 200, "{refused:?}");
        let limits = json!({ "xdp.answer_connects": null, "limits.exempt": [],
            "limits.connects_per_s": 1, "limits.connects_burst": 1 });
        api.expect(200, "PATCH /config", Some(&limits));
        tracker.wait_until("connects have a rate", |it| {
            for transaction in 2..12 {
                client.socket.send(&connect(transaction)).unwrap();
            }
            frames(it, "rate") > 0.0
        });
    });
}

#[test]
fn follows_addresses_and_interfaces() {
    on_shield(|site| {
        let host = &site.network.tracker;
        let variables = [("TIDEGATE_UDP__LISTEN", "0.0.0.0:6969")];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        let ask = |number: u8, transaction: u32| {
            let ip = std::net::Ipv4Addr::new(203, 0, 113, number);
            let socket = UdpSocket::bind((network::client(1), 0)).unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
            socket.send_to(&connect(transaction), (ip, PORT)).unwrap();
            let mut reply = [0; 64];
            socket.recv(&mut reply).is_ok_and(|len| len == 16)
        };
        tracker.wait_until("it answers", |it| ask(2, 1) && frames(it, "connect") > 0.0);
        host.ip("address add 203.0.113.77/24 dev eth0\n").unwrap();
        tracker.wait_for_log("203.0.113.77");
        let before = frames(&tracker, "connect");
        tracker.wait_until("the new address answers", |it| {
            ask(77, 2) && frames(it, "connect") > before
        });
        host.ip("address del 203.0.113.77/24 dev eth0\n").unwrap();
        tracker.wait_until("the address is gone", |_| !ask(77, 3));
        host.ip("link set eth0 down\n").unwrap();
        tracker.wait_for_log("eth0 is down");
        host.ip("link set eth0 up\nroute replace default via 203.0.113.1\n").unwrap();
        tracker.wait_for_log("eth0 is up");
        tracker.wait_until("it answers again", |_| ask(2, 4));
        // The change is logged before it is counted.
        tracker.wait_until("counted", |it| it.sum("tidegate_xdp_interface_up", &[]) == 1.0);
    });
}

#[test]
fn config_check_says_what_was_found() {
    on_shield(|site| {
        let directory = Directory::new();
        let file = directory.write("tidegate.toml", &site::configuration(0, 0));
        let file = file.to_str().unwrap();
        let output = site
            .network
            .tracker
            .run(|| tidegate(&["config", "check", "--config", file]).output().unwrap());
        let message = stderr(&output);
        for expected in [
            "note: xdp: eth0: driver veth, receive queues: 2, MTU 1500",
            "warning: xdp: eth0 is a veth: replies arrive only if the other end has",
            "note: xdp: eth0: the program was attached and detached again: driver veth, driver mode",
        ] {
            assert!(message.contains(expected), "{expected}: {message}");
        }
        assert!(output.status.success());
        let links = site.network.tracker.run_command("ip", &["link", "show", "eth0"]).unwrap();
        assert!(!links.contains("xdp"), "{links}");
    });
}

/// The configuration requires the program, which one tracker has already: that is no mistake in it.
#[test]
fn config_check_beside_the_running_tracker_finds_its_program() {
    on_shield(|site| {
        let tracker = Tracker::start(Directory::new(), "");
        let directory = Directory::new();
        let text = site::configuration(tracker.udp4().port(), 0);
        let file = directory.write("tidegate.toml", &text);
        let check = || tidegate(&["config", "check", "--config", file.to_str().unwrap()]).output();
        let output = site.network.tracker.run(check).unwrap();
        let message = stderr(&output);
        let program = "note: xdp: eth0 has another XDP program already, with id ";
        assert!(message.contains(program), "{message}");
        assert!(message.contains("): probably that of the running tidegate\n"), "{message}");
        assert!(output.status.success(), "{message}");
    });
}

#[test]
fn proxied_listeners_are_left_alone() {
    on_shield(|_| {
        let client = network::client(1);
        let variables = [
            ("TIDEGATE_UDP__SIMPLE_PROXY", "true"),
            ("TIDEGATE_UDP__TRUSTED_PROXIES", &*client.to_string()),
        ];
        let tracker = Tracker::start_with(Directory::new(), "", &variables);
        tracker.wait_for_log("XDP serves ");
        let socket = UdpSocket::bind((client, 0)).unwrap();
        // Neither has the header that is expected.
        for packet in [connect(1), head(1, 1, 1), vec![1, 2, 3]] {
            socket.send_to(&packet, tracker.udp4()).unwrap();
        }
        let reason = ("reason", "bad_proxy_header");
        tracker.wait_until("counted", |it| udp(it, "tidegate_drops_total", reason) == 3.0);
        tracker.wait_until("passed", |it| frames(it, "passed") == 3.0);
    });
}
