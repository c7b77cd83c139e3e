//! Load that bends: budgets of services, and intervals that grow.

use serde_json::Value;

use crate::api::start_in;
use crate::clients::{Udp, has, http_announce, open_websocket, u32_at, ws_announce};
use crate::process::{Directory, Tracker};

/// No random part of intervals, a decision each second, and no limit of this host's announces.
fn load(keys: &str) -> String {
    let exact = "[tracker]\ninterval_jitter_s = 0\n[limits]\nannounces_per_s = 0\n";
    format!("{exact}[load]\nstep_s = 1\n{keys}\n")
}

fn service<'a>(status: &'a Value, name: &str) -> &'a Value {
    let services = status["load"]["services"].as_array().unwrap();
    services.iter().find(|service| service["service"] == name).unwrap()
}

/// All protocols answer an announce over the budget as a success without peers and with the longest interval.
#[test]
fn services_without_bytes_answer_quietly() {
    let budgets = "interval_max_s = 3600\nbudgets = [\"udp bytes_per_day=1\", \"http bytes_per_day=1\", \
                   \"ws4 bytes_per_day=1\"]";
    let (tracker, api) = start_in(Directory::new(), &load(budgets));
    let udp = Udp::connect(tracker.udp4());
    let (mut socket, status) = open_websocket(tracker.http4(), "/");
    assert_eq!(status, 101);
    let mut last = Vec::new();
    tracker.wait_until("quiet over UDP", |_| {
        udp.announce(0xaa, 1001);
        last = udp.announce(0xaa, 1002);
        assert_eq!(u32_at(&last, 0), 1, "{}", last.escape_ascii());
        (u32_at(&last, 8), last.len()) == (3600, 20)
    });
    assert_eq!((u32_at(&last, 12), u32_at(&last, 16)), (0, 0), "it counts no peers");
    tracker.wait_until("quiet over HTTP", |_| {
        let body = http_announce(tracker.http4(), 0xab, 1003);
        has(&body, "8:intervali3600e") && has(&body, "5:peers0:") && !has(&body, "failure")
    });
    tracker.wait_until("quiet over WebSocket", |_| {
        let message = ws_announce(&mut socket, 0xac, "started");
        has(&message, "\"interval\":240") && !has(&message, "failure")
    });
    // HTTP over IPv6 has not used anything.
    let body = http_announce(tracker.http6(), 0xbb, 1001);
    assert!(has(&body, "8:intervali1800e"), "{}", body.escape_ascii());
    // Stops are served: the peers leave.
    assert!(udp.try_scrape(0xaa)[8..].iter().any(|byte| *byte > 0), "there are peers");
    for port in [1001, 1002] {
        udp.announce_event_at(0xaa, port, 3, "");
    }
    assert_eq!(udp.try_scrape(0xaa)[8..], [0; 12]);
    let status = api.expect(200, "GET /status", None);
    let udp4 = service(&status, "udp4");
    assert_eq!((&udp4["is_over_budget"], &udp4["bytes_budget_per_day"]), (&true.into(), &1.into()));
    assert!(udp4["over_budget"].as_u64() > Some(0), "{udp4}");
    let health = status["health"].to_string();
    assert!(health.contains("udp4 has used its 1 bytes of today"), "{health}");
    let metric = "tidegate_service_over_budget_total{service=\"udp4\"}";
    assert!(tracker.metric(metric) > 0.0);
}

/// A restart and an upgrade renew no budget of a day.
#[test]
fn the_bytes_of_today_continue_after_upgrades_and_restarts() {
    let state = Directory::new();
    let keys = load("budgets = [\"udp4 bytes_per_day=1G\"]");
    let keys = format!("{keys}[state]\ndir = {:?}\n", state.path("state"));
    let today = |it: &Tracker| it.metric("tidegate_service_bytes_today{service=\"udp4\"}");
    let mut tracker = Tracker::start(Directory::new(), &keys);
    Udp::connect(tracker.udp4()).announce(1, 1001);
    tracker.wait_until("the bytes are counted", |it| today(it) > 0.0);
    let before = today(&tracker);
    tracker.stop();
    tracker.wait_for_end();
    let tracker = Tracker::start(Directory::new(), &keys);
    assert!(today(&tracker) >= before, "{} of {before} bytes", today(&tracker));
    Udp::connect(tracker.udp4()).announce(1, 1002);
    tracker.wait_until("its own bytes are counted, too", |it| today(it) > before);
    let before = today(&tracker);
    tracker.upgrade();
    tracker.wait_until("the new process continues", |it| today(it) >= before);
    // A file of another program is no reason not to start.
    drop(tracker);
    std::fs::write(state.path("state/bytes-of-day.json"), "x").unwrap();
    let tracker = Tracker::start(Directory::new(), &keys);
    tracker.wait_for_log("the bytes of today are counted from now on");
    assert_eq!(today(&tracker), 0.0);
}

/// Intervals and minima grow while there are more announces than the budget has, and shrink afterwards. The budget comes
/// by a reload.
#[test]
fn intervals_rise_under_load_and_fall_after_it() {
    let keys = |budget: &str| {
        format!(
            "[tracker]\ninterval_s = 4\ninterval_min_s = 2\ninterval_jitter_s = 0\n[limits]\nannounces_per_s = 0\n\
             [load]\nstep_s = 1\ninterval_max_s = 16\nbudgets = [{budget}]\n"
        )
    };
    let (tracker, api) = start_in(Directory::new(), &keys(""));
    let interval = "tidegate_service_interval_seconds{service=\"http4\"}";
    tracker.wait_until("the first decision", |it| it.metric(interval) == 4.0);
    let budgets = serde_json::json!({ "load.budgets": ["http4 announces_per_s=4"] });
    api.expect(200, "PATCH /config", Some(&budgets));
    tracker.wait_until("the longest intervals", |it| {
        (1001..1041).for_each(|port| _ = http_announce(it.http4(), 0xaa, port));
        it.metric(interval) == 16.0
    });
    tracker.wait_until("a response that is served", |it| {
        let body = http_announce(it.http4(), 0xaa, 1001);
        has(&body, "8:completei0e") && has(&body, "8:intervali16e12:min intervali8e")
    });
    assert_eq!(tracker.metric("tidegate_service_interval_seconds{service=\"udp4\"}"), 4.0);
    tracker.wait_until("short intervals", |it| it.metric(interval) == 4.0);
}
