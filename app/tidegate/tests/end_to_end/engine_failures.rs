//! XDP programs that cannot be had, and interfaces that change under them: clients are served in any case.

use harness::network::XdpMode;

use crate::api::{Caller, TOKEN};
use crate::clients::{Udp, u32_at};
use crate::process::{Directory, Tracker, config, stderr, tidegate};
use crate::site::{Engine, Site, in_network, in_network_of};

/// The engines that have a program.
const ENGINES: [Engine; 3] = [Engine::Shield, Engine::XdpDriver, Engine::XdpGeneric];

/// Starts a tracker with an engine that may not be available.
fn start_with(engine: &str, mode: &str) -> Tracker {
    let variables = [
        ("TIDEGATE_UDP__ENGINE", engine),
        ("TIDEGATE_XDP__MODE", mode),
        ("TIDEGATE_BOOTSTRAP_TOKEN", TOKEN),
    ];
    Tracker::start_with(Directory::new(), "", &variables)
}

/// Checks that clients are served over both families.
fn check(tracker: &Tracker) {
    for to in [tracker.udp4(), tracker.udp6()] {
        assert_eq!(u32_at(&Udp::connect(to).announce(0xaa, 1001), 0), 1);
    }
}

/// Checks that a tracker serves by its sockets, and that it says why in one line, and in its status from then on.
fn check_fallback(tracker: &Tracker, engine: &str, why: &str) {
    check(tracker);
    let start = format!("engine {engine} is not available, serving with mmsg: ");
    let log = tracker.log();
    let line = log.lines().find_map(|line| line.split_once(&start));
    let (_, reason) = line.unwrap_or_else(|| panic!("expected `{start}`, found {log}"));
    assert!(reason.contains(why), "expected `{why}`, found `{reason}`");
    assert!(tracker.output().contains("mmsg"), "{}", tracker.output());
    assert!(!tracker.admin("/metrics").1.contains("tidegate_xdp_info{"));
    let status = Caller::of(tracker).expect(200, "GET /status", None);
    let is_of_xdp = |item: &&serde_json::Value| item["area"] == "xdp";
    let item = status["health"].as_array().unwrap().iter().find(is_of_xdp).unwrap();
    assert_eq!(item["level"], "warning");
    assert!(item["text"].as_str().unwrap().contains(reason), "{item}");
    assert_eq!(status["listeners"][0]["engine"], "mmsg");
}

/// Returns the number of connects that the program has answered.
fn connects(tracker: &Tracker) -> f64 {
    tracker.sum("tidegate_xdp_frames_total", &[("result", "connect")])
}

/// Waits until the program answers clients over both families, from now on.
fn wait_for_program(tracker: &Tracker) {
    let before = connects(tracker);
    tracker.wait_until("the program answers", |it| {
        check(it);
        connects(it) >= before + 2.0
    });
}

#[test]
fn serves_by_sockets_if_another_program_is_attached() {
    for of_other in [XdpMode::Driver, XdpMode::Generic] {
        in_network(|site| {
            let Site { network, .. } = site;
            network.attach_pass_program(&network.tracker, "eth0", of_other).unwrap();
            for engine in ["shield", "xdp"] {
                for mode in ["auto", "driver", "generic"] {
                    let tracker = start_with(engine, mode);
                    check_fallback(
                        &tracker,
                        engine,
                        "eth0 has another XDP program already, with id",
                    );
                }
            }
            // A tracker that needs the program does not start.
            let directory = Directory::new();
            let more = "[xdp]\nrequired = true\n";
            let file = directory.write("tidegate.toml", &config(0, 0, more));
            let mut command = tidegate(&["serve", "--config"]);
            command.arg(file).env("TIDEGATE_UDP__ENGINE", "shield");
            let output = network.tracker.run(|| command.output()).unwrap();
            assert_eq!(output.status.code(), Some(1));
            let text = stderr(&output);
            let expected =
                "xdp.required: engine shield is not available: eth0 has another XDP program";
            assert!(text.contains(expected), "{text}");
        });
    }
}

#[test]
fn serves_by_sockets_if_the_driver_refuses_large_packets() {
    in_network_of(9000, |_| {
        for engine in ["shield", "xdp"] {
            check_fallback(&start_with(engine, "driver"), engine, "eth0");
            // The generic path takes them.
            let tracker = start_with(engine, "auto");
            wait_for_program(&tracker);
            let info = [("interface", "eth0"), ("mode", "generic")];
            assert_eq!(tracker.sum("tidegate_xdp_info", &info), 1.0);
        }
    });
}

