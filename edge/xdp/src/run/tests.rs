//! AF_XDP sockets on veth pairs, in namespaces. Skipped, with a line that says so, without the privileges.

use super::*;
use crate::bpf::attach_xdp;
use crate::interface::Endpoint;
use crate::maps::{InterfaceMaps, Maps, NextHop, load};
use crate::{Mode, ProtocolNumbers};
use harness::network::{Network, NetworkOptions, tracker, tracker_v6};
use net::{Engine, UdpOptions, bind_udp};
use std::net::UdpSocket as Client;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

/// Requests say how long their reply is to be, in the two bytes after this. It is not a connect.
const HEAD: [u8; 14] = *b"not a connect.";

/// Answers each request with as many bytes as it asks for: its own, repeated.
#[derive(Default)]
struct Repeater {
    datagrams: usize,
    of_sockets: Vec<usize>,
    to: Vec<Option<IpAddr>>,
    refused: usize,
    blocked: usize,
}

impl Handler for Repeater {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        self.datagrams += batch.len();
        for at in 0..batch.len() {
            self.of_sockets.push(socket);
            self.to.push(batch.to(at));
            let room = batch.room(at);
            let (request, reply) = batch.exchange(at);
            let len = expected_len(request).min(room);
            reply
                .iter_mut()
                .zip(request.iter().cycle())
                .take(len)
                .for_each(|(to, from)| *to = *from);
            batch.set_reply(at, len);
        }
    }

    fn idle(&mut self) {}

    fn send_failed(&mut self, _: usize, datagrams: usize, blocked: bool) {
        *if blocked { &mut self.blocked } else { &mut self.refused } += datagrams;
    }
}

fn request(reply_len: u16, len: usize) -> Vec<u8> {
    let mut request = [&HEAD[..], &reply_len.to_be_bytes()].concat();
    request.resize(len, 7);
    request
}

fn expected_len(request: &[u8]) -> usize {
    request.get(14..16).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]).into())
}

/// A host with the program on its interface.
struct Host {
    network: Network,
    sockets: Vec<UdpSocket>,
    queues: Vec<WorkerQueue>,
    interface: InterfaceMaps,
    _link: OwnedFd,
}

impl Host {
    /// Returns `None` if there cannot be one here.
    fn start(mode: Mode, queues: u32, wildcard: bool) -> Option<Self> {
        Self::with_chunks(2048, mode, queues, wildcard)
    }

    fn with_chunks(chunks: u32, mode: Mode, queues: u32, wildcard: bool) -> Option<Self> {
        if let Some(obstacle) = Network::obstacle() {
            eprintln!("skipped: AF_XDP sockets on veth pairs: {obstacle}");
            return None;
        }
        let network = Network::new(NetworkOptions::default()).unwrap();
        if queues == 1 {
            // The router distributes flows among as many queues as there are.
            network.router.run_command("ethtool", &["-L", "tracker", "tx", "1"]).unwrap();
            network.tracker.run_command("ethtool", &["-L", "eth0", "rx", "1"]).unwrap();
        }
        let addresses: [IpAddr; 2] = if wildcard {
            [[0, 0, 0, 0].into(), [0; 16].into()]
        } else {
            [tracker(1).into(), tracker_v6(1).into()]
        };
        let open = || {
            let bind = |ip: IpAddr| bind_udp((ip, 0).into(), 1, &UdpOptions::default()).unwrap();
            let sockets: Vec<UdpSocket> = addresses.into_iter().flat_map(bind).collect();
            let index = ifindex("eth0");
            let queues = (0..queues).map(|queue| WorkerQueue {
                queue: Queue::open(index, queue, chunks, false).unwrap(),
                next_hops: Arc::default(),
                status: Arc::default(),
            });
            (sockets, queues.collect::<Vec<_>>(), index)
        };
        let (sockets, queues, index) = network.tracker.run(open);
        let protocol = ProtocolNumbers {
            connect_magic: 0x417_2710_1980,
            connect_action: 0,
            connect_reply_action: 0,
            head_len: 16,
        };
        let mut maps = Maps::create(&protocol, [1, 2, 3]).unwrap();
        let mut interface = InterfaceMaps::create().unwrap();
        interface.set_next_hop_v4(NextHop::Swap);
        interface.set_next_hop_v6(NextHop::Swap);
        for (at, own) in queues.iter().enumerate() {
            interface.set_socket(at as u32, own.queue.descriptors().0).unwrap();
        }
        let ends = [tracker(1).into(), tracker_v6(1).into()].into_iter().zip(&sockets);
        let endpoints = ends.map(|(ip, socket): (IpAddr, _)| Endpoint {
            address: SocketAddr::new(ip, socket.local_addr().port()),
            listener: 0,
            answers: false,
            verifies: false,
            filters: false,
        });
        assert_eq!(maps.set_endpoints(&endpoints.collect::<Vec<_>>()), 0);
        maps.steering().set(true);
        let program = load(&maps, &interface).unwrap();
        let link = network.tracker.run(|| attach_xdp(program.as_fd(), index, mode).unwrap());
        Some(Self { network, sockets, queues, interface, _link: link })
    }

