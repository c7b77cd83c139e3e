//! `tidegate-bench load`: command line and output. The load testers are in `tools/load`.

mod arguments;
mod http;
mod udp;
mod ws;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use ::load::{Progress, Report};
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::print_error;

/// The load testers, one per protocol.
#[derive(Subcommand)]
pub(crate) enum LoadCommand {
    /// Load a UDP tracker with connects, announces and scrapes.
    Udp(udp::Udp),
    /// Load an HTTP or HTTPS tracker with announces, on persistent or new connections.
    Http(http::Http),
    /// Load a WebTorrent tracker with busy peers (offers and answers) or idle ones.
    Ws(ws::Ws),
}

/// Runs a load test and prints its report. Returns an error if the tracker answered nothing, and
/// exit code 2 if the options are invalid.
pub(crate) fn run(load: &LoadCommand) -> Result<ExitCode> {
    match load {
        LoadCommand::Udp(udp) => udp.run(),
        LoadCommand::Http(http) => http.run(),
        LoadCommand::Ws(ws) => ws.run(),
    }
}

/// Prints the report. Returns an error if the run ended early other than by an interrupt, or if
/// nothing was answered and `may_be_silent` is false.
fn finish(report: &Report, may_be_silent: bool) -> Result<ExitCode> {
    write!(io::stdout(), "{report}").context("cannot print the report")?;
    match &report.ended {
        Some(why) if why != "interrupted" => bail!("{}: {why}", report.url),
        _ => {}
    }
    ensure!(may_be_silent || report.responses.all() > 0, "{} did not answer", report.url);
    Ok(ExitCode::SUCCESS)
}

