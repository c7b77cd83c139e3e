//! The XDP program as its operator sees it: its name, reloads, and what `config check` says of it.

use serde_json::json;

use crate::api::start_in;
use crate::clients::Udp;
use crate::process::{Directory, Tracker, stderr, tidegate};
use crate::site::{self, Engine, Site, in_network};
use crate::udp::connect;

fn on_shield(test: impl FnOnce(&Site)) {
    in_network(|site| {
        site.engine.set(Engine::Shield);
        test(site);
    });
}

/// Returns the number of datagrams that the program handled with this result.
fn frames(tracker: &Tracker, result: &str) -> f64 {
    tracker.sum("tidegate_xdp_frames_total", &[("result", result)])
}

#[test]
fn names_the_engine() {
    on_shield(|_| {
        let (tracker, api) = start_in(Directory::new(), "");
        assert!(tracker.output().contains("shield: driver on eth0"), "{}", tracker.output());
        let info = [("interface", "eth0"), ("mode", "driver"), ("driver", "veth")];
        assert_eq!(tracker.sum("tidegate_xdp_info", &info), 1.0);
        assert_eq!(tracker.sum("tidegate_xdp_interface_up", &[]), 1.0);
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
fn a_reload_changes_what_it_answers() {
    on_shield(|_| {
        let (tracker, api) = start_in(Directory::new(), "");
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