#[test]
fn serves_queues_whose_socket_is_taken_by_udp_sockets() {
    in_network(|site| {
        let tracker = &site.network.tracker;
        let line = tracker.run_command("ip", &["-oneline", "link", "show", "eth0"]).unwrap();
        let index: u32 = line.split(':').next().unwrap().parse().unwrap();
        let take = |queue| {
            let open = || xdp::Queue::open(index, queue, 64).unwrap();
            tracker.run(open)
        };
        let first = take(0);
        let tracker = start_with("xdp", "driver");
        tracker.wait_for_log("another program has an AF_XDP socket for queue 0 of eth0");
        // Flows are spread over both queues.
        (0..20).for_each(|_| check(&tracker));
        let frames = |result| tracker.sum("tidegate_xdp_frames_total", &[("result", result)]);
        tracker
            .wait_until("both are served", |_| frames("steered") > 0.0 && frames("passed") > 0.0);
        drop(tracker);
        let _second = take(1);
        let why = "another program has an AF_XDP socket for queue 0 of eth0";
        check_fallback(&start_with("xdp", "driver"), "xdp", why);
        drop(first);
    });
}

#[test]
fn follows_addresses_of_its_interface() {
    in_network(|site| {
        site.engine.set(Engine::XdpDriver);
        let listen = [("TIDEGATE_UDP__LISTEN", "0.0.0.0:0,[::]:0")];
        let tracker = Tracker::start_with(Directory::new(), "", &listen);
        let port = tracker.listener("udp", [0, 0, 0, 0]).port();
        let host = &site.network.tracker;
        let new = std::net::SocketAddr::from(([203, 0, 113, 77], port));
        host.ip("address add 203.0.113.77/24 dev eth0\n").unwrap();
        let before = connects(&tracker);
        tracker.wait_until("the program answers at the new address", |it| {
            Udp::connect(new).announce(0xaa, 1001);
            connects(it) > before
        });
        host.ip("address delete 203.0.113.77/24 dev eth0\n").unwrap();
        let is_served = |line: &str| line.contains("203.0.113.77");
        let last = |it: &Tracker| {
            it.log().lines().rfind(|line| line.contains("XDP serves ")).map(is_served)
        };
        tracker.wait_until("the address is not served any more", |it| last(it) == Some(false));
    });
}

/// It is killed, its interface goes down and comes back, and then there is no interface any more.
#[test]
fn outlives_kills_and_its_interface() {
    for engine in ENGINES {
        in_network(|site| {
            site.engine.set(engine);
            let listen = [("TIDEGATE_UDP__LISTEN", "203.0.113.2:6969,[2001:db8:2::2]:6969")];
            let start = || Tracker::start_with(Directory::new(), "", &listen);
            let old = start();
            wait_for_program(&old);
            let clients = [old.udp4(), old.udp6()].map(Udp::connect);
            // A tracker is killed when it is dropped. The kernel detaches its program.
            drop(old);
            // It starts only with a program.
            let mut tracker = start();
            // Ids of the old process are not valid, and nothing answers with its key.
            for client in &clients {
                client.send_announce(0xaa, 1001).unwrap();
            }
            let bad = [("reason", "bad_connection_id")];
            tracker.wait_until("counted", |it| it.sum("tidegate_drops_total", &bad) == 2.0);
            for (client, to) in clients.iter().zip([tracker.udp4(), tracker.udp6()]) {
                assert_ne!(Udp::connect(to).id, client.id);
            }
            wait_for_program(&tracker);

            let host = &site.network.tracker;
            host.set("net/ipv6/conf/eth0/keep_addr_on_down", "1").unwrap();
            host.ip("link set eth0 down\n").unwrap();
            harness::wait_until("it is noticed", || tracker.log().contains("eth0 is down"));
            host.ip("link set eth0 up\n").unwrap();
            // Routes end with an interface that goes down.
            let routes = "route add default via 203.0.113.1\nroute add default via 2001:db8:2::1\n";
            host.ip(routes).unwrap();
            tracker.wait_for_log("eth0 is up");
            wait_for_program(&tracker);

            site.network.router.ip("link delete tracker\n").unwrap();
            harness::wait_until("it is noticed", || tracker.log().contains("eth0 is gone"));
            tracker.stop();
            assert!(tracker.wait_for_end().success(), "{}", tracker.log());
        });
    }
}
