//! Load for HTTP trackers: on each connection one announce is under way at any time.
//!
//! A connection is kept, or serves for a single announce, as most clients' do; over TLS the latter is
//! a load of handshakes. Peers and torrents are drawn anew for each announce.

mod response;
#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Poll, Token};

use crate::random::Random;
use crate::stream::{Dialer, Stream};
use crate::{Latencies, Url, Usage};
use response::Response;

/// The load.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to announce.
    pub url: Url,
    /// How many connections there are at a time.
    pub connections: usize,
    /// Whether each is closed behind its answer, and another one opened.
    pub close: bool,
    /// Whether sessions of TLS go on where an earlier one ended.
    pub resume: bool,
    /// How many torrents there are; at least 1.
    pub torrents: usize,
    /// How many peers are asked for.
    pub peers: u16,
    /// How long it goes on before anything is counted.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// Runs with the same seed have the same torrents and names.
    pub seed: u64,
    /// The tracker's process, if it is on this machine: to tell what it uses.
    pub pid: Option<u32>,
}

impl Options {
    /// 64 connections that are kept.
    pub fn of(url: Url) -> Self {
        Self {
            url,
            connections: 64,
            close: false,
            resume: false,
            torrents: 1000,
            peers: 50,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            seed: 1,
            pid: None,
        }
    }
}

/// What a run has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Seconds that all below is about.
    pub seconds: f64,
    /// Announces that were answered.
    pub answers: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// Connections that ended before their answer.
    pub lost: u64,
    /// Bytes of the answers.
    pub bytes: u64,
    /// How long the answers took; the connection's opening is part of it.
    pub latencies: Latencies,
    /// What the load itself has used, where the system tells.
    pub own: Option<Usage>,
    /// What the tracker has used, if its process is known.
    pub tracker: Option<Usage>,
    /// The first refusal, or the first reason for which a connection ended.
    pub complaint: Option<String>,
}

/// The longest wait for anything, so that nothing is late by more.
const TICK: Duration = Duration::from_millis(50);
/// How long nothing may be answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes read at once. An answer has a few thousand.
const BUFFER: usize = 64 * 1024;

/// Puts the tracker under the load and tells what came of it.
pub fn run(options: &Options) -> Result<Report> {
    let mut load = Load::new(options)?;
    load.run_for(options.warm_up)?;
    load.found = Found::default();
    let usage = || options.pid.map(Usage::of).transpose();
    let (start, own, tracker) = (Instant::now(), Usage::of(std::process::id()).ok(), usage()?);
    load.run_for(options.duration)?;
    let seconds = start.elapsed().as_secs_f64();
    let since = |before: Option<Usage>, now: Option<Usage>| Some(now?.since(&before?));
    let Found { answers, refused, lost, bytes, latencies, complaint } = load.found;
    Ok(Report {
        seconds,
        answers,
        refused,
        lost,
        bytes,
        latencies,
        own: since(own, Usage::of(std::process::id()).ok()),
        tracker: since(tracker, usage().context("the tracker is gone")?),
        complaint,
    })
}

/// What has come so far.
#[derive(Default)]
struct Found {
    answers: u64,
    refused: u64,
    lost: u64,
    bytes: u64,
    latencies: Latencies,
    complaint: Option<String>,
}

/// All connections of a run.
struct Load<'a> {
    options: &'a Options,
    dialer: Dialer,
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    buffer: Box<[u8]>,
    torrents: Vec<[u8; 20]>,
    random: Random,
    found: Found,
    /// When something was last answered.
    heard: Instant,
}

/// A connection, and the request on it.
struct Connection {
    stream: Stream,
    request: String,
    /// How much of it was taken.
    sent: usize,
    response: Response,
    since: Instant,
}

impl<'a> Load<'a> {
    fn new(options: &'a Options) -> Result<Self> {
        let mut random = Random::new(options.seed);
        let torrents = (0..options.torrents.max(1)).map(|_| random.bytes()).collect();
        let mut load = Self {
            options,
            dialer: Dialer::new(&options.url, options.resume)?,
            poll: Poll::new().context("cannot wait for sockets")?,
            events: Events::with_capacity(1024),
            connections: Vec::new(),
            buffer: vec![0; BUFFER].into(),
            torrents,
            random,
            found: Found::default(),
            heard: Instant::now(),
        };
        for number in 0..options.connections {
            let connection = load.connect(number)?;
            load.connections.push(connection);
        }
        Ok(load)
    }

