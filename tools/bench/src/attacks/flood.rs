//! One address announces at five times the rate that the tracker serves, while forty other addresses send few requests.
//! Without limits these lose most of their requests.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use ::load::udp::UdpOptions;
use ::load::{LoopMode, Mix, Report, RunPlan, Tester, TrackerUrl, Workload};
use anyhow::{Context, Result};
use net::process::raise_priority;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};

use super::{BEFORE_US, HONEST, LATENCIES, Outcome, SENDS, Target};
use crate::datagrams::{ANNOUNCE, announce, connect};
use crate::figures::{count, micros, percent};
use crate::record::Figures;

const FLOOD_RATIO: f64 = 5.0;
/// Time in which the tracker's own maximum is measured.
const CAPACITY_TIME: Duration = Duration::from_secs(2);
/// Announces that leave with one system call, and pass the kernel in one piece as far as the
/// tracker's socket: one processor makes several times as many as another can serve.
const AT_ONCE: usize = 64;
/// Longest time by which the flood may fall behind its pace and still catch up.
const BEHIND_MAX: Duration = Duration::from_millis(20);
/// Honest clients, and announces of all of them per second.
const CLIENTS: u8 = 40;
const HONEST_PER_S: f64 = 2000.0;
/// Time for honest clients to connect. The flood begins after it.
const CONNECT: Duration = Duration::from_millis(300);
/// Time that the flood has to build up before honest clients are measured.
const BUILD_UP: Duration = Duration::from_secs(1);
/// Time for which honest clients are measured before the flood.
const BEFORE: Duration = Duration::from_secs(2);

/// Limits of a tracker.
struct Scene {
    case: &'static str,
    /// Announces, connects and scrapes per second of an address.
    per_s: &'static str,
    /// Largest number of each at once. With a larger burst the limit takes effect later.
    burst: &'static str,
}

const UNLIMITED: Scene = Scene { case: "flood, no limits", per_s: "0", burst: "0" };
const LIMITED: Scene =
    Scene { case: "flood, 1,000 per second and address", per_s: "1000", burst: "10000" };

/// Floods the tracker without limits and with limits.
pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let flood_s = FLOOD_RATIO * capacity(target)?;
    [UNLIMITED, LIMITED].iter().map(|scene| scene.play(target, flood_s)).collect()
}

/// Returns the announces per second that the tracker serves, without limits.
fn capacity(target: &Target<'_>) -> Result<f64> {
    let tracker = target.start(&UNLIMITED.settings())?;
    let plan = RunPlan { duration: CAPACITY_TIME, ..RunPlan::default() };
    let options = UdpOptions { plan, ..UdpOptions::of(url(tracker.address)?) };
    Ok(options.run(&AtomicBool::new(false), &mut |_| {})?.responses_per_s)
}

fn url(tracker: SocketAddr) -> Result<TrackerUrl> {
    TrackerUrl::udp(&format!("udp://{tracker}/announce"))
}

/// Returns clients at addresses of their own, which are measured for `time`.
fn honest(tracker: SocketAddr, time: Duration) -> Result<UdpOptions> {
    Ok(UdpOptions {
        workload: Workload { torrents: 256, peers: 4000, want: Some(0), ..Workload::default() },
        loop_mode: LoopMode::Open { rate: HONEST_PER_S },
        mix: Mix { connect: 0, announce: 1, scrape: 0 },
        sockets: CLIENTS.into(),
        sources: (1..=CLIENTS).map(|number| IpAddr::from([127, 0, 1, number])).collect(),
        offload: false,
        plan: RunPlan { warm_up: CONNECT + BUILD_UP, duration: time, ..RunPlan::default() },
        ..UdpOptions::of(url(tracker)?)
    })
}

impl Scene {
    fn settings(&self) -> [(&'static str, &'static str); 7] {
        [
            // All clients are on the loopback device, which is exempt by default.
            ("TIDEGATE_LIMITS__EXEMPT", "[]"),
            ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__SCRAPES_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__CONNECTS_PER_S", self.per_s),
            ("TIDEGATE_LIMITS__ANNOUNCES_BURST", self.burst),
            ("TIDEGATE_LIMITS__SCRAPES_BURST", self.burst),
            ("TIDEGATE_LIMITS__CONNECTS_BURST", self.burst),
        ]
    }

