//! What two clients do at one address of a tracker, and what is to be seen of it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use types::{Announce, Event, InfoHash, NumWant};

use super::{Findings, Options, Verdict, certificate, told, web};
use crate::session::Protocol;
use crate::udp::Udp;
use crate::{Announced, Fault, Figures, Kind, Manner, Session, Url, peer_id, random};

/// What a connect request has in place of a connection id.
const MAGIC: u64 = 0x417_2710_1980;
/// How long a wrong connection id is given to be answered.
const PROBE: Duration = Duration::from_secs(1);
/// Seconds between announces: below, a tracker makes load for itself; above, swarms are stale.
const INTERVALS_S: std::ops::RangeInclusive<u64> = 60..=7200;
/// What there is to see when a tracker can be announced to.
const REST: &[&str] =
    &["interval", "own-address", "re-announce", "introduction", "scrape", "stopped"];

/// One address.
pub(super) struct Visit<'a> {
    pub(super) url: &'a Url,
    pub(super) address: SocketAddr,
    pub(super) options: &'a Options,
    pub(super) manner: Manner,
    pub(super) found: &'a mut Findings,
    /// Whether nobody else has the torrent.
    pub(super) is_alone: bool,
    /// The first client.
    pub(super) first: Announce,
    /// The second.
    pub(super) second: Announce,
}

impl<'a> Visit<'a> {
    pub(super) fn new(
        url: &'a Url,
        address: SocketAddr,
        options: &'a Options,
        found: &'a mut Findings,
    ) -> Self {
        let info_hash = options.torrent.unwrap_or_else(|| InfoHash(random()));
        let [high, low] = random();
        // Outside of what systems give to clients, so that it is nobody's by chance.
        let port = 10_000 + u16::from_be_bytes([high, low]) % 20_000;
        let peer = |port| Announce {
            info_hash,
            peer_id: peer_id(),
            port,
            event: Event::Started,
            left: Some(1),
            uploaded: 0,
            downloaded: 0,
            want: NumWant::Peers(50),
        };
        Self {
            url,
            address,
            options,
            manner: Manner::new(options.timeout, options.tls.clone()),
            found,
            is_alone: options.torrent.is_none(),
            first: peer(port),
            second: peer(port + 1),
        }
    }

    /// Looks at everything.
    pub(super) fn run(mut self) {
        let Some(mut session) = self.connect() else { return };
        let Some(announced) = self.announce(&mut session) else { return };
        self.interval(&announced);
        let again = self.announce_again(&mut session, &announced);
        self.own_address(&session, &announced, again.as_ref());
        if let Protocol::Web(_) = session.0 {
            return web::run(&mut self, session);
        }
        let peers = self.introduce(&mut session);
        let scraped = self.scrape(&mut session, peers);
        self.stop(&mut session, scraped.is_some());
        self.keeping(&session);
    }

    fn connect(&mut self) -> Option<Session> {
        let start = Instant::now();
        let mut session = match Session::dial(self.url, self.address, &self.manner) {
            Ok(session) => session,
            Err(fault) => {
                self.found.fault("connect", &fault);
                return None;
            }
        };
        let greeted = session.greet();
        let took = milliseconds(start.elapsed());
        let sent = if let Protocol::Udp(udp) = &session.0 { udp.sent } else { 1 };
        match (&greeted, sent) {
            (Err(fault), _) => self.found.fault("connect", fault),
            (Ok(()), 1) => self.found.say("connect", Verdict::Ok, format!("in {took}")),
            (Ok(()), sent) => {
                let text = format!("in {took}, after {sent} datagrams: some were lost");
                self.found.say("connect", Verdict::Warning, text);
            }
        }
        // The certificate is worth a look whatever comes behind it.
        let tls = match &session.0 {
            Protocol::Udp(_) => None,
            Protocol::Http(http) => http.tls(),
            Protocol::Web(web) => web.tls(),
        };
        if let Some(tls) = tls {
            certificate::judge(self.url, tls, self.options, self.found);
        }
        greeted.ok()?;
        if let Protocol::Udp(udp) = &mut session.0 {
            // It has one, so that nothing is asked again.
            let id = udp.connect().ok()?;
            self.connection_id(id);
        }
        Some(session)
    }

