//! `tidegate announce`: announces a torrent and prints the response.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use client::{AnnounceResponse, Session, SessionConfig, TrackerError, Url, counted, peer_id};
use serde_json::{Value, json};
use types::{Event, Family, InfoHash, NumWant, PeerId};

use crate::cli::{self, ConnectArgs, UsageError, printable};

/// Announce a torrent to any tracker and print the response.
///
/// Prints one peer per line. Without --event, the announce says `started`, and a final one says `stopped`, so that the tracker keeps no
/// peer.
#[derive(Args)]
#[command(override_usage = "tidegate announce [OPTIONS] [URL] TORRENT")]
pub(crate) struct Announce {
    /// The tracker's announce URL (udp, http, https, ws, wss), then the torrent: an info hash of 40 or 64
    /// hex digits, a .torrent file or a magnet link. Without a URL, or with `-`, all trackers of the torrent
    /// are used. Of a hybrid torrent, both info hashes are announced.
    #[arg(required = true, num_args = 1..=2, value_name = "[URL] TORRENT")]
    words: Vec<String>,
    /// The event to announce [default: started, then stopped].
    #[arg(long, value_parser = PossibleValuesParser::new(EVENTS.map(Event::name)).map(event_of))]
    event: Option<Event>,
    /// Do not announce `stopped` at the end: the peer stays until the tracker removes it.
    #[arg(long)]
    stay: bool,
    /// Bytes left to download [default: the torrent's length if it is known, else 1].
    #[arg(long, value_name = "BYTES")]
    left: Option<u64>,
    /// Bytes uploaded.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    uploaded: u64,
    /// Bytes downloaded.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    downloaded: u64,
    /// Number of peers to ask for [default: the tracker decides].
    #[arg(long, value_name = "N")]
    numwant: Option<u16>,
    /// The port the peer listens on.
    #[arg(long, default_value_t = 6881)]
    port: u16,
    /// Peer id: 20 characters, or 40 hex digits [default: -TG1000- and random digits].
    #[arg(long, value_name = "ID", allow_hyphen_values = true, value_parser = peer_id_of)]
    peer_id: Option<PeerId>,
    /// The `key` parameter: up to 8 hex digits [default: random].
    #[arg(long, value_name = "HEX", value_parser = key_of)]
    key: Option<u32>,
    /// Number of announces. Between them, it waits for the longest interval that a tracker returned.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    #[command(flatten)]
    connect: ConnectArgs,
}

struct Announcer {
    url: Url,
    announce: types::Announce,
    session: Option<(Session, SocketAddr)>,
    is_known: bool,
}

impl Announce {
    pub(crate) fn run(&self) -> Result<bool, UsageError> {
        let mut config = self.connect.session_config()?;
        config.key = self.key.unwrap_or(config.key);
        let mut announcers = self.announcers()?;
        let mut is_well = true;
        for round in 1..=self.count {
            let mut pause = None;
            for announcer in &mut announcers {
                match self.announce(announcer, &config)? {
                    Ok(announced) => pause = pause.max(Some(interval(&announced))),
                    Err(_) => is_well = false,
                }
            }
            match pause {
                Some(pause) if round < self.count => thread::sleep(pause),
                _ => break,
            }
            announcers.iter_mut().for_each(|announcer| announcer.announce.event = Event::None);
        }
        if self.event.is_none() && !self.stay {
            for announcer in announcers.iter_mut().filter(|announcer| announcer.is_known) {
                announcer.announce.event = Event::Stopped;
                announcer.announce.want = NumWant::Peers(0);
                is_well &= self.announce(announcer, &config)?.is_ok();
            }
        }
        Ok(is_well)
    }

    fn announce(
        &self,
        announcer: &mut Announcer,
        config: &SessionConfig,
    ) -> Result<Result<AnnounceResponse, TrackerError>, UsageError> {
        let start = Instant::now();
        let answer = announcer.announce(self.connect.family(), config);
        let took = cli::milliseconds(start.elapsed());
        let said = &announcer.announce;
        let text = match &answer {
            _ if self.connect.json => format!("{}\n", announcer.json(took, &answer)),
            Err(error) => {
                cli::print_error(format_args!("{}: {}", announcer.url, cli::error_text(error)));
                String::new()
            }
            // A final `stopped` that was not asked for is not printed.
            Ok(_) if said.event == Event::Stopped && self.event.is_none() => String::new(),
            Ok(announced) => announcer.text(took, announced),
        };
        // Even if the reader is gone, the peer must announce `stopped`.
        cli::print(&text)?;
        Ok(answer)
    }

    fn announcers(&self) -> Result<Vec<Announcer>, UsageError> {
        let peer_id = self.peer_id.unwrap_or_else(peer_id);
        let mut announcers = Vec::new();
        for target in cli::targets(&self.words)? {
            for info_hash in target.hashes {
                let announce = types::Announce {
                    info_hash,
                    peer_id,
                    port: self.port,
                    event: self.event.unwrap_or(Event::Started),
                    left: Some(self.left.or(target.length).unwrap_or(1)),
                    uploaded: self.uploaded,
                    downloaded: self.downloaded,
                    want: self.numwant.map_or(NumWant::Default, NumWant::Peers),
                };
                let url = target.url.clone();
                announcers.push(Announcer { url, announce, session: None, is_known: false });
            }
        }
        Ok(announcers)
    }
}

