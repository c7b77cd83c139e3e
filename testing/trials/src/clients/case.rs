//! All cases, and how one runs inside its namespace.

use super::acme::Certificates;
use super::network::Family::{V4, V6};
use super::pair::Pair;
use super::pair::Protocol::{Http, Https, Udp, Ws, Wss};
use super::peer::Client::{Aria2, Chromium, Desktop, Libtorrent, Transmission, WebTorrent};
use super::{haproxy, network, prometheus, script};
use anyhow::{Result, anyhow};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A test with a tracker and clients: its name, and what happens in a network of its own. It gets a folder.
pub(super) type Case = (&'static str, fn(&Path) -> Result<()>);

/// All cases, the longest first. The first of two clients seeds. Transmission 3 does not connect to peers over IPv6
/// inside a namespace, with any tracker; libtorrent covers IPv6.
#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    ("acme-renewal", |at| Certificates::set_up(at)?.renewal()),
    ("acme-tls-alpn", |at| Certificates::set_up(at)?.tls_alpn()),
    ("transmission-http", |at| Pair([Transmission; 2], Http, V4).transfer(at)),
    ("transmission-udp", |at| Pair([Transmission; 2], Udp, V4).transfer(at)),
    ("transmission-https", |at| Pair([Transmission; 2], Https, V4).transfer(at)),
    ("aria2-http", |at| Pair([Aria2; 2], Http, V4).transfer(at)),
    ("aria2-udp", |at| Pair([Aria2; 2], Udp, V4).transfer(at)),
    ("libtorrent-http", |at| Pair([Libtorrent; 2], Http, V4).transfer(at)),
    ("libtorrent-udp", |at| Pair([Libtorrent; 2], Udp, V4).transfer(at)),
    ("libtorrent-http6", |at| Pair([Libtorrent; 2], Http, V6).transfer(at)),
    ("libtorrent-udp6", |at| Pair([Libtorrent; 2], Udp, V6).transfer(at)),
    ("aria2-https", |at| Pair([Aria2; 2], Https, V4).transfer(at)),
    ("libtorrent-https", |at| Pair([Libtorrent; 2], Https, V4).transfer(at)),
    ("libtorrent-https6", |at| Pair([Libtorrent; 2], Https, V6).transfer(at)),
    ("transmission-https-distrusted", |at| Pair([Transmission; 2], Https, V4).distrust(at)),
    ("aria2-https-distrusted", |at| Pair([Aria2; 2], Https, V4).distrust(at)),
    ("libtorrent-https-distrusted", |at| Pair([Libtorrent; 2], Https, V4).distrust(at)),
    ("aria2-http-proxy1", |at| Pair([Aria2; 2], Http, V4).transfer_behind(haproxy::V1, at)),
    ("libtorrent-http-proxy2", |at| Pair([Libtorrent; 2], Http, V4).transfer_behind(haproxy::V2, at)),
    ("libtorrent-http6-proxy1", |at| Pair([Libtorrent; 2], Http, V6).transfer_behind(haproxy::V1, at)),
    ("libtorrent-http-denied", |at| Pair([Libtorrent; 2], Http, V4).refusal(at)),
    ("libtorrent-udp-denied", |at| Pair([Libtorrent; 2], Udp, V4).refusal(at)),
    ("transmission-http-private", |at| Pair([Transmission; 2], Http, V4).private(at)),
    ("aria2-http-private", |at| Pair([Aria2; 2], Http, V4).private(at)),
    ("libtorrent-http-private", |at| Pair([Libtorrent; 2], Http, V4).private(at)),
    ("libtorrent-udp-private", |at| Pair([Libtorrent; 2], Udp, V4).private(at)),
    ("libtorrent-udp6-private", |at| Pair([Libtorrent; 2], Udp, V6).private(at)),
    ("libtorrent-http-keyless", |at| Pair([Libtorrent; 2], Http, V4).keyless(at)),
    ("libtorrent-udp-keyless", |at| Pair([Libtorrent; 2], Udp, V4).keyless(at)),
    ("webtorrent-ws", |at| Pair([WebTorrent; 2], Ws, V4).transfer(at)),
    ("webtorrent-ws6", |at| Pair([WebTorrent; 2], Ws, V6).transfer(at)),
    ("webtorrent-wss", |at| Pair([WebTorrent; 2], Wss, V4).transfer(at)),
    ("webtorrent-wss-distrusted", |at| Pair([WebTorrent; 2], Wss, V4).distrust(at)),
    ("desktop-ws", |at| Pair([Desktop; 2], Ws, V4).transfer(at)),
    ("desktop-ws6", |at| Pair([Desktop; 2], Ws, V6).transfer(at)),
    ("desktop-wss", |at| Pair([Desktop; 2], Wss, V4).transfer(at)),
    ("desktop-wss-distrusted", |at| Pair([Desktop; 2], Wss, V4).distrust(at)),
    ("desktop-chromium-ws", |at| Pair([Desktop, Chromium], Ws, V4).transfer(at)),
    ("chromium-desktop-ws", |at| Pair([Chromium, Desktop], Ws, V4).transfer(at)),
    ("desktop-webtorrent-wss", |at| Pair([Desktop, WebTorrent], Wss, V4).transfer(at)),
    ("desktop-ws-private", |at| Pair([Desktop; 2], Ws, V4).private(at)),
    ("chromium-ws", |at| Pair([Chromium; 2], Ws, V4).transfer(at)),
    ("webtorrent-chromium-ws", |at| Pair([WebTorrent, Chromium], Ws, V4).transfer(at)),
    ("webtorrent-ws-denied", |at| Pair([WebTorrent; 2], Ws, V4).refusal(at)),
    ("webtorrent-ws-private", |at| Pair([WebTorrent; 2], Ws, V4).private(at)),
    ("chromium-ws-private", |at| Pair([Chromium, WebTorrent], Ws, V4).private(at)),
    ("webtorrent-ws-keyless", |at| Pair([WebTorrent; 2], Ws, V4).keyless(at)),
    ("acme-http", |at| Certificates::set_up(at)?.http()),
    ("acme-refused", |at| Certificates::set_up(at)?.refused()),
    ("announces-ws", |at| script::play("announces.mjs", at)),
    ("swarm-udp-http-ws", |at| script::play("swarm.mjs", at)),
    ("dashboard", script::play_dashboard),
    ("prometheus", prometheus::play),
];

