//! `tidegate compare`: command line and output. The comparison is in `tools/compare`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::compare::{Measure, Options, Protocol};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum, value_parser};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Compare trackers under the same load. TOML files define the trackers and the loads. Trackers are
/// measured in turn with the same cores, and the load runs on other cores. Writes tables and
/// charts.
/// Ctrl-C stops and reports what was measured so far.
#[derive(Args)]
pub(crate) struct Compare {
    /// Protocol: udp, http, https, ws or wss.
    protocol: Protocol,
    /// Measure only this tracker; repeatable.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Path of a tracker's program; repeatable.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    program: Vec<(String, PathBuf)>,
    /// Directory into which `cargo xtask rivals` has installed trackers.
    #[arg(long, value_name = "DIR", default_value = "target/rivals")]
    rivals: PathBuf,
    /// Directory with the definitions of trackers and loads.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    definitions: PathBuf,
    /// Name of the load [default: the first one defined].
    #[arg(long, value_name = "NAME")]
    load: Option<String>,
    /// Numbers of tracker cores to measure, such as `1,2,4` or `1-4` [default: 1, 2, 4, … up to
    /// half of all].
    #[arg(long, value_name = "LIST", value_parser = cores)]
    cores: Option<CoreCounts>,
    /// What to measure; repeatable [default: everything].
    #[arg(long = "measure", value_enum, value_name = "WHAT")]
    measures: Vec<MeasureArg>,
    /// Runs per figure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measured seconds per run.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seconds of load before measuring.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(0..=86_400))]
    warm_up: u32,
    /// Output directory for the report and the runs [default: target/compare/PROTOCOL].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory of the record, to which one line per tracker is appended.
    #[arg(long, value_name = "DIR", default_value = "bench/record", conflicts_with = "no_record")]
    record: PathBuf,
    /// Do not append to the record.
    #[arg(long)]
    no_record: bool,
    /// Markdown file to write the tables into, between `<!-- compare PROTOCOL LOAD -->` and
    /// `<!-- compared -->`.
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MeasureArg {
    /// Responses per second, and per second of the tracker's CPU time.
    Throughput,
    /// Response times at 50 % and 80 % of the maximum throughput.
    Latency,
    /// Bytes per peer.
    Memory,
}

/// A newtype, so that clap parses a list as one value.
#[derive(Clone, Debug, PartialEq)]
struct CoreCounts(Vec<usize>);

/// Runs a comparison, prints the tables and lists the written files.
pub(crate) fn run(compare: &Compare) -> Result<ExitCode> {
    // Trackers and load testers inherit the limit.
    let _ = net::process::raise_descriptor_limit();
    let options = compare.options()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot install signal handlers")?;
    }
    let mut stdout = io::stdout();
    // Do not lose measurements because the reader of standard output has gone.
    let mut print_line = |text: &str| drop(writeln!(stdout, "{text}"));
    let outcome = ::compare::run(&options, &stop, &mut print_line)?;
    let mut text = format!("\n{}\n", outcome.tables);
    for file in &outcome.files {
        text += &format!("written: {}\n", file.display());
    }
    io::stdout().write_all(text.as_bytes()).context("cannot print the tables")?;
    Ok(match outcome {
        // The exit code that shells use for interrupted commands.
        outcome if outcome.is_stopped => ExitCode::from(130),
        outcome if outcome.failures > 0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

impl Compare {
    fn options(&self) -> Result<Options> {
        let protocol = self.protocol;
        let measure = |what: &MeasureArg| match what {
            MeasureArg::Throughput => Measure::Throughput,
            MeasureArg::Latency => Measure::Latency,
            MeasureArg::Memory => Measure::Memory,
        };
        let default_out = || PathBuf::from("target/compare").join(protocol.name());
        let words: Vec<_> = std::env::args().skip(1).collect();
        Ok(Options {
            protocol,
            load: self.load.clone(),
            definitions: self.definitions.clone(),
            rivals: self.rivals.clone(),
            programs: self.program.clone(),
            only: self.only.clone(),
            cores: self.cores.clone().map_or_else(Vec::new, |CoreCounts(counts)| counts),
            measures: self.measures.iter().map(measure).collect(),
            runs: self.runs,
            seconds: self.seconds,
            warm_up: self.warm_up,
            out: self.out.clone().unwrap_or_else(default_out),
            record: (!self.no_record).then(|| self.record.clone()),
            docs: self.docs.clone(),
            own: std::env::current_exe().context("cannot determine this program's path")?,
            command: format!("tidegate {}", words.join(" ")),
        })
    }
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
    Ok((name.to_owned(), path.into()))
}

fn cores(text: &str) -> Result<CoreCounts, String> {
    let wrong = || format!("expected a list such as 1,2,4 or 1-4, found `{text}`");
    let mut counts = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=4096).contains(n));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        counts.extend(first..=last);
    }
    counts.sort_unstable();
    counts.dedup();
    if counts.is_empty() { Err(wrong()) } else { Ok(CoreCounts(counts)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: Compare,
    }

    fn options(line: &str) -> Result<Options, String> {
        let words = ["compare"].into_iter().chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.compare.options().map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_protocol_is_required() {
        let options = options("wss").unwrap();
        assert_eq!((options.protocol, options.runs, options.seconds), (Protocol::Wss, 5, 10));
        assert_eq!(options.out, PathBuf::from("target/compare/wss"));
        assert_eq!(options.record, Some("bench/record".into()));
        assert!(options.cores.is_empty() && options.only.is_empty() && options.measures.is_empty());
    }

    #[test]
    fn options_are_applied() {
        let all = options(
            "udp --only a --only b --program c=/d=e --rivals r --definitions d --load l --cores 2,1-3,8 \
             --measure memory --runs 1 --seconds 2 --warm-up 0 --out o --no-record --docs m",
        )
        .unwrap();
        assert_eq!(all.only, ["a", "b"]);
        assert_eq!(all.programs, [("c".to_owned(), PathBuf::from("/d=e"))]);
        assert_eq!((all.cores, all.measures), (vec![1, 2, 3, 8], vec![Measure::Memory]));
        assert_eq!((all.load.as_deref(), all.record), (Some("l"), None));
        assert_eq!((all.runs, all.seconds, all.warm_up), (1, 2, 0));
        assert_eq!(all.docs, Some("m".into()));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (line, what) in [
            ("tcp", "unknown protocol tcp: expected udp, http, https, ws or wss"),
            ("udp --cores 0", "found `0`"),
            ("udp --cores 4-2", "expected a list"),
            ("udp --cores 1,,2", "expected a list"),
            ("udp --program chihaya", "expected NAME=PATH"),
            ("udp --runs 0", "0 is not in 1..="),
            ("udp --record x --no-record", "cannot be used with"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
