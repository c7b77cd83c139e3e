//! `tidegate load`: its command line and what it prints. The load itself is in `tools/load`.

mod udp;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::load::ws::{self, Pace};
use ::load::{Progress, Report, Url, http};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, value_parser};

/// The load testers, by protocol.
#[derive(Subcommand)]
pub(crate) enum Load {
    /// Connects, announces and scrapes over UDP.
    Udp(udp::Udp),
    /// Announces over HTTP or HTTPS, on connections that are kept or made anew for each.
    Http(Http),
    /// WebTorrent over WebSocket: busy peers with offers and answers, or idle ones.
    Ws(Ws),
}

/// On every connection one announce is under way at any time, each of a peer that nobody has seen
/// before.
#[derive(Args)]
pub(crate) struct Http {
    /// Where to announce: `http://HOST[:PORT]/announce` or `https://…`; certificates are not looked at.
    url: String,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    connections: u32,
    /// Each announce has a connection of its own: over TLS, each is a handshake.
    #[arg(long)]
    close: bool,
    /// Sessions of TLS go on where an earlier one ended.
    #[arg(long)]
    resume: bool,
    /// Torrents that there are.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = value_parser!(u32).range(1..))]
    torrents: u32,
    /// Peers that are asked for.
    #[arg(long, value_name = "N", default_value_t = 50)]
    peers: u16,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    any: Any,
}

/// What all load testers are told.
#[derive(Args)]
struct Any {
    /// Seconds of load before anything is counted; not for idle peers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    warm_up: u32,
    /// Runs with the same seed have the same torrents and peers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The tracker's process on this machine: what it uses is told, too.
    #[arg(long, value_name = "NUMBER")]
    pid: Option<u32>,
    /// The tracker may be outside this machine and its private networks.
    #[arg(long)]
    i_own_this_tracker: bool,
}

/// Every connection is a peer of one torrent. A busy one announces with offers, answers the offers it
/// is given, and announces again as soon as it has its reply. All that the tracker delivers is
/// counted.
#[derive(Args)]
pub(crate) struct Ws {
    /// The tracker: `ws://HOST[:PORT][/PATH]` or `wss://…`; certificates are not looked at.
    url: String,
    /// Peers announce again when the tracker says they should, not at once, and send pings.
    #[arg(long)]
    idle: bool,
    /// Peers, each on a connection of its own [default: 128; idle: 10000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    connections: Option<u32>,
    /// Torrents that the peers are in, in turn [default: 4; idle: 1000].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    torrents: Option<u32>,
    /// Offers in each announce but a peer's first [default: 10; idle: 0].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=64))]
    offers: Option<u32>,
    /// Bytes of a session description in offers and answers.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = value_parser!(u32).range(0..=60_000))]
    offer_bytes: u32,
    /// Of a hundred offers received, how many are answered.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
          value_parser = value_parser!(u8).range(0..=100))]
    answers: u8,
    /// Of a hundred requests, how many are scrapes.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = value_parser!(u8).range(0..=100))]
    scrapes: u8,
    /// How long to measure [default: 10; idle: 150].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Seconds between an idle peer's pings; 0 = none.
    #[arg(long, value_name = "N", default_value_t = 30)]
    ping: u32,
    #[command(flatten)]
    any: Any,
}

