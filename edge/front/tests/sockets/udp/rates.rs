//! Rate limits.

use tracker::{Limits, Rate};

use super::*;

const RATE: Rate = Rate { per_s: 1, burst: 3 };
const SENT: u32 = 20;

fn server(limits: Limits) -> UdpServer {
    let server = UdpServer::start("127.0.0.1:0");
    server.tracker.limiter().replace(limits);
    server
}

/// Sends `SENT` packets, and returns how many were ignored.
fn flood(client: &UdpClient, packet: &[u8]) -> u32 {
    (0..SENT).filter(|_| client.is_ignored(packet)).count() as u32
}

#[test]
fn drops_and_counts_requests_over_the_rate() {
    let server = server(Limits { announces: RATE, scrapes: RATE, ..Limits::default() });
    let client = UdpClient::new("127.0.0.1", &server);
    let other = UdpClient::new("127.0.0.2", &server);
    let (id, other_id) = (client.connect(), other.connect());
    let over = SENT - RATE.burst;
    assert_eq!(flood(&client, &announce(id, LEECHER)), over);
    assert_eq!(flood(&client, &scrape(id, &[HASH])), over);
    // An unknown action counts as an announce.
    assert_eq!(flood(&client, &head(id, 9, 1)), SENT);
    server.advance(1);
    assert_eq!(flood(&client, &announce(id, LEECHER)), SENT - RATE.per_s);
    parse_announce(&other.request(&announce(other_id, LEECHER)));
    let counters = server.finish();
    let dropped = 2 * over + SENT + SENT - RATE.per_s;
    assert_eq!(counters.drops[DropReason::RequestRate.index()], u64::from(dropped));
    assert_eq!(counters.drops[DropReason::ConnectRate.index()], 0);
    assert_eq!(counters.refusals[Refusal::TooManyRequests.index()], 0);
    let [requested, answered] = [SENT, RATE.burst].map(u64::from);
    assert_eq!(counters.requests[0][1..3], [2 * requested + 1, requested]);
    assert_eq!(counters.responses[0][1..3], [answered + 2, answered]);
}

/// Forged connects and packets with bad connection ids must not use up the quota that the owner of
/// the forged address has with its own connection id.
#[test]
fn charges_unverified_packets_to_no_client() {
    let (tracker, registry) = (tracker(false), MetricsRegistry::default());
    let limits = Limits { connects: RATE, announces: RATE, scrapes: RATE, ..Limits::default() };
    tracker.limiter().replace(limits);
    let mut front = front(&tracker, &registry);
    let victim = SocketAddr::from(([192, 0, 2, 1], 5));
    let id = tracker.view(Tick(0)).issue_connection_id(victim.ip());
    let forged = [connect(1), announce(id ^ 1, LEECHER), scrape(id ^ 1, &[HASH])];
    let forged: Vec<(SocketAddr, &[u8])> =
        forged.iter().map(|packet| (victim, &packet[..])).cycle().take(3000).collect();
    let connects = sim::exchange(&mut front, 0, &forged).len();
    assert_eq!(connects, RATE.burst as usize);
    let own = [announce(id, LEECHER), scrape(id, &[HASH])];
    let own = own.each_ref().map(|packet| (victim, &packet[..]));
    let replies = sim::exchange(&mut front, 0, &own);
    assert_eq!(replies.iter().map(|(_, reply)| reply.len()).collect::<Vec<_>>(), [20, 20]);
    let neighbour = SocketAddr::from(([192, 0, 2, 2], 5));
    assert_eq!(sim::exchange(&mut front, 0, &[(neighbour, &connect(1))]).len(), 1);
    let counters = total(&registry);
    assert_eq!(counters.drops[DropReason::ConnectRate.index()], 1000 - connects as u64);
    assert_eq!(counters.drops[DropReason::RequestRate.index()], 0);
}

/// The kernel drops the packets of a flooding source, and of no other.
#[cfg(target_os = "linux")]
#[test]
fn drops_flooding_sources_in_the_kernel() {
    let limits = Limits { announces: RATE, kernel_block_per_s: 10, ..Limits::default() };
    let server = server(Limits { kernel_block_s: 3600, ..limits });
    let (flooder, other) =
        (UdpClient::new("127.0.0.9", &server), UdpClient::new("127.0.0.8", &server));
    let (id, other_id) = (flooder.connect(), other.connect());
    flooder.socket.set_nonblocking(true).unwrap();
    let is_answered = || {
        for _ in 0..50 {
            flooder.socket.send(&announce(id, LEECHER)).unwrap();
        }
        flooder.socket.send(&connect(4)).unwrap();
        // A worker answers in order: replies to the flooder have been sent before this one.
        other.connect();
        std::iter::from_fn(|| flooder.socket.recv(&mut [0; 2048]).ok()).any(|len| len == 16)
    };
    wait_until("the kernel drops them", || !is_answered());
    parse_announce(&other.request(&announce(other_id, LEECHER)));
    let counters = server.finish();
    assert!(counters.drops[DropReason::RequestRate.index()] > 10);
    assert_eq!(counters.kernel_blocks, 1);
}

#[test]
fn refuses_early_announces_without_news() {
    let server = UdpServer::start("127.0.0.1:0");
    let client = UdpClient::new("127.0.0.1", &server);
    let id = client.connect();
    let again = AnnounceFields { event: 0, ..LEECHER };
    parse_announce(&client.request(&announce(id, again)));
    parse_announce(&client.request(&announce(id, again)));
    let policy = Policy { enforce_interval_min: true, ..Policy::default() };
    server.tracker.reconfigure(&policy);
    let is_refused =
        |say| is_error(&client.request(&announce(id, say)), Refusal::TooSoon { wait_min: 0 });
    assert!(is_refused(again) && is_refused(again));
    // Announces with news are accepted: started, completed (also without the event), stopped.
    assert!(!is_refused(LEECHER) && is_refused(again));
    assert!(!is_refused(AnnounceFields { event: 1, ..again }));
    assert!(!is_refused(again) && is_refused(again), "the change back to leecher is news");
    assert!(
        !is_refused(AnnounceFields { left: 0, ..again })
            && is_refused(AnnounceFields { left: 0, ..again })
    );
    assert!(!is_refused(AnnounceFields { port: 6882, ..again }), "another port is another peer");
    assert_eq!(
        parse_announce(&client.request(&announce(id, AnnounceFields { event: 3, ..again }))).0,
        1
    );
    assert!(!is_refused(again) && is_refused(again), "the peer had left");
    assert_eq!(server.finish().refusals[Refusal::TooSoon { wait_min: 0 }.index()], 6);
}
