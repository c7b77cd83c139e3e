//! The same over a network, with each engine: links and AF_XDP sockets are handed over, too.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::site::Engine;
use crate::udp;

crate::site::on_engines! {
    loses_no_datagram_at_upgrades,
    keeps_serving_if_the_new_process_cannot_start,
}

/// Requests of a client that have no answer yet.
const WAITING_MAX: usize = 40;

/// Stream of requests from a client that does not wait for answers, and the answers it still expects.
struct Stream {
    client: Udp,
    /// The transaction ids of which no answer has come.
    waiting: HashSet<u32>,
    next: u32,
}

impl Stream {
    fn open(tracker: SocketAddr) -> Self {
        let client = Udp::unconnected(1, tracker);
        let mut stream = Self { client, waiting: HashSet::new(), next: 1 };
        stream.connect();
        stream.receive(Duration::from_secs(20));
        assert!(stream.waiting.is_empty(), "no answer to the first connect");
        stream.client.socket.set_nonblocking(true).unwrap();
        stream
    }

    /// Sends a request with a transaction id of its own.
    fn send(&mut self, mut datagram: Vec<u8>) {
        datagram[12..16].copy_from_slice(&self.next.to_be_bytes());
        if self.client.socket.send(&datagram).is_ok() {
            self.waiting.insert(self.next);
            self.next += 1;
        }
    }

    fn connect(&mut self) {
        self.send(udp::connect(0));
    }

    /// Scrapes, because announces of one peer are refused if they come too often.
    fn scrape(&mut self) {
        self.send(udp::scrape(self.client.id, &[[0xaa; 20]]));
    }

    /// Receives what has come, and waits for the first for at most this time.
    fn receive(&mut self, wait: Duration) {
        let deadline = Instant::now() + wait;
        loop {
            match self.client.receive() {
                Ok(reply) => {
                    let number = u32_at(&reply, 4);
                    assert!(self.waiting.remove(&number), "answer {number} has come twice");
                    match u32_at(&reply, 0) {
                        0 => self.client.id = u64::from_be_bytes(reply[8..16].try_into().unwrap()),
                        2 => assert_eq!(reply.len(), 20),
                        _ => panic!("{:?}", String::from_utf8_lossy(&reply[8..])),
                    }
                    if self.waiting.is_empty() {
                        return;
                    }
                }
                Err(_) if Instant::now() >= deadline => return,
                Err(_) => thread::sleep(Duration::from_micros(200)),
            }
        }
    }
}

/// Sends connects and scrapes at a steady rate, whether or not answers come.
fn run(mut stream: Stream, stop: &AtomicBool) -> (u32, usize) {
    while !stop.load(Ordering::Relaxed) {
        // As many as fit into the buffer of a socket, if the tracker is kept from running meanwhile.
        let room = WAITING_MAX.saturating_sub(stream.waiting.len());
        for number in 0..room.min(4) {
            if number == 0 {
                stream.connect();
            } else {
                stream.scrape();
            }
        }
        stream.receive(Duration::ZERO);
        thread::sleep(Duration::from_millis(1));
    }
    // The last ones may be on their way.
    for _ in 0..100 {
        if stream.waiting.is_empty() {
            break;
        }
        stream.receive(Duration::from_millis(100));
    }
    (stream.next - 1, stream.waiting.len())
}

fn loses_no_datagram_at_upgrades() {
    // A tracker of debug builds is slow, and all clients have one prefix.
    let tracker = Tracker::start(Directory::new(), "[limits]\nkernel_block_per_s = 0\n");
    let stop = AtomicBool::new(false);
    let streams = [tracker.udp4(), tracker.udp6()].map(Stream::open);
    thread::scope(|scope| {
        let clients = streams.map(|stream| scope.spawn(|| run(stream, &stop)));
        let _stop = StopAtEnd(&stop);
        for _ in 0..3 {
            tracker.upgrade();
            thread::sleep(Duration::from_millis(300));
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            let (sent, lost) = client.join().unwrap();
            eprintln!("{sent} requests at three upgrades, {lost} without an answer");
            assert!(sent > 100);
            assert_eq!(lost, 0, "of {sent}\n{}", tracker.log());
        }
    });
    let Some(engine) = crate::site::current_engine() else { return };
    if engine == Engine::Mmsg {
        return;
    }
    // The program of the last process answers.
    let answered = || tracker.sum("tidegate_xdp_frames_total", &[("result", "connect")]);
    tracker.wait_until("the program's counts", |_| answered() > 0.0);
    if engine.is_xdp() {
        let steered = || tracker.sum("tidegate_xdp_frames_total", &[("result", "steered")]);
        let before = steered();
        let mut stream = Stream::open(tracker.udp4());
        stream.scrape();
        stream.receive(Duration::from_secs(20));
        assert!(stream.waiting.is_empty());
        tracker.wait_until("datagrams on AF_XDP sockets", |_| steered() > before);
        assert_eq!(tracker.sum("tidegate_xdp_sockets", &[("state", "closed")]), 0.0);
    }
}
