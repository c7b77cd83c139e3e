//! `tidegate-bench xdp latency`: response times at half of the maximum throughput.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Result;

use super::bench::{Bench, Entrant, Running, rounds, time_figures};
use super::generator::{Generator, Pace};
use super::network::Arrangement;
use super::{ENGINES, XdpArgs};
use crate::figures::{count, micros};
use crate::lab::Lab;
use crate::record::Figures;
use crate::session::{RunKey, Session};

/// The rates, as cases end in records.
const HALF_OF_OWN: &str = "at half of its own throughput";
const HALF_OF_FIRST: &str = "at half of the throughput of mmsg";

const GUESS: f64 = 200_000.0;
const STEPS: u32 = 12;
/// Frames come alone: what waits in a burst has nothing to do with the tracker.
const BURST: u32 = 1;

/// Highest rates, by tracker and arrangement.
type Rates = HashMap<(String, &'static str), f64>;

/// Runs it.
pub(super) fn run(arguments: &XdpArgs, lab: Lab) -> Result<ExitCode> {
    let bench = Bench::new(arguments, lab)?;
    let entrants = bench.entrants(&arguments.only, true)?;
    let mut session = Session::start("xdp latency", &arguments.output, &arguments.lab.definitions)?;
    let mut rates = Rates::new();
    rounds(arguments, &entrants, &mut session, |entrant, round, session| {
        measure((&bench, arguments), (entrant, round), session, &mut rates)
    });
    drop(bench);
    session.finish(Vec::new())
}

fn measure(
    (bench, arguments): (&Bench, &XdpArgs),
    (entrant, round): (&Entrant, u32),
    session: &mut Session,
    rates: &mut Rates,
) -> Result<()> {
    let version = entrant.subject.version();
    let mut running = bench.start(entrant, &[])?;
    bench.populate(&running)?;
    for (arrangement, case) in Arrangement::wanted(arguments.case.as_deref()) {
        bench.arrange(arrangement)?;
        let frames = running.clients.honest();
        let generator = Generator::new(&bench.network, bench.family, &frames)?;
        let key = (entrant.name.clone(), case);
        if !rates.contains_key(&key) {
            generator.pace(Pace { per_s: GUESS, burst: BURST })?;
            let found = bench
                .while_sending(&generator, || bench.find_rate(&generator, (GUESS, BURST), STEPS))?;
            rates.insert(key.clone(), found);
        }
        let own = rates.get(&key).map(|rate| rate / 2.0);
        let first = rates.get(&(ENGINES[0].to_owned(), case)).map(|rate| rate / 2.0);
        for (rate, name) in [(own, HALF_OF_OWN), (first, HALF_OF_FIRST)] {
            let Some(rate) = rate.filter(|_| !session.is_stopped()) else { continue };
            let figures = at_rate(bench, &mut running, &generator, rate)?;
            let p50 = figures.get("p50_us").map_or(f64::NAN, |it| it.median);
            let summary = format!("p50 {} at {}/s", micros(p50), count(rate));
            let (case, name) = (format!("{case}: {name}"), &*entrant.name);
            let key = RunKey { subject: name, version: &version, case: &case, cores: 1, round };
            session.add(key, figures, &summary)?;
        }
    }
    Ok(())
}

fn at_rate(
    bench: &Bench,
    running: &mut Running,
    generator: &Generator,
    rate: f64,
) -> Result<Figures> {
    generator.pace(Pace { per_s: rate, burst: BURST })?;
    let start = generator.snapshot(&bench.counter)?;
    let (mut figures, times) = bench.while_sending(generator, || {
        bench.counter.clear_times()?;
        let figures = bench.measure(running, generator)?;
        Ok((figures, bench.counter.times()?))
    })?;
    figures.extend(time_figures(&times));
    figures.set("lost_part", bench.lost_part_since(generator, &start)?);
    figures.set("verified", bench.confirm(running)?);
    Ok(figures)
}
