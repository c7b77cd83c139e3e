//! `tidegate compare`: its command line and what it prints. The comparison itself is in `tools/compare`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::compare::{Measure, Options, Protocol};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum, value_parser};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Trackers side by side: which there are, and what they are put under, is in TOML files. Each is
/// started with the same cores, in turn with the others, and its load on other cores. Writes tables and
/// charts. Ctrl-C ends it with what was measured.
#[derive(Args)]
pub(crate) struct Compare {
    /// How they are asked: udp, http, https, ws or wss.
    protocol: Protocol,
    /// Only these trackers; can be said several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Where a tracker's program is; can be said several times.
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    program: Vec<(String, PathBuf)>,
    /// Where `cargo xtask rivals` has put their programs.
    #[arg(long, value_name = "DIR", default_value = "target/rivals")]
    rivals: PathBuf,
    /// Where trackers and loads are defined.
    #[arg(long, value_name = "DIR", default_value = "bench")]
    definitions: PathBuf,
    /// The load; the first of its file without one.
    #[arg(long, value_name = "NAME")]
    load: Option<String>,
    /// Cores that trackers get, in turn: `1,2,4` or `1-4` [default: 1, 2, 4, … up to half of all].
    #[arg(long, value_name = "LIST", value_parser = cores)]
    cores: Option<CoreCounts>,
    /// What to measure; can be said several times [default: everything].
    #[arg(long = "measure", value_enum, value_name = "WHAT")]
    measures: Vec<What>,
    /// How often everything is measured, in turn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// How long each run is measured.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Seconds of load before that.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(0..=86_400))]
    warm_up: u32,
    /// Where the report and all runs go [default: target/compare/PROTOCOL].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where a line for each tracker is added to the records.
    #[arg(long, value_name = "DIR", default_value = "bench/record", conflicts_with = "no_record")]
    record: PathBuf,
    /// No line is added.
    #[arg(long)]
    no_record: bool,
    /// A Markdown file with a place for this protocol and load, `<!-- compare udp announces -->` to
    /// `<!-- compared -->`, into which the tables go.
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Responses per second, and per second of the tracker's CPU time.
    Throughput,
    /// How long answers take at 50 % and 80 % of that.
    Latency,
    /// Bytes a peer.
    Memory,
}

/// So that clap takes a list for one value.
#[derive(Clone, Debug, PartialEq)]
struct CoreCounts(Vec<usize>);

/// Compares, prints the tables, and says where the files are.
pub(crate) fn run(compare: &Compare) -> Result<ExitCode> {
    // Trackers and load testers inherit it.
    let _ = net::process::raise_descriptor_limit();
    let options = compare.options()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot listen for signals")?;
    }
    let mut stdout = io::stdout();
    // A reader who has gone is no reason to lose what is measured.
    let mut say = |text: &str| drop(writeln!(stdout, "{text}"));
    let outcome = ::compare::run(&options, &stop, &mut say)?;
    let mut text = format!("\n{}\n", outcome.tables);
    for file in &outcome.files {
        text += &format!("written: {}\n", file.display());
    }
    io::stdout().write_all(text.as_bytes()).context("cannot print the tables")?;
    Ok(match outcome {
        // As shells say it of who was interrupted.
        outcome if outcome.is_stopped => ExitCode::from(130),
        outcome if outcome.failures > 0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

impl Compare {
    fn options(&self) -> Result<Options> {
        let protocol = self.protocol;
        let measure = |what: &What| match what {
            What::Throughput => Measure::Throughput,
            What::Latency => Measure::Latency,
            What::Memory => Measure::Memory,
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
            own: std::env::current_exe().context("this program has no path")?,
            command: format!("tidegate {}", words.join(" ")),
        })
    }
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("NAME=PATH is due")?;
    Ok((name.to_owned(), path.into()))
}

fn cores(text: &str) -> Result<CoreCounts, String> {
    let wrong = || format!("`{text}` is no list such as 1,2,4 or 1-4");
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
    fn a_protocol_is_enough() {
        let options = options("wss").unwrap();
        assert_eq!((options.protocol, options.runs, options.seconds), (Protocol::Wss, 5, 10));
        assert_eq!(options.out, PathBuf::from("target/compare/wss"));
        assert_eq!(options.record, Some("bench/record".into()));
        assert!(options.cores.is_empty() && options.only.is_empty() && options.measures.is_empty());
    }

    #[test]
    fn everything_can_be_said() {
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
    fn mistakes_are_named() {
        for (line, what) in [
            ("tcp", "tcp is no protocol: udp, http, https, ws, wss"),
            ("udp --cores 0", "`0` is no list"),
            ("udp --cores 4-2", "is no list"),
            ("udp --cores 1,,2", "is no list"),
            ("udp --program chihaya", "NAME=PATH is due"),
            ("udp --runs 0", "0 is not in 1..="),
            ("udp --record x --no-record", "cannot be used with"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
