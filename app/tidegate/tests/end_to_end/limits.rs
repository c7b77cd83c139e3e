//! Limits that operators set and change.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::api::start_in;
use crate::clients::{Udp, has, http_announce};
use crate::process::{Directory, PATIENCE, Signal, Tracker};

const REFUSED: &str = "too many requests from your address or network: slow down\
                       8:intervali60e12:min intervali60e8:retry ini1e";

/// Returns whether at least one of many announces is refused.
fn is_limited(tracker: &Tracker) -> bool {
    (0..40).any(|_| has(&http_announce(tracker.http4(), 0xaa, 1001), REFUSED))
}

#[test]
fn changes_rate_limits_on_sighup() {
    let tracker = Tracker::start(Directory::new(), "");
    assert!(!is_limited(&tracker));
    // Loopback addresses are exempt by default.
    tracker.reload_with("[limits]\nannounces_per_s = 1\nannounces_burst = 4\n");
    assert!(!is_limited(&tracker));
    assert_eq!(tracker.metric("tidegate_rate_limit_buckets{kind=\"announce\"}"), 65536.0);
    tracker.reload_with("[limits]\nannounces_per_s = 1\nannounces_burst = 4\nexempt = []\n");
    assert!(is_limited(&tracker));
    // All protocols share one bucket, and UDP drops without a reply.
    let udp = Udp::connect(tracker.udp4());
    let dropped = |it: &Tracker| {
        udp.send_announce(0xaa, 1001).unwrap();
        it.sum("tidegate_drops_total", &[("protocol", "udp"), ("reason", "request_rate")]) > 0.0
    };
    tracker.wait_until("a datagram is dropped", dropped);
    tracker.wait_for_log("limits.announces_per_s");
    tracker.reload_with("");
    assert!(!is_limited(&tracker));
}

/// The process is stopped, so that its buffers fill up.
#[test]
fn says_that_receive_buffers_were_full() {
    let name = "tidegate_receive_buffer_drops_total";
    let (tracker, api) = start_in(Directory::new(), "requests_per_s = 0\n");
    let item = || {
        let status = api.expect(200, "GET /status", None);
        let items = status["health"].as_array().unwrap().clone();
        items.into_iter().find(|item| item["text"].as_str().unwrap().contains("receive buffers"))
    };
    assert_eq!((tracker.metric(name), item()), (0.0, None));
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = tracker.udp4();
    tracker.signal(Signal::SIGSTOP);
    (0..3000).for_each(|_| _ = client.send_to(&[0; 98], to).unwrap());
    tracker.signal(Signal::SIGCONT);
    tracker.wait_until("the loss is noticed", |_| item().is_some());
    let item = item().unwrap();
    assert_eq!((&item["level"], &item["area"]), (&"warning".into(), &"listeners".into()));
    assert!(item["remedy"].as_str().unwrap().contains("net.core.rmem_max"), "{item}");
    let lost = tracker.metric(name);
    assert!(lost > 1000.0 && lost < 3000.0, "{lost}");
    assert!(item["text"].as_str().unwrap().contains(&lost.to_string()), "{item} {lost}");
}

/// Five networks take all file descriptors of the process, and go on to connect.
#[test]
fn serves_others_when_five_networks_hold_all_descriptors() {
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.2:0\"]\n\
                 http.trusted_proxies = [\"127.0.0.1\"]\nhttp.proxy_protocol = \"v1v2\"\n";
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 200 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tidegate")]);
    command.env("TIDEGATE_HTTP__WORKERS", "1");
    let tracker = Tracker::start_by(command, Directory::new(), table);
    let at = tracker.listener("http", [127, 0, 0, 2]);
    let connect = |from: String| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET /none HTTP/1.1\r\nHost: x\r\n\r\n";
        // Fails if the server has closed it already.
        let _ = write!(stream, "PROXY TCP6 {from} 2001:db8::1 4711 6969\r\n{request}");
        stream
    };
    let of_five = |number: u32| connect(format!("2001:db8:{:x}:{number:x}::1", 1 + number % 5));
    let held: Vec<_> = (0..300).map(of_five).collect();
    let refused = |it: &Tracker| it.sum("tidegate_drops_total", &[("reason", "displaced")]);
    tracker.wait_until("descriptors are used up", |it| refused(it) > 0.0);
    let served = (0..20).filter(|number| {
        let mut stream = connect(format!("2001:db9:{number:x}::1"));
        stream.read(&mut [0]).is_ok_and(|len| len > 0)
    });
    assert_eq!(served.count(), 20);
    drop(held);
}
