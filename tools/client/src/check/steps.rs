//! The steps that two clients take at one address of a tracker.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use types::{Announce, Event, InfoHash, NumWant};
use wire::udp::MAGIC;

use super::{
    CheckOptions, Finding, Findings, certificate, failed, failed_by, ok, skipped, warning,
    webtorrent,
};
use crate::session::Protocol;
use crate::udp::Udp;
use crate::{
    AnnounceResponse, FailureKind, ScrapeStats, Session, SessionConfig, TrackerError, Url, counted,
    peer_id, random,
};

/// Timeout of a request with a wrong connection id.
const BAD_ID_TIMEOUT: Duration = Duration::from_secs(1);
/// Sane announce intervals in seconds. Shorter ones overload the tracker, longer ones make swarms
/// stale.
const SANE_INTERVALS_S: std::ops::RangeInclusive<u64> = 60..=7200;
/// The items that require a successful announce.
const AFTER_ANNOUNCE: &[&str] =
    &["interval", "own-address", "re-announce", "introduction", "scrape", "stopped"];

pub(super) struct AddressCheck<'a> {
    pub(super) url: &'a Url,
    pub(super) address: SocketAddr,
    pub(super) options: &'a CheckOptions,
    pub(super) config: SessionConfig,
    pub(super) findings: &'a mut Findings,
    /// True if the torrent was made up, so that no other peer has it.
    pub(super) own_torrent: bool,
    /// The first client's announce.
    pub(super) first: Announce,
    /// The second client's announce.
    pub(super) second: Announce,
}

impl<'a> AddressCheck<'a> {
    pub(super) fn new(
        url: &'a Url,
        address: SocketAddr,
        options: &'a CheckOptions,
        findings: &'a mut Findings,
    ) -> Self {
        let info_hash = options.torrent.unwrap_or_else(|| InfoHash(random()));
        let [high, low] = random();
        // Below the ephemeral port ranges, so that no other client has it by chance.
        let port = 10_000 + u16::from_be_bytes([high, low]) % 20_000;
        let peer = |port| Announce {
            event: Event::Started,
            left: Some(1),
            want: NumWant::Peers(50),
            ..Announce::new(info_hash, peer_id(), port)
        };
        Self {
            url,
            address,
            options,
            config: SessionConfig::new(options.timeout, options.tls.clone()),
            findings,
            own_torrent: options.torrent.is_none(),
            first: peer(port),
            second: peer(port + 1),
        }
    }

    pub(super) fn run(mut self) {
        let Some(mut session) = self.connect() else { return };
        let Some(announced) = self.announce(&mut session) else { return };
        self.findings.add("interval", interval(&announced));
        let again = self.announce_again(&mut session, &announced);
        self.findings.add("own-address", self.own_address(&session, &announced, again.as_ref()));
        if let Protocol::WebTorrent(_) = session.0 {
            return webtorrent::run(&mut self, session);
        }
        let (introduction, peers) = self.introduce(&mut session);
        self.findings.add("introduction", introduction);
        let scrapes = self.scrape(&mut session, peers);
        self.stop(&mut session, scrapes);
        self.findings.add("keep-alive", keep_alive(&session));
    }

    fn connect(&mut self) -> Option<Session> {
        let start = Instant::now();
        let opened = Session::connect_transport(self.url, self.address, &self.config);
        let mut session =
            opened.map_err(|error| self.findings.add("connect", failed_by(&error))).ok()?;
        let ready = session.handshake();
        let took = milliseconds(start.elapsed());
        let sent = if let Protocol::Udp(udp) = &session.0 { udp.sent } else { 1 };
        let is_ready = ready.is_ok();
        self.findings.add(
            "connect",
            match ready {
                Err(error) => failed_by(&error),
                Ok(()) if sent == 1 => ok(format!("in {took}")),
                Ok(()) => {
                    warning(format!("in {took}, after {sent} datagrams: packets are being lost"))
                }
            },
        );
        // Check the certificate even if the handshake of the protocol above failed.
        let tls = match &session.0 {
            Protocol::Udp(_) => None,
            Protocol::Http(http) => http.tls(),
            Protocol::WebTorrent(web) => web.tls(),
        };
        if let Some(tls) = tls {
            certificate::check_tls(self.url, tls, self.options, self.findings);
        }
        if let Protocol::Udp(udp) = &mut session.0
            && is_ready
        {
            // The handshake got one, so this sends nothing.
            let id = udp.connect().ok()?;
            self.findings.add("connection-id", self.connection_id(id));
        }
        is_ready.then_some(session)
    }

