//! Serves announces over loopback on one thread, so that valgrind can count the instructions of an
//! engine, the front and the store.
//!
//! The machine's speed does not matter to the count, and all batches are full. Run it twice with
//! different numbers of batches and divide the difference, so that start-up drops out:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null BINARY 200
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null BINARY 400
//! ```
//!
//! Argument: batches of 64 announces. The client's part, a few hundred instructions an announce, is
//! counted with the rest. With the word `private` behind it the listener is private, and each announce has
//! one of 256 keys in its URL. With `refused` no torrent is on the allow list; with `quiet` these refusals are quiet, too.
//! With `near`, a fifth of each response comes from the client's zone, where all peers are.

mod shared;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use net::{BATCH_MAX, Batch, Engine, Handler, UdpOptions, UdpWorker, bind_udp, run_udp};
use tidegate_front::Clock;
use tidegate_front::udp::{UdpFront, UdpListener};
use tracker::access::{AccessLists, Mode};
use tracker::counters::{Listener, MetricsRegistry, Protocol};
use tracker::{
    Access, IpPrefix, KeyId, KeyRules, ListenerPolicy, ListenerPolicyId, Near, QuietRefusals,
    Tracker, UserKey, ZoneNetwork, Zones,
};
use types::{Refusal, Tick};

use shared::{PEERS, TORRENTS, tracker};

const KEYS: u32 = 256;
const ANNOUNCE_LEN: usize = 98;

/// The front, and a client that sends a full batch while the one before is served: the worker never
/// finds less.
struct Driver {
    front: UdpFront,
    tracker: Arc<Tracker>,
    client: UdpSocket,
    /// The option with the URL of each key, which follows an announce. None if the listener is open.
    options: Vec<Vec<u8>>,
    left: usize,
    number: usize,
    stop: Arc<AtomicBool>,
}

fn main() {
    let batches = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let left = batches.map_or(8, |word| word.parse().expect("batches: expected a number"));
    let is_asked = |word: &str| std::env::args().any(|arg| arg == word);
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let sockets = bind_udp(here, Vec::new(), 1, &UdpOptions::default()).expect("cannot bind");
    let address = sockets[0].local_addr();
    let client = UdpSocket::bind(here).expect("cannot bind");
    client.connect(address).expect("cannot connect");
    client.set_nonblocking(true).expect("cannot set an option");
    let tracker = tracker();
    let options = if is_asked("private") { add_keys(&tracker) } else { Vec::new() };
    if is_asked("refused") || is_asked("quiet") {
        refuse(&tracker, is_asked("quiet"));
    }
    if is_asked("near") {
        prefer_near(&tracker);
    }
    let registry = MetricsRegistry::default();
    let listener_policy = ListenerPolicyId(0);
    let metrics = registry.register(Listener { protocol: Protocol::Udp, address, listener_policy });
    let listener = UdpListener { metrics, listener_policy, proxies: None };
    let clock = Clock::Manual(Box::leak(Box::new(AtomicU32::new(0))));
    let front = UdpFront::new(Arc::clone(&tracker), vec![listener], clock, 7);
    let stop = Arc::new(AtomicBool::new(false));
    let mut driver =
        Driver { front, tracker, client, options, left, number: 0, stop: Arc::clone(&stop) };
    driver.send();
    let worker = UdpWorker::new(sockets, Engine::Auto);
    run_udp(worker, &mut driver, &stop).expect("the worker failed");
}

/// Makes the listener private, adds keys, and returns the option with the URL of each.
fn add_keys(tracker: &Tracker) -> Vec<Vec<u8>> {
    let private = ListenerPolicy { access: Access::Private, ..ListenerPolicy::default() };
    tracker.replace_listeners(&[private]);
    let add_key = |number: u32| {
        let text = format!("0123456789abcdef01234567{number:08}");
        let url = format!("/announce/{text}");
        let key = UserKey::parse(text).expect("expected a key");
        tracker.passkeys().put(KeyId(number), key, KeyRules::default());
        [&[2, url.len() as u8], url.as_bytes()].concat()
    };
    (0..KEYS).map(add_key).collect()
}

/// Refuses every torrent.
fn refuse(tracker: &Tracker, is_quiet: bool) {
    let lists = AccessLists { mode: Mode::Allow, ..AccessLists::default() };
    tracker.replace_listeners(&[ListenerPolicy { lists, ..ListenerPolicy::default() }]);
    if is_quiet {
        let mut quiet = QuietRefusals::default();
        quiet.add(Refusal::NotAllowed, None);
        tracker.set_quiet(quiet);
    }
}

/// Prefers peers of the client's zone, among as many systems as there are on the internet.
fn prefer_near(tracker: &Tracker) {
    let network = |number: u32| ZoneNetwork {
        network: IpPrefix::v4((number << 12).into(), 20),
        zone: number,
    };
    let systems = Zones::new((0..1 << 19).map(network));
    let near = Near { percent: 20, own: Zones::default(), systems };
    tracker.set_near(Some(Arc::new(near)));
}

impl Driver {
    /// Sends a full batch, and discards the replies to the one before.
    fn send(&mut self) {
        let mut reply = [0; 1500];
        while self.client.recv(&mut reply).is_ok() {}
        let ip = self.client.local_addr().expect("no address").ip();
        let id = self.tracker.view(Tick(0)).issue_connection_id(ip);
        let mut packet = [0; ANNOUNCE_LEN + 64];
        for _ in 0..BATCH_MAX {
            let (torrent, peer) = (self.number % TORRENTS, self.number / TORRENTS % PEERS);
            packet[..8].copy_from_slice(&id.to_be_bytes());
            packet[11] = 1;
            packet[16..18].copy_from_slice(&(torrent as u16).to_be_bytes());
            packet[71] = (peer % 4) as u8;
            packet[92..96].fill(0xff);
            packet[96..ANNOUNCE_LEN].copy_from_slice(&(1024 + peer as u16).to_be_bytes());
            let mut len = ANNOUNCE_LEN;
            if !self.options.is_empty() {
                let option = &self.options[self.number % self.options.len()];
                len += option.len();
                packet[ANNOUNCE_LEN..len].copy_from_slice(option);
                packet[36..38].copy_from_slice(&(peer as u16).to_be_bytes());
            }
            self.client.send(&packet[..len]).expect("cannot send");
            self.number += 1;
        }
    }
}

impl Handler for Driver {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        assert_eq!(batch.len(), BATCH_MAX, "expected a full batch");
        self.front.batch(socket, batch);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            return self.stop.store(true, Ordering::Relaxed);
        }
        self.send();
    }

    /// The timer would add to the count, more to a slower run.
    fn idle(&mut self) {}

    fn send_failed(&mut self, _: usize, _: usize, _: bool) {
        unreachable!("replies to a loopback address failed");
    }

    fn source_filter(&mut self) -> Option<Vec<IpPrefix>> {
        self.front.source_filter()
    }
}
