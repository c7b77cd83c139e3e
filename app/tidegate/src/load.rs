//! `tidegate load`: its command line and what it prints. The load itself is in `tools/load`.

mod arguments;
mod http;
mod udp;
mod ws;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::load::{Progress, Report};
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::cli;

/// The load testers, by protocol.
#[derive(Subcommand)]
pub(crate) enum Load {
    /// Connects, announces and scrapes over UDP.
    Udp(udp::Udp),
    /// Announces over HTTP or HTTPS, on connections that are kept or made anew for each.
    Http(http::Http),
    /// WebTorrent over WebSocket: busy peers with offers and answers, or idle ones.
    Ws(ws::Ws),
}

/// Runs a load and prints what it found. An error if the tracker answered nothing; a code of its own if
/// the command made no sense.
pub(crate) fn run(load: &Load) -> Result<ExitCode> {
    // More connections than the usual limit are asked for; if they cannot be had, opening them says so.
    let _ = net::process::raise_descriptor_limit();
    match load {
        Load::Udp(udp) => udp.run(),
        Load::Http(http) => http.run(),
        Load::Ws(ws) => ws.run(),
    }
}

fn print(report: &impl Display) -> Result<()> {
    write!(io::stdout(), "{report}").context("cannot print the figures")
}

/// Prints what a run has found, and says why it ended early if it did not do so by request. An error if
/// nothing was answered, unless that may be.
fn conclude(report: &Report, as_json: bool, may_be_silent: bool) -> Result<ExitCode> {
    if as_json {
        print(&format_args!("{}\n", report.json()))?
    } else {
        print(report)?
    }
    match &report.ended {
        Some(why) if why != "interrupted" => bail!("{}: {why}", report.url),
        _ => {}
    }
    ensure!(may_be_silent || report.responses.all() > 0, "{} answered nothing", report.url);
    Ok(ExitCode::SUCCESS)
}

/// What to do was not said well.
fn wrong_use(error: &anyhow::Error) -> ExitCode {
    cli::print_error(format_args!("{error:#}"));
    ExitCode::from(2)
}

/// Is set when the user asks for an end; a second time ends the process at once.
fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: what is not yet set does not end the process.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("cannot listen for signals")?;
    }
    Ok(flag)
}