    /// Checks the connection id. A guessable one lets attackers announce with forged source
    /// addresses, or direct responses at victims.
    fn connection_id(&self, id: u64) -> Finding {
        if id == MAGIC {
            return failed(
                "it is the protocol's constant, so requests with forged source addresses are served",
            );
        }
        if !self.options.thorough {
            return ok("received");
        }
        let timeout = BAD_ID_TIMEOUT.min(self.options.timeout);
        let config = SessionConfig { timeout, ..self.config.clone() };
        let probe = Udp::open(self.url, self.address, &config).and_then(|mut udp| {
            udp.set_connection_id(u64::from_ne_bytes(random()));
            udp.scrape(&[self.first.info_hash])
        });
        match probe {
            Ok(_) => failed(
                "wrong ids are accepted, so requests with forged source addresses are served",
            ),
            Err(TrackerError { kind: FailureKind::Timeout, .. }) => {
                ok("received; wrong ids are ignored")
            }
            Err(TrackerError { kind: FailureKind::Refused, text }) => {
                ok(format!("received; wrong ids are refused: {text}"))
            }
            Err(error) => warning(format!("received; with a wrong one: {error}")),
        }
    }

    fn announce(&mut self, session: &mut Session) -> Option<AnnounceResponse> {
        let start = Instant::now();
        let announced = session.announce(&self.first);
        let took = milliseconds(start.elapsed());
        let is_refused = |error: &TrackerError| error.kind == FailureKind::Refused;
        let finding = match &announced {
            Ok(AnnounceResponse { violation: Some(violation), .. }) => {
                warning(format!("{violation}; in {took}"))
            }
            Ok(AnnounceResponse { leechers: None, .. }) => {
                warning(format!("no leecher count; in {took}"))
            }
            Ok(AnnounceResponse { seeders, leechers, .. }) => {
                let seeders = counted(Some(seeders.unwrap_or(0)), "seeder");
                ok(format!("in {took}: {seeders}, {}", counted(*leechers, "leecher")))
            }
            // The tracker works; it may serve only registered torrents.
            Err(error) if is_refused(error) && self.own_torrent => {
                warning(format!("refused: {error}; use --torrent to name one that it serves"))
            }
            Err(error) => failed_by(error),
        };
        self.findings.add("announce", finding);
        if let Err(error) = &announced {
            let is_registered = is_refused(error) && self.own_torrent;
            let why = if is_registered { "announces are refused" } else { "the announce failed" };
            self.findings.skip(AFTER_ANNOUNCE, why);
        }
        announced.ok()
    }

    fn announce_again(
        &mut self,
        session: &mut Session,
        before: &AnnounceResponse,
    ) -> Option<AnnounceResponse> {
        let start = Instant::now();
        let announced = session.announce(&Announce { event: Event::None, ..self.first });
        let finding = match &announced {
            Ok(again) => match (before.leechers, again.leechers) {
                (Some(had), Some(has)) if has > had && self.own_torrent => failed(format!(
                    "the re-announce counts as another peer: {has} leechers instead of {had}"
                )),
                _ => ok(format!("in {}", milliseconds(start.elapsed()))),
            },
            // This announce comes before the interval has passed, so refusing it is legitimate.
            Err(error) => Finding::of_refusable(error),
        };
        self.findings.add("re-announce", finding);
        announced.ok()
    }

    /// Checks whether a client receives its own address, to which it cannot usefully connect.
    fn own_address(
        &self,
        session: &Session,
        first: &AnnounceResponse,
        again: Option<&AnnounceResponse>,
    ) -> Finding {
        if let Protocol::WebTorrent(_) = session.0 {
            return skipped("WebTorrent responses contain no addresses");
        }
        let known = [session.local_addr().map(|it| it.ip()), first.external_ip];
        // In a made-up torrent every peer with this port is this client, even behind a NAT.
        let is_own = |peer: &&SocketAddr| {
            peer.port() == self.first.port && (self.own_torrent || known.contains(&Some(peer.ip())))
        };
        let all = [Some(first), again].into_iter().flatten();
        match all.flat_map(|it| &it.peers).find(is_own) {
            Some(own) => warning(format!("the response contains the client's own address, {own}")),
            None => ok("the client's own address is left out"),
        }
    }