    /// Goes on for so long.
    fn run_for(&mut self, duration: Duration) -> Result<()> {
        let end = Instant::now() + duration;
        self.heard = Instant::now();
        while Instant::now() < end {
            let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).context("cannot wait for sockets");
                }
                _ => {}
            }
            for event in &events {
                let Token(number) = event.token();
                self.go_on(number)?;
            }
            self.events = events;
            if self.heard.elapsed() > PATIENCE {
                let why = self.found.complaint.as_deref().unwrap_or("nothing was answered");
                bail!("no answer from {} for {PATIENCE:?}: {why}", self.options.url);
            }
        }
        Ok(())
    }

    /// A connection on its way, with a request that leaves as soon as it stands.
    fn connect(&mut self, number: usize) -> Result<Connection> {
        let stream = self.dialer.dial(&self.poll, number)?;
        let (request, response) = (self.request(), Response::default());
        Ok(Connection { stream, request, sent: 0, response, since: Instant::now() })
    }

    /// Does what can be done on a connection.
    fn go_on(&mut self, number: usize) -> Result<()> {
        let Some(connection) = self.connections.get_mut(number) else { return Ok(()) };
        match connection.talk(&mut self.buffer) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.count(number);
                if self.options.close {
                    self.replace(number)
                } else {
                    let request = self.request();
                    let Some(connection) = self.connections.get_mut(number) else { return Ok(()) };
                    (connection.request, connection.sent) = (request, 0);
                    (connection.response, connection.since) = (Response::default(), Instant::now());
                    // Nothing can have come yet.
                    connection.say().or_else(|_| self.replace(number))
                }
            }
            Err(error) => {
                self.found.lost += 1;
                self.found.complaint.get_or_insert_with(|| error.to_string());
                self.replace(number)
            }
        }
    }

    fn replace(&mut self, number: usize) -> Result<()> {
        let connection = self.connect(number)?;
        if let Some(place) = self.connections.get_mut(number) {
            *place = connection;
        }
        Ok(())
    }

    /// Counts a whole answer.
    fn count(&mut self, number: usize) {
        let Some(connection) = self.connections.get(number) else { return };
        let Found { answers, refused, bytes, latencies, complaint, .. } = &mut self.found;
        self.heard = Instant::now();
        *answers += 1;
        *bytes += connection.response.len() as u64;
        latencies.record(connection.since.elapsed());
        if let Some(reason) = connection.response.refusal() {
            *refused += 1;
            complaint.get_or_insert(reason);
        }
    }

    /// The announce of a leecher that nobody has seen before.
    fn request(&mut self) -> String {
        let Options { url, close, peers, .. } = self.options;
        let mut text = format!("GET {}", url.target);
        text.push(if url.target.contains('?') { '&' } else { '?' });
        text.push_str("info_hash=");
        let torrent = self.random.below(self.torrents.len());
        for byte in self.torrents.get(torrent).into_iter().flatten() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02x}");
        }
        let (name, port) = (self.random.below(1 << 30), 1 + self.random.below(65_535));
        let connection = if *close { "Connection: close\r\n" } else { "" };
        let _ = write!(
            text,
            "&peer_id=-TG0001-{name:012}&port={port}&uploaded=0&downloaded=0&left=1&compact=1\
             &numwant={peers} HTTP/1.1\r\nHost: {}\r\n{connection}\r\n",
            url.host
        );
        text
    }
}

impl Connection {
    /// Sends and reads what there is: whether the answer is whole.
    fn talk(&mut self, buffer: &mut [u8]) -> Result<bool> {
        self.say()?;
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => bail!("the tracker closed the connection"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if self.response.read(buffer.get(..read).unwrap_or_default())? {
                return Ok(true);
            }
            if self.stream.is_over() {
                bail!("the tracker closed the connection");
            }
            if read < buffer.len() {
                return Ok(false);
            }
        }
    }

    fn say(&mut self) -> Result<()> {
        let left = self.request.as_bytes().get(self.sent..).unwrap_or_default();
        if !left.is_empty() || self.stream.is_pending() {
            self.sent += self.stream.write(left)?;
        }
        Ok(())
    }
}

/// One line for each figure, its name in front: people and programs read it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, answers, refused, lost, .. } = self;
        writeln!(f, "measured: {seconds:.2} s, {answers} answers, {refused} refused, {lost} lost")?;
        writeln!(f, "responses per second: {:.1}", *answers as f64 / seconds)?;
        let megabytes = self.bytes as f64 / seconds / 1e6;
        writeln!(f, "megabytes per second: {megabytes:.1} received")?;
        writeln!(f, "latency: {}", self.latencies)?;
        if let Some(own) = self.own {
            writeln!(f, "load's CPU: {:.2} % of a core", 100.0 * own.cpu_s() / seconds)?;
        }
        if let Some(tracker) = self.tracker {
            writeln!(f, "tracker's CPU: {:.2} % of a core", 100.0 * tracker.cpu_s() / seconds)?;
            let per_cpu_s = *answers as f64 / tracker.cpu_s();
            writeln!(f, "responses per tracker CPU second: {per_cpu_s:.0}")?;
        }
        match &self.complaint {
            Some(complaint) => writeln!(f, "first trouble: {complaint}"),
            None => Ok(()),
        }
    }
}
