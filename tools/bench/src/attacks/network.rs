//! Floods from an address of its own, over a network of namespaces (needs root).

mod floods;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::load::Latencies;
use anyhow::{Context, Result, anyhow, bail};
use client::{Session, SessionConfig, Url, tls};
use harness::network::{self, Entered, Network, NetworkOptions};
use net::process::raise_priority;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use types::{Announce, Event, InfoHash, NumWant, PeerId};

use super::{Attack, BEFORE_US, HONEST, LATENCIES, Outcome, Target};
use crate::figures::micros;
use crate::lab::{Api, Place, Protocol, RunningTracker};
use crate::record::Figures;

const PORT: u16 = 6969;
/// Inside the tracker's namespace.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6970);
/// How long honest clients measure before an attack, and how long it builds up.
const BEFORE: Duration = Duration::from_secs(2);
const BUILD_UP: Duration = Duration::from_secs(1);
/// How long an honest client waits for an answer, and pauses before the next request.
const TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Plays an attack.
pub(super) fn attack(target: &Target<'_>, attack: Attack) -> Result<Vec<Outcome>> {
    if let Some(obstacle) = Network::obstacle() {
        bail!("a network of namespaces cannot be set up {obstacle}");
    }
    match attack {
        Attack::Handshakes => floods::attack_handshakes(target),
        Attack::Pipelining => floods::attack_pipelining(target),
        Attack::Flood => bail!("a flood of datagrams needs no network"),
    }
}

/// A network with a running tracker. The thread that opened it is at the clients' host.
struct Site {
    // Left before the network goes.
    _inside: Entered,
    tracker: RunningTracker,
    _network: Network,
}

impl Site {
    /// Starts the tracker with its defaults and these settings.
    fn open(target: &Target<'_>, protocol: Protocol, settings: &[(&str, &str)]) -> Result<Self> {
        let network = Network::new(NetworkOptions::default())?;
        let inside = network.clients.enter()?;
        let namespace = Some(&network.tracker);
        let address = SocketAddr::from((network::tracker(1), PORT));
        let place = Place { namespace, address, processors: &target.split.tracker };
        let tracker = target.start_in(place, protocol, ADMIN, settings)?;
        // It answers once the tracker is ready.
        network.tracker.run(|| Api::open(ADMIN))?;
        Ok(Self { _inside: inside, tracker, _network: network })
    }

    fn address(&self) -> SocketAddr {
        self.tracker.address
    }

    fn honest(&self, scheme: &str, keeps: bool) -> Result<Honest> {
        let url = format!("{scheme}://{}/announce", self.address());
        let url = Url::parse(&url).map_err(|error| anyhow!("{error:?}"))?;
        Ok(Honest { url, address: self.address(), keeps })
    }
}

/// An honest client.
struct Honest {
    url: Url,
    address: SocketAddr,
    /// Announces over one connection; otherwise each announce has its own.
    keeps: bool,
}

/// Response times of an honest client.
#[derive(Default)]
struct Times {
    latencies: Latencies,
    asked: u32,
    served: u32,
}

impl Honest {
    /// Announces for that long.
    fn measure(&self, time: Duration) -> Times {
        // It shares its processor with the attacker, which is not to delay it. A system that does not permit that
        // adds the time of their turns.
        let _ = raise_priority();
        let (mut times, mut kept) = (Times::default(), None);
        let end = Instant::now() + time;
        while Instant::now() < end {
            let began = Instant::now();
            let served = self.announce(&mut kept);
            times.asked += 1;
            times.served += u32::from(served.is_ok());
            // An announce that fails counts as one that was waited for in vain.
            let latency = if served.is_ok() { began.elapsed() } else { TIMEOUT };
            times.latencies.record(latency);
            thread::sleep(PAUSE);
        }
        times
    }

    fn announce(&self, kept: &mut Option<Session>) -> Result<()> {
        let mut session = match kept.take() {
            Some(session) => session,
            None => self.open(TIMEOUT)?,
        };
        let announce = Announce {
            info_hash: InfoHash([0x5a; 20]),
            peer_id: PeerId(*b"-XX0001-000000000000"),
            port: 6881,
            event: Event::None,
            left: Some(1),
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Default,
        };
        session.announce(&announce).map_err(|error| anyhow!(error.text))?;
        *kept = Some(session).filter(|_| self.keeps);
        Ok(())
    }

    /// Opens a session that resumes no other one's TLS.
    fn open(&self, timeout: Duration) -> Result<Session> {
        let config = tls::config(&tls::Trust::NoVerification)?;
        let config = SessionConfig::new(timeout, config.into());
        let opened = Session::open(&self.url, self.address, &config);
        opened.map_err(|error| anyhow!(error.text))
    }
}

/// Returns the response times of honest clients beside an attack, which ends when the flag is set.
fn beside<const N: usize>(
    honest: &[Honest; N],
    time: Duration,
    attack: impl FnOnce(&AtomicBool) + Send,
) -> Result<[Times; N]> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attack = scope.spawn(|| attack(&is_over));
        thread::sleep(BUILD_UP);
        let clients = honest.each_ref().map(|one| scope.spawn(|| one.measure(time)));
        let times = clients.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::Relaxed);
        let attack = attack.join();
        let all_ended = attack.is_ok() && times.iter().all(Result::is_ok);
        all_ended.then(|| times.map(Result::unwrap_or_default)).context("a client panicked")
    })
}

/// Returns the outcome for an honest client.
fn compared(case: &'static str, before: &Times, during: &Times) -> Outcome {
    let quantiles = |times: &Times| {
        let of = |part| times.latencies.quantile(part).unwrap_or_default();
        [of(0.5), of(0.99), times.latencies.max()].map(|time| time.as_secs_f64() * 1e6)
    };
    let (usual, attacked) = (quantiles(before), quantiles(during));
    let part = f64::from(during.served) / f64::from(during.asked.max(1));
    let mut figures = Figures::default().with(HONEST, part).with(BEFORE_US, usual[0]);
    for (name, figure) in LATENCIES.into_iter().zip(attacked) {
        figures.set(name, figure);
    }
    let text = format!(
        "p50 {} before; p50 {}, p99 {}, at most {} during it; {} of {} served",
        micros(usual[0]),
        micros(attacked[0]),
        micros(attacked[1]),
        micros(attacked[2]),
        during.served,
        during.asked,
    );
    (case, figures, text)
}

/// Begins a connection from an address, without blocking.
fn dial(source: IpAddr, tracker: SocketAddr) -> Result<TcpStream> {
    let family = if source.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)?;
    // The port is chosen by connect: a choice before that could not consider where it leads to.
    setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(tracker)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}
