//! A queue between a handler and a kernel in memory: frames that no program steers, and a full ring. The tests of
//! the application serve over networks, compare the replies of all engines, and hand queues over.

use std::fs::File;
use std::os::unix::net::UnixDatagram;

use net::Batch;

use super::*;
use crate::test_frames::frame;
use crate::test_kernel::{COUNT, Kernel, Memory, TX_LEN};

const SERVER: &str = "192.0.2.1:6969";
const CLIENT: &str = "198.18.0.1:4096";

/// Repeats each request as the reply to it.
#[derive(Default)]
struct Echo {
    served: usize,
    refused: usize,
    blocked: usize,
}

impl Handler for Echo {
    fn batch(&mut self, _: usize, batch: &mut Batch) {
        for at in 0..batch.len() {
            self.served += 1;
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
    kernel: Kernel,
    queue: WorkerQueue,
    echo: Echo,
}

impl Driver {
    fn new() -> Self {
        let memory = Memory::new();
        let mut rings = memory.rings();
        rings.fill_all(COUNT);
        let socket = UnixDatagram::unbound().unwrap().into();
        let file = File::open("/dev/null").unwrap();
        let queue = Queue::of_parts(socket, file, Arc::clone(&memory.chunks), rings);
        let queue = WorkerQueue::new(queue, Arc::default(), Arc::default());
        Self { kernel: memory.kernel(), queue, echo: Echo::default() }
    }

    /// Serves these frames, and returns the number of replies. Panics if a chunk is lost.
    fn serve(&mut self, frames: &[Vec<u8>]) -> usize {
        let listeners = Listeners(vec![SERVER.parse().unwrap()]);
        frames.iter().for_each(|frame| self.kernel.receive(frame));
        assert_eq!(self.queue.turn(&listeners, &mut self.echo), frames.len());
        let replies = self.kernel.send();
        assert_eq!(self.queue.turn(&listeners, &mut self.echo), 0);
        assert_eq!(self.queue.queue.rings.fill.pending(), COUNT);
        replies
    }
}

#[test]
fn frames_without_a_reply_are_counted() {
    let mut driver = Driver::new();
    let frames = [
        frame(CLIENT, "192.0.2.1:7000", b"for no socket"),
        frame("[2001:db8:1::2]:4096", "[2001:db8::1]:6969", b"for no socket"),
        vec![0; 60],
        frame("198.18.0.1:0", SERVER, b"no datagram can be sent to port 0"),
    ];
    assert_eq!(driver.serve(&frames), 0);
    assert_eq!((driver.queue.unparsed, driver.echo.served, driver.echo.refused), (3, 1, 1));
}

#[test]
fn replies_without_a_place_are_counted_as_blocked() {
    let mut driver = Driver::new();
    let requests = vec![frame(CLIENT, SERVER, b"request"); TX_LEN as usize + 5];
    assert_eq!(driver.serve(&requests), TX_LEN as usize);
    assert_eq!((driver.echo.blocked, driver.queue.tx_full, driver.echo.refused), (5, 5, 0));
    assert_eq!(driver.serve(&requests[..1]), 1);
}