/// Longer than all waits of a case together. After it the process exits, and its namespaces end.
const CASE_MAX: Duration = Duration::from_secs(480);
/// Lines of each log that are shown when a case fails.
const LOG_LINES: usize = 20;

/// Runs a case. Everything that it starts ends with this process.
pub(super) fn run((name, play): &Case, folder: &Path) -> Result<()> {
    thread::spawn(|| {
        thread::sleep(CASE_MAX);
        eprintln!("timed out after {CASE_MAX:?}");
        std::process::exit(1);
    });
    let started = Instant::now();
    network::set_up()
        .and_then(|()| play(folder))
        .map_err(|error| anyhow!("{error:#}\n{}", logs(folder)))?;
    println!("{name}: ok, {:.1} s", started.elapsed().as_secs_f32());
    Ok(())
}

/// Returns the last lines of every log, without repeated lines.
fn logs(folder: &Path) -> String {
    let mut text = String::new();
    for name in ["tracker", "haproxy", "seeder", "leecher", "script", "pebble", "dns", "prometheus"]
    {
        let Ok(log) = fs::read(folder.join(name).with_extension("log")) else { continue };
        let log = String::from_utf8_lossy(&log).replace('\r', "\n");
        let mut lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.dedup();
        text += &format!("-- {name}, last lines:\n");
        for line in lines.iter().skip(lines.len().saturating_sub(LOG_LINES)) {
            text += &format!("   {line}\n");
        }
    }
    text
}
