//! What acts on the tracker during a soak.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::load::http::{self, HttpOptions};
use ::load::udp::{self, HostileDatagram, UdpOptions};
use ::load::ws::{self, AnnounceTiming, WsOptions};
use ::load::{
    Counters, HostileConnection, LoopMode, Mix, Progress, Report, RunPlan, TrackerUrl, Workload,
};
use anyhow::{Context, Result};

use super::Stage;
use super::operator::Operator;

/// One of the parts of a scenario. It acts in a thread of its own until the run ends.
pub(super) struct Actor<'a> {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    act: Act<'a>,
    tally: Mutex<Tally>,
}

type Act<'a> = Box<dyn Fn(&Stage, &Actor<'a>) -> Result<()> + Send + Sync + 'a>;

/// What is expected of an actor's requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Every request is answered, but for this part of them.
    Honest { unanswered_max: f64 },
    /// Connections end with each upgrade, and what they waited for with them.
    Connected,
    /// Nothing: the tracker may drop all of it.
    Hostile,
    /// It makes no load.
    Operator,
}

/// What an actor has done.
#[derive(Clone, Default)]
pub(super) struct Tally {
    pub(super) counters: Counters,
    /// Failures beside those that the counters have.
    pub(super) failures: Vec<String>,
}

/// UDP on a busy machine: the kernel drops datagrams if a process waits for its turn.
const UDP_UNANSWERED_MAX: f64 = 1e-4;
/// The address of floods. Only the addresses of other clients are exempt from limits.
const HOSTILE_ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 9, 1));
/// How long a flood of one kind lasts.
const FLOOD_TURN: Duration = Duration::from_secs(20);
/// Hostile connections at a time, under the usual load.
const HOSTILE_CONNECTIONS: f64 = 50.0;
/// The rest before an actor that failed begins again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const DATAGRAMS: [HostileDatagram; 5] = [
    HostileDatagram::BadIds,
    HostileDatagram::Garbage,
    HostileDatagram::Truncated,
    HostileDatagram::Oversize,
    HostileDatagram::Scrapes,
];
const CONNECTIONS: [HostileConnection; 5] = [
    HostileConnection::Slowloris,
    HostileConnection::Garbage,
    HostileConnection::Oversize,
    HostileConnection::Half,
    HostileConnection::Silent,
];

/// Returns the actors of the scenario. Each load has torrents of its own, so that responses can be
/// checked.
pub(super) fn scenario<'a>(stage: &Stage, operator: &'a Operator) -> Result<Vec<Actor<'a>>> {
    let udp4 = address(stage, "udp", IpAddr::from([127, 0, 0, 1]))?;
    let udp6 = address(stage, "udp", IpAddr::from(std::net::Ipv6Addr::LOCALHOST))?;
    let http4 = address(stage, "http", IpAddr::from([127, 0, 0, 1]))?;
    let tls4 = address(stage, "https", IpAddr::from([127, 0, 0, 1]))?;
    let all_answered = Kind::Honest { unanswered_max: 0.0 };
    let udp = Kind::Honest { unanswered_max: UDP_UNANSWERED_MAX };
    let load = stage.load;
    let actors = vec![
        Actor::of_load("udp", udp, udp_load(udp4, 1, 3000.0 * load)?),
        Actor::of_load("udp6", udp, udp_load(udp6, 2, 500.0 * load)?),
        Actor::of_load("http", all_answered, http_load(http4, 3, 500.0 * load, false)?),
        Actor::of_load("http once", all_answered, http_load(http4, 4, 100.0 * load, true)?),
        Actor::of_load("https", all_answered, https_load(tls4, 5, 30.0 * load)?),
        Actor::of_load("ws", Kind::Connected, ws_load(http4, 6, 200.0 * load)?),
        Actor::of_flood("udp flood", datagram_flood(udp4, 7, 2000.0 * load)?),
        Actor::of_flood("tcp flood", connection_flood(http4, 8, load)?),
        Actor::new("operator", Kind::Operator, move |stage, _| operator.act(stage)),
    ];
    Ok(actors)
}

fn address(stage: &Stage, kind: &str, ip: IpAddr) -> Result<SocketAddr> {
    stage.tracker.address(kind, ip).with_context(|| format!("no {kind} listener at {ip}"))
}

/// A load that runs until it is interrupted, with a number that selects its variant.
trait Load: Fn(usize, &Stage, &mut dyn FnMut(&Progress)) -> Result<Report> + Send + Sync {}
impl<T: Fn(usize, &Stage, &mut dyn FnMut(&Progress)) -> Result<Report> + Send + Sync> Load for T {}

fn plan(stage: &Stage) -> RunPlan {
    // Longer than the run, which interrupts it.
    let duration = 2 * stage.duration + RETRY_AFTER;
    RunPlan { warm_up: Duration::ZERO, duration, ..RunPlan::default() }
}

/// Peers that come, complete and go, in torrents of usual sizes.
fn workload(seed: u64, peers: u32) -> Workload {
    Workload {
        seed,
        torrents: peers / 5,
        peers,
        completes_percent: 2,
        churn_percent: 5,
        ..Workload::default()
    }
}

fn udp_load(to: SocketAddr, seed: u64, rate: f64) -> Result<impl Load> {
    let url = TrackerUrl::udp(&format!("udp://{to}/announce"))?;
    Ok(move |_: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let options = UdpOptions {
            workload: workload(seed, 5000),
            loop_mode: LoopMode::Open { rate },
            mix: Mix { connect: 2, announce: 100, scrape: 5 },
            plan: plan(stage),
            samples: false,
            offload: false,
            ..UdpOptions::of(url.clone())
        };
        udp::run(&options, &stage.stop, progress)
    })
}

