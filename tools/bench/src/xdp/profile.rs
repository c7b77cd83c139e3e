//! `tidegate-bench xdp profile`: where the tracker's processor spends its time under announces.

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use super::XdpArgs;
use super::bench::{BURST, Bench, Entrant, rounds};
use super::generator::{Generator, Pace};
use super::traffic::LoadKind;
use crate::figures::percent;
use crate::lab::Lab;
use crate::record::Figures;
use crate::report::Block;
use crate::session::{RunKey, Session};

/// Samples per second.
const SAMPLES: &str = "4999";
/// Functions to show.
const SHOWN: usize = 25;
const CASE: &str = "announces";

/// A function and its part of the samples.
#[derive(Debug, PartialEq)]
struct Function {
    part: f64,
    is_kernel: bool,
    name: String,
}

/// Runs it.
pub(super) fn run(arguments: &XdpArgs, lab: Lab) -> Result<ExitCode> {
    let bench = Bench::new(arguments, lab)?;
    let entrants = bench.entrants(&arguments.only, false)?;
    let mut session = Session::start("xdp profile", &arguments.output, &arguments.lab.definitions)?;
    let (seconds, mut details) = (arguments.milliseconds.div_ceil(1000), Vec::new());
    rounds(arguments, &entrants, &mut session, |entrant, round, session| {
        details.push(measure(&bench, (entrant, round), seconds, session)?);
        Ok(())
    });
    drop(bench);
    session.finish(details)
}

fn measure(
    bench: &Bench,
    (entrant, round): (&Entrant, u32),
    seconds: u32,
    session: &mut Session,
) -> Result<Block> {
    let mut running = bench.start(entrant, &[])?;
    bench.populate(&running)?;
    let frames = running.clients.load(LoadKind::Announces);
    let generator = Generator::new(&bench.network, bench.family, &frames)?;
    generator.pace(Pace { per_s: f64::INFINITY, burst: BURST })?;
    let file = bench.lab.folder.join("perf.data");
    let mut figures = bench.while_sending(&generator, || {
        let mut perf = record(running.tracker.process(), seconds, &file)?;
        let figures = bench.measure(&mut running, &generator);
        ensure!(perf.wait()?.success(), "perf record failed");
        figures
    })?;
    let (functions, text) = profile(&file)?;
    figures.extend(parts(&functions));
    figures.set("verified", bench.confirm(&mut running)?);
    let part = figures.get("user_memmove_part").map_or(f64::NAN, |it| it.median);
    let summary = format!("{} in memmove and memcpy of ours", percent(part));
    let (name, version) = (&*entrant.name, entrant.subject.version());
    let key = RunKey { subject: name, version: &version, case: CASE, cores: 1, round };
    session.add(key, figures, &summary)?;
    Ok(Block::Details(format!("{name}, round {round}"), Box::new(Block::Code(text))))
}

/// Samples a process for some seconds.
fn record(process: u32, seconds: u32, file: &Path) -> Result<Child> {
    let mut perf = Command::new("perf");
    perf.args(["record", "--event", "cpu-clock", "--freq", SAMPLES, "--quiet", "--pid"]);
    perf.arg(process.to_string()).arg("--output").arg(file);
    perf.args(["--", "sleep", &seconds.to_string()]);
    perf.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    perf.spawn().context("cannot start perf: install the package linux-perf")
}

/// Returns the functions of a recording, and its first lines.
fn profile(file: &Path) -> Result<(Vec<Function>, String)> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--no-children", "--sort", "symbol", "--percent-limit", "0"]);
    perf.arg("--input").arg(file).stdin(Stdio::null());
    let output = perf.output().context("cannot start perf")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let functions = functions(&text);
    ensure!(!functions.is_empty(), "perf has no samples of the tracker");
    let line = |one: &Function| {
        let space = if one.is_kernel { "kernel" } else { "user" };
        format!("{:>6.2} %  {space:<6}  {}", one.part * 100.0, one.name)
    };
    let lines: Vec<String> = functions.iter().take(SHOWN).map(line).collect();
    Ok((functions, lines.join("\n")))
}

/// Parses lines such as `    12.34%  [k] copy_from_iter` and `1.00%  [.] tidegate::main`.
fn functions(text: &str) -> Vec<Function> {
    let function = |line: &str| {
        let (part, rest) = line.trim().split_once('%')?;
        let (space, name) = rest.trim().split_once(' ')?;
        let part = part.parse::<f64>().ok()? / 100.0;
        // Columns without anything may follow.
        let name = name.trim().split("  ").next()?.to_owned();
        Some(Function { part, is_kernel: space == "[k]", name })
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(function).collect()
}

/// Returns what copying memory takes, in user space and in the kernel, and all of user space.
fn parts(functions: &[Function]) -> Figures {
    let sum = |is_one: &dyn Fn(&Function) -> bool| {
        functions.iter().filter(|one| is_one(one)).map(|one| one.part).sum::<f64>()
    };
    let is_copy = |one: &Function| {
        ["memmove", "memcpy", "copy_from_iter", "copy_to_iter", "rep_movs"]
            .iter()
            .any(|name| one.name.contains(name))
    };
    Figures::default()
        .with("user_part", sum(&|one| !one.is_kernel))
        .with("user_memmove_part", sum(&|one| !one.is_kernel && is_copy(one)))
        .with("kernel_copy_part", sum(&|one| one.is_kernel && is_copy(one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_perf_s_report() {
        let text = "# Samples: 9K of event 'cpu-clock:pppH'\n#\n    12.50%  [k] memcpy_orig\n     \
                    7.25%  [.] __memmove_avx512_unaligned_erms\n     1.00%  [.] front::udp::batch       -   -\n\n";
        let functions = functions(text);
        assert_eq!((functions.len(), &*functions[2].name), (3, "front::udp::batch"));
        let parts = parts(&functions);
        let part = |name| parts.get(name).unwrap().median;
        assert!((part("user_part") - 0.0825).abs() < 1e-9);
        assert!((part("user_memmove_part") - 0.0725).abs() < 1e-9);
        assert!((part("kernel_copy_part") - 0.125).abs() < 1e-9);
    }
}
