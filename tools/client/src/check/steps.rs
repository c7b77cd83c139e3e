//! The steps that two clients take at one address of a tracker.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use types::{Announce, Event};
use wire::udp::MAGIC;

use super::address_check::{AddressCheck, milliseconds};
use super::{Verdict, certificate, describe, webtorrent};
use crate::session::Protocol;
use crate::udp::Udp;
use crate::{AnnounceResponse, FailureKind, Session, SessionConfig, TrackerError, counted, random};

/// Timeout of a request with a wrong connection id.
const BAD_ID_TIMEOUT: Duration = Duration::from_secs(1);
/// Sane announce intervals in seconds. Shorter ones overload the tracker, longer ones make swarms
/// stale.
const SANE_INTERVALS_S: std::ops::RangeInclusive<u64> = 60..=7200;
/// The items that require a successful announce.
const AFTER_ANNOUNCE: &[&str] =
    &["interval", "own-address", "re-announce", "introduction", "scrape", "stopped"];

impl AddressCheck<'_> {
    /// Runs all steps.
    pub(super) fn run(mut self) {
        let Some(mut session) = self.connect() else { return };
        let Some(announced) = self.announce(&mut session) else { return };
        self.interval(&announced);
        let again = self.announce_again(&mut session, &announced);
        self.check_own_address(&session, &announced, again.as_ref());
        if let Protocol::WebTorrent(_) = session.0 {
            return webtorrent::run(&mut self, session);
        }
        let peers = self.check_introduction(&mut session);
        let scraped = self.scrape(&mut session, peers);
        self.stop(&mut session, scraped.is_some());
        self.keep_alive(&session);
    }

    fn connect(&mut self) -> Option<Session> {
        let start = Instant::now();
        let mut session = match Session::connect_transport(self.url, self.address, &self.config) {
            Ok(session) => session,
            Err(error) => {
                self.findings.fail("connect", &error);
                return None;
            }
        };
        let ready = session.handshake();
        let took = milliseconds(start.elapsed());
        let sent = if let Protocol::Udp(udp) = &session.0 { udp.sent } else { 1 };
        match (&ready, sent) {
            (Err(error), _) => self.findings.fail("connect", error),
            (Ok(()), 1) => self.findings.add("connect", Verdict::Ok, format!("in {took}")),
            (Ok(()), sent) => {
                let text = format!("in {took}, after {sent} datagrams: packets are being lost");
                self.findings.add("connect", Verdict::Warning, text);
            }
        }
        // Check the certificate even if the handshake of the protocol above failed.
        let tls = match &session.0 {
            Protocol::Udp(_) => None,
            Protocol::Http(http) => http.tls(),
            Protocol::WebTorrent(web) => web.tls(),
        };
        if let Some(tls) = tls {
            certificate::check_tls(self.url, tls, self.options, self.findings);
        }
        ready.ok()?;
        if let Protocol::Udp(udp) = &mut session.0 {
            // The handshake got one, so this sends nothing.
            let id = udp.connect().ok()?;
            self.connection_id(id);
        }
        Some(session)
    }

    /// Checks the connection id. A guessable one lets attackers announce with forged source
    /// addresses, or direct responses at victims.
    fn connection_id(&mut self, id: u64) {
        let name = "connection-id";
        if id == MAGIC {
            let text = "it is the protocol's constant, so requests with forged source addresses are served";
            return self.findings.add(name, Verdict::Failed, text);
        }
        if !self.options.thorough {
            return self.findings.add(name, Verdict::Ok, "received");
        }
        let timeout = BAD_ID_TIMEOUT.min(self.options.timeout);
        let config = SessionConfig { timeout, ..self.config.clone() };
        let probe = Udp::open(self.url, self.address, &config).and_then(|mut udp| {
            udp.set_connection_id(u64::from_ne_bytes(random()));
            udp.scrape(&[self.first.info_hash])
        });
        let (verdict, text) = match probe {
            Ok(_) => (
                Verdict::Failed,
                "wrong ids are accepted, so requests with forged source addresses are served"
                    .into(),
            ),
            Err(TrackerError { kind: FailureKind::Timeout, .. }) => {
                (Verdict::Ok, "received; wrong ids are ignored".into())
            }
            Err(TrackerError { kind: FailureKind::Refused, text }) => {
                (Verdict::Ok, format!("received; wrong ids are refused: {text}"))
            }
            Err(error) => (Verdict::Warning, format!("received; with a wrong one: {error}")),
        };
        self.findings.add(name, verdict, text);
    }

    fn announce(&mut self, session: &mut Session) -> Option<AnnounceResponse> {
        let start = Instant::now();
        match session.announce(&self.first) {
            Ok(announced) => {
                let took = milliseconds(start.elapsed());
                let (verdict, text) = match (&announced.violation, announced.leechers) {
                    (Some(violation), _) => (Verdict::Warning, format!("{violation}; in {took}")),
                    (None, None) => {
                        let text = format!("no leecher count; in {took}");
                        (Verdict::Warning, text)
                    }
                    (None, Some(leechers)) => {
                        let seeders = announced.seeders.unwrap_or(0);
                        let seeders = counted(Some(seeders), "seeder");
                        let leechers = counted(Some(leechers), "leecher");
                        (Verdict::Ok, format!("in {took}: {seeders}, {leechers}"))
                    }
                };
                self.findings.add("announce", verdict, text);
                Some(announced)
            }
            Err(error) if error.kind == FailureKind::Refused && self.own_torrent => {
                // The tracker works; it may serve only registered torrents.
                let text =
                    format!("{}; use --torrent to name one that it serves", describe(&error));
                self.findings.add("announce", Verdict::Warning, text);
                self.findings.skip(AFTER_ANNOUNCE, "announces are refused");
                None
            }
            Err(error) => {
                self.findings.fail("announce", &error);
                self.findings.skip(AFTER_ANNOUNCE, "the announce failed");
                None
            }
        }
    }

    fn interval(&mut self, announced: &AnnounceResponse) {
        let (verdict, text) = interval(announced);
        self.findings.add("interval", verdict, text);
    }

    fn announce_again(
        &mut self,
        session: &mut Session,
        before: &AnnounceResponse,
    ) -> Option<AnnounceResponse> {
        let start = Instant::now();
        match session.announce(&Announce { event: Event::None, ..self.first }) {
            Ok(announced) => {
                let took = milliseconds(start.elapsed());
                let (verdict, text) = match (before.leechers, announced.leechers) {
                    (Some(had), Some(has)) if has > had && self.own_torrent => (
                        Verdict::Failed,
                        format!(
                            "the re-announce counts as another peer: {has} leechers instead of {had}"
                        ),
                    ),
                    _ => (Verdict::Ok, format!("in {took}")),
                };
                self.findings.add("re-announce", verdict, text);
                Some(announced)
            }
            // This announce comes before the interval has passed, so refusing it is legitimate.
            Err(error) if error.kind == FailureKind::Refused => {
                self.findings.add("re-announce", Verdict::Warning, describe(&error));
                None
            }
            Err(error) => {
                self.findings.fail("re-announce", &error);
                None
            }
        }
    }

    /// Checks whether a client receives its own address, to which it cannot usefully connect.
    fn check_own_address(
        &mut self,
        session: &Session,
        first: &AnnounceResponse,
        again: Option<&AnnounceResponse>,
    ) {
        let name = "own-address";
        if let Protocol::WebTorrent(_) = session.0 {
            let text = "WebTorrent responses contain no addresses";
            return self.findings.add(name, Verdict::NotApplicable, text);
        }
        let known = [session.local_addr().map(|it| it.ip()), first.external_ip];
        // In a made-up torrent every peer with this port is this client, even behind a NAT.
        let is_own = |peer: &&SocketAddr| {
            peer.port() == self.first.port && (self.own_torrent || known.contains(&Some(peer.ip())))
        };
        let all = [Some(first), again].into_iter().flatten();
        match all.flat_map(|it| &it.peers).find(is_own) {
            Some(own) => {
                let text = format!("the response contains the client's own address, {own}");
                self.findings.add(name, Verdict::Warning, text);
            }
            None => self.findings.add(name, Verdict::Ok, "the client's own address is left out"),
        }
    }

    /// Checks whether the second client receives the first one's address, which is the tracker's
    /// purpose. Returns how many clients have announced.
    fn check_introduction(&mut self, session: &mut Session) -> u64 {
        let name = "introduction";
        if !self.own_torrent {
            self.findings.skip(&[name], "other clients share this torrent");
            return 1;
        }
        match session.announce(&self.second) {
            Ok(announced) => {
                let first = announced.peers.iter().find(|it| it.port() == self.first.port);
                match first {
                    Some(first) => {
                        let text =
                            format!("a second client receives the first one's address, {first}");
                        self.findings.add(name, Verdict::Ok, text);
                    }
                    None => {
                        let peers = announced.peers.len();
                        let text = format!(
                            "a second client does not receive the first one's address, only {peers} others"
                        );
                        self.findings.add(name, Verdict::Failed, text);
                    }
                }
                2
            }
            Err(error) => {
                self.findings.fail(name, &error);
                1
            }
        }
    }

    /// Both clients announce `stopped`, the second only if it has announced.
    fn stop(&mut self, session: &mut Session, scrapes: bool) {
        let mut leaving = vec![self.first];
        if self.own_torrent {
            leaving.push(self.second);
        }
        let mut told_of = 0;
        for client in &leaving {
            let Some(peers) = self.leave(session, client) else { return };
            told_of += peers;
        }
        self.check_gone(session, scrapes, told_of);
    }

    /// Checks whether connections are kept for the next announce.
    fn keep_alive(&mut self, session: &Session) {
        let name = "keep-alive";
        let Protocol::Http(http) = &session.0 else {
            return self.findings.skip(&[name], "UDP has no connections");
        };
        let reuse = http.reuse;
        let (verdict, text) = if reuse.broken > 0 {
            let text = "the tracker closed a connection without announcing it";
            (Verdict::Warning, text.into())
        } else if reuse.reused == 0 {
            let text = "every response closes its connection, so each announce needs a new one";
            (Verdict::Warning, text.into())
        } else {
            (Verdict::Ok, format!("{} responses on one connection", reuse.reused + 1))
        };
        self.findings.add(name, verdict, text);
    }
}

/// Returns the verdict on the announce interval.
pub(super) fn interval(announced: &AnnounceResponse) -> (Verdict, String) {
    let Some(interval) = announced.interval_s else {
        return (Verdict::Failed, "missing".into());
    };
    match announced.min_interval_s {
        _ if interval == 0 => (Verdict::Failed, "0 s: clients announce without a pause".into()),
        Some(min) if min > interval => {
            (Verdict::Warning, format!("{interval} s is less than the minimum interval, {min} s"))
        }
        _ if interval < *SANE_INTERVALS_S.start() => {
            (Verdict::Warning, format!("{interval} s: clients announce too often"))
        }
        _ if interval > *SANE_INTERVALS_S.end() => {
            (Verdict::Warning, format!("{interval} s: peer lists become stale"))
        }
        Some(min) => (Verdict::Ok, format!("{interval} s, minimum {min} s")),
        None => (Verdict::Ok, format!("{interval} s")),
    }
}
