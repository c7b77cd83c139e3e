//! Limits that operators set and change.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::process::Command;

use crate::api::start_in;
use crate::clients::{Udp, announce_target, has, http_announce};
use crate::process::{Directory, PATIENCE, Signal, Tracker};

crate::site::on_engines! { enforces_intervals_from_sighup_on }

const RELOADS: &str = "tidegate_reloads_total";
const REFUSED: &str = "too many requests from your address or network: slow down\
                       8:intervali60e12:min intervali60e8:retry ini1e";

/// Returns whether at least one of many announces is refused.
fn is_limited(tracker: &Tracker) -> bool {
    (0..40).any(|_| has(&http_announce(tracker.http4(), 0xaa, 1001), REFUSED))
}

fn drops(tracker: &Tracker, protocol: &str, reason: &str) -> f64 {
    let address = if protocol == "udp" { tracker.udp4() } else { tracker.http4() };
    tracker.metric(&format!(
        "tidegate_drops_total{{listener=\"{address}\",protocol=\"{protocol}\",reason=\"{reason}\"}}"
    ))
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
        drops(it, "udp", "request_rate") > 0.0
    };
    tracker.wait_until("a datagram is dropped", dropped);
    tracker.wait_for_log("limits.announces_per_s");
    tracker.reload_with("");
    assert!(!is_limited(&tracker));
}

/// The process is stopped, so that its buffers fill up.
#[test]
#[cfg(target_os = "linux")]
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

#[test]
fn enforces_intervals_from_sighup_on() {
    let tracker = Tracker::start(Directory::new(), "");
    let udp = Udp::connect(tracker.udp4());
    let why = "you announced this torrent too recently";
    let are_refused = || {
        let body = http_announce(tracker.http4(), 0xaa, 1001);
        let both = [has(&udp.announce(0xaa, 1001), why), has(&body, why)];
        assert!(!both[1] || has(&body, "8:retry ini10ee"), "{}", body.escape_ascii());
        both
    };
    assert_eq!([are_refused(), are_refused()], [[false; 2]; 2]);
    tracker.reload_with("[tracker]\nenforce_interval_min = true\ninterval_min_s = 600\n");
    assert_eq!(are_refused(), [true; 2]);
    for (protocol, address) in [("udp", tracker.udp4()), ("http", tracker.http4())] {
        let series = format!(
            "tidegate_refusals_total{{listener=\"{address}\",protocol=\"{protocol}\",\
             reason=\"too_soon\"}}"
        );
        tracker.wait_until(&series, |it| it.metric(&series) == 1.0);
    }
    tracker.reload_with("");
    assert_eq!(are_refused(), [false; 2]);
}