    /// Takes what its worker serves.
    fn worker(&mut self) -> (UdpWorker, WorkerQueues) {
        let sockets = std::mem::take(&mut self.sockets);
        let queues = WorkerQueues { queues: std::mem::take(&mut self.queues) };
        (UdpWorker::new(sockets, Engine::Xdp), queues)
    }

    /// Returns the addresses that clients send to, v4 and v6.
    fn addresses(&self) -> [SocketAddr; 2] {
        let port = |at: usize| self.sockets[at].local_addr().port();
        [(tracker(1), port(0)).into(), (tracker_v6(1), port(1)).into()]
    }

    /// Returns a client of `namespace` that is connected to `to`.
    fn client(&self, to: SocketAddr) -> Client {
        self.network.clients.run(|| client(to))
    }

    fn steered(&self) -> u64 {
        (0..2).map(|queue| self.interface.counts(queue, 0).steered).sum()
    }

    fn passed(&self) -> u64 {
        (0..2).map(|queue| self.interface.counts(queue, 0).passed).sum()
    }
}

fn ifindex(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

fn client(to: SocketAddr) -> Client {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let client = Client::bind((any, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(to).unwrap();
    client
}

/// Repeats `is_so` until it returns true, without sleeping: it does the work that is waited for.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::yield_now();
    }
}

/// Sends a request and asserts that the reply is right.
fn exchange(client: &Client, reply_len: u16, len: usize) {
    let request = request(reply_len, len);
    client.send(&request).unwrap();
    let mut reply = [0; 2048];
    let len = client.recv(&mut reply).unwrap();
    assert_eq!(len, usize::from(reply_len));
    assert!(reply[..len].iter().eq(request.iter().cycle().take(len)), "the reply is damaged");
}

/// A worker, until it is stopped.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Repeater>,
}