/// Tells on standard error how a run is going, if somebody may be watching.
fn watch(always: bool) -> impl FnMut(&Progress) {
    let is_watched = always || io::stderr().is_terminal();
    move |progress| {
        if is_watched {
            // Whoever closed standard error does not want to know.
            let _ = writeln!(io::stderr(), "{progress}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::load::Pace;
    use ::load::ws::Rhythm;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        load: Load,
    }

    fn load(line: &str) -> Result<Load, String> {
        let words = ["load"].into_iter().chain(line.split(' '));
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.load)
    }

    fn options(line: &str) -> Result<::load::ws::Options, String> {
        let Load::Ws(ws) = load(line)? else { panic!("{line}") };
        ws.options().map_err(|error| error.to_string())
    }

    fn http(line: &str) -> Result<::load::http::Options, String> {
        let Load::Http(http) = load(line)? else { panic!("{line}") };
        http.options().map_err(|error| error.to_string())
    }

    fn udp(line: &str) -> Result<::load::udp::Options, String> {
        let Load::Udp(udp) = load(line)? else { panic!("{line}") };
        udp.options().map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_enough() {
        let busy = options("ws ws://127.0.0.1:3000/").unwrap();
        assert_eq!((busy.habits.peers, busy.habits.torrents, busy.offers), (128, 4, 10));
        assert_eq!((busy.rhythm, busy.plan.warm_up.as_secs()), (Rhythm::Busy, 1));
        let idle = options("ws ws://127.0.0.1 --idle").unwrap();
        assert_eq!((idle.habits.peers, idle.habits.torrents, idle.offers), (10_000, 1_000, 0));
        assert_eq!(idle.rhythm, Rhythm::Idle { ping_every: Some(Duration::from_secs(30)) });
        assert_eq!(idle.plan.duration, Duration::from_secs(150));
    }

    #[test]
    fn everything_can_be_said() {
        let said = options(
            "ws ws://[::1]:1/a --idle --connections 7 --torrents 2 --offers 64 --offer-bytes 5000 \
             --answers 50 --mix 19:1 --seconds 3 --ping 0 --seed 9 --pid 1234 --workers 2 --churn 5 \
             --spread real --requests-per-connection 8 --timeout-ms 70 --hostile silent",
        )
        .unwrap();
        assert_eq!((said.habits.peers, said.habits.torrents, said.offers), (7, 2, 64));
        assert_eq!((said.answers_percent, said.mix.announce, said.mix.scrape), (50, 19, 1));
        assert_eq!((said.offer_bytes, said.habits.seed, said.plan.pid), (5000, 9, Some(1234)));
        assert_eq!(said.rhythm, Rhythm::Idle { ping_every: None });
        assert_eq!((said.plan.duration, said.workers), (Duration::from_secs(3), 2));
        assert_eq!((said.habits.churn_percent, said.habits.spread), (5, ::load::Spread::Real));
        assert_eq!((said.requests_per_connection, said.timeout.as_millis()), (Some(8), 70));
        assert_eq!(said.hostile, Some((::load::Pest::Silent, 64)));
        let warm = options("ws ws://127.0.0.1 --warm-up 4 --rate 50").unwrap();
        assert_eq!((warm.rhythm, warm.plan.warm_up.as_secs()), (Rhythm::Paced(50.0), 4));
    }

    #[test]
    fn http_has_its_own_words() {
        let few = http("http http://127.0.0.1/announce").unwrap();
        assert_eq!((few.connections, few.close, few.resume, few.rate), (64, false, false, None));
        assert_eq!((few.habits.want, few.plan.duration.as_secs()), (Some(50), 10));
        let all = http(
            "http https://[::1]:1/a --close --resume --connections 7 --torrents 2 --numwant -1 --seconds 3 \
             --warm-up 0 --seed 9 --pid 1234 --rate 99.5 --mix 3:1 --workers 2 --hostile slowloris \
             --hostile-connections 5 --timeout-ms 70",
        )
        .unwrap();
        assert_eq!((all.connections, all.close, all.resume, all.workers), (7, true, true, 2));
        assert_eq!((all.habits.torrents, all.habits.want, all.habits.seed), (2, None, 9));
        assert_eq!((all.plan.warm_up.as_secs(), all.plan.pid), (0, Some(1234)));
        assert_eq!((all.rate, all.mix.announce, all.timeout.as_millis()), (Some(99.5), 3, 70));
        assert_eq!(all.hostile, Some((::load::Pest::Slowloris, 5)));
        for (line, what) in [
            ("http ws://127.0.0.1", "a URL with http:// or https:// is due"),
            ("http https://192.0.2.1", "--i-own-this-tracker"),
            ("http https://127.0.0.1 --connections 0", "0 is not in 1.."),
            ("http http://127.0.0.1 --peers 5", "fewer than there are connections"),
            ("http http://127.0.0.1 --hostile bad-ids", "slowloris"),
        ] {
            let error = http(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn udp_has_its_own_words() {
        let few = udp("udp udp://127.0.0.1:1").unwrap();
        assert_eq!(few.pace, Pace::Closed { outstanding: 512 });
        assert_eq!((few.workers, few.sockets, few.offload), (1, 16, true));
        let all = udp(
            "udp udp://[::1]:1/a --workers 2 --sockets 3 --rate 1000 --mix 1:2:3 --scrape-torrents 4 \
             --torrents 5 --peers 60 --spread gamma --seeders 7 --completes 8 --churn 9 --numwant 10 \
             --hostile garbage --hostile-percent 11 --timeout-ms 12 --no-offload --steady 13 --seconds 14 \
             --check-every 15 --seed 16 --source ::1",
        )
        .unwrap();
        assert_eq!(all.pace, Pace::Open { rate: 1000.0 });
        assert_eq!((all.workers, all.sockets, all.offload, all.check_every), (2, 3, false, 15));
        assert_eq!((all.mix.connect, all.mix.announce, all.mix.scrape), (1, 2, 3));
        let habits = &all.habits;
        assert_eq!(
            (habits.seed, habits.torrents, habits.peers, habits.want),
            (16, 5, 60, Some(10))
        );
        let percents = (habits.seeders_percent, habits.completes_percent, habits.churn_percent);
        assert_eq!(percents, (7, 8, 9));
        assert_eq!(all.hostile, Some((::load::udp::Hostile::Garbage, 11)));
        assert_eq!(
            (all.timeout.as_millis(), all.plan.steady_within),
            (12, Some(Duration::from_secs(13)))
        );
        let many = udp("udp udp://127.0.0.1:1 --source 127.0.1.0/30,127.0.0.9").unwrap();
        let sources: Vec<String> = many.sources.iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["127.0.1.1", "127.0.1.2", "127.0.0.9"]);
        for (line, what) in [
            ("udp http://127.0.0.1", "a URL with udp:// is due"),
            ("udp udp://127.0.0.1", "udp:// needs a port"),
            ("udp udp://192.0.2.1:1", "--i-own-this-tracker"),
            ("udp udp://127.0.0.1:1 --rate 1e9", "no number from 0.01"),
            ("udp udp://127.0.0.1:1 --rate 1 --outstanding 2", "cannot be used with"),
            ("udp udp://127.0.0.1:1/{key}", "a file of keys is due"),
            ("udp udp://127.0.0.1:1/{key} --keys /dev/null", "/dev/null: no keys"),
            ("udp udp://127.0.0.1:1 --keys Cargo.toml", "nowhere is {key}"),
            ("udp udp://127.0.0.1:1 --mix 1", "no weights"),
            ("udp udp://127.0.0.1:1 --spread zipf", "unknown distribution"),
            ("udp udp://127.0.0.1:1 --source nowhere", "neither an address nor a network"),
            ("udp udp://127.0.0.1:1 --source ::1", "of the other address family"),
            ("udp udp://127.0.0.1:1 --hostile slowloris", "bad-ids"),
        ] {
            let error = udp(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (line, what) in [
            ("ws", "<URL>"),
            ("ws http://127.0.0.1", "a URL with ws:// or wss:// is due"),
            ("ws ws://127.0.0.1 --offers 65", "65 is not in 0..=64"),
            ("ws ws://127.0.0.1 --connections 0", "0 is not in 1.."),
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