#[test]
fn changes_the_connection_limit_on_sighup() {
    let tracker = Tracker::start(Directory::new(), "[limits]\nexempt = []\n");
    let hold = || {
        let mut stream = TcpStream::connect(tracker.http4()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Fails if the server has closed it already.
        let _ = stream.write_all(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n");
        let is_answered = stream.read(&mut [0]).is_ok_and(|len| len > 0);
        (stream, is_answered)
    };
    let file = fs::read_to_string(tracker.directory.path("tidegate.toml")).unwrap();
    let limited = file.replace("[admin]", "connections_per_prefix_max = 2\n[admin]");
    tracker.directory.write("tidegate.toml", &limited);
    tracker.reload();
    tracker.wait_until("reloaded", |it| it.metric(RELOADS) == 1.0);
    let held = [hold(), hold(), hold()];
    assert_eq!(held.each_ref().map(|(_, is_answered)| *is_answered), [true, true, false]);
    let drops = |it: &Tracker| drops(it, "http", "prefix_connection_limit");
    tracker.wait_until("counted", |it| drops(it) == 1.0);
    tracker.directory.write("tidegate.toml", &file);
    tracker.reload();
    tracker.wait_until("reloaded again", |it| it.metric(RELOADS) == 2.0);
    assert!(hold().1);
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
    let refused = |it: &Tracker| {
        it.metric(&format!(
            "tidegate_drops_total{{listener=\"{at}\",protocol=\"http\",reason=\"displaced\"}}"
        ))
    };
    tracker.wait_until("descriptors are used up", |it| refused(it) > 0.0);
    let served = (0..20).filter(|number| {
        let mut stream = connect(format!("2001:db9:{number:x}::1"));
        stream.read(&mut [0]).is_ok_and(|len| len > 0)
    });
    assert_eq!(served.count(), 20);
    drop(held);
}

/// An attacker with eight addresses of a /24, or one /56 of a /48, beside 40 neighbours.
#[test]
fn an_attacker_leaves_the_peers_of_its_neighbours() {
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.2:0\"]\n\
                 http.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let limits = "[limits]\nannounces_per_s = 0\n";
    let tracker = Tracker::start(Directory::new(), &format!("{limits}{table}"));
    let at = tracker.listener("http", [127, 0, 0, 2]);
    let mut connection = harness::http::Connection::open(at).unwrap();
    let mut announce = |client: IpAddr, port: u16, want: u32| {
        let target = announce_target(0xaa, port) + &format!("&numwant={want}");
        let request =
            format!("GET {target} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {client}\r\n\r\n");
        connection.send(request).unwrap();
        connection.receive().unwrap().body
    };
    let v4 = |host: u8, _: u8| IpAddr::from([20, 1, 1, host]);
    let v6 = |customer: u8, subnet: u8| {
        let subnet = u16::from_be_bytes([customer, subnet]);
        IpAddr::from([0x2400, 1, 1, subnet, 0, 0, 0, 1])
    };
    // The attacker's hosts: others of the /24, or /64s of one /56.
    type HostAt = dyn Fn(u8, u8) -> IpAddr;
    let attacks: [(&HostAt, [(u8, u8); 8]); 2] = [
        (&v4, std::array::from_fn(|host| (200 + host as u8, 0))),
        (&v6, std::array::from_fn(|subnet| (200, subnet as u8))),
    ];
    for (client, attackers) in attacks {
        let neighbours: Vec<_> = (1..=40).map(|host| client(host, 0)).collect();
        neighbours.iter().for_each(|ip| _ = announce(*ip, 6881, 0));
        for (customer, subnet) in attackers {
            (1..=8).for_each(|port| _ = announce(client(customer, subnet), port, 0));
        }
        // A client of another network.
        let asking =
            if neighbours[0].is_ipv4() { [30, 1, 1, 1].into() } else { "2600::1".parse().unwrap() };
        let answer = announce(asking, 6881, 200);
        let is_given = |ip: &&IpAddr| {
            let mut peer = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            peer.extend(6881_u16.to_be_bytes());
            has(&answer, peer)
        };
        assert_eq!(neighbours.iter().filter(is_given).count(), 40);
    }
}

/// All IPv4 clients of a tracker behind a translator share a /64.
#[test]
fn clients_behind_a_translator_count_by_their_own_addresses() {
    let table = "[[listener]]\nprotocol = \"http\"\nlisten = [\"127.0.0.2:0\"]\n\
                 http.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let limits = "[limits]\nannounces_per_s = 1\nannounces_burst = 20\n";
    let tracker = Tracker::start(Directory::new(), &format!("{limits}{table}"));
    let at = tracker.listener("http", [127, 0, 0, 2]);
    let counts = |client: &str, port: u16| {
        let request = format!("GET {}", announce_target(0xaa, port));
        let headers = format!("X-Forwarded-For: {client}\r\n");
        let reply = harness::http::request(at, &request, &headers, b"").unwrap();
        (has(&reply.body, "8:complete"), has(&reply.body, "10:incompletei48e"))
    };
    let are_served = (1..=40).all(|host| counts(&format!("64:ff9b::20.{host}.1.1"), 6881).0);
    assert!(are_served, "more clients than a prefix may have announces");
    // One of them is limited like any other, and has eight peers in the torrent.
    let served = (1000..1100).filter(|port| counts("64:ff9b::30.1.1.1", *port).0).count();
    assert!((20..100).contains(&served), "{served}");
    assert_eq!(counts("64:ff9b::20.1.1.1", 6881), (true, true));
}