impl Running {
    fn start((worker, queues): (UdpWorker, WorkerQueues)) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let mut handler = Repeater::default();
                run(worker, queues, &mut handler, &stop).unwrap();
                handler
            }
        });
        Self { stop, thread }
    }

    fn finish(self) -> Repeater {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn requests_are_answered_in_both_modes_and_families() {
    for mode in [Mode::Driver, Mode::Generic] {
        for wildcard in [false, true] {
            let Some(mut host) = Host::start(mode, 2, wildcard) else { return };
            let addresses = host.addresses();
            let running = Running::start(host.worker());
            let clients = addresses.map(|to| host.client(to));
            for reply_len in [1, 20, 200, 201, 1232] {
                for client in &clients {
                    exchange(client, reply_len, 98);
                    exchange(client, reply_len, 1400);
                }
            }
            for reply_len in [1252, 1253, 1472] {
                exchange(&clients[0], reply_len, 98);
            }
            let handler = running.finish();
            assert_eq!((handler.datagrams, handler.refused + handler.blocked), (23, 0), "{mode:?}");
            assert_eq!((host.steered(), host.passed()), (23, 0), "{mode:?}");
            let is_v4 = |socket: &usize| *socket == 0;
            assert_eq!(handler.of_sockets.iter().filter(|at| is_v4(at)).count(), 13);
            for (socket, to) in handler.of_sockets.iter().zip(&handler.to) {
                let own: [IpAddr; 2] = [tracker(1).into(), tracker_v6(1).into()];
                assert_eq!(*to, Some(own[*socket]));
            }
        }
    }
}

#[test]
fn several_queues_of_one_worker_are_served() {
    let Some(mut host) = Host::start(Mode::Driver, 2, false) else { return };
    let addresses = host.addresses();
    let running = Running::start(host.worker());
    // The router's own datagrams are distributed by flow.
    let clients: Vec<Client> =
        host.network.router.run(|| (0..32).map(|number| client(addresses[number % 2])).collect());
    for _ in 0..10 {
        clients.iter().for_each(|client| exchange(client, 200, 98));
    }
    let handler = running.finish();
    assert_eq!((handler.datagrams, host.steered()), (320, 320));
    for queue in 0..2 {
        assert!(host.interface.counts(queue, 0).steered > 0, "nothing came to queue {queue}");
    }
}

#[test]
fn replies_without_a_place_are_counted_as_blocked() {
    let Some(mut host) = Host::with_chunks(4096, Mode::Driver, 1, false) else { return };
    let to = host.addresses()[0];
    let listeners = Listeners(host.sockets.iter().map(UdpSocket::local_addr).collect());
    let mut queue = ServedQueue::new(host.queues.remove(0));
    let client = host.client(to);
    let mut handler = Repeater::default();
    // Replies are queued, but the kernel is not called to send them.
    for number in 0..2100 {
        client.send(&request(20, 98)).unwrap();
        until("the request", || queue.receive(&listeners) == 1);
        queue.serve(0, 1, &mut handler);
        queue.queue.rings.publish();
        assert_eq!(handler.blocked, (number + 1_usize).saturating_sub(2048));
    }
    assert!(queue.check());
    assert_eq!((queue.status.drops().tx_full, handler.refused), (52, 0));
    // All is well when they are sent.
    until("all chunks to be in the fill ring", || {
        queue.turn(&listeners, &mut handler);
        queue.queue.rings.fill.pending() == 4096
    });
    client.set_nonblocking(true).unwrap();
    while client.recv(&mut [0; 100]).is_ok() {}
    client.set_nonblocking(false).unwrap();
    client.send(&request(30, 98)).unwrap();
    until("the request", || queue.turn(&listeners, &mut handler) == 1);
    assert_eq!(client.recv(&mut [0; 100]).unwrap(), 30);
}

#[test]
fn replies_without_a_next_hop_are_refused() {
    let Some(mut host) = Host::start(Mode::Driver, 1, false) else { return };
    let to = host.addresses()[0];
    let own = host.queues.remove(0);
    let hops = NextHops { v4: NextHop::Unknown, ..NextHops::default() };
    own.next_hops.store(Arc::new(hops));
    let listeners = Listeners(host.sockets.iter().map(UdpSocket::local_addr).collect());
    let mut queue = ServedQueue::new(own);
    let client = host.client(to);
    client.send(&request(20, 98)).unwrap();
    let mut handler = Repeater::default();
    until("the request", || queue.turn(&listeners, &mut handler) == 1);
    assert_eq!((handler.blocked, handler.refused), (0, 1));
    assert_eq!(queue.queue.rings.fill.pending(), 2048);
}
