//! `tidegate-bench flood`: the rate limits, their cost and their effect.
//!
//! One address announces as fast as it can. This measures the capacity of the tracker with one worker,
//! without limits and with limits that are not reached. Then the address announces at five times that
//! rate, while forty other addresses send few requests. Without limits they lose most of their
//! requests; with limits they must lose less than one in a hundred.

mod traffic;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use crate::figures::{count, micros, percent};
use crate::lab::{
    Api, Lab, LabArgs, Protocol, RunningTracker, Split, Subject, TOKEN_VARIABLES, free_address, on,
};
use crate::record::Figures;
use crate::report::{Block, Column, Content, PAIRS, PER_CPU_S, RELATIVE, Runs, SUBJECT, table};
use crate::session::{ResultArgs, RoundArgs, RunKey, Session};
use traffic::{Crowd, Flood};

const FLOOD_RATIO: f64 = 5.0;
const LOST_MAX: f64 = 0.01;

/// Limits: the name in records, announces, connects and scrapes per second of an address, and how many
/// at once. A larger burst delays the effect by the time in which the flood has used it up.
type Limits = (&'static str, &'static str, &'static str);

const UNLIMITED: Limits = ("no limits", "0", "0");
const NOT_REACHED: Limits = ("limits not reached", "1000000", "1000000");
/// Limits like those of an operator.
const LIMITED: Limits = ("1,000 per second and address", "1000", "10000");

const CAPACITY: &str = "capacity";
const FLOODED: &str = "flooded";

/// Measure what rate limits cost, and what other clients lose while one address floods.
#[derive(Args)]
pub(crate) struct FloodCommand {
    #[command(flatten)]
    lab: LabArgs,
    #[command(flatten)]
    run: RoundArgs,
    #[command(flatten)]
    output: ResultArgs,
}

/// A tracker to flood.
struct Target<'a> {
    lab: &'a Lab,
    subject: Subject,
    split: Split,
    admin: SocketAddr,
    time: Duration,
}

impl FloodCommand {
    /// Runs the benchmark and reports it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let lab = Lab::new(&self.lab)?;
        let (subject, split, admin) = (lab.tidegate()?, lab.split(1)?, free_address()?);
        let (version, time) = (subject.version(), Duration::from_secs(self.run.seconds.into()));
        let target = Target { lab: &lab, subject, split, admin, time };
        let mut session = Session::start("flood", &self.output, &self.lab.definitions)?;
        // Everything but the tracker shares the load's processors.
        on(&target.split.load, || {
            for round in 1..=self.run.runs {
                let mut capacity = 0.0;
                for limits in [UNLIMITED, NOT_REACHED] {
                    let figures = target.capacity(limits)?;
                    if limits == UNLIMITED {
                        capacity = median(&figures, "responses_s");
                    }
                    let served = count(median(&figures, "responses_s"));
                    let key = key(limits, &version, CAPACITY, round);
                    session.add(key, figures, &format!("served {served}/s"))?;
                }
                for limits in [UNLIMITED, LIMITED] {
                    let figures = target.flood(limits, FLOOD_RATIO * capacity)?;
                    let lost = median(&figures, "lost_part");
                    let key = key(limits, &version, FLOODED, round);
                    session.add(key, figures, &format!("others lost {}", percent(lost)))?;
                    if (limits == LIMITED) != (lost < LOST_MAX) {
                        let lost = percent(lost);
                        session
                            .fail(format!("{}: others lost {lost} of their requests.", limits.0));
                    }
                }
                if session.is_stopped() {
                    break;
                }
            }
            session.finish(Vec::new())
        })?
    }
}

fn key<'a>(limits: Limits, version: &'a str, case: &'a str, round: u32) -> RunKey<'a> {
    RunKey { subject: limits.0, version, case, cores: 1, round }
}

fn median(figures: &Figures, name: &str) -> f64 {
    figures.get(name).map_or(f64::NAN, |figure| figure.median)
}