impl Announcer {
    fn announce(
        &mut self,
        family: Option<Family>,
        config: &SessionConfig,
    ) -> Result<AnnounceResponse, TrackerError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => Session::connect(&self.url, family, config)?,
        };
        let announced = session.0.announce(&self.announce)?;
        self.is_known = true;
        self.session = Some(session);
        Ok(announced)
    }

    fn address(&self) -> Option<SocketAddr> {
        self.session.as_ref().map(|(_, address)| *address)
    }

    fn json(&self, took: f64, answer: &Result<AnnounceResponse, TrackerError>) -> Value {
        let mut line = json!({
            "tracker": self.url.to_string(),
            "info_hash": self.announce.info_hash.to_string(),
            "event": self.announce.event.name(),
            "ms": took,
        });
        let more = match answer {
            Ok(it) => json!({
                "address": self.address(),
                "interval_s": it.interval_s,
                "min_interval_s": it.min_interval_s,
                "seeders": it.seeders,
                "leechers": it.leechers,
                "downloads": it.downloads,
                "external_ip": it.external_ip,
                "warning": it.warning,
                "departure": it.violation,
                "peers": it.peers,
            }),
            Err(error) => json!({ "error": cli::error_json(error) }),
        };
        if let (Some(line), Value::Object(more)) = (line.as_object_mut(), more) {
            line.extend(more);
        }
        line
    }

    fn text(&self, took: f64, said: &AnnounceResponse) -> String {
        let mut text = self.url.to_string();
        if let Some(address) = self.address() {
            text += &format!(" at {address}");
        }
        text += &format!(": {} in {took} ms\n", self.announce.info_hash);
        let (seeders, leechers) =
            (counted(said.seeders, "seeder"), counted(said.leechers, "leecher"));
        text += &format!("  {seeders}, {leechers}");
        if said.downloads.is_some() {
            text += &format!(", {}", counted(said.downloads, "download"));
        }
        let interval = said.interval_s.map_or_else(|| "?".into(), |it| it.to_string());
        text += &format!("; announce again in {interval} s");
        if let Some(min) = said.min_interval_s {
            text += &format!(" (at least {min} s)");
        }
        if let Some(ip) = said.external_ip {
            text += &format!("; your address: {ip}");
        }
        text += "\n";
        for (name, said) in [("warning", &said.warning), ("protocol violation", &said.violation)] {
            if let Some(said) = said {
                text += &format!("  {name}: {}\n", printable(said));
            }
        }
        said.peers.iter().for_each(|peer| text += &format!("  {peer}\n"));
        text
    }
}

fn interval(announced: &AnnounceResponse) -> Duration {
    let interval = announced.interval_s.max(announced.min_interval_s);
    Duration::from_secs(interval.unwrap_or(0)).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

/// The shortest wait, even if the tracker returns less.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest wait, after which no tracker still has the peer.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 3600);

const EVENTS: [Event; 5] =
    [Event::None, Event::Started, Event::Completed, Event::Stopped, Event::Paused];

fn event_of(name: String) -> Event {
    EVENTS.into_iter().find(|event| event.name() == name).unwrap_or_default()
}

fn peer_id_of(text: &str) -> Result<PeerId, String> {
    if let (40, Ok(InfoHash(bytes))) = (text.len(), text.parse()) {
        return Ok(PeerId(bytes));
    }
    let bytes = text.as_bytes().try_into();
    bytes.map(PeerId).map_err(|_| "expected 20 characters or 40 hex digits".into())
}

fn key_of(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| "expected up to 8 hex digits".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_peer_ids_and_keys() {
        assert_eq!(peer_id_of("-TG0001-abcdefghijkl"), Ok(PeerId(*b"-TG0001-abcdefghijkl")));
        assert_eq!(peer_id_of(&"0f".repeat(20)), Ok(PeerId([15; 20])));
        for bad in ["", "-TG0001-", &"0g".repeat(20), "-TG0001-abcdefghijkl "] {
            assert!(peer_id_of(bad).is_err(), "{bad}");
        }
        assert_eq!((key_of("DEADbeef"), key_of("1")), (Ok(0xdead_beef), Ok(1)));
        assert!(key_of("100000000").is_err() && key_of("").is_err() && key_of("x").is_err());
    }

    /// BEP 20: two letters, and four digits of the version.
    #[test]
    fn names_the_version_in_peer_ids() {
        let version: String = env!("CARGO_PKG_VERSION").split('.').collect();
        let prefix = format!("-TG{version}0-");
        assert!(peer_id().0.starts_with(prefix.as_bytes()), "{prefix}");
        let help = Announce::augment_args(clap::Command::new("announce")).render_long_help();
        let help = help.to_string();
        assert!(help.contains(&format!("[default: {prefix} and")), "{help}");
    }
}