/// Runs a load and prints what it found. An error if the tracker answered nothing.
pub(crate) fn run(load: &Load) -> Result<()> {
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
/// nothing was answered.
fn conclude(report: &Report, as_json: bool) -> Result<()> {
    if as_json {
        print(&format_args!("{}\n", report.json()))?
    } else {
        print(report)?
    }
    match &report.ended {
        Some(why) if why != "interrupted" => bail!("{}: {why}", report.url),
        _ => {}
    }
    ensure!(report.responses.all() > 0, "{} answered nothing", report.url);
    Ok(())
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

impl Any {
    /// Whether this tracker may be put under load.
    fn admits(&self, url: &Url) -> Result<()> {
        ensure!(
            url.is_private() || self.i_own_this_tracker,
            "{url} is outside this machine and its private networks: \
             say --i-own-this-tracker if it is yours to load"
        );
        Ok(())
    }
}

impl Http {
    fn run(&self) -> Result<()> {
        let report = http::run(&self.options()?)?;
        print(&report)?;
        ensure!(report.answers > 0, "the tracker answered nothing");
        Ok(())
    }

    fn options(&self) -> Result<http::Options> {
        let url = Url::http(&self.url)?;
        self.any.admits(&url)?;
        Ok(http::Options {
            url,
            connections: self.connections as usize,
            close: self.close,
            resume: self.resume,
            torrents: self.torrents as usize,
            peers: self.peers,
            warm_up: Duration::from_secs(self.any.warm_up.into()),
            duration: Duration::from_secs(self.seconds.into()),
            seed: self.any.seed,
            pid: self.any.pid,
        })
    }
}

impl Ws {
    fn run(&self) -> Result<()> {
        let options = self.options()?;
        let mut lost = Ok(());
        let mut stage = |text: &str| lost = writeln!(io::stdout(), "{text}");
        let report = ws::run(&options, &mut stage)?;
        lost.context("cannot print the figures")?;
        print(&report)?;
        // Idle peers may well have nothing to say for as long as is measured.
        if report.tally.messages() == 0 && matches!(options.pace, Pace::Busy { .. }) {
            bail!("the tracker answered nothing");
        }
        Ok(())
    }

    fn options(&self) -> Result<ws::Options> {
        let url = Url::web(&self.url)?;
        self.any.admits(&url)?;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let mut options = if self.idle { ws::Options::idle(url) } else { ws::Options::busy(url) };
        let set = |place: &mut usize, value: Option<u32>| {
            *place = value.map_or(*place, |value| value as usize);
        };
        set(&mut options.connections, self.connections);
        set(&mut options.torrents, self.torrents);
        set(&mut options.offers, self.offers);
        options.offer_bytes = self.offer_bytes as usize;
        options.answers_percent = self.answers;
        options.scrapes_percent = self.scrapes;
        options.pace = match options.pace {
            Pace::Busy { .. } => Pace::Busy { warm_up: seconds(self.any.warm_up) },
            Pace::Idle { .. } => {
                Pace::Idle { ping_every: (self.ping > 0).then(|| seconds(self.ping)) }
            }
        };
        options.duration = self.seconds.map_or(options.duration, seconds);
        options.seed = self.any.seed;
        options.pid = self.any.pid;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

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

    fn options(line: &str) -> Result<ws::Options, String> {
        let Load::Ws(ws) = load(line)? else { panic!("{line}") };
        ws.options().map_err(|error| error.to_string())
    }

    fn http(line: &str) -> Result<http::Options, String> {
        let Load::Http(http) = load(line)? else { panic!("{line}") };
        http.options().map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_is_enough() {
        let busy = options("ws ws://127.0.0.1:3000/").unwrap();
        assert_eq!((busy.connections, busy.torrents, busy.offers), (128, 4, 10));
        assert_eq!(busy.pace, Pace::Busy { warm_up: Duration::from_secs(1) });
        let idle = options("ws ws://127.0.0.1 --idle").unwrap();
        assert_eq!((idle.connections, idle.torrents, idle.offers), (10_000, 1_000, 0));
        assert_eq!(idle.pace, Pace::Idle { ping_every: Some(Duration::from_secs(30)) });
        assert_eq!(idle.duration, Duration::from_secs(150));
    }

    #[test]
    fn everything_can_be_said() {
        let said = options(
            "ws ws://[::1]:1/a --idle --connections 7 --torrents 2 --offers 64 --offer-bytes 5000 \
             --answers 50 --scrapes 5 --seconds 3 --ping 0 --seed 9 --pid 1234",
        )
        .unwrap();
        assert_eq!((said.connections, said.torrents, said.offers), (7, 2, 64));
        assert_eq!((said.answers_percent, said.scrapes_percent), (50, 5));
        assert_eq!((said.offer_bytes, said.seed, said.pid), (5000, 9, Some(1234)));
        assert_eq!(said.pace, Pace::Idle { ping_every: None });
        assert_eq!(said.duration, Duration::from_secs(3));
        let warm = options("ws ws://127.0.0.1 --warm-up 4").unwrap();
        assert_eq!(warm.pace, Pace::Busy { warm_up: Duration::from_secs(4) });
    }

    #[test]
    fn http_has_its_own_words() {
        let few = http("http http://127.0.0.1/announce").unwrap();
        assert_eq!(
            (few.connections, few.close, few.resume, few.torrents),
            (64, false, false, 1000)
        );
        assert_eq!((few.peers, few.duration.as_secs(), few.pid), (50, 10, None));
        let all = http(
            "http https://[::1]:1/a --close --resume --connections 7 --torrents 2 --peers 0 --seconds 3 \
             --warm-up 0 --seed 9 --pid 1234",
        )
        .unwrap();
        assert_eq!((all.connections, all.close, all.resume, all.torrents), (7, true, true, 2));
        assert_eq!((all.peers, all.duration.as_secs(), all.pid), (0, 3, Some(1234)));
        assert_eq!((all.warm_up.as_secs(), all.seed), (0, 9));
        for (line, what) in [
            ("http ws://127.0.0.1", "a URL with http:// or https:// is due"),
            ("http https://192.0.2.1", "--i-own-this-tracker"),
            ("http https://127.0.0.1 --connections 0", "0 is not in 1.."),
        ] {
            let error = http(line).unwrap_err();
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
            ("ws ws://192.0.2.1", "--i-own-this-tracker"),
        ] {
            let error = options(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
        assert!(options("ws ws://192.0.2.1 --i-own-this-tracker").is_ok());
    }
}