fn http_load(to: SocketAddr, seed: u64, rate: f64, close: bool) -> Result<impl Load> {
    let url = TrackerUrl::http(&format!("http://{to}/announce"))?;
    Ok(move |_: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let options = HttpOptions {
            workload: workload(seed, 2000),
            rate: Some(rate),
            mix: Mix { connect: 0, announce: 20, scrape: 1 },
            plan: plan(stage),
            close,
            ..HttpOptions::of(url.clone())
        };
        http::run(&options, &stage.stop, progress)
    })
}

fn https_load(to: SocketAddr, seed: u64, rate: f64) -> Result<impl Load> {
    let url = TrackerUrl::http(&format!("https://{to}/announce"))?;
    Ok(move |_: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let options = HttpOptions {
            workload: workload(seed, 500),
            connections: 16,
            rate: Some(rate),
            plan: plan(stage),
            close: true,
            resume: true,
            ..HttpOptions::of(url.clone())
        };
        http::run(&options, &stage.stop, progress)
    })
}

fn ws_load(to: SocketAddr, seed: u64, rate: f64) -> Result<impl Load> {
    let url = TrackerUrl::web(&format!("ws://{to}/"))?;
    Ok(move |_: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let usual = WsOptions::busy(url.clone());
        let options = WsOptions {
            workload: Workload {
                seed,
                torrents: 40,
                peers: 200,
                completes_percent: 2,
                churn_percent: 5,
                ..usual.workload
            },
            timing: AnnounceTiming::Paced(rate),
            plan: plan(stage),
            mix: Mix { connect: 0, announce: 20, scrape: 1 },
            offers: 3,
            requests_per_connection: Some(50),
            ..usual
        };
        ws::run(&options, &stage.stop, progress)
    })
}

fn datagram_flood(to: SocketAddr, seed: u64, rate: f64) -> Result<impl Load> {
    let url = TrackerUrl::udp(&format!("udp://{to}/announce"))?;
    Ok(move |turn: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let options = UdpOptions {
            workload: workload(seed, 500),
            loop_mode: LoopMode::Open { rate },
            plan: RunPlan { duration: FLOOD_TURN, ..plan(stage) },
            sources: vec![HOSTILE_ADDRESS],
            hostile: Some((DATAGRAMS[turn % DATAGRAMS.len()], 80)),
            samples: false,
            offload: false,
            ..UdpOptions::of(url.clone())
        };
        udp::run(&options, &stage.stop, progress)
    })
}

fn connection_flood(to: SocketAddr, seed: u64, load: f64) -> Result<impl Load> {
    let url = TrackerUrl::http(&format!("http://{to}/announce"))?;
    let connections = (HOSTILE_CONNECTIONS * load).ceil() as u32;
    Ok(move |turn: usize, stage: &Stage, progress: &mut dyn FnMut(&Progress)| {
        let options = HttpOptions {
            workload: workload(seed, 500),
            connections: 4,
            rate: Some(20.0),
            plan: RunPlan { duration: FLOOD_TURN, ..plan(stage) },
            sources: vec![HOSTILE_ADDRESS],
            hostile: Some((CONNECTIONS[turn % CONNECTIONS.len()], connections)),
            ..HttpOptions::of(url.clone())
        };
        http::run(&options, &stage.stop, progress)
    })
}

impl<'a> Actor<'a> {
    fn new(
        name: &'static str,
        kind: Kind,
        act: impl Fn(&Stage, &Self) -> Result<()> + Send + Sync + 'a,
    ) -> Self {
        Self { name, kind, act: Box::new(act), tally: Mutex::default() }
    }

    /// A load that must not end before the run does.
    fn of_load(name: &'static str, kind: Kind, load: impl Load + 'a) -> Self {
        Self::new(name, kind, move |stage, actor| {
            let report = load(0, stage, &mut |progress| actor.count(progress))?;
            let ended = report.ended.filter(|_| !stage.is_stopped());
            ended.map_or(Ok(()), |why| Err(anyhow::anyhow!("ended early: {why}")))
        })
    }

    /// A load in short turns. The tracker may cut it off.
    fn of_flood(name: &'static str, load: impl Load + 'a) -> Self {
        Self::new(name, Kind::Hostile, move |stage, actor| {
            for turn in 0.. {
                let _ = load(turn, stage, &mut |progress| actor.count(progress));
                if !stage.pause(RETRY_AFTER) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Acts until the run ends. An error is a failure; then it begins again.
    pub(super) fn run(&self, stage: &Stage) {
        loop {
            if let Err(error) = (self.act)(stage, self) {
                self.tally().failures.push(format!("{error:#}"));
            }
            if !stage.pause(RETRY_AFTER) {
                return;
            }
        }
    }

    /// Whether it makes requests that are counted.
    pub(super) fn has_load(&self) -> bool {
        self.kind != Kind::Operator
    }

    /// Returns how many requests of an honest actor were not answered, and how many other errors it
    /// met. A connection that ends before a response is both.
    pub(super) fn broken(&self) -> (u64, u64) {
        let tally = self.tally();
        match self.kind {
            Kind::Honest { .. } => (tally.counters.lost, tally.counters.errors.values().sum()),
            Kind::Connected | Kind::Hostile | Kind::Operator => (0, 0),
        }
    }

    fn count(&self, progress: &Progress) {
        self.tally().counters.merge(&progress.counters);
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
