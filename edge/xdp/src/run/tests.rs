//! A queue between a handler and a kernel in memory. Real kernels, drivers and clients are in the tests of the
//! application, which compare all engines.

use std::fs::File;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::chunks::Rings;
use crate::maps::NextHop;
use crate::test_frames::{CLIENT_MAC, SERVER_MAC, frame};
use crate::test_kernel::{COUNT, Kernel, Memory, TX_LEN};

const V4: &str = "192.0.2.1:6969";
const V6: &str = "[2001:db8::1]:6969";
const CLIENT_V4: &str = "198.18.0.1:4096";
const CLIENT_V6: &str = "[2001:db8:1::2]:4096";

/// Repeats each request as the reply to it.
#[derive(Default)]
struct Echo {
    /// The number of the socket, and the destination, of each request.
    seen: Vec<(usize, Option<IpAddr>)>,
    refused: usize,
    blocked: usize,
}

impl Handler for Echo {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        for at in 0..batch.len() {
            self.seen.push((socket, batch.to(at)));
            let (request, reply) = batch.exchange(at);
            let len = request.len();
            reply[..len].copy_from_slice(request);
            batch.set_reply(at, len);
        }
    }

    fn idle(&mut self) {}

    fn send_failed(&mut self, _: usize, datagrams: usize, blocked: bool) {
        *if blocked { &mut self.blocked } else { &mut self.refused } += datagrams;
    }
}

/// A queue with its kernel.
struct Driver {
    memory: Memory,
    kernel: Kernel,
    queue: ServedQueue,
    listeners: Listeners,
    echo: Echo,
}

impl Driver {
    fn new(listeners: &[&str]) -> Self {
        let memory = Memory::new();
        let (mut rings, kernel) = (memory.rings(), memory.kernel());
        rings.fill_all(COUNT);
        let queue = served(&memory, rings);
        let listeners = Listeners(listeners.iter().map(|it| it.parse().unwrap()).collect());
        Self { memory, kernel, queue, listeners, echo: Echo::default() }
    }

    /// Has the queue serve these frames. Returns the replies.
    fn serve(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        frames.iter().for_each(|frame| self.kernel.receive(frame));
        assert_eq!(self.queue.turn(&self.listeners, &mut self.echo), frames.len());
        self.kernel.send()
    }

    /// Returns whether all chunks are in the fill ring.
    fn has_all_chunks(&mut self) -> bool {
        assert_eq!(self.queue.turn(&self.listeners, &mut self.echo), 0);
        self.queue.queue.rings.fill.pending() == COUNT
    }
}

fn served(memory: &Memory, rings: Rings) -> ServedQueue {
    let socket = UnixDatagram::unbound().unwrap().into();
    let file = File::open("/dev/null").unwrap();
    let queue = Queue::of_parts(socket, file, Arc::clone(&memory.chunks), rings);
    ServedQueue::new(WorkerQueue { queue, next_hops: Arc::default(), status: Arc::default() })
}

#[test]
fn frames_that_are_not_for_a_socket_are_dropped_and_counted() {
    let mut driver = Driver::new(&[V4]);
    let other = [frame(CLIENT_V4, "192.0.2.1:7000", b"x"), frame(CLIENT_V6, V6, b"x")];
    assert!(driver.serve(&[&other[..], &[vec![0; 60]]].concat()).is_empty());
    assert_eq!((driver.queue.unparsed, driver.echo.seen.len()), (3, 0));
    assert!(driver.has_all_chunks());
}

#[test]
fn replies_without_a_place_are_counted_as_blocked() {
    let mut driver = Driver::new(&[V4]);
    let requests = vec![frame(CLIENT_V4, V4, b"request"); TX_LEN as usize + 5];
    assert_eq!(driver.serve(&requests).len(), TX_LEN as usize);
    assert_eq!((driver.echo.blocked, driver.queue.tx_full, driver.echo.refused), (5, 5, 0));
    assert!(driver.has_all_chunks());
    assert_eq!(driver.serve(&requests[..1]).len(), 1);
}

#[test]
fn replies_go_to_the_next_hop() {
    let mut driver = Driver::new(&[V4, V6]);
    let on_link = frame("[2001:db8:2::9]:4096", V6, b"x");
    let requests = [frame(CLIENT_V4, V4, b"x"), frame(CLIENT_V6, V6, b"x"), on_link];
    let gateway = [2, 9, 9, 9, 9, 9];
    for (v6, expected) in [
        (NextHop::Always(gateway), [gateway, gateway]),
        (NextHop::OffLink(gateway), [gateway, CLIENT_MAC]),
    ] {
        let on_link = vec!["2001:db8:2::/48".parse().unwrap()];
        let hops = NextHops { v4: NextHop::Unknown, v6, on_link };
        driver.queue.next_hops.store(Arc::new(hops));
        let replies = driver.serve(&requests);
        let ends: Vec<&[u8]> = replies.iter().map(|reply| &reply[..12]).collect();
        assert_eq!(ends, expected.map(|mac| [mac, SERVER_MAC].concat()));
    }
    // No datagram can be sent to port 0.
    driver.queue.next_hops.store(Arc::default());
    assert!(driver.serve(&[frame("198.18.0.1:0", V4, b"x")]).is_empty());
    assert_eq!((driver.echo.refused, driver.echo.blocked), (3, 0));
    assert!(driver.has_all_chunks());
}

/// Another process would have the memory; here it is another queue of the same.
#[test]
fn a_parked_queue_is_taken_over() {
    let mut driver = Driver::new(&[V4]);
    let request = frame(CLIENT_V4, V4, b"request");
    assert_eq!(driver.serve(&[request.clone(), request.clone()]).len(), 2);
    driver.queue.status.park(true);
    driver.kernel.receive(&request);
    assert_eq!(driver.queue.turn(&driver.listeners, &mut driver.echo), 0);
    assert!(driver.queue.status.is_parked());
    let mut other = served(&driver.memory, driver.memory.rings());
    assert_eq!(other.turn(&driver.listeners, &mut driver.echo), 1);
    assert_eq!(driver.kernel.send().len(), 1);
    // The upgrade is cancelled: the first one continues from there.
    driver.queue.status.park(false);
    assert_eq!(driver.serve(&[request]).len(), 1);
    assert!(driver.has_all_chunks());
}