impl Target<'_> {
    fn start(&self, (_, per_s, burst): Limits) -> Result<(RunningTracker, Api)> {
        let admin = self.admin.to_string();
        let more = [
            ("TIDEGATE_ADMIN__LISTEN", &*admin),
            // All clients are on the loopback device, which is exempt by default.
            ("TIDEGATE_LIMITS__EXEMPT", "[]"),
            ("TIDEGATE_LIMITS__ANNOUNCES_PER_S", per_s),
            ("TIDEGATE_LIMITS__SCRAPES_PER_S", per_s),
            ("TIDEGATE_LIMITS__CONNECTS_PER_S", per_s),
            ("TIDEGATE_LIMITS__ANNOUNCES_BURST", burst),
            ("TIDEGATE_LIMITS__SCRAPES_BURST", burst),
            ("TIDEGATE_LIMITS__CONNECTS_BURST", burst),
            TOKEN_VARIABLES[0],
            TOKEN_VARIABLES[1],
        ];
        let tracker = self.lab.start(&self.subject, Protocol::Udp, &self.split.tracker, &more)?;
        Ok((tracker, Api::open(self.admin)?))
    }

    /// Measures the announces per second that the tracker serves under overload.
    fn capacity(&self, limits: Limits) -> Result<Figures> {
        let (tracker, mut api) = self.start(limits)?;
        let mut flood = Flood::new(tracker.address, f64::INFINITY)?;
        let mut served = || api.metric("tidegate_responses_total", &[("kind", "announce")]);
        // Counters are published a few times a second.
        run(&mut flood, self.time / 4)?;
        let before = (Instant::now(), served()?, tracker.usage()?, flood.sent);
        run(&mut flood, self.time)?;
        let (seconds, answered) = (before.0.elapsed().as_secs_f64(), served()? - before.1);
        let cpu_s = tracker.usage()?.since(&before.2).cpu_s();
        Ok(Figures::default()
            .with("seconds", seconds)
            .with("responses_s", answered / seconds)
            .with("per_cpu_s", answered / cpu_s)
            .with("offered_s", (flood.sent - before.3) as f64 / seconds))
    }

    /// Floods, and measures what other clients lose.
    fn flood(&self, limits: Limits, per_s: f64) -> Result<Figures> {
        let (tracker, mut api) = self.start(limits)?;
        let mut crowd = Crowd::new(tracker.address)?;
        let mut flood = Flood::new(tracker.address, per_s)?;
        let (start, before) = (Instant::now(), tracker.usage()?);
        while start.elapsed() < self.time {
            // Often enough that none of them has to wait for the core of the flood.
            for _ in 0..16 {
                flood.step()?;
            }
            crowd.step()?;
        }
        let seconds = start.elapsed().as_secs_f64();
        let received = api.metric("tidegate_requests_total", &[("kind", "announce")])?;
        let cpu_s = tracker.usage()?.since(&before).cpu_s();
        crowd.finish()?;
        let us =
            |part| crowd.latencies.quantile(part).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6);
        Ok(Figures::default()
            .with("seconds", seconds)
            .with("offered_s", flood.sent as f64 / seconds)
            .with("per_cpu_s", received / cpu_s)
            .with("others_requests", crowd.asked() as f64)
            .with("lost_part", crowd.lost() as f64 / crowd.asked() as f64)
            .with("p50_us", us(0.5))
            .with("p99_us", us(0.99)))
    }
}

fn run(flood: &mut Flood, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        flood.step()?;
    }
    Ok(())
}

/// Reports the runs.
pub(crate) fn report(runs: &Runs<'_>) -> Content {
    const CAPACITIES: &[Column] = &[
        SUBJECT,
        ("offered/s", |row| row.cell("offered_s", count)),
        ("served/s", |row| row.cell("responses_s", count)),
        PER_CPU_S,
        RELATIVE,
        PAIRS,
    ];
    const LOSSES: &[Column] = &[
        SUBJECT,
        ("flooded with", |row| row.cell("offered_s", |per_s| format!("{}/s", count(per_s)))),
        ("received per CPU-s", |row| row.cell("per_cpu_s", count)),
        ("others lost", |row| row.cell("lost_part", percent)),
        ("50 %", |row| row.cell("p50_us", micros)),
        ("99 %", |row| row.cell("p99_us", micros)),
    ];
    let of = |case: &str| runs.filter(|run| run.case == case).rows();
    let text = "One address announces as fast as it can, and then at five times the rate that the \
                tracker serves, while forty others send few requests.";
    let blocks = vec![
        Block::Heading("Capacity".into()),
        table(&of(CAPACITY), CAPACITIES),
        Block::Heading("Other clients during a flood".into()),
        table(&of(FLOODED), LOSSES),
    ];
    ("Limits under a flood".to_owned(), text.to_owned(), blocks)
}
