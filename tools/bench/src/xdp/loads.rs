//! `tidegate-bench xdp loads`: throughput and CPU time per response.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use super::XdpArgs;
use super::bench::{BURST, Bench, Entrant, LOST_MAX};
use super::generator::{Generator, Pace};
use super::network::Arrangement;
use super::traffic::LoadKind;
use crate::figures::count;
use crate::lab::Lab;
use crate::session::{RunKey, Session, print_line};

/// Where the search for a rate begins, and its steps. Later rounds begin where the last one ended.
const GUESS: f64 = 200_000.0;
const FIRST_STEPS: u32 = 14;
const STEPS: u32 = 5;

/// Rates found earlier, by tracker and load.
type Rates = HashMap<(String, &'static str), f64>;

pub(super) fn run(arguments: &XdpArgs, lab: Lab) -> Result<ExitCode> {
    let bench = Bench::new(arguments, lab)?;
    let entrants = bench.entrants(&arguments.only)?;
    let mut session = Session::start("xdp loads", &arguments.output, &arguments.lab.definitions)?;
    measure_in_turn((&bench, arguments), &entrants, &mut session);
    drop(bench);
    session.finish()
}

/// Measures entrants in turn, unless the session is stopped. If one fails, the report says so.
fn measure_in_turn(
    (bench, arguments): (&Bench, &XdpArgs),
    entrants: &[Entrant],
    session: &mut Session,
) {
    let began = Instant::now();
    let mut rates = Rates::new();
    for round in 1..=arguments.runs {
        for entrant in entrants {
            if session.is_stopped() {
                return;
            }
            let measured = measure((bench, arguments), (entrant, round), session, &mut rates);
            if let Err(error) = measured {
                session.fail(format!("{}: {error:#}", entrant.name));
            }
        }
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        print_line(&format!(
            "round {round} of {} has ended after {minutes:.1} min",
            arguments.runs
        ));
    }
}

fn measure(
    (bench, arguments): (&Bench, &XdpArgs),
    (entrant, round): (&Entrant, u32),
    session: &mut Session,
    rates: &mut Rates,
) -> Result<()> {
    let version = entrant.subject.version();
    let mut running = bench.start(entrant)?;
    bench.populate(&running)?;
    for (arrangement, case) in Arrangement::wanted(arguments.case.as_deref()) {
        bench.arrange(arrangement)?;
        for load in LoadKind::ALL.into_iter().filter(|load| arguments.wants(load.name())) {
            if session.is_stopped() {
                return Ok(());
            }
            let frames = running.clients.load(load);
            let generator = Generator::new(&bench.network, &frames)?;
            generator.pace(Pace { per_s: GUESS, burst: BURST })?;
            let mut figures = bench.while_sending(&generator, || {
                let pace = match arrangement {
                    // More than the tracker can do, whatever it is.
                    Arrangement::Sender => f64::INFINITY,
                    // It would have no time left for its replies.
                    Arrangement::Tracker => {
                        let key = (entrant.name.clone(), load.name());
                        let known = rates.get(&key).copied();
                        let steps = if known.is_some() { STEPS } else { FIRST_STEPS };
                        let guess = known.unwrap_or(GUESS);
                        let found = bench.find_rate(&generator, (guess, BURST), steps)?;
                        rates.insert(key, found);
                        found
                    }
                };
                generator.pace(Pace { per_s: pace, burst: BURST })?;
                bench.measure(&mut running, &generator)
            })?;
            let lost = figures.get("lost_part").unwrap_or(0.0);
            if arrangement == Arrangement::Sender && lost < LOST_MAX {
                // The generator was the limit: replies came from its processor.
                figures = figures.without("per_cpu_s");
            }
            figures.set("verified", bench.confirm(&mut running)?);
            let show = |name: &str| figures.get(name).map_or_else(|| "–".into(), count);
            let summary = format!("{}/s, {} per CPU-s", show("responses_s"), show("per_cpu_s"));
            let case = format!("{case}: {}", load.name());
            let name = &entrant.name;
            let key = RunKey { subject: name, version: &version, case: &case, cores: 1, round };
            session.add(key, figures, &summary)?;
        }
    }
    Ok(())
}