    /// An id that anybody could guess lets anybody announce for others, or have answers sent to them.
    fn connection_id(&mut self, id: u64) {
        let name = "connection-id";
        if id == MAGIC {
            let text = "it is the protocol's magic number: whoever forges an address is served";
            return self.found.say(name, Verdict::Failed, text);
        }
        if !self.options.thorough {
            return self.found.say(name, Verdict::Ok, "given");
        }
        let probe = Udp::open(self.url, self.address, &self.manner).and_then(|mut udp| {
            udp.wait(PROBE.min(self.options.timeout));
            udp.pretend(u64::from_ne_bytes(random()));
            udp.scrape(&[self.first.info_hash])
        });
        let (verdict, text) = match probe {
            Ok(_) => (
                Verdict::Failed,
                "a wrong one serves as well: whoever forges an address is served".into(),
            ),
            Err(Fault { kind: Kind::Silent, .. }) => {
                (Verdict::Ok, "given; a wrong one is met with silence".into())
            }
            Err(Fault { kind: Kind::Refused, text }) => {
                (Verdict::Ok, format!("given; a wrong one is refused: {text}"))
            }
            Err(fault) => (Verdict::Warning, format!("given; of a wrong one: {fault}")),
        };
        self.found.say(name, verdict, text);
    }

    fn announce(&mut self, session: &mut Session) -> Option<Announced> {
        let start = Instant::now();
        match session.announce(&self.first) {
            Ok(announced) => {
                let took = milliseconds(start.elapsed());
                let (verdict, text) = match (&announced.departure, announced.leechers) {
                    (Some(departure), _) => (Verdict::Warning, format!("{departure}; in {took}")),
                    (None, None) => {
                        let text =
                            format!("it does not say how many leechers there are; in {took}");
                        (Verdict::Warning, text)
                    }
                    (None, Some(leechers)) => {
                        let seeders = announced.seeders.unwrap_or(0);
                        (Verdict::Ok, format!("in {took}: {seeders} seeders, {leechers} leechers"))
                    }
                };
                self.found.say("announce", verdict, text);
                Some(announced)
            }
            Err(fault) if fault.kind == Kind::Refused && self.is_alone => {
                // It lives, and may well serve its own torrents only.
                let text = format!("{}; --torrent names one that it serves", told(&fault));
                self.found.say("announce", Verdict::Warning, text);
                self.found.skip(REST, "announces are refused");
                None
            }
            Err(fault) => {
                self.found.fault("announce", &fault);
                self.found.skip(REST, "there was no answer to the announce");
                None
            }
        }
    }

    fn interval(&mut self, announced: &Announced) {
        let (verdict, text) = interval(announced);
        self.found.say("interval", verdict, text);
    }

    fn announce_again(&mut self, session: &mut Session, before: &Announced) -> Option<Announced> {
        let start = Instant::now();
        match session.announce(&Announce { event: Event::None, ..self.first }) {
            Ok(announced) => {
                let took = milliseconds(start.elapsed());
                let (verdict, text) = match (before.leechers, announced.leechers) {
                    (Some(had), Some(has)) if has > had && self.is_alone => (
                        Verdict::Failed,
                        format!("it counts as another peer: {has} leechers, not {had}"),
                    ),
                    _ => (Verdict::Ok, format!("in {took}")),
                };
                self.found.say("re-announce", verdict, text);
                Some(announced)
            }
            // It comes sooner than the tracker has asked for.
            Err(fault) if fault.kind == Kind::Refused => {
                self.found.say("re-announce", Verdict::Warning, told(&fault));
                None
            }
            Err(fault) => {
                self.found.fault("re-announce", &fault);
                None
            }
        }
    }

    /// Nobody connects to themselves.
    fn own_address(&mut self, session: &Session, first: &Announced, again: Option<&Announced>) {
        let name = "own-address";
        if let Protocol::Web(_) = session.0 {
            let text = "WebTorrent's answers have no addresses";
            return self.found.say(name, Verdict::NotApplicable, text);
        }
        let known = [session.local().map(|it| it.ip()), first.external_ip];
        // Of a torrent that nobody else has, whatever has our port is us, be it behind a NAT.
        let is_own = |peer: &&SocketAddr| {
            peer.port() == self.first.port && (self.is_alone || known.contains(&Some(peer.ip())))
        };
        let all = [Some(first), again].into_iter().flatten();
        match all.flat_map(|it| &it.peers).find(is_own) {
            Some(own) => {
                let text = format!("we are told of ourselves: {own}");
                self.found.say(name, Verdict::Warning, text);
            }
            None => self.found.say(name, Verdict::Ok, "we are not told of ourselves"),
        }
    }

    /// What a tracker is for: whether the second client is told of the first one. Gives how many
    /// clients have announced.
    fn introduce(&mut self, session: &mut Session) -> u64 {
        let name = "introduction";
        if !self.is_alone {
            self.found.skip(&[name], "others have this torrent, too");
            return 1;
        }
        match session.announce(&self.second) {
            Ok(announced) => {
                let first = announced.peers.iter().find(|it| it.port() == self.first.port);
                match first {
                    Some(first) => {
                        let text = format!("a second client is told of the first: {first}");
                        self.found.say(name, Verdict::Ok, text);
                    }
                    None => {
                        let peers = announced.peers.len();
                        let text =
                            format!("a second client is not told of the first: {peers} peers");
                        self.found.say(name, Verdict::Failed, text);
                    }
                }
                2
            }
            Err(fault) => {
                self.found.fault(name, &fault);
                1
            }
        }
    }