    fn play(&self, target: &Target<'_>, flood_s: f64) -> Result<Outcome> {
        let running = target.start(&self.settings())?;
        let tracker = running.address;
        let before = measure(&honest(tracker, BEFORE)?)?;
        let clients = honest(tracker, target.during)?;
        let is_over = AtomicBool::new(false);
        let (during, sent) = thread::scope(|scope| {
            let clients = scope.spawn(|| measure(&clients));
            sleep(CONNECT);
            let flooding = scope.spawn(|| Flood::new(tracker, flood_s)?.run(&is_over));
            let during = clients.join().ok().context("the clients panicked");
            is_over.store(true, Ordering::Relaxed);
            let sent = flooding.join().ok().context("the flood panicked")??;
            anyhow::Ok((during??, sent))
        })?;
        let sent_s = sent as f64 / (target.during + BUILD_UP).as_secs_f64();
        let (figures, text) = outcome(&before, &during);
        let figures = figures.with(SENDS, sent_s * ANNOUNCE as f64);
        Ok((self.case, figures, format!("{text}; flooded with {}/s", count(sent_s))))
    }
}

/// Measures honest clients. They share their processor with the attacker, which is not to delay them. A system that does
/// not permit that adds the time of their turns.
fn measure(clients: &UdpOptions) -> Result<Report> {
    // In a thread of their own, because others inherit a priority.
    let run = || {
        let _ = raise_priority();
        clients.run(&AtomicBool::new(false), &mut |_| {})
    };
    thread::scope(|scope| scope.spawn(run).join()).ok().context("the clients panicked")?
}

/// Returns the figures of honest clients before the flood and during it, and a summary.
fn outcome(before: &Report, during: &Report) -> (Figures, String) {
    let served = during.counts.responses.announce as f64 / during.counts.sent.max(1) as f64;
    let (usual, attacked) = (before.latency_us, during.latency_us);
    let mut figures = Figures::default().with(HONEST, served.min(1.0)).with(BEFORE_US, usual.p50);
    for (name, us) in LATENCIES.into_iter().zip([attacked.p50, attacked.p99, attacked.max]) {
        figures.set(name, us);
    }
    let text = format!(
        "p50 {} before; p50 {}, p99 {}, at most {} during it; {} served",
        micros(usual.p50),
        micros(attacked.p50),
        micros(attacked.p99),
        micros(attacked.max),
        percent(served.min(1.0)),
    );
    (figures, text)
}

/// An address that announces without end.
struct Flood {
    socket: UdpSocket,
    packets: Vec<u8>,
    per_s: f64,
}

impl Flood {
    fn new(to: SocketAddr, per_s: f64) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.2.1:0")?;
        socket.connect(to)?;
        let id = connect(&socket)?;
        // Many torrents, so that the tracker's work is not the same over and over.
        let packets = (0..AT_ONCE).flat_map(|at| announce(id, 0, [at as u8; 20])).collect();
        Ok(Self { socket, packets, per_s })
    }

    /// Floods until it is over. Returns the number of announces.
    fn run(&self, is_over: &AtomicBool) -> Result<u64> {
        let start = Instant::now();
        let mut sent = 0;
        // Announces that the pace has taken into account, and not made up for.
        let mut paced: f64 = 0.0;
        while !is_over.load(Ordering::Relaxed) {
            let due = start.elapsed().as_secs_f64() * self.per_s;
            if due < paced {
                continue;
            }
            paced = paced.max(due - BEHIND_MAX.as_secs_f64() * self.per_s) + AT_ONCE as f64;
            sent += (self.send_at_once()? / ANNOUNCE) as u64;
        }
        Ok(sent)
    }

    /// Sends several announces with one system call. Returns the number of sent bytes.
    fn send_at_once(&self) -> Result<usize> {
        let size = ANNOUNCE as u16;
        let segments = [ControlMessage::UdpGsoSegments(&size)];
        let packets = [IoSlice::new(&self.packets)];
        let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::empty());
        sendmsg::<SockaddrIn>(socket, &packets, &segments, flags, None).context("cannot send")
    }
}
