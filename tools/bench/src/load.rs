//! `tidegate-bench load`: command line and output. The load testers are in `tools/load`.

mod arguments;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use ::load::{Progress, Tester};
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::{interruption, print_error};
use arguments::{Http, SharedArgs, Udp, Ws};

/// The load testers, one per protocol.
#[derive(Subcommand)]
pub(crate) enum LoadCommand {
    /// Load a UDP tracker with connects, announces and scrapes.
    Udp(Udp),
    /// Load an HTTP or HTTPS tracker with announces, on persistent or new connections.
    Http(Http),
    /// Load a WebTorrent tracker with busy peers (offers and answers) or idle ones.
    Ws(Ws),
}

impl LoadCommand {
    fn tester(&self) -> Result<Box<dyn Tester>> {
        Ok(match self {
            Self::Udp(udp) => Box::new(udp.options()?),
            Self::Http(http) => Box::new(http.options()?),
            Self::Ws(ws) => Box::new(ws.options()?),
        })
    }

    fn shared(&self) -> &SharedArgs {
        match self {
            Self::Udp(udp) => &udp.shared,
            Self::Http(http) => &http.shared,
            Self::Ws(ws) => &ws.shared,
        }
    }

    /// Returns whether it may have nothing to send for the whole measurement.
    fn is_idle(&self) -> bool {
        matches!(self, Self::Ws(ws) if ws.idle || ws.desktop.is_some())
    }
}

/// Runs a load test and prints its report. Fails if the run ended early other than by an interrupt,
/// or if nothing was answered. The exit code is 2 if the options are invalid.
pub(crate) fn run(load: &LoadCommand) -> Result<ExitCode> {
    let tester = match load.tester() {
        Ok(tester) => tester,
        Err(error) => {
            print_error(format_args!("{error:#}"));
            return Ok(ExitCode::from(2));
        }
    };
    if load.shared().write_hashes(tester.workload())? {
        return Ok(ExitCode::SUCCESS);
    }
    let report = tester.run(&*interruption()?, &mut progress_printer(load.shared().progress))?;
    write!(io::stdout(), "{report}").context("cannot print the report")?;
    match &report.ended {
        Some(why) if why != "interrupted" => bail!("{}: {why}", report.url),
        _ => {}
    }
    let is_answered = load.is_idle() || report.counts.responses.all() > 0;
    ensure!(is_answered, "{} did not answer", report.url);
    Ok(ExitCode::SUCCESS)
}

/// Returns a function that prints progress to standard error if that is a terminal, or `always`.
fn progress_printer(always: bool) -> impl FnMut(&Progress) {
    let is_watched = always || io::stderr().is_terminal();
    move |progress| {
        if is_watched {
            // Ignore a closed standard error.
            let _ = writeln!(io::stderr(), "{progress}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::load::LoopMode;
    use ::load::ws::AnnounceTiming;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        load: LoadCommand,
    }

    fn load(line: &str) -> Result<LoadCommand, String> {
        let words = ["load"].into_iter().chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.load)
    }

    fn ws(line: &str) -> ::load::ws::WsOptions {
        let Ok(LoadCommand::Ws(ws)) = load(line) else { panic!("{line}") };
        ws.options().unwrap()
    }

    #[test]
    fn only_the_url_is_required() {
        let Ok(LoadCommand::Udp(udp)) = load("udp udp://127.0.0.1:1") else { panic!() };
        let udp = udp.options().unwrap();
        assert_eq!(udp.loop_mode, LoopMode::Closed { outstanding: 512 });
        assert_eq!((udp.workload.want, udp.plan.duration.as_secs()), (Some(50), 10));
        let busy = ws("ws ws://127.0.0.1:3000/");
        assert_eq!((busy.workload.peers, busy.workload.torrents, busy.offers), (128, 4, 10));
        let idle = ws("ws ws://127.0.0.1 --idle");
        assert_eq!((idle.workload.peers, idle.workload.torrents, idle.offers), (10_000, 1_000, 0));
        assert!(matches!(idle.timing, AnnounceTiming::Idle { ping_every: Some(_), .. }));
        let desktop = ws("ws ws://127.0.0.1 --desktop 50 --peers 3 --torrents 9");
        assert_eq!((desktop.workload.peers, desktop.workload.torrents), (150, 9));
        assert_eq!((desktop.peers_each, desktop.offers), (50, 10));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for (line, what) in [
            ("udp udp://127.0.0.1", "udp:// needs a port"),
            ("udp udp://127.0.0.1:1 --rate 1e9", "must be between 0.01"),
            ("udp udp://127.0.0.1:1 --rate 1 --outstanding 2", "cannot be used with"),
            ("udp udp://127.0.0.1:1/{key} --keys /dev/null", "/dev/null: no keys"),
            ("udp udp://127.0.0.1:1 --keys Cargo.toml", "must contain {key}"),
            ("udp udp://127.0.0.1:1 --spread zipf", "unknown distribution"),
            ("http http://127.0.0.1 --peers 5", "must be at least"),
            ("ws ws://127.0.0.1 --offers 65", "65 is not in 0..=64"),
            ("ws ws://127.0.0.1 --idle --rate 7", "cannot be used with"),
        ] {
            let tester = load(line).and_then(|it| it.tester().map_err(|it| it.to_string()));
            let Err(error) = tester else { panic!("{line}") };
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