/// Reports invalid options.
fn usage_error(error: &anyhow::Error) -> ExitCode {
    print_error(format_args!("{error:#}"));
    ExitCode::from(2)
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
    use std::time::Duration;

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

    fn options(line: &str) -> Result<::load::ws::WsOptions, String> {
        let LoadCommand::Ws(ws) = load(line)? else { panic!("{line}") };
        ws.options().map_err(|error| error.to_string())
    }

    fn http(line: &str) -> Result<::load::http::HttpOptions, String> {
        let LoadCommand::Http(http) = load(line)? else { panic!("{line}") };
        http.options().map_err(|error| error.to_string())
    }

    fn udp(line: &str) -> Result<::load::udp::UdpOptions, String> {
        let LoadCommand::Udp(udp) = load(line)? else { panic!("{line}") };
        udp.options().map_err(|error| error.to_string())
    }

    #[test]
    fn only_the_url_is_required() {
        let busy = options("ws ws://127.0.0.1:3000/").unwrap();
        assert_eq!((busy.workload.peers, busy.workload.torrents, busy.offers), (128, 4, 10));
        assert_eq!((busy.timing, busy.plan.warm_up.as_secs()), (AnnounceTiming::Busy, 1));
        let idle = options("ws ws://127.0.0.1 --idle").unwrap();
        assert_eq!((idle.workload.peers, idle.workload.torrents, idle.offers), (10_000, 1_000, 0));
        assert!(matches!(idle.timing, AnnounceTiming::Idle { ping_every: Some(_), .. }));
        assert_eq!(idle.plan.duration, Duration::from_secs(150));
        let desktop = options("ws ws://127.0.0.1 --desktop 50").unwrap();
        assert_eq!((desktop.workload.peers, desktop.peers_each, desktop.offers), (50_000, 50, 10));
        let few = options("ws ws://127.0.0.1 --desktop 50 --peers 3 --torrents 9").unwrap();
        assert_eq!((few.workload.peers, few.workload.torrents), (150, 9));
    }

    #[test]
    fn ws_options_are_applied() {
        let said = options(
            "ws ws://[::1]:1/a --idle --peers 7 --torrents 2 --offers 64 --answers 50 --seconds 3 \
             --seed 9 --pid 1234 --workers 2 --churn 5 --spread real",
        )
        .unwrap();
        assert_eq!((said.workload.peers, said.workload.torrents, said.offers), (7, 2, 64));
        assert_eq!(said.answers_percent, 50);
        assert_eq!((said.workload.seed, said.plan.pid), (9, Some(1234)));
        assert_eq!((said.plan.duration, said.workers), (Duration::from_secs(3), 2));
        assert_eq!((said.workload.churn_percent, said.workload.spread), (5, ::load::Spread::Real));
        let warm = options("ws ws://127.0.0.1 --warm-up 4 --rate 50").unwrap();
        assert_eq!((warm.timing, warm.plan.warm_up.as_secs()), (AnnounceTiming::Paced(50.0), 4));
    }

    #[test]
    fn http_options_are_applied() {
        let few = http("http http://127.0.0.1/announce").unwrap();
        assert_eq!((few.connections, few.close, few.rate), (64, false, None));
        assert_eq!((few.workload.want, few.plan.duration.as_secs()), (Some(50), 10));
        let all = http(
            "http https://[::1]:1/a --close --connections 7 --torrents 2 --numwant -1 --seconds 3 \
             --warm-up 0 --seed 9 --pid 1234 --rate 99.5 --workers 2",
        )
        .unwrap();
        assert_eq!((all.connections, all.close, all.workers), (7, true, 2));
        assert_eq!((all.workload.torrents, all.workload.want, all.workload.seed), (2, None, 9));
        assert_eq!((all.plan.warm_up.as_secs(), all.plan.pid), (0, Some(1234)));
        assert_eq!(all.rate, Some(99.5));
        for (line, what) in [
            ("http ws://127.0.0.1", "expected a URL with http:// or https://"),
            ("http https://192.0.2.1", "--i-own-this-tracker"),
            ("http https://127.0.0.1 --connections 0", "0 is not in 1.."),
            ("http http://127.0.0.1 --peers 5", "must be at least"),
        ] {
            let error = http(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn udp_options_are_applied() {
        let few = udp("udp udp://127.0.0.1:1").unwrap();
        assert_eq!(few.loop_mode, LoopMode::Closed { outstanding: 512 });
        assert_eq!((few.workers, few.sockets, few.offload), (1, 16, true));
        let all = udp(
            "udp udp://[::1]:1/a --workers 2 --sockets 3 --rate 1000 --mix 1:2:3 --torrents 5 --peers 60 \
             --spread uniform --completes 8 --churn 9 --numwant 10 --no-offload --seconds 14 --check-every 15 --seed 16",
        )
        .unwrap();
        assert_eq!(all.loop_mode, LoopMode::Open { rate: 1000.0 });
        assert_eq!((all.workers, all.sockets, all.offload, all.check_every), (2, 3, false, 15));
        assert_eq!((all.mix.connect, all.mix.announce, all.mix.scrape), (1, 2, 3));
        let workload = &all.workload;
        assert_eq!(
            (workload.seed, workload.torrents, workload.peers, workload.want),
            (16, 5, 60, Some(10))
        );
        assert_eq!((workload.completes_percent, workload.churn_percent), (8, 9));
        assert_eq!(all.plan.duration.as_secs(), 14);
        for (line, what) in [
            ("udp http://127.0.0.1", "expected a URL with udp://"),
            ("udp udp://127.0.0.1", "udp:// needs a port"),
            ("udp udp://192.0.2.1:1", "--i-own-this-tracker"),
            ("udp udp://127.0.0.1:1 --rate 1e9", "must be between 0.01"),
            ("udp udp://127.0.0.1:1 --rate 1 --outstanding 2", "cannot be used with"),
            ("udp udp://127.0.0.1:1/{key}", "--keys is required"),
            ("udp udp://127.0.0.1:1/{key} --keys /dev/null", "/dev/null: no keys"),
            ("udp udp://127.0.0.1:1 --keys Cargo.toml", "must contain {key}"),
            ("udp udp://127.0.0.1:1 --mix 1", "expected weights"),
            ("udp udp://127.0.0.1:1 --spread zipf", "unknown distribution"),
        ] {
            let error = udp(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn invalid_ws_options_are_rejected() {
        for (line, what) in [
            ("ws", "<URL>"),
            ("ws http://127.0.0.1", "expected a URL with ws:// or wss://"),
            ("ws ws://127.0.0.1 --offers 65", "65 is not in 0..=64"),
            ("ws ws://127.0.0.1 --peers 0", "0 is not in 1.."),
            ("ws ws://127.0.0.1 --answers 101", "101 is not in 0..=100"),
            ("ws ws://127.0.0.1 --idle --rate 7", "cannot be used with"),
            ("ws ws://192.0.2.1", "--i-own-this-tracker"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
        assert!(options("ws ws://192.0.2.1 --i-own-this-tracker").is_ok());
    }
}