    /// Checks whether the second client receives the first one's address, which is the tracker's
    /// purpose. Returns how many clients have announced, too.
    fn introduce(&self, session: &mut Session) -> (Finding, u64) {
        if !self.own_torrent {
            return (skipped("other clients share this torrent"), 1);
        }
        let announced = match session.announce(&self.second) {
            Ok(announced) => announced,
            Err(error) => return (failed_by(&error), 1),
        };
        let first = announced.peers.iter().find(|it| it.port() == self.first.port);
        let finding = match first {
            Some(first) => ok(format!("a second client receives the first one's address, {first}")),
            None => failed(format!(
                "a second client does not receive the first one's address, only {} others",
                announced.peers.len()
            )),
        };
        (finding, 2)
    }

    /// Scrapes, and checks that the counts match the `peers` that have announced. Returns whether the tracker has counts.
    pub(super) fn scrape(&mut self, session: &mut Session, peers: u64) -> bool {
        let start = Instant::now();
        let scraped = session.scrape(&[self.first.info_hash]);
        let scraped = scraped.map(|all| all.first().copied().flatten());
        let finding = match &scraped {
            Ok(Some(ScrapeStats { seeders, leechers, .. })) => {
                let took = milliseconds(start.elapsed());
                let of_seeders = counted(Some(*seeders), "seeder");
                let of_leechers = counted(Some(*leechers), "leecher");
                let text = format!("in {took}: {of_seeders}, {of_leechers}");
                if self.own_torrent && (*seeders, *leechers) != (0, peers) {
                    warning(format!("{text}, expected {}", counted(Some(peers), "leecher")))
                } else {
                    ok(text)
                }
            }
            Ok(None) => warning("the torrent is missing from the response"),
            // Not every tracker supports scrapes.
            Err(error) => Finding::of_refusable(error),
        };
        self.findings.add("scrape", finding);
        matches!(scraped, Ok(Some(_)))
    }

    /// Both clients announce `stopped`, the second only if it has announced.
    fn stop(&mut self, session: &mut Session, scrapes: bool) {
        let (first, second) = (self.first, self.second);
        let Some(mut told_of) = self.leave(session, &first) else { return };
        if self.own_torrent {
            let Some(peers) = self.leave(session, &second) else { return };
            told_of += peers;
        }
        self.findings.add("stopped", self.gone(session, scrapes, told_of));
    }

    /// Announces that a client stops. Returns how many peers it receives, or `None` after a failure.
    pub(super) fn leave(&mut self, session: &mut Session, client: &Announce) -> Option<usize> {
        let stopped = Announce { event: Event::Stopped, want: NumWant::Peers(0), ..*client };
        let announced = session.announce(&stopped);
        let announced = announced.map_err(|error| self.findings.add("stopped", failed_by(&error)));
        announced.ok().map(|announced| announced.peers.len())
    }

    /// Checks that peers which have stopped are no longer counted, if the tracker answers scrapes, and that they have
    /// received no peers.
    pub(super) fn gone(&self, session: &mut Session, scrapes: bool, told_of: usize) -> Finding {
        let left = if scrapes && self.own_torrent {
            session.scrape(&[self.first.info_hash]).ok().and_then(|all| *all.first()?)
        } else {
            None
        };
        match left.map(|it| it.leechers + it.seeders) {
            Some(still @ 1..) => {
                warning(format!("{still} peers are still counted after they stopped"))
            }
            _ if told_of > 0 => warning(format!("stopping peers still receive {told_of} peers")),
            Some(_) => ok("the swarm is empty"),
            None => ok("accepted"),
        }
    }
}

/// Checks whether connections are kept for the next announce.
fn keep_alive(session: &Session) -> Finding {
    let Protocol::Http(http) = &session.0 else { return skipped("UDP has no connections") };
    let reuse = http.reuse;
    if reuse.broken > 0 {
        warning("the tracker closed a connection without announcing it")
    } else if reuse.reused == 0 {
        warning("every response closes its connection, so each announce needs a new one")
    } else {
        ok(format!("{} responses on one connection", reuse.reused + 1))
    }
}

pub(super) fn interval(announced: &AnnounceResponse) -> Finding {
    let Some(interval) = announced.interval_s else { return failed("missing") };
    match announced.min_interval_s {
        _ if interval == 0 => failed("0 s: clients announce without a pause"),
        Some(min) if min > interval => {
            warning(format!("{interval} s is less than the minimum interval, {min} s"))
        }
        _ if interval < *SANE_INTERVALS_S.start() => {
            warning(format!("{interval} s: clients announce too often"))
        }
        _ if interval > *SANE_INTERVALS_S.end() => {
            warning(format!("{interval} s: peer lists become stale"))
        }
        Some(min) => ok(format!("{interval} s, minimum {min} s")),
        None => ok(format!("{interval} s")),
    }
}

pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
