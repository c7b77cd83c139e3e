//! `tidegate-bench xdp floods`: what honest announces lose beside floods, and how long they take.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Result;

use super::XdpArgs;
use super::bench::{BURST, Bench, Entrant, rounds, time_figures};
use super::frames::Family;
use super::generator::{Generator, Pace};
use super::network::Arrangement;
use super::traffic::FloodKind;
use crate::figures::{micros, percent};
use crate::lab::{Api, Lab, TOKEN_VARIABLES};
use crate::session::{RunKey, Session};

/// Floods, their requests per second, and one of how many is honest, so that there are 50,000 honest
/// announces a second.
const RATES: [(FloodKind, f64, usize); 3] = [
    (FloodKind::BadIds, 2_000_000.0, 41),
    (FloodKind::Connects, 2_000_000.0, 41),
    (FloodKind::Banned, 300_000.0, 7),
];
/// The floods, as cases end in records.
const FLOODS: [&str; 3] = [
    "2,000,000 bad connection ids per second",
    "2,000,000 connects per second",
    "300,000 announces per second of a banned network",
];
/// Bans in force beside that of the flood's network.
const BANS: u32 = 65_536;
const BANS_AT_ONCE: usize = 1000;
const ADMIN: &str = "127.0.0.1:6970";

/// Runs it.
pub(super) fn run(arguments: &XdpArgs, lab: Lab) -> Result<ExitCode> {
    let bench = Bench::new(arguments, lab)?;
    let entrants = bench.entrants(&arguments.only, false)?;
    let mut session = Session::start("xdp floods", &arguments.output, &arguments.lab.definitions)?;
    rounds(arguments, &entrants, &mut session, |entrant, round, session| {
        measure((&bench, arguments), (entrant, round), session)
    });
    drop(bench);
    session.finish(Vec::new())
}

fn measure(
    (bench, arguments): (&Bench, &XdpArgs),
    (entrant, round): (&Entrant, u32),
    session: &mut Session,
) -> Result<()> {
    let version = entrant.subject.version();
    let listen = format!("[\"{ADMIN}\"]");
    let [token, older_token] = TOKEN_VARIABLES;
    let more = [("TIDEGATE_ADMIN__LISTEN", &*listen), ("TIDEGATE_ADMIN__REQUESTS_PER_S", "0")];
    let mut running = bench.start(entrant, &[&more[..], &[token, older_token]].concat())?;
    bench.network.tracker.run(|| ban(bench.family))?;
    bench.populate(&running)?;
    let floods = || RATES.into_iter().zip(FLOODS).filter(|(_, name)| arguments.wants(name));
    for (arrangement, case) in Arrangement::wanted(arguments.case.as_deref()) {
        bench.arrange(arrangement)?;
        for ((flood, per_s, one_in), flood_name) in floods() {
            if session.is_stopped() {
                return Ok(());
            }
            let frames = running.clients.flood(flood, one_in);
            let generator = Generator::new(&bench.network, &frames)?;
            let per_s = per_s * one_in as f64 / (one_in - 1) as f64;
            generator.pace(Pace { per_s, burst: BURST })?;
            let start = generator.snapshot(&bench.counter)?;
            let (mut figures, times) = bench.while_sending(&generator, || {
                bench.counter.clear_times()?;
                let figures = bench.measure(&mut running, &generator)?;
                Ok((figures, bench.counter.times()?))
            })?;
            figures.extend(time_figures(&times));
            figures.set("lost_part", bench.lost_part_since(&generator, &start)?);
            figures.set("verified", bench.confirm(&mut running)?);
            let show = |name: &str| figures.get(name).map_or(f64::NAN, |it| it.median);
            let summary = format!(
                "honest lost {}, p99 {}",
                percent(show("lost_part")),
                micros(show("p99_us"))
            );
            let case = format!("{case}: {flood_name}");
            let name = &entrant.name;
            let key = RunKey { subject: name, version: &version, case: &case, cores: 1, round };
            session.add(key, figures, &summary)?;
        }
    }
    Ok(())
}

/// Bans the flood's network, and as many others.
fn ban(family: Family) -> Result<()> {
    let mut api = Api::open(ADMIN.parse::<SocketAddr>()?)?;
    // From 16.0.0.0 on, one in 16 networks; none is a client's.
    let other = |number: u32| format!("{}/24", Ipv4Addr::from_bits((16 << 24) + (number << 12)));
    let flood = match family {
        Family::V4 => format!("{}/24", family.banned(0)),
        Family::V6 => format!("{}/48", family.banned(0)),
    };
    let networks: Vec<String> = std::iter::once(flood).chain((0..BANS).map(other)).collect();
    for networks in networks.chunks(BANS_AT_ONCE) {
        let body = format!("{{\"networks\":[\"{}\"]}}", networks.join("\",\""));
        api.ask(200, "POST /api/v1/bans/bulk", &body)?;
    }
    Ok(())
}
