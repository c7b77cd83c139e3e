//! Honest clients beside a flood: loads of few requests on a schedule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use ::load::http::{self, HttpOptions};
use ::load::udp::{self, UdpOptions};
use ::load::ws::{self, WsOptions};
use ::load::{Progress, Report, RunPlan};
use anyhow::{Context, Result};
use net::process::raise_priority;

use super::{BEFORE_US, HONEST, LATENCIES, Outcome};
use crate::figures::{micros, percent};
use crate::record::Figures;

/// Time that a flood has to build up before honest clients are measured.
pub(super) const BUILD_UP: Duration = Duration::from_secs(1);
/// Time for which honest clients are measured before a flood.
const BEFORE: Duration = Duration::from_secs(2);
/// Time for honest clients to connect. The flood begins after it.
const CONNECT: Duration = Duration::from_millis(300);

/// Clients of one protocol.
pub(super) enum Honest {
    Udp(UdpOptions),
    Http(HttpOptions),
    Ws(WsOptions),
}

impl Honest {
    fn measure(&self, time: Duration) -> Result<Report> {
        // They share their processor with the attacker, which is not to delay them. A system that does not permit that
        // adds the time of their turns.
        let _ = raise_priority();
        let plan = RunPlan { warm_up: CONNECT + BUILD_UP, duration: time, pid: None };
        let stop = AtomicBool::new(false);
        let quiet = &mut |_: &Progress| {};
        match self {
            Self::Udp(options) => udp::run(&UdpOptions { plan, ..options.clone() }, &stop, quiet),
            Self::Http(options) => {
                http::run(&HttpOptions { plan, ..options.clone() }, &stop, quiet)
            }
            Self::Ws(options) => ws::run(&WsOptions { plan, ..options.clone() }, &stop, quiet),
        }
    }
}

/// Measures honest clients without a flood.
pub(super) fn alone(honest: &[Honest]) -> Result<Vec<Report>> {
    beside(honest, BEFORE, |_| Ok(()))
}

/// Measures honest clients beside a flood, which ends when the flag is set.
pub(super) fn beside(
    honest: &[Honest],
    time: Duration,
    flood: impl FnOnce(&AtomicBool) -> Result<()> + Send,
) -> Result<Vec<Report>> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> = honest.iter().map(|one| scope.spawn(|| one.measure(time))).collect();
        sleep(CONNECT);
        let flooding = scope.spawn(|| flood(&is_over));
        let reports: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        flooding.join().ok().context("the flood panicked")??;
        reports.into_iter().map(|report| report.ok().context("a client panicked")?).collect()
    })
}

/// Returns the outcome for honest clients with these reports of before a flood, and of during it.
pub(super) fn outcome(case: &'static str, before: &Report, during: &Report) -> Outcome {
    let served = during.responses.announce as f64 / during.sent.max(1) as f64;
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
    (case, figures, text)
}
