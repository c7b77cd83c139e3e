//! Both engines, over real sockets, by the same tests.

use super::*;
use std::net::{IpAddr, SocketAddr, UdpSocket as Client};
use std::sync::Arc;
use std::time::Duration;

/// Echoes datagrams and counts them.
#[derive(Default)]
pub(super) struct Echo {
    datagrams: usize,
    truncated: usize,
    idles: usize,
    /// Replies that could not be sent.
    pub(super) refused: usize,
    pub(super) blocked: usize,
    to: Vec<Option<IpAddr>>,
}

impl Handler for Echo {
    fn batch(&mut self, _: usize, batch: &mut Batch) {
        for at in 0..batch.len() {
            self.datagrams += 1;
            self.truncated += usize::from(batch.is_truncated(at));
            self.to.push(batch.to(at));
            let (request, reply) = batch.exchange(at);
            let len = request.len().min(reply.len());
            reply[..len].copy_from_slice(&request[..len]);
            batch.set_reply(at, len);
        }
    }
    fn idle(&mut self) {
        self.idles += 1;
    }
    fn send_failed(&mut self, _: usize, datagrams: usize, blocked: bool) {
        *if blocked { &mut self.blocked } else { &mut self.refused } += datagrams;
    }
}

/// Serves `listen` with `engine` while `clients` runs. Returns the handler.
fn serve(engine: Engine, listen: &str, clients: impl FnOnce(SocketAddr)) -> Echo {
    let options = UdpOptions { engine, ..UdpOptions::default() };
    let sockets = bind_udp(listen.parse().unwrap(), Vec::new(), 1, &options).unwrap();
    let address = sockets[0].local_addr();
    assert!(sockets[0].receive_buffer() > 0);
    let stop = Arc::new(AtomicBool::new(false));
    let worker = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut echo = Echo::default();
            run_udp(UdpWorker::new(sockets, engine), &mut echo, &stop).unwrap();
            echo
        }
    });
    clients(address);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    worker.join().unwrap()
}

fn client(bind: &str, to: SocketAddr) -> Client {
    let client = Client::bind(bind).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.connect(to).unwrap();
    client
}

fn echo(client: &Client, text: &[u8]) {
    client.send(text).unwrap();
    let mut buffer = [0; 4096];
    let len = client.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], text);
}

const ENGINES: [Engine; 2] = [Engine::Auto, Engine::Portable];

#[test]
fn both_engines_answer_over_both_families() {
    for engine in ENGINES {
        for (listen, bind) in [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0")] {
            let handler = serve(engine, listen, |address| {
                let clients = [client(bind, address), client(bind, address)];
                for round in 0..200 {
                    echo(&clients[round % 2], format!("round {round}").as_bytes());
                }
            });
            assert_eq!((handler.datagrams, handler.refused, handler.blocked), (200, 0, 0));
            let here = Some(listen.parse::<SocketAddr>().unwrap().ip());
            assert!(handler.to.iter().all(|to| *to == here));
            assert!(handler.idles >= 1);
        }
    }
}

#[test]
fn answers_bursts_larger_than_a_batch() {
    for engine in ENGINES {
        serve(engine, "127.0.0.1:0", |address| {
            let client = client("127.0.0.1:0", address);
            let burst = 3 * BATCH_MAX;
            for number in 0..burst {
                client.send(&number.to_be_bytes()).unwrap();
            }
            let mut seen = vec![false; burst];
            for _ in 0..burst {
                let mut buffer = [0; 8];
                client.recv(&mut buffer).unwrap();
                seen[usize::from_be_bytes(buffer)] = true;
            }
            assert!(seen.iter().all(|seen| *seen));
        });
    }
}

#[test]
fn marks_long_datagrams_and_accepts_empty_ones() {
    for engine in ENGINES {
        let handler = serve(engine, "127.0.0.1:0", |address| {
            let client = client("127.0.0.1:0", address);
            client.send(&[]).unwrap();
            client.send(&vec![7; REQUEST_MAX + 1]).unwrap();
            let mut buffer = [0; 4096];
            assert_eq!(client.recv(&mut buffer).unwrap(), REPLY_MAX);
            echo(&client, b"still there");
        });
        assert_eq!((handler.datagrams, handler.truncated), (3, 1));
    }
}

#[test]
fn portable_engine_reports_no_destinations_of_wildcards() {
    let handler = serve(Engine::Portable, "0.0.0.0:0", |address| {
        echo(&client("127.0.0.1:0", ([127, 0, 0, 1], address.port()).into()), b"hello");
    });
    assert_eq!(handler.to, [None]);
}

#[test]
fn closed_clients_do_not_affect_others() {
    for engine in ENGINES {
        serve(engine, "127.0.0.1:0", |address| {
            for _ in 0..50 {
                client("127.0.0.1:0", address).send(b"gone before the answer").unwrap();
            }
            // It may have the port of a closed client, and receive its reply.
            let client = client("127.0.0.1:0", address);
            client.send(b"here").unwrap();
            let mut buffer = [0; 64];
            while client.recv(&mut buffer).unwrap() != b"here".len() {}
        });
    }
}
