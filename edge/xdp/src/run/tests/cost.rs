//! Measures the CPU time of a reply of 200 bytes, in this engine and in that of sockets. The handler does
//! next to nothing, so the figures are those of receiving and sending alone.

use super::*;
use crate::bpf::{load_program, run_live};
use harness::network::{ROUTER_MAC, TRACKER_MAC};
use nix::time::{ClockId, clock_gettime};

/// A program that sends a frame to where another one is: redirect(ifindex, 0).
fn sender(ifindex: u32) -> [u64; 4] {
    let instruction =
        |code: u64, register: u64, immediate: u64| code | register << 8 | immediate << 32;
    [
        instruction(0xb7, 1, ifindex.into()),
        instruction(0xb7, 2, 0),
        instruction(0x85, 0, 23),
        instruction(0x95, 0, 0),
    ]
}

/// r0 = XDP_DROP.
const SINK: [u64; 2] = [0xb7 | 1 << 32, 0x95];
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Returns a frame of a request of 98 bytes to the tracker, for a reply of 200.
fn frame(to: SocketAddr) -> Vec<u8> {
    let mut frame = [TRACKER_MAC, ROUTER_MAC].concat();
    frame.extend([8, 0, 0x45, 0, 0, 126, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([198, 18, 1, 2]);
    let IpAddr::V4(ip) = to.ip() else { unreachable!() };
    frame.extend(ip.octets());
    let sum: u32 =
        frame[14..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame.extend([0x30, 0x39]);
    frame.extend(to.port().to_be_bytes());
    frame.extend([0, 106, 0, 0]);
    frame.extend(request(200, 98));
    frame
}

struct Counter {
    repeater: Repeater,
    batches: usize,
}

impl Handler for Counter {
    fn batch(&mut self, socket: usize, batch: &mut Batch) {
        self.repeater.to.clear();
        self.repeater.of_sockets.clear();
        self.batches += 1;
        self.repeater.batch(socket, batch);
    }
    fn idle(&mut self) {}
    fn send_failed(&mut self, socket: usize, datagrams: usize, blocked: bool) {
        self.repeater.send_failed(socket, datagrams, blocked);
    }
}

fn measure(mode: Mode, is_steering: bool, chunks: u32) {
    let Some(mut host) = Host::with_chunks(chunks, mode, 1, false) else { return };
    host.maps.steering().set(is_steering);
    let to = host.addresses()[0];
    let name = if is_steering { format!("xdp, {mode:?}") } else { "sockets".into() };
    let device = host.network.router.run(|| ifindex("tracker"));
    host.network
        .tracker
        .ip("neighbour replace 203.0.113.1 lladdr 02:00:00:00:02:01 dev eth0\n")
        .unwrap();
    let sink = load_program("sink", LICENSE, &SINK).unwrap();
    host.network.router.ip("link set tracker xdp off\n").unwrap();
    let _sink = host.network.router.run(|| attach_xdp(sink.as_fd(), device, Mode::Driver).unwrap());
    let program = load_program("sender", LICENSE, &sender(device)).unwrap();
    let (worker, queues) = host.worker();
    let queues = if is_steering { queues } else { WorkerQueues::default() };
    let stop = Arc::new(AtomicBool::new(false));
    let (frame, router) = (frame(to), &host.network.router);
    thread::scope(|scope| {
        let stop_sending = Arc::clone(&stop);
        scope.spawn(move || {
            net::process::pin_to_core(1).unwrap();
            let _inside = router.enter().unwrap();
            let end = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < end {
                let _ = run_live(program.as_fd(), &frame, 1 << 18, 64);
            }
            stop_sending.store(true, Ordering::Relaxed);
        });
        net::process::pin_to_core(0).unwrap();
        let repeater = Repeater::default();
        let mut handler = Counter { repeater, batches: 0 };
        let (begun, cpu) =
            (Instant::now(), clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        run(worker, queues, &mut handler, &stop).unwrap();
        let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap() - cpu;
        let datagrams = handler.repeater.datagrams as f64;
        println!(
            "{name}, {chunks} chunks: {:.0} ns of CPU time a reply, {:.0}/s, batches of {:.1}, {} refused, {} blocked",
            Duration::from(cpu).as_nanos() as f64 / datagrams,
            datagrams / begun.elapsed().as_secs_f64(),
            datagrams / handler.batches as f64,
            handler.repeater.refused,
            handler.repeater.blocked,
        );
    });
}

#[test]
#[ignore = "measures: cargo test --release -p tidegate-xdp cost_of_a_reply -- --ignored --nocapture"]
fn cost_of_a_reply() {
    for _ in 0..5 {
        measure(Mode::Driver, true, 4096);
        measure(Mode::Driver, true, 2048);
        measure(Mode::Driver, false, 2048);
    }
}