    /// Gives the figures, if there are any.
    pub(super) fn scrape(&mut self, session: &mut Session, peers: u64) -> Option<Figures> {
        let (name, start) = ("scrape", Instant::now());
        match session.scrape(&[self.first.info_hash]).map(|all| all.first().copied().flatten()) {
            Ok(Some(figures)) => {
                let Figures { seeders, leechers, .. } = figures;
                let took = milliseconds(start.elapsed());
                let text = format!("in {took}: {seeders} seeders, {leechers} leechers");
                if self.is_alone && (seeders, leechers) != (0, peers) {
                    let text = format!("{text}, but {peers} leechers have announced");
                    self.found.say(name, Verdict::Warning, text);
                } else {
                    self.found.say(name, Verdict::Ok, text);
                }
                Some(figures)
            }
            Ok(None) => {
                self.found.say(name, Verdict::Warning, "the torrent is left out");
                None
            }
            // Not all trackers scrape.
            Err(fault) if fault.kind == Kind::Refused => {
                self.found.say(name, Verdict::Warning, told(&fault));
                None
            }
            Err(fault) => {
                self.found.fault(name, &fault);
                None
            }
        }
    }

    /// Both clients leave.
    fn stop(&mut self, session: &mut Session, scrapes: bool) {
        let stopped =
            |peer: &Announce| Announce { event: Event::Stopped, want: NumWant::Peers(0), ..*peer };
        let mut told_of = 0;
        let leaving: &[Announce] = if self.is_alone {
            &[stopped(&self.first), stopped(&self.second)]
        } else {
            &[stopped(&self.first)]
        };
        for leaving in leaving {
            match session.announce(leaving) {
                Ok(announced) => told_of += announced.peers.len(),
                Err(fault) => return self.found.fault("stopped", &fault),
            }
        }
        let left = if scrapes && self.is_alone {
            session.scrape(&[self.first.info_hash]).ok().and_then(|all| *all.first()?)
        } else {
            None
        };
        self.gone(left, told_of);
    }

    /// What is left of clients that have gone.
    pub(super) fn gone(&mut self, left: Option<Figures>, told_of: usize) {
        let still = left.map_or(0, |it| it.leechers + it.seeders);
        let (verdict, text) = if still > 0 {
            (Verdict::Warning, format!("{still} peers are counted that have gone"))
        } else if told_of > 0 {
            (Verdict::Warning, format!("who leaves is told of {told_of} peers"))
        } else if left.is_some() {
            (Verdict::Ok, "nobody is left".into())
        } else {
            (Verdict::Ok, "answered".into())
        };
        self.found.say("stopped", verdict, text);
    }

    /// Whether connections are kept for the next announce.
    fn keeping(&mut self, session: &Session) {
        let name = "keep-alive";
        let Protocol::Http(http) = &session.0 else {
            return self.found.skip(&[name], "UDP has no connections");
        };
        let keeping = http.keeping;
        let (verdict, text) = if keeping.broken > 0 {
            let text = "a connection was closed that the last answer had left open";
            (Verdict::Warning, text.into())
        } else if keeping.reused == 0 {
            let text = "each answer ends its connection: every announce costs another one";
            (Verdict::Warning, text.into())
        } else {
            (Verdict::Ok, format!("{} answers on one connection", keeping.reused + 1))
        };
        self.found.say(name, verdict, text);
    }
}

/// Whether clients will come as often as they should.
pub(super) fn interval(announced: &Announced) -> (Verdict, String) {
    let Some(interval) = announced.interval_s else {
        return (Verdict::Failed, "there is none".into());
    };
    match announced.min_interval_s {
        _ if interval == 0 => (Verdict::Failed, "0 s: clients announce without end".into()),
        Some(min) if min > interval => {
            (Verdict::Warning, format!("{interval} s is below the min interval, {min} s"))
        }
        _ if interval < *INTERVALS_S.start() => {
            (Verdict::Warning, format!("{interval} s: clients announce all the time"))
        }
        _ if interval > *INTERVALS_S.end() => {
            (Verdict::Warning, format!("{interval} s: what peers are told is stale"))
        }
        Some(min) => (Verdict::Ok, format!("{interval} s, {min} s at least")),
        None => (Verdict::Ok, format!("{interval} s")),
    }
}

pub(super) fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}
